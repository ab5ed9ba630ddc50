//! One upstream and in-process servers that behave in every way a server may.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Duration;

use bytes::Bytes;
use common::{Ca, LONG, get, serve, text, upstream};
use http_body_util::BodyExt;
use peerage_http::reload::Reloaded;
use peerage_http::tls::{ClientTlsOptions, ServerTlsOptions};
use peerage_http::upstream::FirstByteTimeout;
use peerage_http::{
    ClientTls, Pem, Response, ServerOptions, ServerTls, Stage, Upstream, UpstreamOptions, body,
    full,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

#[tokio::test]
async fn a_request_and_its_answer_pass_unchanged_over_both_versions() {
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let tls = ca.server_tls_with(&[alpn]);
        let server = serve(tls, ServerOptions::default(), |request| async move {
            let target = request.uri().path_and_query().unwrap().to_string();
            let host = match request.uri().authority() {
                Some(authority) => authority.to_string(),
                None => request.headers()["host"].to_str().unwrap().to_owned(),
            };
            let expect = request.headers().contains_key("expect");
            let body = body::collect(request.into_body(), 100, LONG).await.unwrap();
            let body = String::from_utf8_lossy(&body).into_owned();
            let mut response = Response::new(full(format!("{target} {host} {expect} {body}")));
            *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
            response
                .headers_mut()
                .append("warning", "one".parse().unwrap());
            response
                .headers_mut()
                .append("warning", "two".parse().unwrap());
            response
        })
        .await;
        let upstream = upstream(server.address, ca.client_tls());
        for _ in 0..3 {
            let mut request = get("/a%2Fb//../c?z=1&a=%20+x&b;c=2&bad=%zz");
            *request.method_mut() = http::Method::POST;
            request
                .headers_mut()
                .insert("expect", "100-continue".parse().unwrap());
            request
                .headers_mut()
                .insert("host", "elsewhere".parse().unwrap());
            *request.body_mut() = full("hello");
            let response = timeout(LONG, upstream.send(request))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(response.status(), 418);
            let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
            assert_eq!(warnings, ["one", "two"]);
            let expected = format!(
                "/a%2Fb//../c?z=1&a=%20+x&b;c=2&bad=%zz {} false hello",
                server.address
            );
            assert_eq!(text(response).await, expected);
        }
        assert_eq!(upstream.stats().connections, 1);
    }
}

#[tokio::test]
async fn a_hundred_and_fifty_open_watches_on_a_server_of_a_hundred_streams_are_all_answered() {
    let ca = Ca::new("ca");
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let server = serve(ca.server_tls(), ServerOptions::default(), move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        async {
            let (mut sender, body) = body::channel(1);
            tokio::spawn(async move {
                let _ = sender.send_data(Bytes::from("event\n")).await;
                std::future::pending::<()>().await;
            });
            Response::new(body)
        }
    })
    .await;
    let upstream = upstream(server.address, ca.client_tls());
    let watches = (0..150).map(|_| upstream.send(get("/watch")));
    let mut watches = timeout(LONG, futures::future::try_join_all(watches))
        .await
        .unwrap()
        .unwrap();
    for watch in &mut watches {
        let event = timeout(LONG, watch.frame())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(event.into_data().unwrap(), "event\n");
    }
    assert_eq!(seen.load(Ordering::Relaxed), 150);
    assert!(
        (2..=4).contains(&upstream.stats().connections),
        "{:?}",
        upstream.stats()
    );
}

/// Answers each connection's requests with these raw bytes, one after the other, then closes it.
async fn raw_server(answers: &'static [&'static str]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                for answer in answers {
                    read_head(&mut stream).await;
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn informational_answers_are_absorbed_and_the_final_one_is_whole() {
    let address = raw_server(&[
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
         HTTP/1.1 404 Not Found\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\ngone",
    ])
    .await;
    let response = upstream(address, ClientTls::plain())
        .send(get("/"))
        .await
        .unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()["retry-after"], "3");
    assert!(!response.headers().contains_key("link"));
    assert_eq!(text(response).await, "gone");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_no_clean_end() {
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let broken = Arc::new(Notify::new());
        let signal = broken.clone();
        let server = serve(
            ca.server_tls_with(&[alpn]),
            ServerOptions::default(),
            move |_| {
                let broken = broken.clone();
                async move {
                    let (mut sender, body) = body::channel(2);
                    tokio::spawn(async move {
                        sender.send_data(Bytes::from("half")).await.unwrap();
                        broken.notified().await;
                        sender.abort("broken".into());
                    });
                    Response::new(body)
                }
            },
        )
        .await;
        let upstream = upstream(server.address, ca.client_tls());
        let mut response = upstream.send(get("/")).await.unwrap();
        let half = response.frame().await.unwrap().unwrap();
        assert_eq!(half.into_data().unwrap(), "half");
        signal.notify_one();
        let end = timeout(LONG, response.frame()).await.unwrap();
        assert!(matches!(end, Some(Err(_))), "{alpn:?} ended as if whole");
    }
}

#[tokio::test]
async fn a_short_answer_that_breaks_off_before_its_body_is_none_to_a_safe_request() {
    let address = raw_server(&["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]).await;
    let upstream = upstream(address, ClientTls::plain());
    let mut error = upstream.send(get("/")).await.unwrap_err();
    assert_eq!((error.reason(), error.stage()), ("closed", Stage::Response));
    assert!(error.take_request().is_some());
    let mut create = get("/");
    *create.method_mut() = http::Method::POST;
    let mut response = upstream.send(create).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(matches!(response.frame().await, Some(Err(_))));
}

#[tokio::test]
async fn a_client_that_goes_takes_the_upstream_stream_with_it() {
    struct Gone(tokio::sync::mpsc::UnboundedSender<()>);
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let (sender, mut gone) = tokio::sync::mpsc::unbounded_channel();
        let (arrived, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let server = serve(
            ca.server_tls_with(&[alpn]),
            ServerOptions::default(),
            move |request| {
                let guard = Gone(sender.clone());
                let arrived = arrived.clone();
                async move {
                    if request.uri().path() == "/silent" {
                        arrived.send(()).unwrap();
                        std::future::pending::<()>().await;
                    }
                    let (mut frames, body) = body::channel(1);
                    frames.send_data(Bytes::from("event")).await.unwrap();
                    tokio::spawn(async move {
                        std::future::pending::<()>().await;
                        drop(frames);
                    });
                    Response::new(body::guarded(body, guard))
                }
            },
        )
        .await;
        let upstream = upstream(server.address, ca.client_tls());
        let mut watch = upstream.send(get("/watch")).await.unwrap();
        watch.frame().await.unwrap().unwrap();
        drop(watch);
        timeout(LONG, gone.recv()).await.unwrap().unwrap();
        let silent = upstream.clone();
        let silent = tokio::spawn(async move { silent.send(get("/silent")).await });
        timeout(LONG, seen.recv()).await.unwrap().unwrap();
        silent.abort();
        timeout(LONG, gone.recv()).await.unwrap().unwrap();
        assert_eq!(upstream.stats().streams, 0);
    }
}

/// An HTTP/2 server over plain TCP that says GOAWAY after `each` requests of a connection.
async fn goaway_server(each: usize) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let mut served = 0;
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut body = respond
                        .send_response(http::Response::new(()), false)
                        .unwrap();
                    body.send_data(Bytes::from("done"), true).unwrap();
                    served += 1;
                    if served == each {
                        connection.graceful_shutdown();
                    }
                }
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn goaway_costs_no_request() {
    let ca = Ca::new("ca");
    let (plain, connections) = goaway_server(50).await;
    let address = tls_in_front_of(plain, ca.server_tls()).await;
    let upstream = upstream(address, ca.client_tls());
    let worker = |worker: usize| {
        let upstream = upstream.clone();
        async move {
            for number in 0..100 {
                let mut request = get("/");
                if (worker + number).is_multiple_of(2) {
                    *request.method_mut() = http::Method::POST;
                    *request.body_mut() = full("body");
                }
                let response = upstream.send(request).await.unwrap();
                assert_eq!(text(response).await, "done");
            }
        }
    };
    timeout(LONG, futures::future::join_all((0..10).map(worker)))
        .await
        .unwrap();
    assert!(
        connections.load(Ordering::Relaxed) >= 1000 / 100,
        "{connections:?}"
    );
}

/// Terminates TLS with ALPN h2 and passes the bytes on.
async fn tls_in_front_of(
    plain: std::net::SocketAddr,
    tls: peerage_http::ServerTls,
) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.config().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut front) = acceptor.accept(stream).await else {
                    return;
                };
                let Ok(mut back) = TcpStream::connect(plain).await else {
                    return;
                };
                let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn idle_connections_that_the_server_closes_cost_no_request() {
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let options = ServerOptions {
            idle_timeout: Duration::from_millis(20),
            ..ServerOptions::default()
        };
        let server = serve(ca.server_tls_with(&[alpn]), options, |_| async {
            Response::new(full("ok"))
        })
        .await;
        let upstream = upstream(server.address, ca.client_tls());
        for gap in (0..40).map(|n| (n * 7) % 40) {
            let response = timeout(LONG, upstream.send(get("/")))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(text(response).await, "ok");
            tokio::time::sleep(Duration::from_millis(gap)).await;
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_gives_the_request_back_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let upstream = upstream(address, ClientTls::plain());
    let mut request = get("/path?query");
    *request.method_mut() = http::Method::POST;
    *request.body_mut() = full("hello");
    request.extensions_mut().insert(7_u8);
    let mut error = upstream.send(request).await.unwrap_err();
    assert_eq!(
        (error.stage(), error.reason(), error.sent()),
        (Stage::Connect, "connect_refused", false)
    );
    assert_eq!(
        error.to_string(),
        format!("nobody accepts connections at {address}")
    );
    let request = error.take_request().unwrap();
    assert_eq!(request.uri(), "/path?query");
    assert_eq!(request.extensions().get::<u8>(), Some(&7));
    let body = body::collect(request.into_body(), 10, LONG).await.unwrap();
    assert_eq!(body, "hello");
}

#[tokio::test]
async fn each_certificate_fault_has_its_own_reason() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let serving = |names: &[&str]| {
        let (certificate, key) = ca.pair("server", names);
        ServerTls::load(ServerTlsOptions::new(certificate, key)).unwrap()
    };
    let rows = [
        (serving(&["localhost"]), ca.client_tls(), "tls_name"),
        (
            serving(&["kubernetes.default.svc"]),
            other.client_tls(),
            "tls_issuer",
        ),
    ];
    for (server_tls, client_tls, reason) in rows {
        let server = serve(server_tls, ServerOptions::default(), |_| async {
            Response::new(full(""))
        })
        .await;
        let error = upstream(server.address, client_tls)
            .send(get("/"))
            .await
            .unwrap_err();
        assert_eq!((error.stage(), error.reason()), (Stage::Tls, reason));
    }
    let address = raw_server(&["HTTP/1.1 400 Bad Request\r\n\r\n"]).await;
    let error = upstream(address, ca.client_tls())
        .send(get("/"))
        .await
        .unwrap_err();
    assert_eq!(error.stage(), Stage::Tls);
    let server = serve(
        serving(&["localhost"]),
        ServerOptions::default(),
        |_| async { Response::new(full("")) },
    )
    .await;
    let named = ca.client_tls().with_server_name("localhost").unwrap();
    upstream(server.address, named)
        .send(get("/"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_silent_server_is_given_up_at_each_step() {
    let ca = Ca::new("ca");
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let short = Duration::from_millis(50);
    let mut options =
        UpstreamOptions::new(silent.local_addr().unwrap().to_string(), ca.client_tls());
    options.handshake_timeout = short;
    let error = Upstream::new(options).send(get("/")).await.unwrap_err();
    assert_eq!((error.stage(), error.reason()), (Stage::Tls, "tls_timeout"));

    let server = serve(ca.server_tls(), ServerOptions::default(), |_| {
        std::future::pending()
    })
    .await;
    let upstream = upstream(server.address, ca.client_tls());
    for (method, again) in [(http::Method::GET, true), (http::Method::POST, false)] {
        let mut request = get("/");
        *request.method_mut() = method;
        request.extensions_mut().insert(FirstByteTimeout(short));
        let mut error = upstream.send(request).await.unwrap_err();
        assert_eq!((error.stage(), error.sent()), (Stage::Timeout, true));
        assert_eq!(error.take_request().is_some(), again);
    }
}

#[tokio::test]
async fn more_requests_than_may_wait_are_turned_away_and_the_rest_is_served() {
    let ca = Ca::new("ca");
    let server = serve(
        ca.server_tls_with(&[b"http/1.1"]),
        ServerOptions::default(),
        |_| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Response::new(full("ok"))
        },
    )
    .await;
    let mut options = UpstreamOptions::new(server.address.to_string(), ca.client_tls());
    options.max_connections = 2;
    options.max_waiting = 5;
    let upstream = Upstream::new(options);
    let sent = (0..20).map(|_| async {
        match upstream.send(get("/")).await {
            Ok(response) => text(response).await,
            Err(error) => error.reason().to_owned(),
        }
    });
    let told = timeout(LONG, futures::future::join_all(sent))
        .await
        .unwrap();
    let count = |word: &str| told.iter().filter(|t| *t == word).count();
    assert!(count("ok") >= 5, "{told:?}");
    assert_eq!(count("ok") + count("saturated"), 20);
    assert!(upstream.stats().connections <= 2);
}

#[tokio::test]
async fn ten_thousand_requests_at_once_over_a_hundred_streams_all_end() {
    let ca = Ca::new("ca");
    let server = serve(ca.server_tls(), ServerOptions::default(), |_| async {
        tokio::task::yield_now().await;
        Response::new(full("ok"))
    })
    .await;
    let mut options = UpstreamOptions::new(server.address.to_string(), ca.client_tls());
    options.max_connections = 4;
    options.queue_timeout = Duration::from_secs(60);
    let upstream = Upstream::new(options);
    let all = (0..10_000).map(|_| async { text(upstream.send(get("/")).await.unwrap()).await });
    let told = timeout(LONG * 3, futures::future::join_all(all))
        .await
        .unwrap();
    assert!(told.iter().all(|answer| answer == "ok"));
    assert!(upstream.stats().connections <= 4);
    assert_eq!((upstream.stats().waiting, upstream.stats().streams), (0, 0));
}

#[tokio::test]
async fn a_pool_that_grew_shrinks_again() {
    let ca = Ca::new("ca");
    let server = serve(ca.server_tls(), ServerOptions::default(), |_| async {
        let (mut sender, body) = body::channel(1);
        tokio::spawn(async move {
            let _ = sender.send_data(Bytes::from("event")).await;
            std::future::pending::<()>().await;
        });
        Response::new(body)
    })
    .await;
    let mut options = UpstreamOptions::new(server.address.to_string(), ca.client_tls());
    options.max_streams_per_connection = 10;
    options.idle_timeout = Duration::from_millis(50);
    let upstream = Upstream::new(options);
    let watches = (0..30).map(|_| upstream.send(get("/")));
    let watches = timeout(LONG, futures::future::try_join_all(watches))
        .await
        .unwrap()
        .unwrap();
    assert!(upstream.stats().connections >= 3);
    drop(watches);
    let empty = async {
        while upstream.stats().connections > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, empty).await.unwrap();
}

#[tokio::test]
async fn new_requests_avoid_a_connection_that_has_gone_silent() {
    let ca = Ca::new("ca");
    let server = serve(ca.server_tls(), ServerOptions::default(), |_| async {
        Response::new(full("ok"))
    })
    .await;
    let (front, freeze) = freezing_proxy(server.address).await;
    let mut options = UpstreamOptions::new(front.to_string(), ca.client_tls());
    options.suspect_after = Duration::from_millis(100);
    let upstream = Upstream::new(options);
    assert_eq!(text(upstream.send(get("/")).await.unwrap()).await, "ok");
    freeze.store(1, Ordering::Relaxed);
    let stuck = upstream.clone();
    let stuck = tokio::spawn(async move { stuck.send(get("/")).await });
    let fresh = async {
        while upstream.stats().suspect == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        text(upstream.send(get("/")).await.unwrap()).await
    };
    assert_eq!(timeout(LONG, fresh).await.unwrap(), "ok");
    stuck.abort();
}

/// Passes bytes on until frozen, which stops the connections that exist and no new ones.
async fn freezing_proxy(to: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let frozen = Arc::new(AtomicUsize::new(0));
    let epoch = frozen.clone();
    tokio::spawn(async move {
        while let Ok((front, _)) = listener.accept().await {
            let back = TcpStream::connect(to).await.unwrap();
            let (mut from, mut to) = (front.into_split(), back.into_split());
            let begun = epoch.load(Ordering::Relaxed);
            let now = epoch.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while let Ok(read) = from.0.read(&mut buffer).await {
                    if now.load(Ordering::Relaxed) != begun {
                        std::future::pending::<()>().await;
                    }
                    if read == 0 || to.1.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
            });
            tokio::spawn(async move { tokio::io::copy(&mut to.0, &mut from.1).await });
        }
    });
    (address, frozen)
}

#[tokio::test]
async fn one_reader_that_stops_does_not_hold_up_the_others() {
    let ca = Ca::new("ca");
    let server = serve(ca.server_tls(), ServerOptions::default(), |_| async {
        Response::new(full(vec![b'x'; 20 << 20]))
    })
    .await;
    let upstream = upstream(server.address, ca.client_tls());
    let mut unread = Vec::new();
    for _ in 0..20 {
        unread.push(upstream.send(get("/")).await.unwrap());
    }
    let response = upstream.send(get("/")).await.unwrap();
    let body = timeout(LONG, body::collect(response.into_body(), 20 << 20, LONG))
        .await
        .unwrap();
    assert_eq!(body.unwrap().len(), 20 << 20);
    assert_eq!(upstream.stats().connections, 1);
}

#[tokio::test]
async fn connections_of_a_replaced_certificate_get_no_new_requests() {
    let ca = Ca::new("ca");
    let server = serve(
        ca.server_tls(),
        ServerOptions::default(),
        |request| async move {
            let tls = request
                .extensions()
                .get::<peerage_http::ConnInfo>()
                .unwrap()
                .tls
                .clone()
                .unwrap();
            Response::new(full(tls.certificates[0].to_vec()))
        },
    )
    .await;
    let dir = tempfile::tempdir().unwrap();
    let write = |(certificate, key): (Pem, Pem)| {
        for (name, pem) in [("crt", certificate), ("key", key)] {
            let Pem::Bytes(bytes) = pem else {
                unreachable!()
            };
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
    };
    write(ca.pair("one", &[]));
    let mut options = ClientTlsOptions::new(ca.pem());
    options.identity = Some((
        Pem::file(dir.path().join("crt")),
        Pem::file(dir.path().join("key")),
    ));
    let tls = ClientTls::load(options).unwrap();
    let upstream = upstream(server.address, tls.clone());
    let shown = || async {
        let response = upstream.send(get("/")).await.unwrap();
        body::collect(response.into_body(), 1 << 16, LONG)
            .await
            .unwrap()
    };
    let first = shown().await;
    assert_eq!(shown().await, first);
    write(ca.pair("two", &[]));
    assert!(matches!(tls.reloads()[0].reload(), Reloaded::Changed));
    assert_ne!(shown().await, first);
    std::fs::write(dir.path().join("key"), "broken").unwrap();
    assert!(matches!(tls.reloads()[0].reload(), Reloaded::Failed(_)));
    shown().await;
}

#[tokio::test]
async fn a_server_of_few_streams_is_believed_before_the_first_request() {
    let ca = Ca::new("ca");
    let options = ServerOptions {
        h2_max_streams: 10,
        ..ServerOptions::default()
    };
    let server = serve(ca.server_tls(), options, |_| async {
        let (mut sender, body) = body::channel(1);
        tokio::spawn(async move {
            let _ = sender.send_data(Bytes::from("event")).await;
            std::future::pending::<()>().await;
        });
        Response::new(body)
    })
    .await;
    let upstream = upstream(server.address, ca.client_tls());
    let watches = (0..35).map(|_| upstream.send(get("/watch")));
    timeout(LONG, futures::future::try_join_all(watches))
        .await
        .unwrap()
        .unwrap();
    assert!(
        (4..=6).contains(&upstream.stats().connections),
        "{:?}",
        upstream.stats()
    );
}

#[tokio::test]
async fn a_watch_on_a_connection_that_died_silently_breaks_off() {
    let ca = Ca::new("ca");
    let server = serve(ca.server_tls(), ServerOptions::default(), |_| async {
        let (mut sender, body) = body::channel(1);
        tokio::spawn(async move {
            let _ = sender.send_data(Bytes::from("event")).await;
            std::future::pending::<()>().await;
        });
        Response::new(body)
    })
    .await;
    let (front, freeze) = freezing_proxy(server.address).await;
    let mut options = UpstreamOptions::new(front.to_string(), ca.client_tls());
    options.ping_interval = Duration::from_millis(50);
    options.ping_timeout = Duration::from_secs(2);
    let upstream = Upstream::new(options);
    let mut watch = upstream.send(get("/watch")).await.unwrap();
    watch.frame().await.unwrap().unwrap();
    let quiet = timeout(Duration::from_millis(300), watch.frame()).await;
    assert!(
        quiet.is_err(),
        "a quiet watch on a living connection goes on"
    );
    freeze.store(1, Ordering::Relaxed);
    let broken = timeout(LONG, watch.frame()).await.unwrap();
    assert!(matches!(broken, Some(Err(_))));
}

#[tokio::test]
async fn all_who_wait_for_a_server_that_is_not_there_are_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let upstream = upstream(address, ClientTls::plain());
    let all = (0..500).map(|_| async { upstream.send(get("/")).await.unwrap_err().reason() });
    let told = timeout(Duration::from_secs(5), futures::future::join_all(all))
        .await
        .unwrap();
    assert!(told.iter().all(|reason| *reason == "connect_refused"));
    assert_eq!(
        upstream.stats(),
        peerage_http::upstream::UpstreamStats::default()
    );
}

#[tokio::test]
async fn headers_over_the_limit_cost_one_http2_request_and_not_the_connection() {
    let ca = Ca::new("ca");
    let options = ServerOptions {
        max_header_bytes: 64 << 10,
        max_headers: 1024,
        ..ServerOptions::default()
    };
    let server = serve(ca.server_tls(), options, |request| async move {
        Response::new(full(
            request
                .headers()
                .get_all("x-remote-group")
                .iter()
                .count()
                .to_string(),
        ))
    })
    .await;
    let upstream = upstream(server.address, ca.client_tls());
    let groups = |number: usize| {
        let mut request = get("/");
        for group in 0..number {
            let group = format!("cn={group}, ou=people, dc=example, {}", "x".repeat(60));
            request
                .headers_mut()
                .append("x-remote-group", group.parse().unwrap());
        }
        request
    };
    let served = upstream.send(groups(400)).await.unwrap();
    assert_eq!(text(served).await, "400");
    assert_eq!(upstream.send(groups(600)).await.unwrap().status(), 431);
    let mut many = get("/");
    for _ in 0..1500 {
        many.headers_mut().append("a", "".parse().unwrap());
    }
    let refused = upstream.send(many).await.unwrap();
    assert_eq!(refused.status(), 431);
    assert!(text(refused).await.contains(r#""code":431}"#));
    assert_eq!(text(upstream.send(groups(40)).await.unwrap()).await, "40");
    assert_eq!(upstream.stats().connections, 1);
}
