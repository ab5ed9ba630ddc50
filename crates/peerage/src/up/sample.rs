//! The object that the demonstration creates: of a kind that only the newest server has, valid, and without effect.

use serde_json::{Value, json};

use super::difference::{ResourceFacts, ResourceName, Resources};

/// Name of the object.
pub(super) const NAME: &str = "peerage-demo";
/// Its namespace, if it has one.
pub(super) const NAMESPACE: &str = "default";
/// What has to be possible with its kind.
const VERBS: [&str; 6] = ["create", "delete", "get", "list", "patch", "watch"];

/// What to show the proxy with.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) name: ResourceName,
    pub(super) object: Value,
    namespace: Option<&'static str>,
}

impl Sample {
    /// The path of its collection.
    pub(super) fn collection(&self) -> String {
        self.name.path(self.namespace)
    }

    /// The path of the object.
    pub(super) fn path(&self) -> String {
        format!("{}/{NAME}", self.collection())
    }
}

/// What the kinds need beside a name, best first: those that nothing reacts to come before the others.
fn known() -> Vec<(&'static str, &'static str, Value)> {
    let migration = json!({"spec": {"resource": {"group": "apps", "resource": "deployments"}}});
    let taint = json!({"key": "example.com/demo", "effect": "None"});
    vec![
        (
            "storagemigration.k8s.io",
            "storageversionmigrations",
            migration,
        ),
        ("resource.k8s.io", "deviceclasses", json!({"spec": {}})),
        (
            "storage.k8s.io",
            "volumeattributesclasses",
            json!({"driverName": "demo.example.com"}),
        ),
        (
            "resource.k8s.io",
            "devicetaintrules",
            json!({"spec": {"taint": taint}}),
        ),
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings",
            json!({"spec": {"policyName": "there-is-none"}}),
        ),
    ]
}

/// Chooses among what only the newest server has. A kind that is not known here is tried with a name alone, when no
/// known one is there.
pub(super) fn choose(only: &Resources) -> Option<Sample> {
    let usable = |facts: &ResourceFacts| facts.allows(&VERBS);
    for (group, resource, content) in known() {
        let found = only.iter().find(|(name, facts)| {
            name.group == group && name.resource == resource && usable(facts)
        });
        if let Some((name, facts)) = found {
            return Some(sample(name, facts, content));
        }
    }
    let (name, facts) = only.iter().find(|(_, facts)| usable(facts))?;
    Some(sample(name, facts, json!({})))
}

fn sample(name: &ResourceName, facts: &ResourceFacts, mut object: Value) -> Sample {
    object["apiVersion"] = name.api_version().into();
    object["kind"] = facts.kind.clone().into();
    object["metadata"] = json!({"name": NAME, "labels": {"shown": "first"}});
    Sample {
        name: name.clone(),
        object,
        namespace: facts.namespaced.then_some(NAMESPACE),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resources(rows: &[(&str, &str, bool, &[&str])]) -> Resources {
        let row = |(group, resource, namespaced, verbs): &(&str, &str, bool, &[&str])| {
            let name = ResourceName {
                group: (*group).to_owned(),
                version: "v1".to_owned(),
                resource: (*resource).to_owned(),
            };
            let facts = ResourceFacts {
                kind: "Kind".to_owned(),
                namespaced: *namespaced,
                verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
                stale: false,
            };
            (name, facts)
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn known_kinds_come_first_and_others_are_tried_with_a_name() {
        let both = resources(&[
            ("a.example.com", "things", true, &VERBS),
            ("resource.k8s.io", "deviceclasses", false, &VERBS),
        ]);
        let chosen = choose(&both).unwrap();
        assert_eq!(
            chosen.path(),
            "/apis/resource.k8s.io/v1/deviceclasses/peerage-demo"
        );
        assert_eq!(chosen.object["spec"], json!({}));

        let other = resources(&[("a.example.com", "things", true, &VERBS)]);
        let path = "/apis/a.example.com/v1/namespaces/default/things";
        assert_eq!(choose(&other).unwrap().collection(), path);
    }

    #[test]
    fn what_cannot_be_created_or_watched_is_not_chosen() {
        let some = resources(&[("resource.k8s.io", "deviceclasses", false, &["get", "list"])]);
        assert!(choose(&some).is_none());
    }
}
