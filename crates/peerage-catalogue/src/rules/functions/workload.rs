//! What all kinds that make pods have in common: their template's labels and their selector.

use peerage_objects::field::{self, FieldError};
use peerage_objects::selector::from_object;
use serde_json::{Map, Value};

use super::{Fields, made, object};

fn template_labels(fields: &Fields) -> Option<Map<String, Value>> {
    let labels = fields
        .get("spec")?
        .get("template")?
        .get("metadata")?
        .get("labels")?;
    labels.as_object().filter(|l| !l.is_empty()).cloned()
}

/// A workload without labels has those of its template.
pub(super) fn labels_from_template(fields: &mut Fields) {
    let Some(labels) = template_labels(fields) else {
        return;
    };
    if let Some(metadata) = made(fields, "metadata") {
        let none = metadata
            .get("labels")
            .and_then(Value::as_object)
            .is_none_or(|l| l.is_empty());
        if none {
            metadata.insert("labels".to_owned(), Value::Object(labels));
        }
    }
}

/// As [`labels_from_template`], and the selector too.
pub(super) fn replication_controller(fields: &mut Fields) {
    labels_from_template(fields);
    let Some(labels) = template_labels(fields) else {
        return;
    };
    if let Some(spec) = object(fields, "spec") {
        let none = spec
            .get("selector")
            .and_then(Value::as_object)
            .is_none_or(|s| s.is_empty());
        if none {
            spec.insert("selector".to_owned(), Value::Object(labels));
        }
    }
}

/// The selector must be there and select the template's pods.
pub(super) fn check_selector(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let Some(selector) = fields.get("selector").filter(|s| s.is_object()) else {
        errors.push(FieldError::required(field::child(path, "selector"), ""));
        return;
    };
    let template = fields.get("template");
    let labels = template.and_then(|t| t.get("metadata")?.get("labels"));
    let Ok(wanted) = from_object(selector) else {
        return;
    };
    let template = serde_json::json!({"metadata": {"labels": labels}});
    if wanted.is_everything() {
        let detail = "empty selector is invalid for deployment";
        errors.push(FieldError::invalid(
            field::child(path, "selector"),
            selector,
            detail,
        ));
    } else if !wanted.matches_object(&template) {
        let at = field::child(
            &field::child(&field::child(path, "template"), "metadata"),
            "labels",
        );
        let shown = labels.cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            at,
            &shown,
            "`selector` does not match template `labels`",
        ));
    }
}

/// The pods of a workload that runs for ever start again whenever they end.
pub(super) fn check_restart_policy(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let policy = fields
        .get("template")
        .and_then(|t| t.get("spec")?.get("restartPolicy")?.as_str());
    if let Some(policy) = policy.filter(|p| *p != "Always") {
        let at = field::child(
            &field::child(&field::child(path, "template"), "spec"),
            "restartPolicy",
        );
        errors.push(FieldError::not_supported(at, policy, ["Always"]));
    }
}
