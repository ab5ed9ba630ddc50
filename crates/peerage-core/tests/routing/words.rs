//! How a route is put into words.

use peerage_core::route::{Explanation, ForwardReason, LocalReason, UnknownReason, UnsureReason};
use peerage_core::view::*;
use peerage_core::{RequestInfo, Rules, route};

use crate::common::{gone, inputs, local, peer};
use crate::{NEW, OLD};

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

#[test]
fn who_is_away_is_named_to_who_asks_why() {
    let silent = Peer {
        documents: None,
        state: PeerState::Starting,
        ..peer("c", "")
    };
    let away = inputs(
        local(OLD),
        vec![gone(peer("b", NEW), 9_000), peer("d", OLD)],
    );
    let unheard = inputs(local(OLD), vec![silent, peer("d", OLD)]);
    for (inputs, reason, says, id) in [
        (
            away,
            "peer_gone",
            "may come back; it is about b at 192.0.2.9:6443",
            "b",
        ),
        (
            unheard,
            "peer_not_heard",
            "what it serves; it is about c at 192.0.2.9:6443",
            "c",
        ),
    ] {
        let view = PeerView::build(inputs);
        let explanation = Explanation::of("GET", "/apis/new/v1/things", &view).unwrap();
        assert_eq!(explanation.reason, reason);
        let sentence = &explanation.explanation;
        assert!(sentence.ends_with(says), "{sentence}");
        let ids: Vec<&str> = explanation.awaited.iter().map(|it| &*it.id).collect();
        assert_eq!(ids, [id]);
    }
}
