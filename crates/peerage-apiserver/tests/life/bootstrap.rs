//! What a fresh cluster has, and what a start makes of what is there.

use peerage_store::{KeyRange, StoreExt as _};
use serde_json::{Value, json};

use super::support::{Mode, Site, Switch, stored, until};

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_that_start_at_once_write_everything_exactly_once() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let names = ["a", "b", "c"];
    let starts = names.map(|name| site.start(site.options("1.37", name, store.clone())));
    let servers = futures::future::join_all(starts).await;
    let all = store
        .inner()
        .list(KeyRange::prefix("/registry/"))
        .await
        .unwrap();
    let roles = all
        .kvs
        .iter()
        .filter(|kv| kv.key.starts_with(b"/registry/clusterroles/"));
    assert!(roles.clone().count() > 50);
    for kv in roles {
        assert_eq!(kv.version, 1, "{:?}", kv.key);
    }
    let endpoints = "/registry/services/endpoints/default/kubernetes";
    let mut ports: Vec<u16> = servers.iter().map(|s| s.running.address().port()).collect();
    ports.sort_unstable();
    until("all addresses are there", || async {
        let Some(object) = stored(store.inner(), endpoints).await else {
            return false;
        };
        let subsets = object["subsets"].as_array().cloned().unwrap_or_default();
        let found: Vec<Value> = subsets
            .iter()
            .map(|s| s["ports"][0]["port"].clone())
            .collect();
        found == ports.iter().map(|p| json!(p)).collect::<Vec<_>>()
    })
    .await;
    let slice = stored(store.inner(), "/registry/endpointslices/default/kubernetes")
        .await
        .unwrap();
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["127.0.0.1"]));
    assert_eq!(
        slice["metadata"]["labels"]["kubernetes.io/service-name"],
        "kubernetes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubernetes_service_and_the_trust_of_extension_servers_are_this_servers() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = site.start(site.options("1.37", "a", store)).await;
    let service = server
        .get("/api/v1/namespaces/default/services/kubernetes")
        .await
        .json();
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(
        service["spec"]["ports"][0]["targetPort"],
        json!(server.running.address().port())
    );
    let address = server
        .get("/apis/networking.k8s.io/v1/ipaddresses/10.96.0.1")
        .await;
    assert_eq!(address.status(), 200);
    let trust = server
        .get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
        .await
        .json();
    let data = &trust["data"];
    let pem = std::fs::read_to_string(site.pki.file("ca.crt")).unwrap();
    assert_eq!(data["client-ca-file"], json!(pem));
    assert_eq!(
        data["requestheader-allowed-names"],
        r#"["front-proxy-client"]"#
    );
    assert_eq!(
        data["requestheader-username-headers"],
        r#"["X-Remote-User"]"#
    );
    assert_eq!(
        data["requestheader-extra-headers-prefix"],
        r#"["X-Remote-Extra-"]"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_server_adds_its_roles_and_what_older_roles_lack_and_an_older_one_removes_nothing()
{
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let old = site.start(site.options("1.33", "old", store.clone())).await;
    old.running.stop().await;
    let key = "/registry/clusterroles/view";
    let mut mine = stored(store.inner(), "/registry/clusterroles/system:discovery")
        .await
        .unwrap();
    mine["rules"] = json!([{"apiGroups": ["x"], "resources": ["y"], "verbs": ["get"]}]);
    store
        .inner()
        .put(
            "/registry/clusterroles/system:discovery",
            mine.to_string(),
            0,
        )
        .await
        .unwrap();
    store.inner().delete(key, None).await.unwrap();
    let kept = stored(store.inner(), "/registry/clusterroles/system:node")
        .await
        .unwrap();

    let new = site.start(site.options("1.37", "new", store.clone())).await;
    assert!(
        stored(store.inner(), key).await.is_some(),
        "what was deleted is there again"
    );
    let discovery = stored(store.inner(), "/registry/clusterroles/system:discovery")
        .await
        .unwrap();
    let rules = discovery["rules"].as_array().unwrap();
    assert_eq!(rules[0], mine["rules"][0], "what somebody added stays");
    assert!(
        rules.len() > 1,
        "what was missing is there again: {discovery}"
    );
    let node = stored(store.inner(), "/registry/clusterroles/system:node")
        .await
        .unwrap();
    assert_eq!(node["metadata"]["uid"], kept["metadata"]["uid"]);
    new.running.stop().await;

    let services = KeyRange::prefix("/registry/apiregistration.k8s.io/apiservices/");
    let before = store.inner().list(services.clone()).await.unwrap().kvs;
    let old = site.start(site.options("1.33", "old", store.clone())).await;
    let after = store.inner().list(services).await.unwrap().kvs;
    assert_eq!(
        before, after,
        "an API that a newer server serves is not an older one's to remove"
    );
    old.running.stop().await;
}
