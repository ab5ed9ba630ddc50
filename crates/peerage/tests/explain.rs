//! `peerage explain` with servers that cannot say themselves what they would do, and their discovery in every form.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use http::StatusCode;
use peerage::pki::kubeconfig::{Kubeconfig, Server as Named};
use peerage_catalogue::{Catalogue, RuntimeConfig};
use peerage_core::discovery::DiscoveryVersion;
use peerage_http::{Pem, Request, Response, Server, ServerOptions, ServerTls, full, tls};
use peerage_testkit::cluster::legacy_documents;
use peerage_testkit::pki::Pki;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How a server says what it serves.
#[derive(Debug, Clone, Copy)]
enum Form {
    V2,
    V2beta1,
    Legacy,
}

fn documents(version: &str, form: Form) -> BTreeMap<String, Vec<u8>> {
    let catalogue = Catalogue::load(version, &RuntimeConfig::default()).unwrap();
    let aggregated = |form| {
        let (core, apis) = (catalogue.core_discovery(), catalogue.groups_discovery());
        BTreeMap::from([
            ("/api".to_owned(), core.to_json(form)),
            ("/apis".to_owned(), apis.to_json(form)),
        ])
    };
    match form {
        Form::V2 => aggregated(DiscoveryVersion::V2),
        Form::V2beta1 => aggregated(DiscoveryVersion::V2Beta1),
        Form::Legacy => legacy_documents(&catalogue)
            .into_iter()
            .map(|(path, document)| (path, document.to_string().into_bytes()))
            .collect(),
    }
}

/// A server that has discovery and nothing else.
async fn serve(pki: &Pki, version: &str, form: Form) -> (String, DropGuard) {
    let read = |name: &str| Pem::bytes(std::fs::read(pki.file(name)).unwrap());
    let pair = tls::ServerTlsOptions::new(read("server.crt"), read("server.key"));
    let tls = ServerTls::load(pair).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let documents = std::sync::Arc::new(documents(version, form));
    let service = tower::service_fn(move |request: Request| {
        let document = documents.get(request.uri().path()).cloned();
        async move {
            let mut response = Response::new(full(document.clone().unwrap_or_default()));
            if document.is_none() {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let stop = CancellationToken::new();
    let options = ServerOptions::default();
    tokio::spawn(Server::serve(listener, tls, service, options, stop.clone()));
    (url, stop.drop_guard())
}

fn kubeconfig(pki: &Pki, urls: [&str; 2]) -> std::path::PathBuf {
    let read = |name: &str| std::fs::read_to_string(pki.file(name)).unwrap();
    let named = |(name, url): (&str, &str)| Named {
        name: name.to_owned(),
        url: url.to_owned(),
    };
    let file = Kubeconfig {
        servers: ["old", "new"].into_iter().zip(urls).map(named).collect(),
        authority: read("ca.crt"),
        user: "admin".to_owned(),
        certificate: read("admin.crt"),
        key: read("admin.key"),
    };
    let path = pki.file("kubeconfig");
    file.write(&path, true).unwrap();
    path
}

async fn explain(kubeconfig: &Path, target: &str) -> Value {
    let (explained, error) = explain_and_say(kubeconfig, target).await;
    assert!(error.is_empty(), "{error}");
    explained
}

async fn explain_and_say(kubeconfig: &Path, target: &str) -> (Value, String) {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_peerage"))
        .args(["explain", "GET", target, "--output=json"])
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let explained = serde_json::from_slice(&output.stdout);
    (explained.unwrap_or_else(|_| panic!("{error}")), error)
}

#[tokio::test]
async fn a_context_that_cannot_be_used_is_told_and_the_others_are_asked() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let (old, _old) = serve(&pki, "1.33", Form::V2).await;
    let (new, _new) = serve(&pki, "1.37", Form::V2).await;
    let kubeconfig = kubeconfig(&pki, [&old, &new]);
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let cloud = "contexts:\n- {name: cloud, context: {cluster: away, user: nobody}}\n";
    let text = text.replace("contexts:\n", cloud);
    std::fs::write(&kubeconfig, text).unwrap();
    let target = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
    let (explained, error) = explain_and_say(&kubeconfig, target).await;
    assert_eq!(explained["answer"], "peer", "{explained:#}");
    assert!(error.starts_with("cloud counts as not heard: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[tokio::test]
async fn a_request_is_explained_whatever_form_the_servers_discovery_has() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    for (old, new) in [
        (Form::Legacy, Form::Legacy),
        (Form::V2beta1, Form::V2),
        (Form::Legacy, Form::V2beta1),
    ] {
        let (old_url, _old) = serve(&pki, "1.33", old).await;
        let (new_url, _new) = serve(&pki, "1.37", new).await;
        let kubeconfig = kubeconfig(&pki, [&old_url, &new_url]);
        for (target, answer, peers) in [
            ("/api/v1/pods", "local", vec![]),
            ("/apis/apps/v1/deployments", "local", vec![]),
            (
                "/apis/storagemigration.k8s.io/v1/storageversionmigrations",
                "peer",
                vec!["new"],
            ),
            ("/apis/nobody.example.com/v1/things", "unknown", vec![]),
        ] {
            let explained = explain(&kubeconfig, target).await;
            let candidates = explained["candidates"].as_array().cloned();
            let ids = candidates.unwrap_or_default();
            let ids: Vec<_> = ids.iter().map(|it| it["id"].as_str().unwrap()).collect();
            assert_eq!(
                (explained["answer"].as_str(), ids),
                (Some(answer), peers),
                "{old:?} {new:?} {target}: {explained:#}"
            );
        }
    }
}
