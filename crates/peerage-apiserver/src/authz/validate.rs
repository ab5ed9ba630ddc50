//! What has to hold of roles and bindings beyond what the catalogue's rules say: rules name either resources or
//! paths, bindings refer to roles and subjects that can be. Follows `pkg/apis/rbac/validation`.

use peerage_catalogue::Resource;
use peerage_objects::field::FieldError;
use peerage_objects::names;
use serde_json::Value;

use super::Rule;
use super::escalation::GROUP;

/// The faults of a role or binding; none for any other kind.
pub(crate) fn check(resource: &Resource, object: &Value) -> Vec<FieldError> {
    if resource.group.as_ref() != GROUP {
        return Vec::new();
    }
    let mut errors = Vec::new();
    match resource.kind.as_ref() {
        "Role" | "ClusterRole" => {
            role(object, resource.namespaced, &mut errors);
        }
        "RoleBinding" | "ClusterRoleBinding" => {
            binding(object, resource.namespaced, &mut errors);
        }
        _ => {}
    }
    errors
}

fn role(role: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let rules: Vec<Rule> = serde_json::from_value(role["rules"].clone()).unwrap_or_default();
    for (at, rule) in rules.iter().enumerate() {
        policy_rule(rule, &format!("rules[{at}]"), namespaced, errors);
    }
    if let Some(aggregation) = role["aggregationRule"].as_object() {
        let at = "aggregationRule.clusterRoleSelectors";
        let selectors = aggregation.get("clusterRoleSelectors");
        match selectors.and_then(Value::as_array).map(Vec::as_slice) {
            None | Some([]) => errors.push(FieldError::required(
                at,
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            )),
            Some(selectors) => {
                for (index, one) in selectors.iter().enumerate() {
                    selector(one, &format!("{at}[{index}]"), errors);
                }
            }
        }
    }
}

fn policy_rule(rule: &Rule, at: &str, namespaced: bool, errors: &mut Vec<FieldError>) {
    if !rule.non_resource_urls.is_empty() {
        let of_resources = !rule.api_groups.is_empty()
            || !rule.resources.is_empty()
            || !rule.resource_names.is_empty();
        let faults = [
            (
                namespaced,
                "namespaced rules cannot apply to non-resource URLs",
            ),
            (
                of_resources,
                "rules cannot apply to both regular resources and non-resource URLs",
            ),
        ];
        let field = format!("{at}.nonResourceURLs");
        let found = faults.into_iter().filter(|(is, _)| *is);
        errors.extend(
            found.map(|(_, why)| FieldError::invalid(&*field, &rule.non_resource_urls, why)),
        );
        return;
    }
    if rule.api_groups.is_empty() {
        let why = "resource rules must supply at least one api group";
        errors.push(FieldError::required(format!("{at}.apiGroups"), why));
    }
    if rule.resources.is_empty() {
        let why = "resource rules must supply at least one resource";
        errors.push(FieldError::required(format!("{at}.resources"), why));
    }
}

/// A label selector whose operators and values do not go together selects nothing.
fn selector(selector: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    let requirements = selector["matchExpressions"].as_array();
    for (index, requirement) in requirements.into_iter().flatten().enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        match requirement["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if values == 0 => errors.push(FieldError::required(
                format!("{at}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if values > 0 => errors.push(FieldError::forbidden(
                format!("{at}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                format!("{at}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
    }
    if errors.len() > before {
        errors.push(FieldError::invalid(
            at,
            Value::Null,
            "invalid label selector.",
        ));
    }
}

fn binding(binding: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let role = &binding["roleRef"];
    if !matches!(text(&role["apiGroup"]).as_str(), "" | GROUP) {
        let field = "roleRef.apiGroup";
        errors.push(FieldError::not_supported(
            field,
            text(&role["apiGroup"]),
            [GROUP],
        ));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = text(&role["kind"]);
    if !kinds.contains(&kind.as_str()) {
        errors.push(FieldError::not_supported("roleRef.kind", kind, kinds));
    }
    for (index, one) in binding["subjects"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        subject(one, &format!("subjects[{index}]"), namespaced, errors);
    }
}

fn subject(subject: &Value, at: &str, namespaced: bool, errors: &mut Vec<FieldError>) {
    let text = |key: &str| subject[key].as_str().unwrap_or_default();
    let group = match text("kind") {
        "ServiceAccount" => {
            if !text("name").is_empty() {
                let faults = names::dns1123_subdomain(text("name"));
                let field = format!("{at}.name");
                errors.extend(
                    faults
                        .iter()
                        .map(|why| FieldError::invalid(&*field, text("name"), why)),
                );
            }
            if text("namespace").is_empty() && !namespaced {
                errors.push(FieldError::required(format!("{at}.namespace"), ""));
            }
            ""
        }
        "User" | "Group" => GROUP,
        other => {
            errors.push(FieldError::not_supported(
                format!("{at}.kind"),
                other,
                ["ServiceAccount", "User", "Group"],
            ));
            return;
        }
    };
    if text("apiGroup") != group {
        let field = format!("{at}.apiGroup");
        errors.push(FieldError::not_supported(field, text("apiGroup"), [group]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(
        check: fn(&Value, bool, &mut Vec<FieldError>),
        object: Value,
        namespaced: bool,
    ) -> Vec<String> {
        let mut errors = Vec::new();
        check(&object, namespaced, &mut errors);
        errors.iter().map(FieldError::line).collect()
    }

    #[test]
    fn a_rule_is_for_resources_or_for_paths() {
        let both = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "nonResourceURLs": ["/x"], "verbs": ["get"]}]});
        let text = r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: "#;
        assert_eq!(
            faults(role, both.clone(), false),
            [format!(
                "{text}rules cannot apply to both regular resources and non-resource URLs"
            )]
        );
        assert_eq!(faults(role, both, true).len(), 2);
        assert_eq!(
            faults(role, json!({"rules": [{}]}), true),
            [
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ]
        );
        assert!(faults(role, json!({"rules": null}), true).is_empty());
    }

    #[test]
    fn an_aggregation_selects_by_something_that_can_be_read() {
        let by = |selectors: Value| json!({"aggregationRule": {"clusterRoleSelectors": selectors}});
        assert!(faults(role, by(json!([{"matchLabels": {"a": "b"}}])), false).is_empty());
        assert_eq!(faults(role, by(json!([])), false).len(), 1);
        let near = json!([{"matchExpressions": [{"key": "a", "operator": "Near"}]}]);
        assert_eq!(
            faults(role, by(near), false),
            [
                "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator",
                "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.",
            ]
        );
    }

    #[test]
    fn a_binding_refers_to_a_role_and_subjects_that_can_be() {
        let to = |kind: &str, subjects: Value| json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": "r"}, "subjects": subjects});
        let account = json!([{"kind": "ServiceAccount", "name": "s"}]);
        assert!(faults(binding, to("Role", account.clone()), true).is_empty());
        assert_eq!(
            faults(binding, to("Role", account), false),
            [
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "subjects[0].namespace: Required value",
            ]
        );
        let odd = json!([{"kind": "Robot", "name": "x"}, {"kind": "Group", "name": "g", "apiGroup": "other"}]);
        assert_eq!(faults(binding, to("ClusterRole", odd), true).len(), 2);
    }
}
