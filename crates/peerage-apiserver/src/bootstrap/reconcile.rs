//! What becomes of an object of a fresh cluster that is there already: as Kubernetes does it, roles and bindings are
//! given what they lack and lose nothing, unless they are marked as the administrator's; the trust that extension
//! servers read is joined with what other servers wrote; everything else stays as it is.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::authz::escalation::missing_rules;

/// On a role or binding: whether it is kept as this version has it. `false` leaves it to the administrator.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The object as it has to be; `None` when it can stay.
pub(super) fn reconcile(expected: &Value, current: &Value) -> Option<Value> {
    let mut new = current.clone();
    match expected["kind"].as_str().unwrap_or_default() {
        "ClusterRole" | "Role" if !is_protected(current) => role(expected, &mut new),
        "ClusterRoleBinding" | "RoleBinding" if !is_protected(current) => {
            if expected["roleRef"] != current["roleRef"] {
                // A reference cannot be changed: it is another binding of the same name.
                new = expected.clone();
                new["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
                new["metadata"]["creationTimestamp"] =
                    current["metadata"]["creationTimestamp"].clone();
            }
            metadata(expected, &mut new);
            add(&expected["subjects"], &mut new["subjects"]);
        }
        "ConfigMap" => trust(&expected["data"], &mut new),
        _ => {}
    }
    (new != *current).then_some(new)
}

fn is_protected(object: &Value) -> bool {
    object["metadata"]["annotations"][AUTOUPDATE] == "false"
}

fn role(expected: &Value, new: &mut Value) {
    metadata(expected, new);
    let selectors = &expected["aggregationRule"]["clusterRoleSelectors"];
    if selectors.is_array() {
        // Its rules are a controller's.
        if !new["aggregationRule"].is_object() {
            new["aggregationRule"] = json!({});
        }
        add(
            selectors,
            &mut new["aggregationRule"]["clusterRoleSelectors"],
        );
        return;
    }
    let missing = missing_rules(&new["rules"], &expected["rules"]);
    if !missing.is_empty() {
        add(&json!(missing), &mut new["rules"]);
    }
}

/// Labels and annotations that are not there; those that are stay.
fn metadata(expected: &Value, new: &mut Value) {
    for field in ["labels", "annotations"] {
        for (key, value) in expected["metadata"][field]
            .as_object()
            .into_iter()
            .flatten()
        {
            let there = &mut new["metadata"][field];
            if !there.is_object() {
                *there = json!({});
            }
            if there.get(key).is_none() {
                there[key] = value.clone();
            }
        }
    }
}

/// Adds the elements that are not there.
fn add(wanted: &Value, list: &mut Value) {
    let lacking: Vec<Value> = {
        let there = list.as_array().map_or(&[][..], Vec::as_slice);
        let wanted = wanted.as_array().into_iter().flatten();
        wanted.filter(|w| !there.contains(w)).cloned().collect()
    };
    if lacking.is_empty() {
        return;
    }
    match list.as_array_mut() {
        Some(list) => list.extend(lacking),
        None => *list = Value::Array(lacking),
    }
}

/// Joins certificates and names with what other servers wrote.
fn trust(expected: &Value, new: &mut Value) {
    for (key, value) in expected.as_object().into_iter().flatten() {
        let (Some(ours), data) = (value.as_str(), &mut new["data"]) else {
            continue;
        };
        if !data.is_object() {
            *data = json!({});
        }
        let theirs = data[key].as_str().unwrap_or_default();
        let joined = if key.ends_with("-ca-file") {
            certificates(theirs, ours)
        } else {
            names(theirs, ours)
        };
        data[key] = json!(joined);
    }
}

fn certificates(theirs: &str, ours: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let mut seen = BTreeSet::new();
    let all = [theirs, ours];
    let blocks = all.iter().flat_map(|pem| pem.split_inclusive(END));
    let whole = blocks.map(str::trim).filter(|block| block.ends_with(END));
    let unique: Vec<&str> = whole.filter(|block| seen.insert(*block)).collect();
    unique.join("\n") + "\n"
}

fn names(theirs: &str, ours: &str) -> String {
    let mut list: Vec<String> = serde_json::from_str(theirs).unwrap_or_default();
    let own: Vec<String> = serde_json::from_str(ours).unwrap_or_default();
    for name in own {
        if !list.contains(&name) {
            list.push(name);
        }
    }
    json!(list).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster_role(rules: Value, annotations: Value) -> Value {
        json!({"kind": "ClusterRole", "metadata": {"name": "r", "annotations": annotations}, "rules": rules})
    }

    #[test]
    fn a_role_is_given_the_rules_that_it_lacks_and_keeps_the_others() {
        let expected = cluster_role(
            json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]),
            json!({AUTOUPDATE: "true"}),
        );
        let own = json!({"apiGroups": ["x"], "resources": ["y"], "verbs": ["z"]});
        let half = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        let current = cluster_role(json!([own, half]), json!({"mine": "kept"}));
        let new = reconcile(&expected, &current).unwrap();
        let added = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]});
        assert_eq!(new["rules"], json!([own, half, added]));
        assert_eq!(
            new["metadata"]["annotations"],
            json!({"mine": "kept", AUTOUPDATE: "true"})
        );
        assert_eq!(reconcile(&expected, &new), None, "once is enough");
    }

    #[test]
    fn a_role_that_is_the_administrators_stays_as_it_is() {
        let expected = cluster_role(
            json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}]),
            json!({}),
        );
        let current = cluster_role(json!([]), json!({AUTOUPDATE: "false"}));
        assert_eq!(reconcile(&expected, &current), None);
    }

    #[test]
    fn a_binding_is_given_subjects_and_replaced_when_it_names_another_role() {
        let binding = |role: &str, subjects: Value| {
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b", "uid": "1", "creationTimestamp": "t"},
                "roleRef": {"name": role}, "subjects": subjects})
        };
        let (a, b) = (json!({"name": "a"}), json!({"name": "b"}));
        let expected = binding("r", json!([a]));
        let joined = reconcile(&expected, &binding("r", json!([b]))).unwrap();
        assert_eq!(joined["subjects"], json!([b, a]));
        assert_eq!(joined["metadata"]["uid"], "1");
        let other = reconcile(&expected, &binding("q", json!([b]))).unwrap();
        assert_eq!(
            (&other["roleRef"]["name"], &other["subjects"]),
            (&json!("r"), &json!([a]))
        );
        assert_ne!(other["metadata"]["uid"], "1");
    }

    #[test]
    fn trust_of_several_servers_is_joined() {
        let pem = |body: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        };
        let map = |ca: String, names: &str| {
            json!({"kind": "ConfigMap", "metadata": {"name": "m"},
                "data": {"client-ca-file": ca, "requestheader-allowed-names": names}})
        };
        let ours = map(pem("B"), r#"["b"]"#);
        let new = reconcile(&ours, &map(pem("A"), r#"["a"]"#)).unwrap();
        assert_eq!(new["data"]["client-ca-file"], json!(pem("A") + &pem("B")));
        assert_eq!(new["data"]["requestheader-allowed-names"], r#"["a","b"]"#);
        assert_eq!(reconcile(&ours, &new), None);
    }

    #[test]
    fn everything_else_stays() {
        let expected =
            json!({"kind": "Namespace", "metadata": {"name": "default", "labels": {"a": "b"}}});
        assert_eq!(
            reconcile(
                &expected,
                &json!({"kind": "Namespace", "metadata": {"name": "default"}})
            ),
            None
        );
    }
}
