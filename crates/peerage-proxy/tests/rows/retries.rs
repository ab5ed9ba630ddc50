//! The table of retries in `docs/gateway.md`, row by row: what is sent to another server once a server may have seen it,
//! and what never is. What has not reached a server is in `health` (`row_03_…`), what a server turned away unseen in
//! `peerage-http`'s tests of its upstreams.

use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use peerage_http::{Body, body};

use super::support::world::request_with_body;
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

/// What the first server does with a request that it has read.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Closes the connection.
    Closes,
    /// Answers this, whole.
    Answers(&'static str),
    /// Answers a part.
    BreaksOff,
    /// Nothing.
    Nothing,
}

/// What becomes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gets {
    /// The second server's answer.
    Second,
    /// This status, and the second server is not asked.
    Status(u16),
    /// The beginning of an answer.
    Abort,
}

/// A server that does something, and one that is second choice because it says that it is not ready.
async fn first_and_second(does: Does) -> (World, RawPeer, FakePeer) {
    let pki = Pki::new();
    let first = RawPeer::start(&pki, move |_, mut wire| async move {
        match does {
            Does::Closes => wire.close().await,
            Does::BreaksOff => {
                wire.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
                    .await;
                wire.close().await;
            }
            Does::Answers(line) => {
                wire.write(&format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n"))
                    .await;
                return Some(wire);
            }
            Does::Nothing => std::future::pending().await,
        }
        None
    })
    .await;
    let second = FakePeer::start(&pki, "apiserver-c", &documents::core(), &documents::new()).await;
    second.set_ready(StatusCode::SERVICE_UNAVAILABLE);
    let mut builder = WorldBuilder {
        records: vec![
            live("apiserver-b", first.address),
            live("apiserver-c", second.address),
        ],
        ..WorldBuilder::default()
    };
    // No answer that comes is late, however busy the machine is.
    builder.options.forward.first_byte = match does {
        Does::Nothing => Duration::from_millis(500),
        _ => Duration::from_secs(60),
    };
    let world = builder.start(pki);
    world.until_state("apiserver-b", "serving").await;
    world
        .until("the second is not ready", |debug| {
            let red = |p: &peerage_proxy::debug::DebugPeer| !p.ready && p.state == "serving";
            debug.peers.iter().any(|p| p.id == "apiserver-c" && red(p))
        })
        .await;
    (world, first, second)
}

async fn outcome(world: &World, second: &FakePeer, method: &Method, body: Body) -> Gets {
    let before = second.requests().len();
    let response = world
        .call(request_with_body(method.as_str(), WIDGETS, body))
        .await;
    let status = response.status().as_u16();
    let whole = response.into_body().collect().await;
    match (second.requests().len() - before, whole) {
        (1, Ok(_)) => Gets::Second,
        (0, Ok(_)) => Gets::Status(status),
        (0, Err(_)) => Gets::Abort,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_what_is_safe_is_asked_again_and_only_before_an_answer_began() {
    // A server that declines says that it has not begun: it is stopping, and knows no better for others.
    let declines = "503 Service Unavailable\r\nRetry-After: 1";
    let as_it_is = |line, status| {
        let same = Gets::Status(status);
        (Does::Answers(line), same, same, same)
    };
    let rows = [
        (Does::Closes, Gets::Second, Gets::Second, Gets::Status(503)),
        (Does::BreaksOff, Gets::Abort, Gets::Abort, Gets::Abort),
        (
            Does::Nothing,
            Gets::Status(504),
            Gets::Status(504),
            Gets::Status(504),
        ),
        as_it_is("429 Too Many Requests\r\nRetry-After: 1", 429),
        as_it_is("500 Internal Server Error\r\nRetry-After: 1", 500),
        as_it_is("502 Bad Gateway", 502),
        as_it_is("503 Service Unavailable", 503),
        (
            Does::Answers(declines),
            Gets::Second,
            Gets::Status(503),
            Gets::Status(503),
        ),
        as_it_is("504 Gateway Timeout", 504),
    ];
    for (does, safe, with_body, unsafe_) in rows {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            // A server that fails twice is no longer asked first.
            let (world, _first, second) = first_and_second(does).await;
            let got = outcome(&world, &second, &method, body::full("{}")).await;
            assert_eq!(got, unsafe_, "{does:?} {method}");
        }
        let (world, _first, second) = first_and_second(does).await;
        let got = outcome(&world, &second, &Method::GET, body::full("{}")).await;
        assert_eq!(got, with_body, "{does:?} GET with a body");
        let (world, _first, second) = first_and_second(does).await;
        let got = outcome(&world, &second, &Method::GET, body::empty()).await;
        assert_eq!(got, safe, "{does:?} GET");
    }
}

/// What `exec` runs has run, although the request is a GET.
#[tokio::test]
async fn a_session_is_not_begun_a_second_time_but_where_the_first_server_did_nothing() {
    let declines = Does::Answers("503 Service Unavailable\r\nRetry-After: 1");
    for (query, does, asked) in [
        ("", Does::Closes, 0),
        ("", declines, 1),
        ("?watch=true", Does::Closes, 1),
    ] {
        let (world, _first, second) = first_and_second(does).await;
        let front = Front::start(&world).await;
        let mut client = front.connect().await;
        client
            .write(&format!("GET {WIDGETS}{query} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"))
            .await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        assert_eq!(second.requests().len(), asked, "{query} {does:?}");
    }
}
