//! The objects that a fresh cluster has.
//!
//! They are as recorded, in the stored form, without what the server gives each object (uid, times, resource
//! version). APIServices are made from the group-versions that are on. Writing them is left to the API server,
//! which also puts its own addresses into the Service `kubernetes` and what belongs to it.
//!
//! Invariant: an object comes after those that it names (namespaces, roles, priority levels), and only if its
//! kind is on.

use serde_json::{Value, json};

use crate::catalogue::{Catalogue, CatalogueError, Group, GroupVersion};

/// The kinds in the order in which they have to be there.
const ORDER: [&str; 13] = [
    "Namespace",
    "PriorityClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "PriorityLevelConfiguration",
    "FlowSchema",
    "ConfigMap",
    "ServiceCIDR",
    "Service",
    "IPAddress",
    "APIService",
];

/// The group whose version is no APIService.
const AGGREGATOR: &str = "apiregistration.k8s.io";

impl Catalogue {
    /// The objects of a fresh cluster, in dependency order; `now` (RFC 3339) is the time that their conditions carry.
    pub fn bootstrap(&self, now: &str) -> Result<Vec<Value>, CatalogueError> {
        let mut objects = Vec::new();
        for (name, text) in self.base.records.of_kind("object") {
            let json = text.splitn(3, ' ').nth(2).unwrap_or_default();
            let object = serde_json::from_str(json).map_err(|source| CatalogueError::Json {
                name: name.to_owned(),
                source,
            })?;
            objects.push(object);
        }
        for group in self.groups().iter().filter(|g| g.name != AGGREGATOR) {
            objects.extend(group.versions.iter().map(|v| api_service(group, v)));
        }
        objects.retain(|o| self.is_on(o));
        objects.sort_by_key(|o| {
            ORDER
                .iter()
                .position(|kind| o["kind"] == **kind)
                .unwrap_or(ORDER.len())
        });
        objects.iter_mut().for_each(|o| put_times(o, now));
        Ok(objects)
    }

    fn is_on(&self, object: &Value) -> bool {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion")
            .rsplit_once('/')
            .unwrap_or(("", text("apiVersion")));
        self.kind(group, version, text("kind")).is_some()
    }
}

/// The APIService of a group-version that this server serves itself.
fn api_service(group: &Group, version: &GroupVersion) -> Value {
    let mut spec = json!({
        "version": version.version,
        "groupPriorityMinimum": version.group_priority,
        "versionPriority": version.priority,
    });
    if !group.name.is_empty() {
        spec["group"] = Value::from(&*group.name);
    }
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {
            "name": format!("{}.{}", version.version, group.name),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
        },
        "spec": spec,
        "status": {"conditions": [{
            "type": "Available",
            "status": "True",
            "lastTransitionTime": "",
            "reason": "Local",
            "message": "Local APIServices are always available",
        }]},
    })
}

/// Puts the time where the recording left it out.
fn put_times(value: &mut Value, now: &str) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == "lastTransitionTime" && value == "" {
                    *value = Value::from(now);
                } else {
                    put_times(value, now);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|v| put_times(v, now)),
        _ => {}
    }
}
