//! Who answers a request, as tables: requests against small worlds of servers.

#![allow(clippy::unwrap_used)]

mod common;

use common::{exclusions, gone, inputs, local, peer};
use peerage_core::route::{ForwardReason, LocalReason, UnknownReason, UnsureReason};
use peerage_core::view::*;
use peerage_core::{RequestInfo, Route, Rules, route};
use std::sync::Arc;
use std::time::Duration;

/// The route in short: `local:served`, `peer:group to b,c`, `unknown:group`, `unsure:peer_gone`.
fn short(route: &Route<'_>) -> String {
    let mut text = format!("{}:{}", route.answer(), route.reason());
    if let Route::Forward { candidates, .. } = route {
        let ids: Vec<&str> = candidates.iter().map(|peer| &*peer.id).collect();
        text.push_str(&format!(" to {}", ids.join(",")));
    }
    text
}

fn ask(view: &PeerView, request: &str) -> String {
    ask_by(view, request, &Rules::default())
}

fn ask_by(view: &PeerView, request: &str, rules: &Rules) -> String {
    let (method, target) = request.split_once(' ').unwrap();
    let info = RequestInfo::parse(method, target).unwrap();
    short(&route(&info, view, rules))
}

/// As from a peer that proved who it is.
const SENT_ON: Rules = Rules {
    from_verified_peer: true,
    ticket: 0,
    retry_after: 1,
};

const OLD: &str =
    "v1: pods[get,list] pods/log; apps/v1: deployments[get,list] deployments/status[get]";
const NEW: &str = "v1: pods[get,list,patch] pods/log pods/resize[patch]; v2: pods; \
    apps/v1: deployments[get,list,watch] deployments/status[get,update] deployments/scale; apps/v2: deployments; \
    new/v1: things[get,list,create] things/status[update]";

#[test]
fn requests_go_to_whoever_lists_group_version_resource_subresource_and_verb() {
    let view = PeerView::build(inputs(local(OLD), vec![peer("b", NEW)]));
    for (request, first_hop, second_hop) in [
        (
            "GET /api/v1/namespaces/x/pods/p",
            "local:served",
            "local:served",
        ),
        ("GET /api/v1/pods", "local:served", "local:served"),
        (
            "GET /api/v1/namespaces/x/pods/p/log",
            "local:served",
            "local:served",
        ),
        // Lacks the verb, the subresource, the verb of a subresource, the version, the group.
        (
            "PATCH /api/v1/namespaces/x/pods/p",
            "peer:verb to b",
            "unsure:already_sent",
        ),
        (
            "GET /apis/apps/v1/deployments?watch=1",
            "peer:verb to b",
            "unsure:already_sent",
        ),
        (
            "PATCH /api/v1/namespaces/x/pods/p/resize",
            "peer:subresource to b",
            "unsure:already_sent",
        ),
        (
            "GET /apis/apps/v1/namespaces/x/deployments/d/scale",
            "peer:subresource to b",
            "unsure:already_sent",
        ),
        (
            "PUT /apis/apps/v1/namespaces/x/deployments/d/status",
            "peer:verb to b",
            "unsure:already_sent",
        ),
        (
            "GET /api/v2/namespaces/x/pods/p",
            "peer:version to b",
            "unsure:already_sent",
        ),
        (
            "GET /apis/apps/v2/namespaces/x/deployments/p",
            "peer:version to b",
            "unsure:already_sent",
        ),
        (
            "POST /apis/new/v1/namespaces/x/things",
            "peer:group to b",
            "unsure:already_sent",
        ),
        (
            "PUT /apis/new/v1/things/t/status",
            "peer:group to b",
            "unsure:already_sent",
        ),
        // Nobody has the verb or subresource: a server that knows the resource finds the words.
        (
            "DELETE /api/v1/namespaces/x/pods/p",
            "local:nobody_has_more",
            "local:nobody_has_more",
        ),
        (
            "GET /api/v1/namespaces/x/pods/p/nosuch",
            "local:nobody_has_more",
            "local:nobody_has_more",
        ),
        (
            "DELETE /apis/new/v1/things/t",
            "peer:group to b",
            "unsure:already_sent",
        ),
        (
            "GET /apis/new/v1/things/t/nosuch",
            "peer:group to b",
            "unsure:already_sent",
        ),
        // A method that has no verb is the business of whoever has the resource.
        (
            "OPTIONS /api/v1/namespaces/x/pods/p",
            "local:served",
            "local:served",
        ),
        (
            "OPTIONS /apis/new/v1/things/t",
            "peer:group to b",
            "unsure:already_sent",
        ),
        // Nobody has it.
        ("GET /api/v1/things", "unknown:resource", "unknown:resource"),
        (
            "GET /apis/new/v1/others",
            "unknown:resource",
            "unknown:resource",
        ),
        (
            "GET /apis/apps/v3/deployments",
            "unknown:version",
            "unknown:version",
        ),
        (
            "GET /apis/nosuch/v1/things",
            "unknown:group",
            "unknown:group",
        ),
        // No resource at all.
        ("GET /healthz", "local:non_resource", "local:non_resource"),
        (
            "GET /apis/new/v1",
            "local:non_resource",
            "local:non_resource",
        ),
    ] {
        assert_eq!(ask(&view, request), first_hop, "{request}");
        assert_eq!(
            ask_by(&view, request, &SENT_ON),
            second_hop,
            "{request}, sent on"
        );
    }
}

#[test]
fn what_is_not_known_is_never_called_unknown() {
    let nothing_heard = Peer {
        documents: None,
        state: PeerState::Starting,
        ..peer("b", "")
    };
    let starting = inputs(local(OLD), vec![]);
    let starting = PeerView::build(ViewInputs {
        synced: false,
        ..starting
    });
    let joined = PeerView::build(inputs(local(OLD), vec![nothing_heard.clone()]));
    let never = PeerView::build(inputs(local(OLD), vec![gone(nothing_heard.clone(), 9_000)]));
    let forgotten = inputs(local(OLD), vec![gone(nothing_heard, 9_000)]);
    let forgotten = PeerView::build(ViewInputs {
        now: Millis(69_000),
        ..forgotten
    });
    let own_unknown = inputs(LocalApis::default(), vec![peer("b", NEW)]);
    let own_unknown = PeerView::build(own_unknown);
    for (view, request, expected) in [
        (&starting, "GET /apis/new/v1/things", "unsure:not_synced"),
        (&starting, "GET /api/v1/pods", "local:served"),
        (
            &starting,
            "PATCH /api/v1/namespaces/x/pods/p",
            "unsure:not_synced",
        ),
        (&starting, "GET /version", "local:non_resource"),
        (&joined, "GET /apis/new/v1/things", "unsure:peer_not_heard"),
        (
            &joined,
            "PATCH /api/v1/namespaces/x/pods/p",
            "unsure:peer_not_heard",
        ),
        (&never, "GET /apis/new/v1/things", "unsure:peer_not_heard"),
        (&forgotten, "GET /apis/new/v1/things", "unknown:group"),
        (&own_unknown, "GET /apis/new/v1/things", "peer:group to b"),
        (
            &own_unknown,
            "GET /apis/nosuch/v1/things",
            "unsure:not_synced",
        ),
    ] {
        assert_eq!(ask(view, request), expected, "{request}");
    }
    assert_eq!(
        ask_by(&starting, "GET /apis/new/v1/things", &SENT_ON),
        "unsure:not_synced"
    );
    assert!(!starting.synced() && joined.synced() && !joined.absence_is_certain());
}

#[test]
fn a_peer_that_is_gone_is_no_candidate_and_is_remembered_for_the_hold_time() {
    let request = "GET /apis/new/v1/namespaces/x/things/t";
    let other_verb = "DELETE /apis/new/v1/namespaces/x/things/t";
    for (now, since, expected, other) in [
        (10_000, None, "peer:group to b", "peer:group to b"),
        (10_000, Some(10_000), "unsure:peer_gone", "unsure:peer_gone"),
        (69_999, Some(10_000), "unsure:peer_gone", "unsure:peer_gone"),
        (70_000, Some(10_000), "unknown:group", "unknown:group"),
        // A clock that steps back ends no hold time.
        (1_000, Some(10_000), "unsure:peer_gone", "unsure:peer_gone"),
    ] {
        let b = peer("b", NEW);
        let b = since.map_or(b.clone(), |since| gone(b, since));
        let given = inputs(local(OLD), vec![b]);
        let view = PeerView::build(ViewInputs {
            now: Millis(now),
            ..given
        });
        assert_eq!(ask(&view, request), expected, "at {now}");
        assert_eq!(ask(&view, other_verb), other, "at {now}");
        let due = (expected == "unsure:peer_gone").then_some(Millis(70_000));
        assert_eq!(view.next_change(), due, "at {now}");
    }
    let restarted = Peer {
        state: PeerState::Starting,
        ..peer("b", NEW)
    };
    let view = PeerView::build(inputs(local(OLD), vec![restarted]));
    assert_eq!(ask(&view, request), "unsure:peer_gone", "not back yet");
    let view = PeerView::build(inputs(
        local(OLD),
        vec![gone(peer("b", NEW), 9_000), peer("c", NEW)],
    ));
    assert_eq!(ask(&view, request), "peer:group to c");
    let view = PeerView::build(inputs(local(OLD), vec![gone(peer("b", NEW), 9_000)]));
    for (request, expected) in [
        ("GET /api/v1/pods", "local:served"),
        ("PATCH /api/v1/namespaces/x/pods/p", "unsure:peer_gone"),
        (
            "PATCH /api/v1/namespaces/x/pods/p/resize",
            "unsure:peer_gone",
        ),
        (
            "DELETE /api/v1/namespaces/x/pods/p",
            "local:nobody_has_more",
        ),
        ("GET /apis/new/v1/others", "unknown:resource"),
    ] {
        assert_eq!(ask(&view, request), expected, "{request}");
    }
}

#[test]
fn stale_versions_are_not_callable_and_not_unknown() {
    for (here, there, request, expected) in [
        (
            "v1: a",
            "g/v1!",
            "GET /apis/g/v1/things/o",
            "unsure:stale_elsewhere",
        ),
        (
            "v1: a",
            "g/v1!: things",
            "GET /apis/g/v1/things/o",
            "unsure:stale_elsewhere",
        ),
        (
            "v1: a",
            "g/v1!: things",
            "GET /apis/g/v1/others/o",
            "unknown:resource",
        ),
        (
            "g/v1!",
            "v1: a",
            "GET /apis/g/v1/things/o",
            "local:stale_here",
        ),
        (
            "g/v1!: things",
            "v1: a",
            "GET /apis/g/v1/things/o",
            "local:stale_here",
        ),
        (
            "g/v1!",
            "g/v1: things",
            "GET /apis/g/v1/things/o",
            "peer:freshness to b",
        ),
        (
            "g/v1!",
            "g/v1: things",
            "GET /apis/g/v1/others/o",
            "local:stale_here",
        ),
        (
            "g/v1: things",
            "g/v1!",
            "GET /apis/g/v1/others/o",
            "unknown:resource",
        ),
    ] {
        let view = PeerView::build(inputs(local(here), vec![peer("b", there)]));
        assert_eq!(ask(&view, request), expected, "{here} | {there}: {request}");
    }
    let peers = vec![peer("b", "g/v1!"), peer("c", "g/v1: things")];
    let view = PeerView::build(inputs(local("v1: a"), peers));
    assert_eq!(ask(&view, "GET /apis/g/v1/things/o"), "peer:group to c");
    assert_eq!(ask(&view, "GET /apis/g/v1/others/o"), "unknown:resource");
}

/// Upstream: `TestFilterPeerDiscoveryCache`, `TestFilterPeerCacheEntry`, `TestFilterGroupDiscovery` and
/// `TestGetExclusionSet` of `pkg/util/peerproxy/gv_exclusion_manager_test.go`, whose exclusions are whole versions.
#[test]
fn what_the_store_defines_is_not_asked_of_peers() {
    let there = "g/v1: a b; g/v2: a; h/v1: c";
    for (upstream, excluded, request, expected) in [
        (
            "empty exclusion no changes",
            "",
            "GET /apis/g/v1/a/o",
            "peer:group to b",
        ),
        (
            "empty exclusion set returns entry unchanged",
            "",
            "GET /apis/h/v1/c/o",
            "peer:group to b",
        ),
        (
            "filter active GVs",
            "g/v1",
            "GET /apis/g/v1/a/o",
            "local:defined_by_store",
        ),
        (
            "filter GVRs and groups",
            "g/v1 g/v2",
            "GET /apis/g/v2/a/o",
            "local:defined_by_store",
        ),
        (
            "no changes when exclusion doesn't match",
            "x/v1",
            "GET /apis/g/v1/a/o",
            "peer:group to b",
        ),
        (
            "partial version exclusion",
            "g/v1",
            "GET /apis/g/v2/a/o",
            "peer:group to b",
        ),
        (
            "all versions excluded",
            "g/v1 g/v2",
            "GET /apis/h/v1/c/o",
            "peer:group to b",
        ),
        // Differs: by resource, so that what is built in beside a custom resource stays.
        ("", "g/v1/a", "GET /apis/g/v1/a/o", "local:defined_by_store"),
        ("", "g/v1/a", "GET /apis/g/v1/b/o", "peer:group to b"),
        ("", "g/v1/a", "GET /apis/g/v2/a/o", "peer:group to b"),
        // A definition of which no server has heard but the store.
        (
            "",
            "new/v1/x",
            "GET /apis/new/v1/x",
            "local:defined_by_store",
        ),
    ] {
        let given = inputs(local("v1: pods"), vec![peer("b", there)]);
        let view = PeerView::build(ViewInputs {
            exclusions: exclusions(excluded),
            ..given
        });
        assert_eq!(
            ask(&view, request),
            expected,
            "{upstream} {excluded}: {request}"
        );
    }
}

#[test]
fn an_exclusion_ends_when_the_store_says_so() {
    let given = inputs(local("v1: pods"), vec![peer("b", "g/v1: a")]);
    let with = ViewInputs {
        exclusions: exclusions("g/v1/a"),
        ..given.clone()
    };
    let before = PeerView::build(with);
    assert_eq!(ask(&before, "GET /apis/g/v1/a/o"), "local:defined_by_store");
    let after = PeerView::rebuild(&before, given);
    assert_eq!(ask(&after, "GET /apis/g/v1/a/o"), "peer:group to b");
}

#[test]
fn a_peer_that_reaches_an_aggregated_api_stands_in_for_one_that_does_not() {
    let given = inputs(local("g/v1!"), vec![peer("b", "g/v1: a")]);
    let view = PeerView::build(ViewInputs {
        exclusions: exclusions("g/v1"),
        ..given
    });
    assert_eq!(ask(&view, "GET /apis/g/v1/a/o"), "peer:freshness to b");
    assert_eq!(ask(&view, "GET /apis/g/v1/x/o"), "local:stale_here");
}

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

#[test]
fn the_healthiest_and_nearest_peer_comes_first() {
    let make = |id: &str, state, readiness, millis: u64| Peer {
        state,
        readiness,
        latency: (millis > 0).then(|| Duration::from_millis(millis)),
        ..peer(id, "g/v1: a")
    };
    use PeerState::{Failing, Live};
    use Readiness::{NotReady, Ready, Unknown};
    let peers = vec![
        make("failing", Failing, Ready, 1),
        make("not-ready", Live, NotReady, 1),
        make("unknown", Live, Unknown, 1),
        make("far", Live, Ready, 300),
        make("near", Live, Ready, 3),
        make("unmeasured", Live, Ready, 0),
    ];
    let view = PeerView::build(inputs(local("v1: a"), peers));
    let expected = "peer:group to near,far,unmeasured,unknown,not-ready,failing";
    for ticket in 0..50 {
        let rules = Rules {
            ticket,
            ..Rules::default()
        };
        assert_eq!(ask_by(&view, "GET /apis/g/v1/a/o", &rules), expected);
    }
}

#[test]
fn equally_good_peers_share_the_load_and_a_ticket_always_means_the_same() {
    let at = |id: &str, millis| Peer {
        latency: Some(Duration::from_millis(millis)),
        ..peer(id, "g/v1: a")
    };
    let view = PeerView::build(inputs(local(""), vec![at("b", 4), at("c", 5), at("d", 7)]));
    let mut first = std::collections::BTreeMap::new();
    for ticket in 0..3_000 {
        let rules = Rules {
            ticket,
            ..Rules::default()
        };
        let answer = ask_by(&view, "GET /apis/g/v1/a/o", &rules);
        assert_eq!(ask_by(&view, "GET /apis/g/v1/a/o", &rules), answer);
        *first.entry(answer[14..15].to_owned()).or_insert(0) += 1;
    }
    assert_eq!(first.len(), 3, "{first:?}");
    assert!(
        first.values().all(|count| (850..1150).contains(count)),
        "{first:?}"
    );
}

#[test]
fn a_front_sends_everything_on_and_says_what_the_server_beside_it_lacks() {
    let front = LocalApis {
        documents: Some(Arc::default()),
        is_front: true,
        ..LocalApis::default()
    };
    let view = PeerView::build(inputs(front, vec![peer("b", OLD), peer("c", NEW)]));
    assert_eq!(ask(&view, "POST /apis/new/v1/things"), "peer:behind to c");
    assert_eq!(ask(&view, "GET /apis/nosuch/v1/things"), "unknown:group");
    assert!(ask(&view, "GET /api/v1/pods").starts_with("peer:behind to "));

    let beside = LocalApis {
        is_front: true,
        ..local(OLD)
    };
    let down = peer("d", "down/v1!");
    let view = PeerView::build(inputs(beside.clone(), vec![peer("b", OLD), down]));
    assert_eq!(
        ask(&view, "GET /apis/down/v1/things"),
        "peer:group to d",
        "it knows whether this client may hear that it is down"
    );
    let view = PeerView::build(inputs(beside, vec![peer("b", OLD), peer("c", NEW)]));
    assert_eq!(ask(&view, "POST /apis/new/v1/things"), "peer:group to c");
    assert!(ask(&view, "GET /api/v1/pods").starts_with("peer:behind to "));
}

#[test]
fn every_reason_has_a_word_of_its_own_and_a_sentence() {
    fn check<T: Copy + std::fmt::Display>(all: &[T], word: fn(T) -> &'static str) {
        let mut words: Vec<&str> = all.iter().map(|it| word(*it)).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all.len());
        for it in all {
            let sentence = it.to_string();
            assert!(
                sentence.len() > 15 && !sentence.ends_with('.'),
                "{sentence}"
            );
            assert!(
                word(*it)
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_')
            );
        }
    }
    check(LocalReason::ALL, LocalReason::as_str);
    check(ForwardReason::ALL, ForwardReason::as_str);
    check(UnknownReason::ALL, UnknownReason::as_str);
    check(UnsureReason::ALL, UnsureReason::as_str);
}

#[test]
fn a_route_explains_itself_in_one_line() {
    let view = PeerView::build(inputs(local(OLD), vec![peer("b", NEW), peer("c", NEW)]));
    let starting = PeerView::build(ViewInputs {
        synced: false,
        ..inputs(local(OLD), vec![])
    });
    for (view, target, expected) in [
        (
            &view,
            "/api/v1/pods",
            "answered here: this server serves it",
        ),
        (&view, "/apis/nosuch/v1/a", "404: no server has the group"),
        (
            &starting,
            "/apis/new/v1/things",
            "503, try again in 1 s: this server does not serve it and has not yet heard what all other servers serve",
        ),
    ] {
        let info = RequestInfo::parse("GET", target).unwrap();
        assert_eq!(route(&info, view, &Rules::default()).explain(), expected);
    }
    let info = RequestInfo::parse("GET", "/apis/new/v1/things").unwrap();
    let line = route(&info, &view, &Rules::default()).explain();
    assert!(
        line == "sent to b, else c: this server does not have the group"
            || line == "sent to c, else b: this server does not have the group",
        "{line}"
    );
}
