//! What one server's discovery has and another's has not.
//!
//! Works on the aggregated documents as JSON, because it looks at answers the way any client would; the model that the
//! proxy merges with is `peerage-core`'s.

use std::collections::BTreeMap;

use serde_json::Value;

/// A resource of a group and version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ResourceName {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
}

/// What discovery says of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResourceFacts {
    pub(super) kind: String,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<String>,
    pub(super) stale: bool,
}

/// Resources by name.
pub(super) type Resources = BTreeMap<ResourceName, ResourceFacts>;

impl ResourceName {
    /// `storagemigration.k8s.io/v1`, or `v1` in the core group.
    pub(super) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of its collection.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.resource),
            None => format!("{root}/{}", self.resource),
        }
    }
}

impl ResourceFacts {
    pub(super) fn allows(&self, verbs: &[&str]) -> bool {
        verbs
            .iter()
            .all(|verb| self.verbs.iter().any(|has| has == verb))
    }
}

/// The resources of an aggregated document; what is not as it should be is left out.
pub(super) fn resources(document: &Value) -> Resources {
    let mut resources = Resources::new();
    for group in list(document, "items") {
        for version in list(group, "versions") {
            for resource in list(version, "resources") {
                let name = ResourceName {
                    group: text(&group["metadata"], "name"),
                    version: text(version, "version"),
                    resource: text(resource, "resource"),
                };
                let verbs = list(resource, "verbs").iter().filter_map(Value::as_str);
                let facts = ResourceFacts {
                    kind: text(&resource["responseKind"], "kind"),
                    namespaced: resource["scope"] == "Namespaced",
                    verbs: verbs.map(str::to_owned).collect(),
                    stale: version["freshness"] == "Stale",
                };
                resources.insert(name, facts);
            }
        }
    }
    resources
}

/// The resources of `newer` that none of `others` has.
pub(super) fn only_in(newer: &Resources, others: &[&Resources]) -> Resources {
    let mut only = newer.clone();
    only.retain(|name, _| others.iter().all(|other| !other.contains_key(name)));
    only
}

/// Resources by API version, for people: `resource.k8s.io/v1 (deviceclasses, resourceclaims)`.
pub(super) fn in_words(resources: &Resources) -> Vec<String> {
    let mut by_version: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in resources.keys() {
        by_version
            .entry(name.api_version())
            .or_default()
            .push(&name.resource);
    }
    let words = by_version.into_iter();
    words
        .map(|(version, names)| format!("{version} ({})", names.join(", ")))
        .collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(versions: Value) -> Value {
        json!({"items": [{"metadata": {"name": "g"}, "versions": versions}]})
    }

    #[test]
    fn a_resource_is_new_when_no_other_server_has_it_in_that_version() {
        let resource = |name: &str| json!({"resource": name, "scope": "Cluster", "verbs": ["get"]});
        let newer = resources(&document(json!([
            {"version": "v2", "resources": [resource("a"), resource("b")], "freshness": "Stale"},
            {"version": "v1", "resources": [resource("a"), resource("c")]},
        ])));
        let one = resources(&document(
            json!([{"version": "v1", "resources": [resource("a")]}]),
        ));
        let two = resources(&document(
            json!([{"version": "v2", "resources": [resource("b")]}]),
        ));
        let only = only_in(&newer, &[&one, &two]);
        assert_eq!(in_words(&only), ["g/v1 (c)", "g/v2 (a)"]);
        let stale: Vec<_> = only.values().map(|facts| facts.stale).collect();
        assert_eq!(stale, [false, true]);
    }

    #[test]
    fn documents_that_are_none_have_no_resources() {
        for document in [
            json!(null),
            json!([]),
            json!({"items": 1}),
            json!({"items": [{"versions": [1]}]}),
        ] {
            assert!(resources(&document).is_empty());
        }
    }
}
