//! The `LabelSelector` object (`matchLabels`, `matchExpressions`) as specs hold it.

use serde_json::Value;

use super::label::{LabelSelector, Operator, Requirement};
use crate::field::{self, FieldError};
use crate::names;

/// The selector that a `LabelSelector` object means: nothing for an absent or null one, everything for an empty one.
pub fn from_object(selector: &Value) -> Result<LabelSelector, Vec<FieldError>> {
    if selector.is_null() {
        return Ok(LabelSelector::nothing());
    }
    let mut requirements = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        for (key, value) in labels {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement::new(key, Operator::Equals, values)?);
        }
    }
    for expression in expressions(selector) {
        let text = |name| {
            expression
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let Some(operator) = operator(text("operator")) else {
            let detail = "not a valid label selector operator";
            return Err(vec![FieldError::invalid(
                "operator",
                text("operator"),
                detail,
            )]);
        };
        requirements.push(Requirement::new(text("key"), operator, values(expression))?);
    }
    Ok(LabelSelector::of(requirements))
}

/// What is wrong with a `LabelSelector` object at `path`, in Kubernetes' words and order.
pub fn validate_object(selector: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        let path = field::child(path, "matchLabels");
        for (key, value) in labels {
            push(&mut errors, &path, key, names::qualified_name(key));
            let value = value.as_str().unwrap_or_default();
            push(&mut errors, &path, value, names::label_value(value));
        }
    }
    let path = field::child(path, "matchExpressions");
    for (at, expression) in expressions(selector).iter().enumerate() {
        validate_expression(expression, &field::index(&path, at), &mut errors);
    }
    errors
}

fn validate_expression(expression: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let text = |name| {
        expression
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let values_path = field::child(path, "values");
    let values = values(expression);
    match operator(text("operator")) {
        Some(Operator::In | Operator::NotIn) if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&values_path, detail));
        }
        Some(Operator::Exists | Operator::DoesNotExist) if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&values_path, detail));
        }
        Some(_) => {}
        None => errors.push(FieldError::invalid(
            field::child(path, "operator"),
            text("operator"),
            "not a valid selector operator",
        )),
    }
    let key = text("key");
    push(
        errors,
        &field::child(path, "key"),
        key,
        names::qualified_name(key),
    );
    for (at, value) in values.iter().enumerate() {
        push(
            errors,
            &field::index(&values_path, at),
            value,
            names::label_value(value),
        );
    }
}

fn push(errors: &mut Vec<FieldError>, path: &str, value: &str, broken: Vec<String>) {
    let found = broken
        .into_iter()
        .map(|rule| FieldError::invalid(path, value, &rule));
    errors.extend(found);
}

fn expressions(selector: &Value) -> &[Value] {
    let list = selector.get("matchExpressions").and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn values(expression: &Value) -> Vec<String> {
    let list = expression.get("values").and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_absent_selector_matches_nothing_and_an_empty_one_everything() {
        let object = json!({"metadata": {"labels": {"a": "b"}}});
        assert!(!from_object(&Value::Null).unwrap().matches_object(&object));
        assert!(from_object(&json!({})).unwrap().matches_object(&object));
        assert!(from_object(&json!({})).unwrap().matches_object(&json!({})));
    }

    #[test]
    fn labels_and_expressions_must_all_hold() {
        let selector = from_object(&json!({
            "matchLabels": {"app": "d"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["web", "db"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert_eq!(selector.to_string(), "app=d,!old,tier in (db,web)");
        let object = |tier: &str| json!({"metadata": {"labels": {"app": "d", "tier": tier}}});
        assert!(selector.matches_object(&object("db")));
        assert!(!selector.matches_object(&object("cache")));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let selector = json!({"matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "b", "operator": "Exists", "values": ["x"]},
            {"key": "c", "operator": "Like"},
        ]});
        let errors: Vec<String> = validate_object(&selector, "spec.selector")
            .iter()
            .map(FieldError::line)
            .collect();
        assert_eq!(
            errors,
            [
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                "spec.selector.matchExpressions[2].operator: Invalid value: \"Like\": not a valid selector operator",
            ]
        );
    }
}
