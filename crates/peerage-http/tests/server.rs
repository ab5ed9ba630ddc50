//! The accepting side against clients that behave in every way a client may.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{Ca, LONG, Running, get, serve, text, upstream};
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use peerage_http::reload::Reloaded;
use peerage_http::server::Drained;
use peerage_http::tls::{ClientTlsOptions, ServerTlsOptions};
use peerage_http::{
    ClientTls, ConnInfo, Drain, Pem, Response, ServerOptions, ServerTls, body, full,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(100);

async fn plain(options: ServerOptions) -> Running {
    serve(ServerTls::plain(), options, |request| async move {
        Response::new(full(request.uri().path_and_query().unwrap().to_string()))
    })
    .await
}

/// Everything the server says to these bytes until it closes the connection.
async fn say(server: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    timeout(LONG, stream.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn the_request_target_reaches_the_service_byte_for_byte() {
    let server = plain(ServerOptions::default()).await;
    for target in [
        "/a%2Fb//../c/?z=1&&a=%zz;b&q",
        "//x/y",
        "/%C3%A9~!$&'()*+,;=:@",
        "/é",
        "/?",
        "/a|b{c}\"d\\e",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = say(&server, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
        assert_eq!(answer.rsplit("\r\n").next().unwrap(), target);
    }
}

#[tokio::test]
async fn a_target_that_is_none_is_a_bad_request() {
    let server = plain(ServerOptions::default()).await;
    for line in [
        &b"GET /a<b HTTP/1.1"[..],
        b"GET /\xff HTTP/1.1",
        b"nonsense",
    ] {
        let request = [line, b"\r\nHost: x\r\nConnection: close\r\n\r\n"].concat();
        let answer = say(&server, &request).await;
        assert!(
            answer.starts_with("HTTP/1.1 400")
                && answer.contains(r#""reason":"BadRequest","code":400}"#),
            "{}: {answer}",
            String::from_utf8_lossy(line)
        );
    }
}

#[tokio::test]
async fn a_head_that_two_readers_could_read_in_two_ways_is_refused_and_the_connection_closed() {
    let server = plain(ServerOptions::default()).await;
    for (head, status) in [
        ("GET /a HTTP/1.1\r\n", "400"),
        ("GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n", "400"),
        ("GET /a HTTP/1.1\r\nHost: x/y z\r\n", "400"),
        ("CONNECT other:443 HTTP/1.1\r\nHost: x\r\n", "400"),
        ("GET other:443 HTTP/1.1\r\nHost: x\r\n", "400"),
        ("GET a HTTP/1.1\r\nHost: x\r\n", "400"),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n",
            "501",
        ),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "501",
        ),
        ("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n", "417"),
        ("GET /a HTTP/1.1\r\nHost: x\r\nExpect: 100\r\n", "417"),
    ] {
        let answer = say(&server, format!("{head}\r\n").as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}"))
                && answer.contains(&format!(r#""code":{status}}}"#)),
            "{head}: {answer}"
        );
    }
    for head in [
        "GET /a HTTP/1.0\r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nHost: \r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nHost: [::1]:80\r\n",
        "GET http://x/a HTTP/1.1\r\nConnection: close\r\nHost: x\r\n",
        "OPTIONS * HTTP/1.1\r\nConnection: close\r\nHost: x\r\n",
        "POST /a HTTP/1.1\r\nConnection: close\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nHost: x\r\nExpect: \r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nHost: x\r\nExpect: a, 100-Continue\r\n",
    ] {
        let answer = say(&server, format!("{head}\r\n").as_bytes()).await;
        assert!(
            ["HTTP/1.0 200", "HTTP/1.1 200"]
                .iter()
                .any(|ok| answer.starts_with(ok)),
            "{head}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_piece_of_an_answer_that_looks_like_a_refusal_is_left_alone() {
    let piece = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\
                 date: Sun, 29 Nov 2026 20:18:01 GMT\r\n\r\n";
    let read = Arc::new(Notify::new());
    let goes_on = read.clone();
    let server = serve(ServerTls::plain(), ServerOptions::default(), move |_| {
        let (mut sender, body) = body::channel(1);
        let goes_on = goes_on.clone();
        tokio::spawn(async move {
            sender.send_data("first".into()).await.unwrap();
            goes_on.notified().await;
            sender.send_data(piece.into()).await.unwrap();
        });
        let mut response = Response::new(body);
        let length = ("first".len() + piece.len()).into();
        response.headers_mut().insert(CONTENT_LENGTH, length);
        std::future::ready(response)
    })
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"first") {
        answer.push(timeout(LONG, stream.read_u8()).await.unwrap().unwrap());
    }
    read.notify_one();
    let mut rest = String::new();
    let ended = timeout(LONG, stream.read_to_string(&mut rest)).await;
    ended.unwrap().unwrap();
    assert_eq!(rest, piece);
}

#[tokio::test]
async fn heads_over_the_limits_are_refused_and_large_ones_within_are_served() {
    let server = plain(ServerOptions {
        max_header_bytes: 100 << 10,
        ..ServerOptions::default()
    })
    .await;
    let head = |lines: usize, size: usize| {
        let lines = format!("X-Remote-Group: {}\r\n", "g".repeat(size)).repeat(lines);
        format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n")
    };
    for (lines, size, status) in [
        (1, 60 << 10, "200"),
        (600, 100, "200"),
        (1, 200 << 10, "431"),
        (2100, 1, "431"),
    ] {
        let answer = say(&server, head(lines, size).as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{lines} lines of {size}: {answer:.100}"
        );
    }
}

#[tokio::test]
async fn any_client_certificate_is_shown_to_the_service_and_none_is_fine_too() {
    let (ca, stranger) = (Ca::new("ca"), Ca::new("stranger"));
    let server = serve(
        ca.server_tls(),
        ServerOptions::default(),
        |request| async move {
            let info = request.extensions().get::<ConnInfo>().unwrap();
            Response::new(full(
                info.tls.as_ref().unwrap().certificates.len().to_string(),
            ))
        },
    )
    .await;
    let mut options = ClientTlsOptions::new(ca.pem());
    let none = ClientTls::load(options.clone()).unwrap();
    options.identity = Some(stranger.pair("who", &[]));
    let unknown = ClientTls::load(options).unwrap();
    for (tls, certificates) in [(ca.client_tls(), "1"), (unknown, "1"), (none, "0")] {
        let response = upstream(server.address, tls).send(get("/")).await.unwrap();
        assert_eq!(text(response).await, certificates);
    }
}

#[tokio::test]
async fn a_new_serving_certificate_counts_for_new_connections_and_a_broken_one_does_not() {
    let ca = Ca::new("ca");
    let dir = tempfile::tempdir().unwrap();
    let write = |(certificate, key): (Pem, Pem)| {
        for (name, pem) in [("crt", certificate), ("key", key)] {
            let Pem::Bytes(bytes) = pem else {
                unreachable!()
            };
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
    };
    write(ca.pair("server", &["one"]));
    let files = ServerTlsOptions::new(
        Pem::file(dir.path().join("crt")),
        Pem::file(dir.path().join("key")),
    );
    let tls = ServerTls::load(files).unwrap();
    let server = serve(tls.clone(), ServerOptions::default(), |_| async {
        Response::new(full("ok"))
    })
    .await;
    let connects_as = |name: &'static str| {
        let upstream = upstream(
            server.address,
            ca.client_tls().with_server_name(name).unwrap(),
        );
        async move {
            upstream
                .send(get("/"))
                .await
                .map_err(|error| error.reason())
                .is_ok()
        }
    };
    assert!(connects_as("one").await);
    write(ca.pair("server", &["two"]));
    assert!(matches!(tls.reloads()[0].reload(), Reloaded::Changed));
    assert!(connects_as("two").await);
    assert!(!connects_as("one").await);
    std::fs::write(dir.path().join("crt"), "broken").unwrap();
    assert!(matches!(tls.reloads()[0].reload(), Reloaded::Failed(_)));
    assert!(connects_as("two").await);
}

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
