//! How a server ends.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use peerage_http::server::Drained;
use peerage_http::{ClientTls, Drain, Response, ServerOptions, ServerTls, body, full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, serve, text, upstream};
use crate::{SHORT, plain};

#[tokio::test]
async fn a_server_that_is_about_to_leave_answers_and_asks_http_1_1_clients_to_go() {
    let options = ServerOptions::default();
    let leaving = options.leaving.clone();
    let server = plain(options).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = [0; 4096];
    let read = timeout(LONG, stream.read(&mut answer)).await.unwrap();
    let first = String::from_utf8_lossy(&answer[..read.unwrap()]).to_lowercase();
    assert!(first.starts_with("http/1.1 200") && !first.contains("connection: close"));
    leaving.cancel();
    stream.write_all(request).await.unwrap();
    let mut rest = String::new();
    let ended = timeout(LONG, stream.read_to_string(&mut rest)).await;
    ended.unwrap().unwrap();
    let rest = rest.to_lowercase();
    assert!(rest.starts_with("http/1.1 200"), "{rest}");
    assert!(rest.contains("connection: close"), "{rest}");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_connections_without_a_request() {
    let ca = Ca::new("ca");
    for tls in [ca.server_tls(), ServerTls::plain()] {
        let mut server = serve(tls, ServerOptions::default(), |_| async {
            Response::new(full("ok"))
        })
        .await;
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(TcpStream::connect(server.address).await.unwrap());
        }
        server.stop.cancel();
        assert_eq!(
            timeout(LONG, &mut server.task).await.unwrap().unwrap(),
            Drained::Whole
        );
    }
}

#[tokio::test]
async fn shutdown_lets_requests_finish_and_cuts_what_takes_too_long() {
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let finish = Arc::new(Notify::new());
        let signal = finish.clone();
        let options = ServerOptions {
            drain_timeout: SHORT * 10,
            ..ServerOptions::default()
        };
        let mut server = serve(ca.server_tls_with(&[alpn]), options, move |request| {
            let finish = finish.clone();
            async move {
                let (mut sender, body) = body::channel(1);
                let watch = request.uri().path() == "/watch";
                tokio::spawn(async move {
                    let _ = sender.send_data(Bytes::from("begin ")).await;
                    if watch {
                        std::future::pending::<()>().await;
                    }
                    finish.notified().await;
                    let _ = sender.send_data(Bytes::from("end")).await;
                });
                Response::new(body)
            }
        })
        .await;
        let upstream = upstream(server.address, ca.client_tls());
        let slow = upstream.send(get("/slow")).await.unwrap();
        let mut watch = upstream.send(get("/watch")).await.unwrap();
        watch.frame().await.unwrap().unwrap();
        server.stop.cancel();
        signal.notify_one();
        assert_eq!(text(slow).await, "begin end");
        let drained = timeout(LONG, &mut server.task).await.unwrap().unwrap();
        assert_eq!(drained, Drained::Cut(1), "{alpn:?}");
        assert!(
            timeout(LONG, watch.frame())
                .await
                .unwrap()
                .unwrap()
                .is_err()
        );
        assert!(upstream.send(get("/")).await.is_err());
    }
}

#[tokio::test]
async fn a_stream_can_see_that_shutdown_has_begun() {
    let mut server = serve(
        ServerTls::plain(),
        ServerOptions::default(),
        |request| async move {
            let drain = request.extensions().get::<Drain>().unwrap().clone();
            let (mut sender, body) = body::channel(1);
            tokio::spawn(async move {
                let _ = sender.send_data(Bytes::from("event")).await;
                drain.closing.cancelled().await;
            });
            Response::new(body)
        },
    )
    .await;
    let mut watch = upstream(server.address, ClientTls::plain())
        .send(get("/"))
        .await
        .unwrap();
    watch.frame().await.unwrap().unwrap();
    server.stop.cancel();
    assert!(timeout(LONG, watch.frame()).await.unwrap().is_none());
    assert_eq!(
        timeout(LONG, &mut server.task).await.unwrap().unwrap(),
        Drained::Whole
    );
}
