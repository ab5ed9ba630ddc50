//! Which of several peers answers, and what happens when one does not.

use std::time::Duration;

use http::StatusCode;
use peerage_http::body;

use super::support::world::{request, request_with_body, with};
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

async fn new_peer(pki: &Pki, id: &str) -> FakePeer {
    FakePeer::start(pki, id, &documents::core(), &documents::new()).await
}

async fn two() -> (World, FakePeer, FakePeer) {
    let pki = Pki::new();
    let (b, c) = (
        new_peer(&pki, "apiserver-b").await,
        new_peer(&pki, "apiserver-c").await,
    );
    let records = vec![
        live("apiserver-b", b.address),
        live("apiserver-c", c.address),
    ];
    let world = World::start(pki, records);
    world.until_state("apiserver-b", "serving").await;
    world.until_state("apiserver-c", "serving").await;
    (world, b, c)
}

#[tokio::test]
async fn row_03_with_one_of_two_peers_dead_every_read_is_answered() {
    let (world, b, _c) = two().await;
    b.kill();
    for _ in 0..40 {
        let answer = world.get(WIDGETS).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, "apiserver-c")
        );
    }
}

/// kubernetes/kubernetes#127858: at worst 503 before the dead peer is noticed, and then never.
#[tokio::test]
async fn row_03_a_write_goes_to_the_other_peer_when_the_dead_one_got_no_byte() {
    let (world, b, _c) = two().await;
    b.kill();
    world.until_state("apiserver-b", "unreachable").await;
    for _ in 0..20 {
        let post = request_with_body("POST", WIDGETS, body::full("{}"));
        assert_eq!(world.send(post).await.text(), "apiserver-c");
    }
}

#[tokio::test]
async fn row_03_a_write_is_not_sent_twice_once_it_may_have_been_seen() {
    let pki = Pki::new();
    let raw = RawPeer::start(&pki, |_head, wire| async move {
        wire.close().await;
        None
    })
    .await;
    let c = new_peer(&pki, "apiserver-c").await;
    c.set_ready(StatusCode::SERVICE_UNAVAILABLE);
    let world = World::start(
        pki,
        vec![
            live("apiserver-b", raw.address),
            live("apiserver-c", c.address),
        ],
    );
    world.until_state("apiserver-b", "serving").await;
    world
        .until("c is red", |d| {
            d.peers
                .iter()
                .any(|p| p.id == "apiserver-c" && !p.ready && p.state == "serving")
        })
        .await;
    let post = request_with_body("POST", WIDGETS, body::full("{}"));
    world.send(post).await.assert_retryable();
    assert!(c.requests().is_empty());
    let get = world.get(WIDGETS).await;
    assert_eq!(get.text(), "apiserver-c", "a read may be tried again");
}

/// A connection that is lost is one accident, whatever was under way on it.
#[tokio::test]
async fn one_lost_connection_does_not_take_the_server_from_those_on_others() {
    let pki = Pki::new();
    let peer = new_peer(&pki, "apiserver-b").await;
    peer.allow_streams(2);
    let (answer, answered) = tokio::sync::watch::channel(false);
    peer.on_request(move |request| {
        let mut answered = answered.clone();
        async move {
            if request.method() == http::Method::POST {
                return std::future::pending().await;
            }
            answered.wait_for(|it| *it).await.unwrap();
            text(StatusCode::OK, "slow")
        }
    });
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-b", peer.address)],
        ..WorldBuilder::default()
    };
    // The poller, which would find the server well, is not there in time.
    builder.options.poll.interval = Duration::from_secs(3600);
    let world = builder.start(pki);
    world.until_state("apiserver-b", "serving").await;
    let post = || request_with_body("POST", WIDGETS, body::full("{}"));
    let posts = async { tokio::join!(world.send(post()), world.send(post())) };
    let get = async {
        peer.requested(2).await;
        world.get(WIDGETS).await
    };
    let accident = async {
        peer.requested(3).await;
        let on = |method| {
            let mut all = peer.requests().into_iter();
            all.find(|it| it.method == method).unwrap().connection
        };
        let lost = on(http::Method::POST);
        assert_ne!(lost, on(http::Method::GET));
        peer.cut(lost);
    };
    let posts = async {
        let ((first, second), ()) = tokio::join!(posts, accident);
        first.assert_retryable();
        second.assert_retryable();
        let debug = world.proxy.debug();
        assert_eq!(
            (debug.peers[0].state, debug.peers[0].failures),
            ("serving", 1)
        );
        answer.send_replace(true);
    };
    let (answer, ()) = tokio::join!(get, posts);
    assert_eq!(answer.text(), "slow");
    assert_eq!(peer.requests().len(), 3, "nothing was asked twice");
}

/// What clients wait for says nothing of whether the server lives.
#[tokio::test]
async fn a_server_that_has_its_hands_full_is_not_taken_for_dead() {
    /// As many as there may be connections, which carry one request each here.
    const FULL: usize = 128;
    let pki = Pki::new();
    let peer = new_peer(&pki, "apiserver-b").await;
    peer.allow_streams(1);
    peer.on_request(|_| std::future::pending());
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-b", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.poll.probe_deadline = Duration::from_millis(500);
    let world = builder.start(pki);
    world.until_state("apiserver-b", "serving").await;
    let waiting = (0..FULL + 1).map(|_| world.call(request("GET", WIDGETS)));
    let waiting = futures::future::join_all(waiting);
    let polled = async {
        peer.requested(FULL).await;
        for _ in 0..3 {
            let before = peer
                .polls()
                .iter()
                .filter(|it| it.target == "/readyz")
                .count();
            peer.polled("/readyz", before + 1).await;
            let debug = world.proxy.debug();
            assert_eq!(
                (debug.peers[0].state, debug.peers[0].failures),
                ("serving", 0)
            );
        }
    };
    let polled = tokio::time::timeout(Duration::from_secs(50), polled);
    tokio::select! {
        polled = polled => polled.expect("it is asked however much others ask of it"),
        _ = waiting => panic!("nobody is answered"),
    }
}

/// A server of which even the probes have to wait, and which is there: what only it has is waited for.
#[tokio::test]
async fn a_server_that_is_slow_and_answers_pings_is_asked_on() {
    let pki = Pki::new();
    let peer = new_peer(&pki, "apiserver-b").await;
    let (answer, answered) = tokio::sync::watch::channel(false);
    peer.on_request(move |_| {
        let mut answered = answered.clone();
        async move {
            answered.wait_for(|it| *it).await.unwrap();
            text(StatusCode::OK, "slow")
        }
    });
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-b", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.poll.probe_deadline = Duration::from_secs(4);
    let world = builder.start(pki);
    world.until_state("apiserver-b", "serving").await;
    peer.leave_probes_unanswered();
    let get = || world.get(WIDGETS);
    let meanwhile = async {
        peer.requested(1).await;
        let probes = |peer: &FakePeer| {
            let polls = peer.polls().into_iter();
            polls.filter(|it| it.target == "/readyz").count()
        };
        let before = probes(&peer);
        peer.polled("/readyz", before + 3).await;
        let debug = world.proxy.debug();
        let found = &debug.peers[0];
        assert_eq!(
            (found.state, found.failures, found.ready),
            ("serving", 0, false)
        );
        answer.send_replace(true);
        get().await
    };
    let (first, second) = tokio::join!(get(), meanwhile);
    assert_eq!(
        (first.text(), second.text()),
        ("slow".into(), "slow".into())
    );
}

/// kubernetes-sigs/cluster-api#2652.
#[tokio::test]
async fn a_peer_that_is_not_ready_is_taken_only_if_nobody_else_serves_it() {
    let (world, b, c) = two().await;
    b.set_ready(StatusCode::INTERNAL_SERVER_ERROR);
    world
        .until("b is red", |d| {
            d.peers.iter().any(|p| p.id == "apiserver-b" && !p.ready)
        })
        .await;
    for _ in 0..20 {
        assert_eq!(world.get(WIDGETS).await.text(), "apiserver-c");
    }
    c.kill();
    world.until_state("apiserver-c", "unreachable").await;
    assert_eq!(world.get(WIDGETS).await.text(), "apiserver-b");
}

#[tokio::test]
async fn row_05_a_dead_peer_is_no_candidate_within_seconds_and_its_apis_answer_503_until_it_is_back()
 {
    let pki = Pki::new();
    let b = new_peer(&pki, "apiserver-b").await;
    let world = World::start(pki, vec![live("apiserver-b", b.address)]);
    world.until_state("apiserver-b", "serving").await;
    b.kill();
    world.until_state("apiserver-b", "unreachable").await;
    world.get(WIDGETS).await.assert_retryable();

    let back = new_peer(&world.pki, "apiserver-b").await;
    world.set_records(vec![live("apiserver-b", back.address)]);
    world.until_state("apiserver-b", "serving").await;
    assert_eq!(world.get(WIDGETS).await.text(), "apiserver-b");
}

/// KEP-4020, kubernetes/kubernetes#127858: a peer that does not have what it lists is not believed again until its documents change.
#[tokio::test]
async fn a_peer_that_answers_not_to_have_what_it_lists_is_passed_over() {
    let (world, b, c) = two().await;
    for peer in [&b, &c] {
        peer.on_probe(|_| async { not_found() });
    }
    b.on_request(|_| async { not_found() });
    for _ in 0..20 {
        assert_eq!(world.get(WIDGETS).await.text(), "apiserver-c");
    }
    assert!(
        b.requests().len() <= 1,
        "asked once at most: {}",
        b.requests().len()
    );
    c.on_request(|_| async { not_found() });
    world.get(WIDGETS).await.assert_retryable();
}

/// A server says the same of a subresource that a kind does not have as of a kind that it does not have.
#[tokio::test]
async fn a_subresource_that_no_kind_of_this_name_has_is_404_and_takes_nothing_away() {
    let (world, b, c) = two().await;
    let said = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#;
    for peer in [&b, &c] {
        let list = serde_json::json!({"kind": "APIResourceList", "groupVersion": "new.example.com/v1", "resources": [
            {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": ["get"]}]});
        peer.on_probe(move |_| {
            let list = list.to_string();
            async move { text(StatusCode::OK, &list) }
        });
        peer.on_request(move |request| async move {
            match request.uri().path().ends_with("/nothing") {
                true => response(StatusCode::NOT_FOUND, &[], said),
                false => text(StatusCode::OK, "served"),
            }
        });
    }
    for _ in 0..3 {
        let answer = world.get(&format!("{WIDGETS}/w/nothing")).await;
        assert_eq!((answer.status, &*answer.text()), (404, said));
    }
    assert_eq!(world.get(&format!("{WIDGETS}/w")).await.text(), "served");
}

/// What Kubernetes' path router says of a path that it does not have.
fn not_found() -> http::Response<PeerBody> {
    response(
        StatusCode::NOT_FOUND,
        &[("content-length", "19")],
        "404 page not found\n",
    )
}

/// An odd path, or what is behind an aggregated API, has the same answer as an API that is not there.
#[tokio::test]
async fn one_clients_404_takes_no_api_away_from_the_others() {
    let (world, b, c) = two().await;
    for peer in [&b, &c] {
        peer.on_probe(|request| async move {
            match request.uri().path() {
                "/apis/new.example.com/v1" => response(
                    StatusCode::OK,
                    &[],
                    r#"{"kind":"APIResourceList","groupVersion":"new.example.com/v1","resources":[{"name":"widgets","kind":"Widget","verbs":["get"]}]}"#,
                ),
                _ => text(StatusCode::FORBIDDEN, "no"),
            }
        });
        peer.on_request(|request| async move {
            match request.headers().get("x-odd") {
                Some(_) => not_found(),
                None => text(StatusCode::OK, "served"),
            }
        });
    }
    let lists = |peer: &FakePeer| {
        let polls = peer.polls();
        polls
            .iter()
            .filter(|it| it.target == "/apis/new.example.com/v1")
            .count()
    };
    let before = lists(&b) + lists(&c);
    for _ in 0..10 {
        let odd = with(request("GET", WIDGETS), "x-odd", "true");
        let answer = world.send(odd).await;
        assert_eq!(
            (answer.status, &*answer.text()),
            (404, "404 page not found\n")
        );
        assert_eq!(world.get(WIDGETS).await.text(), "served");
    }
    let asked = lists(&b) + lists(&c) - before;
    assert!(asked <= 2, "each is asked once for a while: {asked}");
}

/// A list that cannot be had says nothing.
#[tokio::test]
async fn a_404_that_cannot_be_told_apart_is_503_and_takes_nothing_away() {
    let (world, b, c) = two().await;
    for peer in [&b, &c] {
        peer.on_probe(|_| async { text(StatusCode::INTERNAL_SERVER_ERROR, "no") });
        peer.on_request(|_| async { not_found() });
    }
    world.get(WIDGETS).await.assert_retryable();
    for peer in [&b, &c] {
        peer.on_request(|_| async { text(StatusCode::OK, "served") });
    }
    assert_eq!(world.get(WIDGETS).await.text(), "served");
}

#[tokio::test]
async fn a_read_that_a_stopping_peer_declines_goes_to_another_and_a_write_does_not() {
    let (world, b, c) = two().await;
    let stopping = |_| async {
        let head = [("retry-after", "1")];
        response(
            StatusCode::SERVICE_UNAVAILABLE,
            &head,
            "apiserver is shutting down",
        )
    };
    b.on_request(stopping);
    for _ in 0..20 {
        assert_eq!(world.get(WIDGETS).await.text(), "apiserver-c");
    }
    c.on_request(stopping);
    let answer = world.get(WIDGETS).await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (503, "apiserver is shutting down"),
        "where all decline, their own words are the answer"
    );
    let before = b.requests().len() + c.requests().len();
    let post = request_with_body("POST", WIDGETS, body::full("{}"));
    assert_eq!(world.send(post).await.status, 503);
    let asked = b.requests().len() + c.requests().len() - before;
    assert_eq!(asked, 1, "nothing but a safe request is sent twice");
}

/// KEP-4020: the receiving side, between two proxies.
#[tokio::test]
async fn a_peer_that_cannot_serve_what_it_was_sent_says_so_and_the_client_sees_503() {
    let list = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"new.example.com/v1","resources":[{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get"]}]}"#;
    // What its own list says of that: it cannot be had, has the resource, has it no more.
    for (status, body, words) in [
        (
            StatusCode::FORBIDDEN,
            "no",
            "does not serve it at the moment",
        ),
        (StatusCode::OK, list, "does not serve it at the moment"),
        (StatusCode::NOT_FOUND, "", "does not serve it any more"),
    ] {
        let (world, b, c) = two().await;
        for peer in [&b, &c] {
            peer.on_probe(move |_| async move { text(status, body) });
            peer.on_request(|_| async {
                let marked = [("x-peerage-stale-view", "true")];
                response(StatusCode::SERVICE_UNAVAILABLE, &marked, "{}")
            });
        }
        let answer = world.get(WIDGETS).await;
        answer.assert_retryable();
        assert!(answer.header("x-peerage-stale-view").is_none());
        assert!(answer.text().contains(words), "{}", answer.text());
        let lacks = world.metrics().contains(r#"reason="lacks""#);
        assert_eq!(lacks, status == StatusCode::NOT_FOUND, "{status}");
    }
}

/// Whether a 404 is the client's is found out within the client's own time.
#[tokio::test]
async fn finding_out_what_an_answer_means_takes_no_longer_than_the_client_waits() {
    let pki = Pki::new();
    let peer = new_peer(&pki, "apiserver-b").await;
    let world = World::start(pki, vec![live("apiserver-b", peer.address)]);
    world.until_state("apiserver-b", "serving").await;
    let hasty = format!("{WIDGETS}?timeout=300ms");
    for body_hangs in [true, false] {
        peer.on_request(move |_| async move {
            let mut answer = not_found();
            if body_hangs {
                let never = futures::stream::pending();
                *answer.body_mut() =
                    http_body_util::BodyExt::boxed(http_body_util::StreamBody::new(never));
                answer.headers_mut().insert("content-length", 19.into());
            }
            answer
        });
        peer.on_probe(|_| std::future::pending());
        let started = std::time::Instant::now();
        assert_eq!(world.get(&hasty).await.status, 504, "{body_hangs}");
        assert!(started.elapsed() < Duration::from_secs(4), "{body_hangs}");
    }
}

/// A server whose documents cannot be had is asked again in its own rhythm, whatever clients ask it for meanwhile.
#[tokio::test]
async fn what_is_not_found_at_a_sick_server_does_not_have_it_asked_again_and_again() {
    let pki = Pki::new();
    let peer = new_peer(&pki, "apiserver-b").await;
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-b", peer.address)],
        ..WorldBuilder::default()
    };
    let rarely = Duration::from_secs(3600);
    builder.options.poll.interval = rarely;
    (builder.options.poll.retry, builder.options.poll.retry_cap) = (rarely, rarely);
    let world = builder.start(pki);
    world.until_state("apiserver-b", "serving").await;
    peer.set_apis(Document::Status(500));
    peer.on_request(|_| async { text(StatusCode::NOT_FOUND, "{}") });
    let rounds = || {
        let polls = peer.polls();
        polls.iter().filter(|it| it.target == "/readyz").count()
    };
    let before = rounds();
    // The first that come soon after a round ask for none.
    while rounds() == before {
        assert_eq!(world.get(WIDGETS).await.status, 404);
    }
    let failed = |debug: &peerage_proxy::DebugPeers| debug.peers[0].error.is_some();
    world.until("that round has failed", failed).await;
    let since = std::time::Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        assert_eq!(world.get(WIDGETS).await.status, 404);
    }
    assert_eq!(rounds(), before + 1);
    // Somebody who wants to know is another matter.
    world.proxy.refresh();
    peer.polled("/readyz", before + 2).await;
}

#[tokio::test]
async fn a_read_does_not_wait_for_a_peer_that_stops_answering_meanwhile() {
    let (world, b, c) = two().await;
    for peer in [&b, &c] {
        peer.on_request(|_| std::future::pending());
    }
    let waiting = world.send(request("GET", WIDGETS));
    let silence = async {
        loop {
            tokio::task::yield_now().await;
            if !b.requests().is_empty() || !c.requests().is_empty() {
                break;
            }
        }
        for peer in [&b, &c] {
            peer.set_api(Document::Silence);
            peer.set_apis(Document::Silence);
            peer.kill();
        }
    };
    let (answer, ()) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(15), waiting),
        silence
    );
    answer.unwrap().assert_retryable();
}
