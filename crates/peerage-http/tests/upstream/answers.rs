//! What comes back: whole, as it was sent, broken off where it broke off, and not longer than anybody wants it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use peerage_http::{
    ClientTls, Response, ServerOptions, Stage, Upstream, UpstreamOptions, body, full,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, serve, text, upstream};
use crate::{freezing_proxy, raw_server};

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
async fn a_flood_of_informational_answers_ends_the_request_and_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let flood = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(100);
        while stream.write_all(hints.as_bytes()).await.is_ok() {}
    });
    let upstream = upstream(address, ClientTls::plain());
    let sent = timeout(LONG, upstream.send(get("/"))).await.unwrap();
    let error = sent.unwrap_err();
    assert_eq!(
        (error.stage(), error.reason()),
        (Stage::Response, "bad_answer")
    );
    timeout(LONG, flood).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_length_beside_a_coding_does_not_cut_the_body_off() {
    let address = raw_server(&["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\
         transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"])
    .await;
    let upstream = upstream(address, ClientTls::plain());
    let response = upstream.send(get("/")).await.unwrap();
    assert!(!response.headers().contains_key("content-length"));
    assert_eq!(text(response).await, "hello");
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
async fn a_short_answer_that_breaks_off_before_its_body_is_none_to_a_get() {
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

#[tokio::test]
async fn the_answer_to_a_head_announces_a_body_and_has_none() {
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let tls = ca.server_tls_with(&[alpn]);
        let server = serve(tls, ServerOptions::default(), |_| async {
            Response::new(full("method not allowed"))
        })
        .await;
        let mut head = get("/");
        *head.method_mut() = http::Method::HEAD;
        let upstream = upstream(server.address, ca.client_tls());
        let response = upstream.send(head).await.unwrap();
        assert_eq!(response.headers()["content-length"], "18");
        assert_eq!(text(response).await, "");
    }
}
