//! Which of several servers is asked first.

use std::sync::Arc;
use std::time::Duration;

use peerage_core::Rules;
use peerage_core::view::*;

use crate::common::{inputs, local, peer};
use crate::{NEW, OLD, ask, ask_by};

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
