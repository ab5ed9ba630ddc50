//! The life of a namespace, with one server and with several.

use std::time::Duration;

use peerage_apiserver::options::Controller;
use serde_json::{Value, json};

use super::support::{Mode, Server, Site, Switch, until};

async fn start(
    site: &Site,
    version: &str,
    name: &str,
    store: std::sync::Arc<Switch>,
    on: bool,
) -> Server {
    let mut options = site.options(version, name, store);
    if on {
        options.controllers = vec![Controller::Namespace];
    }
    site.start(options).await
}

async fn create(server: &Server, name: &str) {
    let namespace = json!({"metadata": {"name": name}});
    let created = server.send("POST", "/api/v1/namespaces", &namespace).await;
    assert_eq!(created.status(), 201, "{}", created.json());
}

async fn add(server: &Server, path: &str, object: Value) {
    let created = server.send("POST", path, &object).await;
    assert_eq!(created.status(), 201, "{}", created.json());
}

async fn gone(server: &Server, path: &str) {
    until(path, || async { server.get(path).await.status() == 404 }).await;
}

fn condition<'a>(namespace: &'a Value, kind: &str) -> &'a Value {
    let all = namespace["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .find(|c| c["type"] == *kind)
        .unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_waits_for_the_finalizers_of_what_is_in_it_and_says_so() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = start(&site, "1.37", "a", store, true).await;
    create(&server, "full").await;
    let maps = "/api/v1/namespaces/full/configmaps";
    add(&server, maps, json!({"metadata": {"name": "plain"}})).await;
    add(
        &server,
        maps,
        json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}),
    )
    .await;
    let path = "/api/v1/namespaces/full";
    let deleted = server.send("DELETE", path, &json!({})).await;
    assert_eq!(
        deleted.json()["status"]["phase"],
        "Terminating",
        "{}",
        deleted.json()
    );
    until("it says what holds it", || async {
        let namespace = server.get(path).await.json();
        condition(&namespace, "NamespaceFinalizersRemaining")["status"] == "True"
    })
    .await;
    let namespace = server.get(path).await.json();
    assert_eq!(
        condition(&namespace, "NamespaceFinalizersRemaining")["message"],
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    assert_eq!(
        condition(&namespace, "NamespaceContentRemaining")["message"],
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    assert_eq!(
        condition(&namespace, "NamespaceDeletionDiscoveryFailure")["status"],
        "False"
    );
    assert_eq!(server.get(&format!("{maps}/plain")).await.status(), 404);
    let mut held = server.get(&format!("{maps}/held")).await.json();
    held["metadata"]["finalizers"] = json!([]);
    server.send("PUT", &format!("{maps}/held"), &held).await;
    gone(&server, path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_servers_controller_empties_what_only_a_newer_one_serves() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let new = start(&site, "1.37", "new", store.clone(), false).await;
    let old = start(&site, "1.33", "old", store, true).await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/mixed/resourceclaims";
    create(&old, "mixed").await;
    let spec =
        json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c"}, "spec": spec});
    add(&new, claims, claim).await;
    until("the old one knows", || async {
        old.get(claims).await.status() == 200
    })
    .await;
    old.send("DELETE", "/api/v1/namespaces/mixed", &json!({}))
        .await;
    gone(&old, "/api/v1/namespaces/mixed").await;
    gone(&new, &format!("{claims}/c")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leading_server_stops_another_takes_over_at_once() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let first = start(&site, "1.37", "first", store.clone(), true).await;
    let lease =
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/peerage-namespace-controller";
    until("the first leads", || async {
        first.get(lease).await.status() == 200
    })
    .await;
    let second = start(&site, "1.37", "second", store, true).await;
    let holder = first.get(lease).await.json()["spec"]["holderIdentity"].clone();
    assert_eq!(holder, json!(peerage_apiserver::server_id("first")));
    first.running.stop().await;
    create(&second, "orphan").await;
    second
        .send("DELETE", "/api/v1/namespaces/orphan", &json!({}))
        .await;
    let takeover = gone(&second, "/api/v1/namespaces/orphan");
    tokio::time::timeout(Duration::from_secs(12), takeover)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_controller_a_namespace_stays_terminating() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = start(&site, "1.37", "a", store, false).await;
    create(&server, "stays").await;
    let path = "/api/v1/namespaces/stays";
    server.send("DELETE", path, &json!({})).await;
    let namespace = server.get(path).await.json();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
}
