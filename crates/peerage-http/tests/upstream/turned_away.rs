//! Servers that close connections all the time, or do not let requests onto them, and what that costs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use peerage_http::{Upstream, UpstreamOptions, body, full};
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, upstream};
use crate::frames::{
    Answers, DATA, END_HEADERS, END_STREAM, HEADERS, OK, RESET, Received, SETTINGS, post,
    raw_http2, raw_http2_with,
};

static NONE_ALLOWED: [u8; 6] = allows(0);

/// `SETTINGS_MAX_CONCURRENT_STREAMS` of so many.
const fn allows(streams: u8) -> [u8; 6] {
    [0, 3, 0, 0, 0, streams]
}

/// Answers the first request of each connection and turns everything else away.
fn one_each(frame: &Received, answers: &mut Answers) {
    if frame.kind == HEADERS && frame.stream == 1 {
        answers.go_away(1);
        answers.push(HEADERS, END_HEADERS | END_STREAM, 1, OK);
    }
}

#[tokio::test]
async fn a_request_that_is_turned_away_again_and_again_gets_a_connection_to_itself() {
    let ca = Ca::new("ca");
    for max_connections in [128, 4] {
        let address = raw_http2(ca.server_tls(), one_each).await;
        let mut options = UpstreamOptions::new(address.to_string(), ca.client_tls());
        options.max_connections = max_connections;
        let upstream = Upstream::new(options);
        let sent = (0..40).map(|_| upstream.send(post(full("a"))));
        let told = timeout(LONG, futures::future::join_all(sent))
            .await
            .unwrap();
        let failed: Vec<_> = told.into_iter().filter_map(Result::err).collect();
        assert!(
            failed.is_empty(),
            "{} of 40 failed: {:?}",
            failed.len(),
            failed[0]
        );
    }
}

#[tokio::test]
async fn requests_that_may_be_turned_away_do_not_share_a_connection_until_they_are_answered() {
    let ca = Ca::new("ca");
    // How many requests of each connection were begun and not answered yet.
    let begun = Arc::new(Mutex::new([0; 5]));
    let server = raw_http2_with(ca.server_tls(), &[], {
        let begun = begun.clone();
        move |frame, answers| match frame.kind {
            HEADERS => begun.lock().unwrap()[frame.connection] += 1,
            DATA => {
                let begun = std::mem::take(&mut begun.lock().unwrap()[frame.connection]);
                if begun == 1 {
                    answers.push(HEADERS, END_HEADERS, frame.stream, OK);
                } else {
                    answers.push(RESET, 0, frame.stream, &2_u32.to_be_bytes());
                }
            }
            _ => {}
        }
    })
    .await;
    let mut options = UpstreamOptions::new(server.address.to_string(), ca.client_tls());
    options.alone_until_answered = true;
    options.max_connections = 5;
    let upstream = Upstream::new(options);
    let watches = (0..60).map(|_| upstream.send(post(full("a"))));
    let watches = timeout(LONG, futures::future::try_join_all(watches))
        .await
        .unwrap()
        .unwrap();
    let stats = upstream.stats();
    assert_eq!(stats.streams, 60, "{stats:?}");
    drop(watches);
}

#[tokio::test]
async fn connections_that_a_server_is_closing_are_limited_too_and_the_oldest_ends() {
    let ca = Ca::new("ca");
    // Answers that do not end, on connections that take nothing more.
    let server = raw_http2_with(ca.server_tls(), &[], |frame, answers| {
        if frame.kind == HEADERS {
            answers.go_away(frame.stream);
            answers.push(HEADERS, END_HEADERS, frame.stream, OK);
            answers.push(DATA, 0, frame.stream, b"event");
        }
    })
    .await;
    let mut options = UpstreamOptions::new(server.address.to_string(), ca.client_tls());
    options.max_connections = 4;
    let upstream = Upstream::new(options);
    let mut watches = Vec::new();
    for _ in 0..30 {
        let watch = timeout(LONG, upstream.send(get("/watch"))).await.unwrap();
        watches.push(watch.unwrap().into_body());
        let stats = upstream.stats();
        assert!(stats.closing <= 4 && stats.connections <= 4, "{stats:?}");
        // The server hears of it later than we do.
        let few = async {
            while server.connected.load(Ordering::Relaxed) > 4 + 4 + 1 {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, few).await.unwrap();
    }
    for watch in &mut watches {
        let event = timeout(LONG, watch.frame()).await.unwrap();
        assert!(event.is_some());
    }
    let cut = watches.iter_mut().take(30 - 8);
    for watch in cut {
        let end = timeout(LONG, watch.frame()).await.unwrap();
        assert!(end.unwrap().is_err(), "it breaks off");
    }
    let youngest = watches.last_mut().unwrap();
    let waits = timeout(Duration::from_millis(100), youngest.frame()).await;
    assert!(waits.is_err(), "it goes on");
    drop(watches);
    let gone = async {
        while upstream.stats().closing + upstream.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, gone).await.unwrap();
}

/// A request that is handed to a connection in the moment in which another has that one end is told so, and goes over a
/// new one. The moment is short: a thousand connections meet it about every other time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_waits_on_a_connection_that_ended_while_it_came() {
    let ca = Ca::new("ca");
    let address = raw_http2(ca.server_tls(), |frame, answers| {
        if frame.kind == HEADERS && frame.stream <= 3 {
            answers.push(HEADERS, END_HEADERS | END_STREAM, frame.stream, OK);
            if frame.stream == 3 {
                answers.go_away(3);
            }
        }
    })
    .await;
    let upstream = upstream(address, ca.client_tls());
    let clients = (0..8).map(|_| {
        let upstream = upstream.clone();
        tokio::spawn(async move {
            for _ in 0..250 {
                let told = timeout(LONG, upstream.send(get("/"))).await;
                told.expect("it waits in vain").unwrap();
            }
        })
    });
    for told in futures::future::join_all(clients).await {
        told.unwrap();
    }
}

/// A DELETE often has no body. hyper says GOAWAY also of a request whose head it has sent already: what it has sent must not
/// be whole by then, or nobody knows whether the server has acted on it.
#[tokio::test]
async fn a_write_without_a_body_ends_after_its_head_and_is_sent_again_when_it_is_turned_away() {
    let ca = Ca::new("ca");
    let whole_heads = Arc::new(AtomicUsize::new(0));
    let address = raw_http2(ca.server_tls(), {
        let whole_heads = whole_heads.clone();
        move |frame, answers| match frame.kind {
            HEADERS if frame.connection < 3 => answers.go_away(0),
            HEADERS if frame.ends_stream() => {
                whole_heads.fetch_add(1, Ordering::Relaxed);
                answers.push(HEADERS, END_HEADERS | END_STREAM, frame.stream, OK);
            }
            DATA if frame.connection >= 3 && frame.ends_stream() => {
                answers.push(HEADERS, END_HEADERS | END_STREAM, frame.stream, OK);
            }
            _ => {}
        }
    })
    .await;
    let upstream = upstream(address, ca.client_tls());
    for (request, whole) in [(post(body::empty()), 0), (get("/"), 1)] {
        let told = timeout(LONG, upstream.send(request)).await;
        assert_eq!(told.unwrap().unwrap().status(), 200);
        assert_eq!(whole_heads.load(Ordering::Relaxed), whole);
    }
}

/// hyper says of a request that waits for its turn on a connection which ends that its user is to blame.
#[tokio::test]
async fn who_waits_on_a_connection_that_ends_is_not_told_that_its_body_broke_off() {
    let ca = Ca::new("ca");
    let address = raw_http2(ca.server_tls(), |frame, answers| match frame.kind {
        HEADERS if frame.connection == 0 => {
            answers.push(SETTINGS, 0, 0, &allows(1));
            answers.push(HEADERS, END_HEADERS, frame.stream, OK);
        }
        HEADERS => answers.push(HEADERS, END_HEADERS | END_STREAM, frame.stream, OK),
        DATA if frame.connection == 0 => answers.go_away(frame.stream),
        _ => {}
    })
    .await;
    let upstream = upstream(address, ca.client_tls());
    let (mut first, endless) = body::channel(1);
    let watch = upstream.send(post(endless)).await.unwrap();
    let second = upstream.clone();
    let second = tokio::spawn(async move { second.send(post(full("a"))).await });
    while upstream.stats().streams < 2 && upstream.stats().connections < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    first.send_data(Bytes::from("over")).await.unwrap();
    let told = timeout(LONG, second).await.unwrap().unwrap();
    if let Err(error) = told {
        assert!(!error.is_senders_fault(), "{error:?}");
        assert!(!error.is_silence(), "{error:?}");
    }
    drop(watch);
}

#[tokio::test]
async fn a_server_that_allows_no_requests_costs_one_connection_and_no_wait() {
    let ca = Ca::new("ca");
    let server = raw_http2_with(ca.server_tls(), &NONE_ALLOWED, |_, _| {}).await;
    let upstream = upstream(server.address, ca.client_tls());
    let error = timeout(LONG, upstream.send(get("/"))).await.unwrap();
    let error = error.unwrap_err();
    assert!(!error.sent(), "{error:?}");
    let accepted = server.accepted.load(Ordering::Relaxed);
    assert!(accepted <= 2, "{accepted} connections for one request");
    let many = (0..50).map(|_| upstream.send(get("/")));
    let many = futures::future::join_all(many).await;
    assert!(many.iter().all(Result::is_err));
    let accepted = server.accepted.load(Ordering::Relaxed);
    assert!(accepted <= 6, "{accepted} connections for fifty at once");
}

/// `:status: 103`, not to be remembered.
const EARLY_HINTS: &[u8] = &[0x08, 3, b'1', b'0', b'3'];

#[tokio::test]
async fn interim_answers_without_end_are_given_up_over_http2_too() {
    let ca = Ca::new("ca");
    for (interim, reason) in [(64, None), (100_000, Some("bad_answer"))] {
        let address = raw_http2(ca.server_tls(), move |frame, answers| {
            if frame.kind == HEADERS {
                for _ in 0..interim {
                    answers.push(HEADERS, END_HEADERS, frame.stream, EARLY_HINTS);
                }
                if reason.is_none() {
                    answers.push(HEADERS, END_HEADERS | END_STREAM, frame.stream, OK);
                }
            }
        })
        .await;
        let mut options = UpstreamOptions::new(address.to_string(), ca.client_tls());
        options.first_byte_timeout = Duration::from_secs(5);
        let upstream = Upstream::new(options);
        for _ in 0..3 {
            let told = timeout(LONG, upstream.send(get("/"))).await.unwrap();
            let told = told.as_ref().err().map(|error| error.reason());
            assert_eq!(told, reason, "after {interim}");
        }
    }
}
