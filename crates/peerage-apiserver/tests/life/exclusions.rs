//! What the store itself defines is nobody's to forward.

use serde_json::json;

use super::support::{Mode, Site, Switch, until};

#[tokio::test(flavor = "multi_thread")]
async fn definitions_and_aggregated_apis_in_the_store_are_excluded_by_resource_and_by_version() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = site.start(site.options("1.37", "a", store)).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let created = server.send("POST", path, &definition).await;
    assert_eq!(created.status(), 201, "{}", created.json());
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.metrics.example.com"},
        "spec": {"group": "metrics.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 1,
            "insecureSkipTLSVerify": true, "service": {"name": "metrics", "namespace": "default"}},
    });
    let created = server
        .send(
            "POST",
            "/apis/apiregistration.k8s.io/v1/apiservices",
            &service,
        )
        .await;
    assert_eq!(created.status(), 201, "{}", created.json());

    let reason = async |target: &str| {
        let path = format!("/debug/peers?explain=GET%20{target}");
        server.get(&path).await.json()["explanation"].to_string()
    };
    for target in [
        "/apis/example.com/v1/widgets",
        "/apis/example.com/v2/widgets",
        "/apis/metrics.example.com/v1/anything",
    ] {
        until(target, || async {
            reason(target).await.to_lowercase().contains("store")
        })
        .await;
        assert_eq!(server.get(target).await.status(), 404, "{target}");
    }
    for target in [
        "/apis/example.com/v1/gadgets",
        "/apis/metrics.example.com/v2/anything",
    ] {
        let reason = reason(target).await.to_lowercase();
        assert!(!reason.contains("store"), "{target}: {reason}");
    }
    // It ends with the definition, at once.
    let deleted = server
        .send("DELETE", &format!("{path}/widgets.example.com"), &json!({}))
        .await;
    assert!(deleted.status() < 300, "{}", deleted.json());
    let target = "/apis/example.com/v1/widgets";
    until("the exclusion ends", || async {
        !reason(target).await.to_lowercase().contains("store")
    })
    .await;
}
