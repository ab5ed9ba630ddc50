//! Servers that cannot be reached or trusted: which fault it was, and the request given back.

use std::time::Duration;

use peerage_http::reload::Reloaded;
use peerage_http::tls::{ClientTlsOptions, ServerTlsOptions};
use peerage_http::{
    ClientTls, Pem, Response, ServerOptions, ServerTls, Stage, Upstream, UpstreamOptions, body,
    full,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, serve, upstream};

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
        (
            serving(&["localhost", "10.0.0.1"]),
            ca.client_tls(),
            "tls_name",
            r#"it is for "localhost", "10.0.0.1", not for "kubernetes.default.svc""#,
        ),
        (
            serving(&["kubernetes.default.svc"]),
            other.client_tls(),
            "tls_issuer",
            r#"it was issued by "ca", which"#,
        ),
    ];
    for (server_tls, client_tls, reason, said) in rows {
        let server = serve(server_tls, ServerOptions::default(), |_| async {
            Response::new(full(""))
        })
        .await;
        let error = upstream(server.address, client_tls)
            .send(get("/"))
            .await
            .unwrap_err();
        assert_eq!((error.stage(), error.reason()), (Stage::Tls, reason));
        assert!(error.to_string().contains(said), "{error}");
    }
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        std::future::pending::<()>().await;
    });
    let error = upstream(address, ca.client_tls())
        .send(get("/"))
        .await
        .unwrap_err();
    assert_eq!((error.stage(), error.reason()), (Stage::Tls, "no_tls"));
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
    let mut options = UpstreamOptions::new(server.address.to_string(), ca.client_tls());
    options.first_byte_timeout = short;
    let upstream = Upstream::new(options);
    for (method, again) in [(http::Method::GET, true), (http::Method::POST, false)] {
        let mut request = get("/");
        *request.method_mut() = method;
        let mut error = upstream.send(request).await.unwrap_err();
        assert_eq!((error.stage(), error.sent()), (Stage::Timeout, true));
        assert_eq!(error.take_request().is_some(), again);
    }
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

/// A name that is looked up but that no request can name must not have another path, or another host, asked for.
#[tokio::test]
async fn an_address_that_no_request_can_name_is_sent_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for address in [
        format!("::ffff:127.0.0.1:{port}"),
        format!("::1:{port}"),
        format!("local host:{port}"),
    ] {
        let upstream = Upstream::new(UpstreamOptions::new(&address, ClientTls::plain()));
        let delete = || {
            let mut request = get("/api/v1/namespaces/n/pods/p");
            *request.method_mut() = http::Method::DELETE;
            request
        };
        let mut upgrade = delete();
        for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket")] {
            upgrade.headers_mut().insert(name, value.parse().unwrap());
        }
        for mut error in [
            upstream.send(delete()).await.unwrap_err(),
            upstream.upgrade(upgrade).await.unwrap_err(),
        ] {
            assert_eq!(error.reason(), "bad_address", "{address}: {error}");
            assert!(!error.sent());
            let request = error.take_request().unwrap();
            assert_eq!(request.uri(), "/api/v1/namespaces/n/pods/p");
        }
    }
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
