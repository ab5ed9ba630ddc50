//! Upstream's cases.

use peerage_core::Rules;
use peerage_core::view::*;

use crate::common::{inputs, local, peer};
use crate::{SENT_ON, ask, ask_by};

/// Upstream: `TestPeerProxy` of `pkg/util/peerproxy/peerproxy_handler_test.go`, as far as it is about the decision.
#[test]
fn upstreams_cases_of_the_handler_are_decided() {
    let has = "core/v1: bar; v1: foo";
    let with_peer = || inputs(local("v1: pods"), vec![peer("b", has)]);
    let unsynced = ViewInputs {
        synced: false,
        ..with_peer()
    };
    let alone = inputs(local("v1: pods"), vec![]);
    let both = inputs(local("v1: foo"), vec![peer("b", has)]);
    for (upstream, given, rules, request, expected) in [
        (
            "allow non resource requests",
            with_peer(),
            Rules::default(),
            "GET /foo/bar/baz",
            "local:non_resource",
        ),
        // Differs: only from a verified peer, and 503 instead of 404.
        (
            "allow if already proxied once",
            with_peer(),
            SENT_ON,
            "GET /api/v1/foo/o",
            "unsure:already_sent",
        ),
        // Differs: a peer that is known to have it is used before all are heard; upstream goes local and answers 404.
        (
            "allow if unsynced informers",
            unsynced.clone(),
            Rules::default(),
            "GET /api/v1/foo/o",
            "peer:resource to b",
        ),
        (
            "allow if unsynced informers",
            unsynced,
            Rules::default(),
            "GET /api/v1/x",
            "unsure:not_synced",
        ),
        (
            "Serve locally if serviceable",
            both,
            Rules::default(),
            "GET /api/v1/foo/o",
            "local:served",
        ),
        (
            "200 if no appropriate peers found, serve locally",
            alone,
            Rules::default(),
            "GET /api/v1/foo/o",
            "unknown:resource",
        ),
    ] {
        let view = PeerView::build(given);
        assert_eq!(ask_by(&view, request, &rules), expected, "{upstream}");
    }
}

/// Upstream: `TestShouldServeLocally_Table` of `local_discovery_test.go`.
#[test]
fn upstreams_cases_of_local_serving_are_decided() {
    for (upstream, here, expected) in [
        ("resource present and true", "g/v1: a", "local:served"),
        ("not present", "g/v1: b", "unknown:resource"),
        ("empty cache", "", "unknown:group"),
    ] {
        let view = PeerView::build(inputs(local(here), vec![]));
        assert_eq!(ask(&view, "GET /apis/g/v1/a/o"), expected, "{upstream}");
    }
}

/// Upstream: `TestGetPeerResources` of `peerproxy_handler_test.go`.
#[test]
fn upstreams_cases_of_peer_lists_hold() {
    for (upstream, peers, expected) in [
        ("empty peer cache", vec![], vec![]),
        (
            "peer cache with local server, should be skipped",
            vec!["local", "b"],
            vec!["b"],
        ),
        (
            "peer cache with multiple peers",
            vec!["c", "b"],
            vec!["b", "c"],
        ),
        ("(the same record twice)", vec!["b", "b"], vec!["b"]),
    ] {
        let peers = peers.into_iter().map(|id| peer(id, "g/v1: a")).collect();
        let view = PeerView::build(inputs(local(""), peers));
        let ids: Vec<&str> = view.peers().map(|(peer, _)| &*peer.id).collect();
        assert_eq!(ids, expected, "{upstream}");
        assert_eq!(view.peer("local").map(|peer| &*peer.id), None);
    }
}
