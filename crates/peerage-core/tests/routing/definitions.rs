//! What the store defines, such as custom resources, is not asked of peers.

use peerage_core::view::*;

use crate::ask;
use crate::common::{exclusions, inputs, local, peer};

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
