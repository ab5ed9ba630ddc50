//! Nobody grants what they do not have: who writes a role needs every permission in it, and who binds one every
//! permission of the role, unless the verbs `escalate` or `bind` say otherwise. Follows kube-apiserver's
//! policy-based storage of the RBAC kinds, whose texts clients show.
//!
//! Members of `system:masters` and writes that only the garbage collector's fields tell apart are not asked.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use peerage_core::Status;
use peerage_core::quote::quote;
use serde_json::Value;

use super::{Attributes, Rule, SYSTEM_MASTERS};
use crate::call::Call;
use crate::error::ApiError;

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// Fields of `metadata` whose change grants nothing.
const HARMLESS: [&str; 6] = [
    "ownerReferences",
    "finalizers",
    "managedFields",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Refuses a role or binding that gives more than its writer has. Everything that is neither passes.
pub(crate) async fn confirm(call: &Call, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    if call.resource().group.as_ref() != GROUP || call.user.is_in(SYSTEM_MASTERS) {
        return Ok(());
    }
    if call.api().authorizer.always_allows() || old.is_some_and(|old| differs_harmlessly(new, old))
    {
        return Ok(());
    }
    match call.resource().kind.as_ref() {
        kind @ ("Role" | "ClusterRole") => confirm_role(call, kind, new),
        "RoleBinding" | "ClusterRoleBinding" => confirm_binding(call, new).await,
        _ => Ok(()),
    }
}

fn confirm_role(call: &Call, kind: &str, role: &Value) -> Result<(), ApiError> {
    let name = name_of(role);
    let plural = call.resource().plural.as_ref();
    if may(call, "escalate", plural, name) {
        return Ok(());
    }
    if kind == "ClusterRole"
        && role.get("aggregationRule").is_some_and(|r| !r.is_null())
        && confirm_rules(call, &Rule::everything()).is_err()
    {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(Status::forbidden(call.group_resource(), name, why).into());
    }
    let rules: Vec<Rule> = serde_json::from_value(role["rules"].clone()).unwrap_or_default();
    confirm_rules(call, &rules)
        .map_err(|why| Status::forbidden(call.group_resource(), name, &why).into())
}

async fn confirm_binding(call: &Call, binding: &Value) -> Result<(), ApiError> {
    let field = |key: &str| binding["roleRef"][key].as_str().unwrap_or_default();
    let (kind, role) = (field("kind"), field("name"));
    let plural = match kind {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        // Validation refuses it.
        _ => return Ok(()),
    };
    if may(call, "bind", plural, role) {
        return Ok(());
    }
    let namespace = call.info.namespace();
    let mut rbac = call.api().authorizer.rbac();
    if rbac.role_rules(kind, role, namespace).is_none() {
        // It may have been made a moment ago.
        call.fresh().await?;
        rbac = call.api().authorizer.rbac();
    }
    let Some(rules) = rbac.role_rules(kind, role, namespace) else {
        return Err(Status::not_found(call.group_resource(), role).into());
    };
    confirm_rules(call, rules)
        .map_err(|why| Status::forbidden(call.group_resource(), name_of(binding), &why).into())
}

/// Whether the writer is explicitly allowed to do this with roles of that name.
fn may(call: &Call, verb: &str, resource: &str, name: &str) -> bool {
    let attributes = Attributes {
        verb,
        resource_request: true,
        group: GROUP,
        resource,
        namespace: call.info.namespace(),
        name,
        ..Attributes::default()
    };
    call.api()
        .authorizer
        .decide(&call.user, &attributes)
        .allowed
}

/// Whether the writer has all of it; the text of the refusal otherwise.
fn confirm_rules(call: &Call, wanted: &[Rule]) -> Result<(), String> {
    let rbac = call.api().authorizer.rbac();
    let (held, problems) = rbac.rules(&call.user, call.info.namespace());
    let missing = missing(&held, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = call.user.groups.iter().map(|g| quote(g)).collect();
    let mut why = format!(
        "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:",
        quote(&call.user.name),
        groups.join(" ")
    );
    let lines: BTreeSet<String> = compact(missing).iter().map(Rule::in_short).collect();
    for line in lines {
        // Writing to a String cannot fail.
        let _ = write!(why, "\n{line}");
    }
    if !problems.is_empty() {
        let _ = write!(why, "; resolution errors: [{}]", problems.join(", "));
    }
    Err(why)
}

/// The rules that lists of rules, as stored, lack of others.
pub(crate) fn missing_rules(held: &Value, wanted: &Value) -> Vec<Rule> {
    let read =
        |rules: &Value| serde_json::from_value::<Vec<Rule>>(rules.clone()).unwrap_or_default();
    let (held, wanted) = (read(held), read(wanted));
    compact(missing(&held.iter().collect::<Vec<_>>(), &wanted))
}

/// The single permissions of `wanted` that no rule of `held` covers.
fn missing(held: &[&Rule], wanted: &[Rule]) -> Vec<Rule> {
    let single = wanted.iter().flat_map(Rule::single_permissions);
    single
        .filter(|permission| !held.iter().any(|rule| rule.includes(permission)))
        .collect()
}

/// Permissions for the same thing as one rule with several verbs.
fn compact(permissions: Vec<Rule>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for permission in permissions {
        let same = rules.iter_mut().find(|rule| {
            permission.non_resource_urls.is_empty()
                && rule.api_groups == permission.api_groups
                && rule.resources == permission.resources
                && rule.resource_names == permission.resource_names
        });
        match same {
            Some(rule) => rule.verbs.extend(permission.verbs),
            None => rules.push(permission),
        }
    }
    rules
}

/// Whether nothing differs but what the garbage collector needs.
fn differs_harmlessly(new: &Value, old: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.retain(|key, _| !HARMLESS.contains(&key.as_str()));
        }
        object
    };
    strip(new) == strip(old)
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(value: Value) -> Vec<Rule> {
        serde_json::from_value(value).unwrap()
    }

    fn short(held: Value, wanted: Value) -> Vec<String> {
        let held = rules(held);
        let held: Vec<&Rule> = held.iter().collect();
        compact(missing(&held, &rules(wanted)))
            .iter()
            .map(Rule::in_short)
            .collect()
    }

    #[test]
    fn what_is_held_may_be_granted_and_no_more() {
        let reader = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]}]);
        let wider = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
        assert!(short(reader.clone(), reader.clone()).is_empty());
        assert!(short(wider.clone(), reader.clone()).is_empty());
        assert_eq!(
            short(reader, wider),
            [r#"{APIGroups:[""], Resources:["configmaps"], Verbs:["get"]}"#]
        );
    }

    #[test]
    fn wildcards_are_held_only_by_wildcards() {
        let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let one =
            json!([{"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]}]);
        let scales = json!([{"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["get"]}]);
        assert!(short(all.clone(), one.clone()).is_empty());
        assert!(short(scales.clone(), one.clone()).is_empty());
        assert_eq!(short(one, scales).len(), 1);
        assert_eq!(
            short(
                json!([{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}]),
                all
            ),
            [r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#]
        );
    }

    #[test]
    fn missing_permissions_are_named_by_thing_with_their_verbs() {
        let wanted = json!([
            {"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["a", "b"], "verbs": ["delete"]},
            {"nonResourceURLs": ["/x", "/y/*"], "verbs": ["get"]}
        ]);
        let held = json!([{"nonResourceURLs": ["/y*"], "verbs": ["*"]}]);
        assert_eq!(
            short(held, wanted),
            [
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
                r#"{APIGroups:["batch"], Resources:["jobs"], ResourceNames:["a"], Verbs:["delete"]}"#,
                r#"{APIGroups:["batch"], Resources:["jobs"], ResourceNames:["b"], Verbs:["delete"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
            ]
        );
    }

    #[test]
    fn a_change_of_finalizers_grants_nothing_and_one_of_labels_might() {
        let old = json!({"metadata": {"name": "r", "finalizers": ["a"], "resourceVersion": "1"}, "rules": []});
        let finalized = json!({"metadata": {"name": "r", "resourceVersion": "2"}, "rules": []});
        let labelled = json!({"metadata": {"name": "r", "labels": {"a": "b"}}, "rules": []});
        assert!(differs_harmlessly(&finalized, &old));
        assert!(!differs_harmlessly(&labelled, &old));
    }
}
