//! Bounds on clients and on services: time, size, number, panics.

use peerage_http::{ClientTls, Response, ServerOptions, ServerTls, body, full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, serve, text, upstream};
use crate::{SHORT, plain, say};

#[tokio::test]
async fn slow_heads_silent_and_idle_connections_are_closed() {
    let options = ServerOptions {
        header_read_timeout: SHORT,
        idle_timeout: SHORT * 2,
        ..ServerOptions::default()
    };
    let server = plain(options).await;
    assert_eq!(say(&server, b"").await, "");
    assert_eq!(say(&server, b"GET / HTTP/1.1\r\nHos").await, "");
    let answer = say(&server, b"GET /kept HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.ends_with("/kept"), "{answer}");
    let answer = say(&server, b"GET /kept HTTP/1.1\r\nHost: x\r\n\r\nGET /half").await;
    assert!(answer.ends_with("/kept"), "{answer}");
}

#[tokio::test]
async fn handshakes_that_are_none_or_take_too_long_end_and_are_counted() {
    let ca = Ca::new("ca");
    let options = ServerOptions {
        handshake_timeout: SHORT,
        ..ServerOptions::default()
    };
    let metrics = options.metrics.clone();
    let server = serve(ca.server_tls(), options, |_| async {
        Response::new(full("ok"))
    })
    .await;
    assert_eq!(say(&server, b"").await, "");
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = timeout(LONG, stream.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
    assert_eq!(metrics.handshake_failures.get(), 2);
}

#[tokio::test]
async fn an_answer_that_is_not_read_is_given_up_and_releases_what_it_holds() {
    struct Held(tokio::sync::mpsc::UnboundedSender<()>);
    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let (sender, mut released) = tokio::sync::mpsc::unbounded_channel();
        let options = ServerOptions {
            write_stall_timeout: SHORT,
            ..ServerOptions::default()
        };
        let server = serve(ca.server_tls_with(&[alpn]), options, move |_| {
            let held = Held(sender.clone());
            async move { Response::new(body::guarded(full(vec![0; 100 << 20]), held)) }
        })
        .await;
        let upstream = upstream(server.address, ca.client_tls());
        let unread = upstream.send(get("/")).await.unwrap();
        assert!(released.try_recv().is_err());
        timeout(LONG, released.recv()).await.unwrap().unwrap();
        let read = timeout(LONG, body::collect(unread.into_body(), usize::MAX, LONG))
            .await
            .unwrap();
        assert!(read.is_err(), "{alpn:?}");
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_costs_neither_the_answer_nor_the_connection() {
    let server = plain(ServerOptions::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // Twice over one connection, with the body after the head.
    for _ in 0..2 {
        let head = "POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(&vec![b'x'; 100_000]).await.unwrap();
        let mut answer = [0; 1024];
        let length = timeout(LONG, stream.read(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length.unwrap()]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("/unread"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_never_comes_holds_up_an_answer_for_a_moment_only() {
    let server = plain(ServerOptions::default()).await;
    for expect in ["", "Expect: 100-continue\r\n"] {
        let head = format!("POST /late HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n{expect}\r\n");
        let answer = say(&server, head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("/late"), "{answer}");
    }
}

#[tokio::test]
async fn connections_over_the_limit_wait_their_turn() {
    let server = plain(ServerOptions {
        max_connections: 1,
        ..ServerOptions::default()
    })
    .await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let second = say(
        &server,
        b"GET /second HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    let mut second = std::pin::pin!(second);
    assert!(timeout(SHORT, second.as_mut()).await.is_err());
    drop(first);
    assert!(second.await.ends_with("/second"));
}

#[tokio::test]
async fn a_panic_is_an_answer_and_the_connection_goes_on() {
    let options = ServerOptions::default();
    let metrics = options.metrics.clone();
    let server = serve(ServerTls::plain(), options, |request| async move {
        assert!(request.uri().path() != "/panic");
        Response::new(full("ok"))
    })
    .await;
    let upstream = upstream(server.address, ClientTls::plain());
    let response = upstream.send(get("/panic")).await.unwrap();
    assert_eq!(response.status(), 500);
    assert!(
        text(response)
            .await
            .starts_with("This request caused apiserver to panic.")
    );
    assert_eq!(text(upstream.send(get("/")).await.unwrap()).await, "ok");
    assert_eq!(metrics.panics.get(), 1);
}
