//! One upstream and in-process servers that behave in every way a server may.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::{Ca, LONG, get, serve, text, upstream};
use http_body_util::BodyExt;
use peerage_http::{Response, ServerOptions, body, full};
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
