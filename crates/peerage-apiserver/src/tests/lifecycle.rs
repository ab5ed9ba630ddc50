//! How objects and namespaces come to their end.

use super::*;

#[tokio::test]
async fn an_object_with_finalizers_stays_until_the_last_is_taken_away() {
    let server = Server::new().await;
    let path = format!("{CONFIG_MAPS}/one");
    let mut one = config_map("one");
    one["metadata"]["finalizers"] = json!(["a.example/x", "b.example/y"]);
    server.create(CONFIG_MAPS, one).await.ok();
    let marked = server.delete(&path).await.ok();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let again = server.delete(&path).await.ok();
    assert_eq!(
        again["metadata"]["deletionTimestamp"],
        marked["metadata"]["deletionTimestamp"]
    );
    let finalizers = |list: Value| json!({ "metadata": { "finalizers": list } });
    let more = server
        .merge(&path, finalizers(json!(["a.example/x", "c.example/z"])))
        .await;
    assert_eq!(
        more.code,
        StatusCode::UNPROCESSABLE_ENTITY,
        "none can be added any more"
    );
    assert_eq!(
        server.create(CONFIG_MAPS, config_map("one")).await.code,
        StatusCode::CONFLICT
    );
    server
        .merge(&path, finalizers(json!(["b.example/y"])))
        .await
        .ok();
    server.get(&path).await.ok();
    server.merge(&path, finalizers(Value::Null)).await.ok();
    assert_eq!(server.get(&path).await.code, StatusCode::NOT_FOUND);
    server.create(CONFIG_MAPS, config_map("one")).await.ok();
}

#[tokio::test]
async fn a_pod_on_a_node_has_its_grace_and_may_be_hurried() {
    let server = Server::new().await;
    let account = json!({ "metadata": { "name": "default" } });
    server
        .create("/api/v1/namespaces/default/serviceaccounts", account)
        .await
        .ok();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] },
    });
    let made = server.create(pods, pod).await.ok();
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    assert_eq!(
        made["spec"]["tolerations"].as_array().map(Vec::len),
        Some(2)
    );
    let path = format!("{pods}/p");
    let grace = |answer: Value| answer["metadata"]["deletionGracePeriodSeconds"].as_i64();
    assert_eq!(grace(server.delete(&path).await.ok()), Some(30));
    assert_eq!(
        grace(
            server
                .delete(&format!("{path}?gracePeriodSeconds=5"))
                .await
                .ok()
        ),
        Some(5)
    );
    assert_eq!(
        grace(
            server
                .delete(&format!("{path}?gracePeriodSeconds=60"))
                .await
                .ok()
        ),
        Some(5)
    );
    server
        .delete(&format!("{path}?gracePeriodSeconds=0"))
        .await
        .ok();
    assert_eq!(server.get(&path).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_pod_needs_an_account_that_is_there() {
    let server = Server::new().await;
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    });
    let answer = server.create("/api/v1/namespaces/default/pods", pod).await;
    let message = "pods \"p\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found";
    assert_eq!(answer.refusal(), (403, message));
}

#[tokio::test]
async fn a_namespace_ends_when_it_has_been_finalized() {
    let server = Server::new().await;
    server
        .create("/api/v1/namespaces", config_map("end"))
        .await
        .ok();
    let maps = "/api/v1/namespaces/end/configmaps";
    server.create(maps, config_map("in")).await.ok();
    let marked = server.delete("/api/v1/namespaces/end").await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert!(marked["metadata"]["deletionGracePeriodSeconds"].is_null());
    assert_eq!(
        server.create(maps, config_map("new")).await.code,
        StatusCode::FORBIDDEN
    );
    server
        .merge(&format!("{maps}/in"), json!({ "data": { "a": "b" } }))
        .await
        .ok();
    let mut last = marked.clone();
    last["spec"]["finalizers"] = json!([]);
    last["metadata"]["resourceVersion"] = Value::Null;
    server
        .put("/api/v1/namespaces/end/finalize", last)
        .await
        .ok();
    assert_eq!(
        server.get("/api/v1/namespaces/end").await.code,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        server.create(maps, config_map("new")).await.code,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn preconditions_of_a_deletion_are_held_against_the_store() {
    let server = Server::new().await;
    let made = server.create(CONFIG_MAPS, config_map("one")).await.ok();
    let path = format!("{CONFIG_MAPS}/one");
    let with = |field: &str, value: &str| json!({ "preconditions": { field: value } }).to_string();
    for body in [with("uid", "other"), with("resourceVersion", "1")] {
        let answer = server.send(Method::DELETE, &path, JSON, body).await;
        assert_eq!(answer.code, StatusCode::CONFLICT);
    }
    let uid = made["metadata"]["uid"].as_str().unwrap();
    server
        .send(Method::DELETE, &path, JSON, with("uid", uid))
        .await
        .ok();
}
