//! Answers that go on, floods, and bodies that are only spoken of.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use peerage_http::{Response, ServerOptions, body, full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, serve, text, upstream};

#[tokio::test]
async fn events_arrive_one_by_one_and_whole() {
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let next = Arc::new(Notify::new());
        let signal = next.clone();
        let server = serve(
            ca.server_tls_with(&[alpn]),
            ServerOptions::default(),
            move |_| {
                let next = next.clone();
                async move {
                    let (mut sender, body) = body::channel(1);
                    tokio::spawn(async move {
                        for size in [300, 1_400_000, 300] {
                            next.notified().await;
                            let _ = sender.send_data(Bytes::from(vec![b'e'; size])).await;
                        }
                    });
                    Response::new(body)
                }
            },
        )
        .await;
        let upstream = upstream(server.address, ca.client_tls());
        // The head is there although no event is.
        let mut watch = timeout(LONG, upstream.send(get("/")))
            .await
            .unwrap()
            .unwrap();
        for size in [300, 1_400_000, 300] {
            signal.notify_one();
            let mut left = size;
            while left > 0 {
                let frame = timeout(LONG, watch.frame())
                    .await
                    .unwrap()
                    .unwrap()
                    .unwrap();
                left -= frame.into_data().unwrap().len();
            }
        }
        let rest = timeout(LONG, watch.into_body().collect()).await.unwrap();
        assert!(rest.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn a_client_that_floods_with_resets_is_cut_off_and_others_are_served() {
    let ca = Ca::new("ca");
    let server = serve(
        ca.server_tls(),
        ServerOptions::default(),
        |request| async move {
            if request.uri().path() == "/slow" {
                std::future::pending::<()>().await;
            }
            Response::new(full("ok"))
        },
    )
    .await;
    let (config, name) = ca.client_tls().config(false).unwrap();
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(config);
    let mut flood = connector.connect(name, tcp).await.unwrap();
    // In one TLS record, so that nothing unread is left that would reset the connection.
    flood.write_all(&requests_and_resets(200)).await.unwrap();
    let mut said = Vec::new();
    // It may also be cut off without a word.
    let _ = timeout(LONG, flood.read_to_end(&mut said)).await.unwrap();
    let enhance_your_calm = [0, 0, 0, 11];
    assert!(said.windows(4).any(|code| code == enhance_your_calm));
    let upstream = upstream(server.address, ca.client_tls());
    assert_eq!(text(upstream.send(get("/")).await.unwrap()).await, "ok");
}

#[tokio::test]
async fn a_head_keeps_the_length_of_the_body_it_stands_for() {
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let server = serve(
            ca.server_tls_with(&[alpn]),
            ServerOptions::default(),
            |_| async {
                let mut response = Response::new(body::empty());
                response
                    .headers_mut()
                    .insert("content-length", "5".parse().unwrap());
                response
            },
        )
        .await;
        let upstream = upstream(server.address, ca.client_tls());
        for _ in 0..2 {
            let mut request = get("/");
            *request.method_mut() = http::Method::HEAD;
            let response = timeout(LONG, upstream.send(request))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(response.headers()["content-length"], "5");
            assert_eq!(text(response).await, "");
        }
    }
}

/// A client's side of an HTTP/2 connection that takes every request back with the same breath.
fn requests_and_resets(count: u32) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [head.as_slice(), payload].concat()
    };
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    for stream in (0..count).map(|n| 2 * n + 1) {
        // GET, https, /slow, :authority x (RFC 7541); then CANCEL.
        bytes.extend(frame(1, 5, stream, b"\x82\x87\x04\x05/slow\x01\x01x"));
        bytes.extend(frame(3, 0, stream, &[0, 0, 0, 8]));
    }
    bytes
}
