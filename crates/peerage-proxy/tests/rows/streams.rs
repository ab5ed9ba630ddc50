//! What runs long: watches, tunnels, and waits.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;

use super::support::world::{request, request_with_body};
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";
const WATCH: &str = "/apis/new.example.com/v1/widgets?watch=true";

async fn world_with(pki: Pki, address: std::net::SocketAddr) -> World {
    impatient(pki, address, Duration::from_secs(10)).await
}

/// A world that waits only so long for the first byte.
async fn impatient(pki: Pki, address: std::net::SocketAddr, first_byte: Duration) -> World {
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-new", address)],
        ..WorldBuilder::default()
    };
    builder.options.forward.first_byte = first_byte;
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    world
}

async fn pair() -> (World, FakePeer) {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = world_with(pki, peer.address).await;
    (world, peer)
}

#[tokio::test]
async fn row_20_the_first_byte_is_waited_for_only_so_long_whatever_is_asked() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = impatient(pki, peer.address, Duration::from_millis(200)).await;
    peer.on_request(|_| std::future::pending());
    let requests = [
        request("GET", WIDGETS),
        request("GET", WATCH),
        request("GET", &format!("{WATCH}&timeoutSeconds=3600")),
        request("GET", &format!("{WIDGETS}?timeout=1h")),
        request_with_body("POST", WIDGETS, peerage_http::full("{}")),
    ];
    for asked in requests {
        let target = asked.uri().to_string();
        let answer = world.send(asked).await;
        let status = answer.json();
        assert_eq!(
            (answer.status, status["reason"].as_str()),
            (504, Some("Timeout")),
            "{target}"
        );
        assert_eq!(
            status["message"],
            "Timeout: request did not complete within the allotted timeout"
        );
        assert_eq!(
            (status["kind"].as_str(), status["apiVersion"].as_str()),
            (Some("Status"), Some("v1"))
        );
        assert_eq!(answer.header("retry-after").as_deref(), Some("1"));
    }
}

#[tokio::test]
async fn row_20_the_clients_timeout_shortens_the_wait_but_not_that_of_a_watch() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    peer.on_request(|_| std::future::pending());
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let answer = world.get(&format!("{WIDGETS}?timeout=50ms")).await;
    assert_eq!(answer.status, 504);
    let watch = world.send(request("GET", &format!("{WATCH}&timeout=10ms")));
    let early = tokio::time::timeout(Duration::from_millis(300), watch).await;
    assert!(early.is_err(), "a watch has as long as the server lets it");
}

/// kubernetes/kubernetes#75837, kubernetes/kubernetes#11678, kubernetes/kubernetes#138167: the head of a quiet watch comes at once, and each event by itself.
#[tokio::test]
async fn a_watch_passes_its_head_and_each_event_as_they_come() {
    let (world, peer) = pair().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(4);
    let receiver = std::sync::Mutex::new(Some(receiver));
    peer.on_request(move |_| {
        let receiver = receiver.lock().unwrap().take().unwrap();
        async move {
            let stream = futures::stream::unfold(receiver, |mut receiver| async move {
                let frame = http_body::Frame::data(receiver.recv().await?);
                Some((Ok::<_, std::io::Error>(frame), receiver))
            });
            let body = http_body_util::StreamBody::new(stream);
            http::Response::new(BodyExt::boxed(body))
        }
    });
    let response = world.call(request("GET", WATCH)).await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    for event in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"MODIFIED\"}\n"] {
        sender.send(Bytes::from(event)).await.unwrap();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, event);
    }
    let large = Bytes::from(vec![b'x'; 1_500_000]);
    sender.send(large.clone()).await.unwrap();
    let mut got = 0;
    while got < large.len() {
        got += body
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap()
            .len();
    }
    assert!(
        world
            .metrics()
            .contains("peerage_peer_streams{peer=\"apiserver-new\"} 1")
    );
    drop(sender);
    assert!(body.collect().await.unwrap().to_bytes().is_empty());
    assert!(
        world
            .metrics()
            .contains("peerage_peer_streams{peer=\"apiserver-new\"} 0")
    );
}

/// traefik/traefik#7489: whoever goes away takes the peer's stream along.
#[tokio::test]
async fn a_client_that_is_gone_ends_the_peers_stream() {
    let (world, peer) = pair().await;
    let (gone, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    peer.on_request(move |_| {
        let gone = gone.clone();
        async move {
            let stream = futures::stream::unfold(gone, |gone| async move {
                std::future::pending::<()>().await;
                Some((
                    Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::new())),
                    gone,
                ))
            });
            http::Response::new(BodyExt::boxed(http_body_util::StreamBody::new(stream)))
        }
    });
    let response = world.call(request("GET", WATCH)).await;
    drop(response);
    peer.on_request(|_| async { text(StatusCode::OK, "") });
    let all_dropped = tokio::time::timeout(Duration::from_secs(10), ended.recv()).await;
    assert_eq!(all_dropped.unwrap(), None);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
    let pki = Pki::new();
    let peer = RawPeer::start(&pki, |_, mut wire| async move {
        wire.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            .await;
        wire.close().await;
        None
    })
    .await;
    let world = world_with(pki, peer.address).await;
    let response = world.call(request("GET", WIDGETS)).await;
    assert!(response.into_body().collect().await.is_err());
}

/// Over HTTP/1.1 there is no ping that would tell.
#[tokio::test]
async fn an_answer_in_which_the_peer_freezes_breaks_off_unless_it_may_go_on_for_ever() {
    let pki = Pki::new();
    let peer = RawPeer::start(&pki, |_, mut wire| async move {
        wire.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
            .await;
        std::future::pending::<()>().await;
        Some(wire)
    })
    .await;
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-new", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.forward.pause = Duration::from_millis(200);
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    let stalled = "peerage_peer_errors_total{peer=\"apiserver-new\",reason=\"stalled\"} 1";

    let mut endless = Vec::new();
    for target in [WATCH, &format!("{WIDGETS}/a/log?follow=true")] {
        let mut body = world.call(request("GET", target)).await.into_body();
        assert!(body.frame().await.unwrap().is_ok());
        endless.push(body);
    }
    let mut list = world.call(request("GET", WIDGETS)).await.into_body();
    assert!(list.frame().await.unwrap().is_ok());
    let end = tokio::time::timeout(Duration::from_secs(10), list.frame());
    let error = end.await.unwrap().unwrap().unwrap_err();
    assert!(error.is::<peerage_http::body::Stalled>(), "{error}");
    drop(list);
    assert!(world.metrics().contains(stalled), "{}", world.metrics());
    for mut body in endless {
        let more = tokio::time::timeout(Duration::from_millis(300), body.frame());
        assert!(more.await.is_err(), "what may go on was cut");
    }
    let streams = "peerage_peer_streams{peer=\"apiserver-new\"} 0";
    assert!(world.metrics().contains(streams), "{}", world.metrics());
}

const WEBSOCKET: &str = "GET /apis/new.example.com/v1/widgets?watch=true HTTP/1.1\r\nHost: api.example.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Remote-User: root\r\n\r\n";

/// gravitational/teleport#21102, kubernetes/kubernetes#39940, SREGym/SREGym#991.
#[tokio::test]
async fn row_08_an_upgrade_is_carried_with_the_identity_over_http_1_1() {
    let pki = Pki::new();
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let peer = RawPeer::start(&pki, move |head, mut wire| {
        let tell = tell.clone();
        async move {
            tell.send(head).await.unwrap();
            wire.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX-Other: 1\r\n\r\nfirst bytes").await;
            assert_eq!(wire.read(4).await, b"ping");
            wire.write("pong").await;
            wire.close().await;
            None
        }
    })
    .await;
    let world = world_with(pki, peer.address).await;
    let front = Front::start(&world).await;
    let mut client = front.connect().await;
    client.write(WEBSOCKET).await;
    let head = client.head().await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in [
        "upgrade: websocket",
        "connection: upgrade",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
        "x-other: 1",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert_eq!(client.read(11).await, b"first bytes");
    client.write("ping").await;
    assert_eq!(client.rest().await, b"pong");

    let sent = told.recv().await.unwrap().to_ascii_lowercase();
    assert!(
        sent.starts_with("get /apis/new.example.com/v1/widgets?watch=true http/1.1\r\n"),
        "{sent}"
    );
    for line in [
        "x-remote-user: jane\r\n",
        "x-remote-uid: uid 77\r\n",
        "x-remote-group: b,c \"q\"\r\n",
        "x-kubernetes-peer-proxied: true\r\n",
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-key: dghlihnhbxbszsbub25jzq==\r\n",
        "x-forwarded-for: 127.0.0.1\r\n",
    ] {
        assert_eq!(sent.matches(line).count(), 1, "{line}: {sent}");
    }
}

/// CVE-2018-1002105, CVE-2020-8559.
#[tokio::test]
async fn row_08_a_refused_upgrade_is_an_ordinary_answer_and_joins_nothing() {
    for (method, line, status) in [
        ("GET", "401 Unauthorized", "HTTP/1.1 401"),
        ("GET", "200 OK", "HTTP/1.1 503"),
        ("GET", "307 Temporary Redirect", "HTTP/1.1 503"),
        ("POST", "307 Temporary Redirect", "HTTP/1.1 503"),
        // What is done must not look as if it were to be tried again.
        ("POST", "201 Created", "HTTP/1.1 201"),
    ] {
        let pki = Pki::new();
        let peer = RawPeer::start(&pki, move |_, mut wire| async move {
            wire.write(&format!("HTTP/1.1 {line}\r\nLocation: https://elsewhere.example.com/\r\nContent-Length: 2\r\n\r\nno")).await;
            Some(wire)
        })
        .await;
        let world = world_with(pki, peer.address).await;
        let front = Front::start(&world).await;
        let mut client = front.connect().await;
        client.write(&WEBSOCKET.replacen("GET", method, 1)).await;
        let head = client.head().await;
        assert!(head.starts_with(status), "{method} {line}: {head}");
        let elsewhere = head.to_ascii_lowercase().contains("location:");
        assert_eq!(elsewhere, status != "HTTP/1.1 503", "{head}");
        let second = world.metrics();
        assert!(
            second.contains("peerage_peer_streams{peer=\"apiserver-new\"} 0"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn row_20_an_upgrade_to_a_silent_peer_ends_in_time() {
    let pki = Pki::new();
    let peer = RawPeer::start(&pki, |_, wire| async move {
        std::future::pending::<()>().await;
        Some(wire)
    })
    .await;
    let world = impatient(pki, peer.address, Duration::from_millis(300)).await;
    let front = Front::start(&world).await;
    let mut client = front.connect().await;
    client.write(WEBSOCKET).await;
    assert!(client.head().await.starts_with("HTTP/1.1 504"));
}

/// kubernetes/kubernetes#72112: what is not tunnelled is an ordinary request with the client's identity.
#[tokio::test]
async fn row_08_an_offer_of_h2c_is_an_ordinary_request() {
    let (world, peer) = pair().await;
    let front = Front::start(&world).await;
    for offer in ["h2c", "made-up/1.0"] {
        let mut client = front.connect().await;
        client
            .write(&format!("GET {WIDGETS} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {offer}\r\nHTTP2-Settings: AAMAAABkAARAAAAA\r\n\r\n"))
            .await;
        assert!(client.head().await.starts_with("HTTP/1.1 200"), "{offer}");
        let seen = peer.requests().pop().unwrap();
        assert_eq!(seen.headers["x-remote-user"], "jane");
        for name in ["upgrade", "connection", "http2-settings"] {
            assert!(!seen.headers.contains_key(name), "{name}");
        }
    }
}

#[tokio::test]
async fn tunnels_are_bounded() {
    let pki = Pki::new();
    let peer = RawPeer::start(&pki, |_, mut wire| async move {
        wire.write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
        std::future::pending::<()>().await;
        Some(wire)
    })
    .await;
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-new", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.forward.tunnels = 1;
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    let front = Front::start(&world).await;
    let mut first = front.connect().await;
    first.write(WEBSOCKET).await;
    assert!(first.head().await.starts_with("HTTP/1.1 101"));
    let mut second = front.connect().await;
    second.write(WEBSOCKET).await;
    let refused = second.head().await;
    assert!(
        refused.starts_with("HTTP/1.1 503")
            && refused.to_ascii_lowercase().contains("retry-after: 1"),
        "{refused}"
    );
}
