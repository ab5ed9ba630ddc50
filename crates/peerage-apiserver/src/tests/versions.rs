//! Servers of different versions, and of other makes, on one store: what only the newer one knows survives the older one,
//! and what another has left out is filled in.

use peerage_store::StoreExt as _;

use super::*;

const NODES: &str = "/api/v1/nodes";

async fn pair() -> (Server, Server) {
    let store = memory();
    let old = Server::of("1.34", store.clone()).await;
    (old, Server::of("1.37", store).await)
}

/// A field of `Node.status` that the newer version has and the older has not.
fn newer_field() -> (String, Value) {
    let fields = |version: &str| {
        let catalogue = Catalogue::load(version, &RuntimeConfig::default()).unwrap();
        let id = catalogue
            .type_by_name("io.k8s.api.core.v1.NodeStatus")
            .unwrap();
        let schema = catalogue.types().get(id).as_struct().unwrap().clone();
        schema
            .properties
            .keys()
            .map(|k| k.to_string())
            .collect::<Vec<_>>()
    };
    let old = fields("1.34");
    let new: Vec<String> = fields("1.37")
        .into_iter()
        .filter(|f| !old.contains(f))
        .collect();
    assert!(new.contains(&"declaredFeatures".to_owned()), "{new:?}");
    ("declaredFeatures".to_owned(), json!(["One", "Two"]))
}

#[tokio::test]
async fn a_label_patch_through_the_older_server_keeps_what_only_the_newer_knows() {
    let (old, new) = pair().await;
    let (field, value) = newer_field();
    let node = json!({ "metadata": { "name": "n" }, "status": { &field: value } });
    new.create(NODES, node).await.ok();
    let path = format!("{NODES}/n");
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    for kind in [MERGE, "application/strategic-merge-patch+json"] {
        let patched = old
            .send(Method::PATCH, &path, kind, label.to_string())
            .await
            .ok();
        assert_eq!(patched["metadata"]["labels"]["a"], "b");
    }
    assert_eq!(new.get(&path).await.ok()["status"][&field], value);
    // A whole object, read through the older server and written back, and one that leaves the field out.
    let mut read = old.get(&path).await.ok();
    read["metadata"]["labels"]["c"] = json!("d");
    let strict = format!("{path}?fieldValidation=Strict");
    old.put(&strict, read).await.ok();
    assert_eq!(new.get(&path).await.ok()["status"][&field], value);
    let status = json!({ "metadata": { "name": "n" }, "status": { "phase": "Running" } });
    old.put(&format!("{path}/status"), status).await.ok();
    let after = new.get(&path).await.ok();
    assert_eq!(after["status"][&field], value);
    assert_eq!(after["status"]["phase"], "Running");
    // Through the server that knows it, it goes.
    let gone = json!({ "status": { &field: Value::Null } });
    new.merge(&format!("{path}/status"), gone).await.ok();
    assert!(new.get(&path).await.ok()["status"][&field].is_null());
}

#[tokio::test]
async fn a_change_of_what_the_older_server_does_not_know_is_an_unknown_field() {
    let (old, new) = pair().await;
    let (field, value) = newer_field();
    let node = json!({ "metadata": { "name": "n" }, "status": { &field: value } });
    new.create(NODES, node).await.ok();
    let path = format!("{NODES}/n/status");
    let change = json!({ "status": { &field: ["Three"] } });
    let strict = old
        .merge(&format!("{path}?fieldValidation=Strict"), change.clone())
        .await;
    assert!(strict.code.is_client_error(), "{strict:?}");
    old.merge(&path, change).await.ok();
    assert_eq!(new.get(&path).await.ok()["status"][&field], value);
}

#[tokio::test]
async fn what_another_server_has_left_out_of_the_store_is_filled_in() {
    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    let server = Server::new().await;
    // As a kube-apiserver writes it: other order, and without the phase that is the default.
    let stored = r#"{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"a","namespace":"default",
        "uid":"u","creationTimestamp":"2026-11-29T10:00:00Z"},"spec":{"accessModes":["ReadWriteOnce"],
        "resources":{"requests":{"storage":"1Gi"}},"volumeMode":"Filesystem"},"status":{}}"#;
    let key = format!("{ROOT}/persistentvolumeclaims/default/a");
    let stored = server.store.put(key, stored, 0).await.unwrap();
    let path = format!("{CLAIMS}/a");
    let shown = server.get(&path).await.ok();
    assert_eq!(shown["status"]["phase"], "Pending");
    let listed = server.get(CLAIMS).await.ok();
    assert_eq!(listed["items"][0]["status"]["phase"], "Pending");
    let pending = format!("{CLAIMS}?fieldSelector=metadata.name%3Da");
    assert_eq!(
        server.get(&pending).await.ok()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // To write what is there is no change, in whatever order it is stored.
    let same = server.put(&path, shown).await.ok();
    assert_eq!(version_of(&same), stored.mod_revision);
}

#[tokio::test]
async fn what_is_stored_in_a_version_that_is_not_served_is_left_as_it_is() {
    let server = Server::new().await;
    let stored =
        r#"{"kind":"ConfigMap","apiVersion":"v0","metadata":{"name":"a","namespace":"default"}}"#;
    let key = format!("{ROOT}/configmaps/default/a");
    server.store.put(key.clone(), stored, 0).await.unwrap();
    server.get(&format!("{CONFIG_MAPS}/a")).await;
    let kv = server.store.get(key).await.unwrap().unwrap();
    assert_eq!(kv.value, stored);
}
