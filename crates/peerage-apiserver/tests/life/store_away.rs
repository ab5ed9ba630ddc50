//! A store that is not there yet, goes away, forgets, is slow, or holds what nobody can read.

use std::time::{Duration, Instant};

use peerage_apiserver::RunError;
use peerage_store::testing::{FaultPlan, FaultyStore};
use peerage_store::{Store as _, StoreExt as _};
use peerage_testkit::wire::Outgoing;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Mode, Server, Site, Switch, TROUBLE, until};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_server_that_waits_for_its_store_stops_when_it_is_told_to() {
    for mode in [Mode::Away, Mode::Silent] {
        let (site, stop) = (Site::new(), CancellationToken::new());
        let options = site.options("1.37", "a", Switch::new(mode));
        let starting = tokio::spawn(peerage_apiserver::start(options, stop.clone()));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!starting.is_finished());
        stop.cancel();
        let started = tokio::time::timeout(Duration::from_secs(2), starting).await;
        assert!(matches!(started.unwrap().unwrap(), Err(RunError::Stopped)));
    }
}

#[tokio::test]
async fn a_server_whose_store_comes_late_starts_when_it_comes() {
    let (site, store) = (Site::new(), Switch::new(Mode::Away));
    let options = site.options("1.37", "a", store.clone());
    let starting = tokio::spawn(peerage_apiserver::start(options, CancellationToken::new()));
    tokio::task::yield_now().await;
    store.set(Mode::There);
    starting.await.unwrap().unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_store_is_away_what_needs_it_is_answered_503_with_retry_after() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let mut options = site.options("1.37", "a", store.clone());
    options.limits.request_timeout = Duration::from_secs(2);
    let server = site.start(options).await;
    assert_eq!(server.config_map("before").await.status(), 201);
    for mode in [Mode::Away, Mode::Silent, Mode::Refusing] {
        store.set(mode);
        let path = format!("{CONFIG_MAPS}/before");
        let options = json!({});
        let delete = server.send("DELETE", &path, &options);
        let asked = Instant::now();
        let (get, list, create, delete) = tokio::join!(
            server.get(&path),
            server.get(CONFIG_MAPS),
            server.config_map("during"),
            delete
        );
        assert!(
            asked.elapsed() < Duration::from_secs(3),
            "{:?}",
            asked.elapsed()
        );
        for answer in [get, list, create, delete] {
            assert_eq!(answer.status(), 503, "{mode:?}: {}", answer.json());
            assert_eq!(answer.json()["kind"], "Status");
            assert_eq!(answer.head.header("Retry-After"), Some("1"));
            let message = answer.json()["message"].as_str().unwrap().to_owned();
            let told = message.contains(TROUBLE);
            assert_eq!(told, mode == Mode::Silent, "{mode:?}: {message}");
        }
        // What may be as old as it is needs no store.
        let old = server
            .get(&format!("{CONFIG_MAPS}?resourceVersion=0"))
            .await;
        assert_eq!(old.status(), 200);
    }
    store.set(Mode::There);
    until("it serves again", || async {
        server.get(&format!("{CONFIG_MAPS}/before")).await.status() == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_the_store() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = site.start(site.options("1.37", "a", store.clone())).await;
    assert_eq!(server.get("/readyz").await.status(), 200);
    store.set(Mode::Silent);
    let gone = Instant::now();
    until("red", || async {
        server.get("/readyz/etcd").await.status() == 500
    })
    .await;
    assert!(gone.elapsed() < Duration::from_secs(9));
    assert_eq!(server.get("/readyz").await.status(), 500);
    store.set(Mode::There);
    until("green", || async {
        server.get("/readyz").await.status() == 200
    })
    .await;
}

/// The next event of a watch: type, name, resource version.
async fn event(watch: &mut peerage_testkit::wire::Incoming) -> (String, Value) {
    let line = watch.line().await.unwrap().expect("the watch goes on");
    let event: Value = serde_json::from_slice(&line).unwrap();
    (
        event["type"].as_str().unwrap().to_owned(),
        event["object"].clone(),
    )
}

async fn watch(server: &Server) -> peerage_testkit::wire::Incoming {
    let list = server.get(CONFIG_MAPS).await.json();
    assert_eq!(list["kind"], "ConfigMapList", "{list}");
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    let (head, watch) = server
        .client
        .open(&Outgoing::new("GET", &path))
        .await
        .unwrap();
    assert_eq!(head.status, 200);
    watch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_without_gaps_when_the_store_was_away() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = site.start(site.options("1.37", "a", store.clone())).await;
    let mut watch = watch(&server).await;
    for round in 0..5 {
        store.set(Mode::Away);
        // Somebody else writes while this server does not see the store.
        for n in 0..3 {
            let name = format!("r{round}-{n}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "default", "uid": name}});
            let key = format!("/registry/configmaps/default/{name}");
            store
                .inner()
                .create(key, object.to_string(), 0)
                .await
                .unwrap();
        }
        store.set(Mode::There);
        for n in 0..3 {
            let (kind, object) = event(&mut watch).await;
            assert_eq!(
                (kind.as_str(), &object["metadata"]["name"]),
                ("ADDED", &json!(format!("r{round}-{n}")))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_told_to_list_again_when_the_store_forgot_what_they_missed() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = site.start(site.options("1.37", "a", store.clone())).await;
    let mut watch = watch(&server).await;
    store.set(Mode::Away);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}});
    for _ in 0..3 {
        let key = "/registry/configmaps/default/x";
        store.inner().put(key, object.to_string(), 0).await.unwrap();
    }
    let now = store.inner().current_revision().await.unwrap();
    store.inner().compact(now).await.unwrap();
    store.set(Mode::There);
    let (kind, status) = event(&mut watch).await;
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
    assert_eq!(watch.line().await.unwrap(), None, "the watch has ended");
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/x")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_and_failing_store_loses_and_repeats_no_event() {
    let site = Site::new();
    let plan = FaultPlan {
        jitter: Duration::from_millis(5),
        cut_off_after: Some(5),
        ..FaultPlan::slow(Duration::from_millis(50))
    };
    let store = std::sync::Arc::new(FaultyStore::new(Switch::new(Mode::There), plan));
    let server = site.start(site.options("1.37", "a", store)).await;
    let mut watch = watch(&server).await;
    for n in 0..10 {
        assert_eq!(server.config_map(&format!("c{n}")).await.status(), 201);
    }
    for n in 0..10 {
        let (kind, object) = event(&mut watch).await;
        assert_eq!(
            (kind.as_str(), &object["metadata"]["name"]),
            ("ADDED", &json!(format!("c{n}")))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_cannot_be_read_cost_nothing_but_themselves() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let values: [(&str, &[u8]); 4] = [
        ("garbage", b"\xff\x00{"),
        ("protobuf", b"k8s\0\n\x0b\n\x02v1\x12\x09ConfigMap"),
        ("list", b"[1, 2]"),
        ("empty", b""),
    ];
    for (name, value) in values {
        let key = format!("/registry/configmaps/default/{name}");
        store.inner().create(key, value, 0).await.unwrap();
        let key = format!("/registry/leases/kube-system/{name}");
        store.inner().create(key, value, 0).await.unwrap();
        let key = format!("/registry/peerserverleases/{name}");
        store.inner().create(key, value, 0).await.unwrap();
        for kind in ["customresourcedefinitions", "apiservices"] {
            let group = if kind == "apiservices" {
                "apiregistration"
            } else {
                "apiextensions"
            };
            let key = format!("/registry/{group}.k8s.io/{kind}/{name}");
            store.inner().create(key, value, 0).await.unwrap();
        }
    }
    let server = site.start(site.options("1.37", "a", store.clone())).await;
    assert_eq!(server.config_map("good").await.status(), 201);
    for (name, value) in values {
        let path = format!("{CONFIG_MAPS}/{name}");
        let get = server.get(&path).await;
        assert_eq!(
            (get.status(), &get.json()["kind"]),
            (500, &json!("Status")),
            "{name}"
        );
        let body = json!({"metadata": {"name": name}, "data": {"a": "b"}});
        let put = server.send("PUT", &path, &body).await;
        assert!(put.status() >= 400, "{name}: {}", put.json());
        let key = format!("/registry/configmaps/default/{name}");
        let kept = store.inner().get(key).await.unwrap().unwrap();
        assert_eq!(&kept.value[..], value, "it is still there as it was");
    }
    assert_eq!(
        server.get(&format!("{CONFIG_MAPS}/good")).await.status(),
        200
    );
}
