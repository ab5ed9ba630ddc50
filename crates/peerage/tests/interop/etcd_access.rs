//! Who is let in to a real etcd, and how `peerage apiserver` gets in: name and password, certificates, several servers
//! of which one is down, a prefix of its own.

use std::time::Duration;

use base64::Engine as _;
use futures::StreamExt as _;
use peerage_etcd::{ConnectError, EtcdOptions, EtcdStore, EtcdUser};
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{ClientTls, Pem};
use peerage_store::{KeyRange, Store as _, StoreExt as _, WatchRequest};
use peerage_testkit::kube::{Etcd, PeerageApiserver, ports};
use peerage_testkit::pki::Pki;
use peerage_testkit::process::ServerSpec;
use peerage_testkit::wire::Outgoing;
use serde_json::json;

use crate::ours::executable;

const PASSWORD: &str = "open sesame";

fn options(etcd: &Etcd, password: Option<&str>) -> EtcdOptions {
    let mut options = EtcdOptions::new([etcd.url()]);
    options.user = password.map(|password| EtcdUser::new("root", password));
    options
}

async fn a_password_opens(version: &str) {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of(version)
        .password(PASSWORD)
        .start(&pki, directory.path())
        .await;
    for wrong in [None, Some("guess")] {
        let error = EtcdStore::connect(options(&etcd, wrong)).await.unwrap_err();
        assert!(
            matches!(error, ConnectError::Denied { .. }),
            "{wrong:?}: {error:?}"
        );
        assert!(!format!("{error:?}").contains("guess"));
    }
    let store = EtcdStore::connect(options(&etcd, Some(PASSWORD)))
        .await
        .unwrap();
    let from = store.create("/a", "1", 0).await.unwrap().mod_revision;
    let watch = WatchRequest::new(KeyRange::prefix("/"), from + 1);
    let mut watch = store.watch(watch).await.unwrap();
    // A token is worth nothing to an etcd that was started anew: reads, writes and the watch ask for another one.
    for round in 0..2 {
        etcd.kill();
        etcd.restart().await;
        assert_eq!(store.get("/a").await.unwrap().unwrap().value, "1");
        let key = format!("/b{round}");
        store.create(key.clone(), "1", 0).await.unwrap();
        let batch = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
        let batch = batch.unwrap().unwrap().unwrap();
        assert_eq!(batch.events[0].kv.key, key);
        let again = WatchRequest::new(KeyRange::prefix("/"), 0);
        store.watch(again).await.unwrap();
        let lease = store
            .lease_grant(Duration::from_secs(60), None)
            .await
            .unwrap();
        store.lease_keep_alive(lease.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_password_opens_etcd_3_6_again_and_again() {
    a_password_opens("3.6").await;
}

#[tokio::test]
async fn a_password_opens_etcd_3_5_again_and_again() {
    a_password_opens("3.5").await;
}

#[tokio::test]
async fn a_name_that_nobody_asks_for_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of("3.6").start(&pki, directory.path()).await;
    let store = EtcdStore::connect(options(&etcd, Some(PASSWORD)))
        .await
        .unwrap();
    store.create("/a", "1", 0).await.unwrap();
}

/// A user `kube` with that password, who may read and write below `/registry/` and nothing else.
async fn with_a_user_of_a_prefix(etcd: &Etcd) {
    let text = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let permission = json!({"permType": "READWRITE", "key": text("/registry/"), "range_end": text("/registry0")});
    for (path, body) in [
        (
            "user/add",
            json!({"name": "root", "password": "of nobody here"}),
        ),
        ("user/grant", json!({"user": "root", "role": "root"})),
        ("role/add", json!({"name": "kube"})),
        ("role/grant", json!({"name": "kube", "perm": permission})),
        ("user/add", json!({"name": "kube", "password": PASSWORD})),
        ("user/grant", json!({"user": "kube", "role": "kube"})),
        ("enable", json!({})),
    ] {
        etcd.call(&format!("/v3/auth/{path}"), &body).await.unwrap();
    }
}

#[tokio::test]
async fn an_api_server_needs_no_more_of_etcd_than_its_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of("3.6").start(&pki, directory.path()).await;
    with_a_user_of_a_prefix(&etcd).await;
    let password = directory.path().join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let mut spec = ServerSpec::peer("ours", "1.37", &etcd.url());
    spec.flags = vec![
        "--etcd-username=kube".to_owned(),
        format!("--etcd-password-file={}", password.display()),
        "--etcd-compaction-interval=0".to_owned(),
    ];
    // It is ready when this returns.
    let ours = PeerageApiserver::start(executable(), &pki, directory.path(), &spec).await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "R", "type": "Normal"});
    let create = Outgoing::new("POST", "/api/v1/namespaces/default/events");
    let create = create.json("application/json", &event);
    let answer = ours.client("admin").send(&create).await.unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.in_words());
}

#[tokio::test]
async fn an_api_server_gets_in_with_its_certificate_past_a_server_that_is_down() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of("3.6").tls().start(&pki, directory.path()).await;
    let file = |name: &str| pki.file(name).display().to_string();
    let servers = format!("https://{},{}", ports::free(), etcd.url());
    let mut spec = ServerSpec::peer("ours", "1.37", &servers);
    let flags = [
        format!("--etcd-cafile={}", file("ca.crt")),
        format!("--etcd-certfile={}", file("etcd-client.crt")),
        format!("--etcd-keyfile={}", file("etcd-client.key")),
        "--etcd-prefix=/elsewhere".to_owned(),
    ];
    spec.flags = flags.to_vec();
    let ours = PeerageApiserver::start(executable(), &pki, directory.path(), &spec).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let create = Outgoing::new("POST", "/api/v1/namespaces/default/configmaps");
    let answer = ours
        .client("admin")
        .send(&create.json("application/json", &map))
        .await
        .unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.in_words());

    let mut tls = ClientTlsOptions::new(Pem::file(pki.file("ca.crt")));
    tls.identity = Some((
        Pem::file(pki.file("etcd-client.crt")),
        Pem::file(pki.file("etcd-client.key")),
    ));
    let mut options = options(&etcd, None);
    options.tls = ClientTls::load(tls).unwrap();
    let store = EtcdStore::connect(options.clone()).await.unwrap();
    let listing = store.list(KeyRange::prefix("/")).await.unwrap();
    let keys: Vec<_> = listing
        .kvs
        .iter()
        .map(|kv| String::from_utf8_lossy(&kv.key))
        .collect();
    assert!(
        keys.iter()
            .any(|key| key == "/elsewhere/configmaps/default/a"),
        "{keys:?}"
    );
    assert!(
        keys.iter().all(|key| key.starts_with("/elsewhere/")),
        "{keys:?}"
    );

    let mut bare = ClientTlsOptions::new(Pem::file(pki.file("ca.crt")));
    bare.identity = None;
    options.tls = ClientTls::load(bare).unwrap();
    options.request_timeout = Duration::from_secs(1);
    let error = EtcdStore::connect(options).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Unreachable { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_api_server_gets_in_with_a_password_and_with_a_wrong_one_says_so_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of("3.6")
        .password(PASSWORD)
        .start(&pki, directory.path())
        .await;
    let password = directory.path().join("password");
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let flags = [
        "--etcd-username=root".to_owned(),
        format!("--etcd-password-file={}", password.display()),
    ];
    let mut spec = ServerSpec::peer("ours", "1.37", &etcd.url());
    spec.flags = flags.to_vec();
    let ours = PeerageApiserver::start(executable(), &pki, directory.path(), &spec).await;
    let namespaces = Outgoing::new("GET", "/api/v1/namespaces");
    let answer = ours.client("admin").send(&namespaces).await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.in_words());

    std::fs::write(&password, "guess").unwrap();
    let run = tokio::process::Command::new(executable())
        .arg("apiserver")
        .arg(format!("--data-dir={}", directory.path().display()))
        .args(["--bind-address=127.0.0.1", "--secure-port=0"])
        .arg(format!("--etcd-servers={}", etcd.url()))
        .args(&flags)
        .kill_on_drop(true)
        .output();
    let run = tokio::time::timeout(Duration::from_secs(20), run).await;
    let output = run.expect("it goes on trying").unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    for part in ["does not let this client in", "invalid user ID or password"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("guess"), "{text}");
}
