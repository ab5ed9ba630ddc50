//! Small aggregated discovery documents.

use serde_json::{Value, json};

/// The verbs of ordinary resources.
pub const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// `/api` with these resources in `v1`.
pub fn api(resources: &[Value]) -> Value {
    list(&[json!({"metadata": {}, "versions": [version("v1", resources)]})])
}

/// `/apis` with these groups.
pub fn apis(groups: &[Value]) -> Value {
    list(groups)
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// A group with these versions, each with its resources.
pub fn group(name: &str, versions: &[(&str, &[Value])]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(name, resources)| version(name, resources))
        .collect();
    json!({"metadata": {"name": name}, "versions": versions})
}

fn version(name: &str, resources: &[Value]) -> Value {
    json!({"version": name, "resources": resources, "freshness": "Current"})
}

/// A namespaced resource with all verbs and these subresources.
pub fn resource(name: &str, subresources: &[(&str, &[&str])]) -> Value {
    let subresources: Vec<Value> = subresources
        .iter()
        .map(|(name, verbs)| json!({"subresource": name, "responseKind": {"group": "", "version": "", "kind": "X"}, "verbs": verbs}))
        .collect();
    let mut resource = json!({
        "resource": name, "responseKind": {"group": "", "version": "", "kind": "X"}, "scope": "Namespaced",
        "singularResource": "x", "verbs": VERBS,
    });
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}

/// `/api` of every server here.
pub fn core() -> Value {
    api(&[resource("pods", &[("log", &["get"])])])
}

/// `/apis` of the local, older server.
pub fn old() -> Value {
    apis(&[group(
        "apps",
        &[(
            "v1",
            &[resource(
                "deployments",
                &[("status", &["get", "patch", "update"])],
            )],
        )],
    )])
}

/// `/apis` of a newer server: a group, a version, a resource, a subresource and a verb more.
pub fn new() -> Value {
    let deployments = resource(
        "deployments",
        &[
            ("boost", &["get", "update"]),
            ("status", &["get", "patch", "update"]),
        ],
    );
    apis(&[
        group(
            "apps",
            &[
                ("v2", &[resource("deployments", &[])]),
                ("v1", &[deployments, resource("fleets", &[])]),
            ],
        ),
        group(
            "new.example.com",
            &[(
                "v1",
                &[resource(
                    "widgets",
                    &[("status", &["get", "patch", "update"])],
                )],
            )],
        ),
    ])
}
