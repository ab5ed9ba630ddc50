//! Certificates of both sides.

use peerage_http::reload::Reloaded;
use peerage_http::tls::{ClientTlsOptions, ServerTlsOptions};
use peerage_http::{ClientTls, ConnInfo, Pem, Response, ServerOptions, ServerTls, full};

use crate::common::{Ca, get, serve, text, upstream};

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
