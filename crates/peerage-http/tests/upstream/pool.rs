//! Connections: as many as are needed, used again, left when they are no good, and never waited for without end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use peerage_http::{Response, ServerOptions, Upstream, UpstreamOptions, body, full};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, serve, text, upstream};
use crate::freezing_proxy;

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

/// An HTTP/2 server over plain TCP that says GOAWAY after `each` requests of a connection.
async fn goaway_server(each: usize) -> (SocketAddr, Arc<AtomicUsize>) {
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
async fn tls_in_front_of(plain: SocketAddr, tls: peerage_http::ServerTls) -> SocketAddr {
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
