//! What hangs on which version a server serves.

use super::*;

/// Has the server say that it serves this version, or nothing.
fn serves(peer: &FakePeer, minor: Option<u32>) {
    peer.on_probe(move |request| {
        let answer = match (request.uri().path(), minor) {
            ("/version", Some(minor)) => {
                let version = json!({"major": "1", "minor": minor.to_string()});
                text(StatusCode::OK, &version.to_string())
            }
            _ => text(StatusCode::FORBIDDEN, "no"),
        };
        async move { answer }
    });
}

/// kubernetes/kubernetes#46073: the older one would erase what only the newest knows.
#[tokio::test]
async fn no_older_server_writes_while_the_version_of_another_that_could_is_not_known() {
    let pki = Pki::new();
    let newer = FakePeer::start(&pki, "newer", &documents::core(), &documents::new()).await;
    let older = FakePeer::start(&pki, "older", &documents::core(), &documents::old()).await;
    serves(&older, Some(35));
    serves(&newer, None);
    let gateway = Gateway::writing(&pki, &[&newer, &older], None, Writes::Newest);
    gateway.synced().await;
    gateway
        .until("older", |it| it.version.as_deref() == Some("1.35"))
        .await;
    gateway
        .until("newer", |it| it.version_error.is_some())
        .await;
    let write = || {
        let deployments = "/apis/apps/v1/namespaces/a/deployments";
        gateway.send(request("POST", deployments))
    };
    write().await.assert_retryable();
    assert!(newer.requests().is_empty() && older.requests().is_empty());
    let only_there = request("POST", "/apis/new.example.com/v1/widgets");
    assert_eq!(gateway.send(only_there).await.text(), "newer");
    let registry = peerage_http::metrics::Registry::default();
    gateway.proxy.register_metrics(&registry);
    let counted = registry.text();
    for line in [
        r#"peerage_peer_errors_total{peer="newer",reason="version"}"#,
        r#"peerage_proxy_refused_total{reason="version_unknown"} 1"#,
    ] {
        assert!(counted.contains(line), "{line} in {counted}");
    }

    serves(&newer, Some(37));
    gateway
        .until("newer", |it| it.version.as_deref() == Some("1.37"))
        .await;
    for _ in 0..10 {
        assert_eq!(write().await.text(), "newer");
    }
    // One that comes back is asked before it gets a request; a server that starts and cannot say it yet is taken for
    // what it was, since nothing newer can have been stored through it.
    newer.kill();
    gateway
        .until("newer", |it| {
            it.state == "unreachable" && it.version.as_deref() == Some("1.37")
        })
        .await;
}

/// A server that moved may have become older: it gets nothing as what it was before.
#[tokio::test]
async fn a_server_at_another_address_gets_no_request_before_it_was_asked_for_its_version() {
    let pki = Pki::new();
    let (core, old) = (documents::core(), documents::old());
    let moving = FakePeer::start(&pki, "moving", &core, &old).await;
    let other = FakePeer::start(&pki, "other", &core, &old).await;
    serves(&moving, Some(37));
    serves(&other, Some(36));
    let gateway = Gateway::writing(&pki, &[&moving, &other], None, Writes::Newest);
    gateway.synced().await;
    let says = |version: &'static str| {
        move |it: &DebugPeer| it.version.as_deref() == Some(version) && it.state == "serving"
    };
    gateway.until("moving", says("1.37")).await;
    gateway.until("other", says("1.36")).await;
    let write = || gateway.send(request("POST", "/apis/apps/v1/namespaces/a/deployments"));
    assert_eq!(write().await.text(), "moving");

    let moved = FakePeer::start(&pki, "moved", &core, &old).await;
    let (tell, told) = watch::channel(false);
    moved.on_probe(move |request| {
        let mut told = told.clone();
        async move {
            if request.uri().path() != "/version" {
                return text(StatusCode::FORBIDDEN, "no");
            }
            told.wait_for(|it| *it).await.unwrap();
            text(StatusCode::OK, r#"{"major":"1","minor":"35"}"#)
        }
    });
    gateway.list(&[("moving", &moved), ("other", &other)]);
    moved.polled("/version", 1).await;
    for _ in 0..10 {
        assert_eq!(write().await.text(), "other");
    }
    tell.send_replace(true);
    gateway.until("moving", says("1.35")).await;
    for _ in 0..10 {
        assert_eq!(write().await.text(), "other");
    }
    assert!(moved.requests().is_empty());
}

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

/// Waits until a read is answered so, by whom if that is named.
async fn until_answered(gateway: &Gateway, status: u16, by: &str) {
    let mut views = gateway.proxy.views();
    let wait = async {
        loop {
            let answer = gateway.send(request("GET", WIDGETS)).await;
            if answer.status == status && (by.is_empty() || answer.text() == by) {
                return;
            }
            let _ = tokio::time::timeout(Duration::from_millis(20), views.changed()).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    assert!(
        waited.is_ok(),
        "not {status} {by}: {:#?}",
        gateway.proxy.debug()
    );
}

/// kube-apiserver says that it is ready before it lists its custom resources and aggregated APIs.
#[tokio::test]
async fn what_a_server_that_has_just_come_back_does_not_list_yet_is_asked_of_others_or_of_nobody() {
    let pki = Pki::new();
    let (core, new) = (documents::core(), documents::new());
    let newest = FakePeer::start(&pki, "newest", &core, &new).await;
    serves(&newest, Some(36));
    let gateway = Gateway::writing(&pki, &[&newest], None, Writes::Newest);
    gateway.synced().await;
    gateway
        .until("newest", |it| it.version.as_deref() == Some("1.36"))
        .await;
    // The same again, and after an upgrade.
    for version in [36, 37] {
        newest.set_ready(StatusCode::INTERNAL_SERVER_ERROR);
        gateway.until("newest", |it| !it.ready).await;
        serves(&newest, Some(version));
        newest.set_apis(Document::of(&documents::old()));
        newest.set_ready(StatusCode::OK);
        gateway
            .until("newest", |it| {
                it.ready && it.starting && it.version == Some(format!("1.{version}"))
            })
            .await;
        until_answered(&gateway, 503, "").await;
        let write = gateway.send(request("POST", WIDGETS)).await;
        write.assert_retryable();
        if version == 37 {
            // Whoever has it meanwhile is the newest that does.
            let other = FakePeer::start(&pki, "other", &core, &new).await;
            serves(&other, Some(35));
            gateway.list(&[("newest", &newest), ("other", &other)]);
            let serving = |it: &DebugPeer| it.state == "serving" && it.version.is_some();
            gateway.until("other", serving).await;
            until_answered(&gateway, 200, "other").await;
            let write = gateway.send(request("POST", WIDGETS)).await;
            assert_eq!(write.text(), "other");
            gateway.list(&[("newest", &newest)]);
        }
        newest.set_apis(Document::of(&new));
        gateway.until("newest", |it| !it.starting).await;
        until_answered(&gateway, 200, "newest").await;
        assert_eq!(
            gateway.send(request("POST", WIDGETS)).await.text(),
            "newest"
        );
    }
}

#[tokio::test]
async fn an_older_server_in_the_place_of_a_newer_one_has_what_it_lists() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "peer", &documents::core(), &documents::new()).await;
    serves(&peer, Some(36));
    let gateway = Gateway::ready(&pki, &[&peer], None).await;
    gateway
        .until("peer", |it| it.version.as_deref() == Some("1.36"))
        .await;
    peer.set_ready(StatusCode::INTERNAL_SERVER_ERROR);
    peer.set_apis(Document::of(&documents::old()));
    gateway.until("peer", |it| it.starting).await;
    serves(&peer, Some(35));
    gateway
        .until("peer", |it| {
            !it.only_here.iter().any(|it| it.contains("widgets"))
        })
        .await;
    // It is passed on, for the server to say that it does not have it.
    until_answered(&gateway, 200, "peer").await;
    assert!(gateway.proxy.debug().peers.iter().all(|it| !it.starting));
}
