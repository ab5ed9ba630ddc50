//! Two servers of different versions on one store: what only the newer one knows survives the older one.

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
