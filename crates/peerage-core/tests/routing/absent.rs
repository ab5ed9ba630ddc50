//! What is said of what is not there: not known yet, gone, stale, and only then unknown.

use peerage_core::view::*;

use crate::common::{gone, inputs, local, peer};
use crate::{NEW, OLD, SENT_ON, ask, ask_by};

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
