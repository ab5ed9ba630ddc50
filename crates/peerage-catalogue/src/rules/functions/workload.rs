//! What all kinds that make pods have in common: their template's labels and their selector.

use peerage_objects::field::{self, FieldError};
use peerage_objects::selector::{from_object, validate_object};
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

/// The selector of a deployment or replica set must be there and select the template's pods.
pub(super) fn check_deployment(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    check_selector(path, fields, "deployment", errors);
}

/// As [`check_deployment`], for stateful sets.
pub(super) fn check_stateful_set(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    check_selector(path, fields, "statefulset", errors);
}

/// As [`check_deployment`], for daemon sets.
pub(super) fn check_daemon_set(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    check_selector(path, fields, "daemonset", errors);
}

fn check_selector(path: &str, fields: &Fields, kind: &str, errors: &mut Vec<FieldError>) {
    let at = field::child(path, "selector");
    let labels = fields
        .get("template")
        .and_then(|t| t.get("metadata")?.get("labels"));
    let template = serde_json::json!({"metadata": {"labels": labels}});
    let selected = match fields.get("selector").filter(|s| s.is_object()) {
        None => {
            errors.push(FieldError::required(at, ""));
            false
        }
        Some(selector) => match from_object(selector) {
            Ok(wanted) if wanted.is_everything() => {
                let detail = format!("empty selector is invalid for {kind}");
                errors.push(FieldError::invalid(at, selector, &detail));
                true
            }
            Ok(wanted) => wanted.matches_object(&template),
            Err(_) => {
                errors.extend(validate_object(selector, &at));
                errors.push(FieldError::invalid(at, selector, "invalid label selector"));
                true
            }
        },
    };
    if !selected {
        let at = field::child(path, "template.metadata.labels");
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(at, labels, detail));
    }
}

/// The pods of a job start again only when they fail.
pub(super) fn check_job_restart(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let policy = fields
        .get("template")
        .and_then(|t| t.get("spec")?.get("restartPolicy")?.as_str());
    if !matches!(policy, Some("OnFailure" | "Never")) {
        let at = field::child(path, "template.spec.restartPolicy");
        errors.push(FieldError::required(
            at,
            "valid values: \"OnFailure\", \"Never\"",
        ));
    }
}

/// A strategy that there is not. The whole of it is shown, by the names of Go's fields.
pub(super) fn check_strategy(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let kind = super::text(fields, "type");
    if !matches!(kind, "Recreate" | "RollingUpdate") {
        let rolling = fields.get("rollingUpdate").cloned().unwrap_or_default();
        let message = format!(
            "Unsupported value: {{\"Type\":{},\"RollingUpdate\":{rolling}}}: supported values: \"Recreate\", \"RollingUpdate\"",
            field::quote(kind),
        );
        errors.push(FieldError::new("FieldValueNotSupported", message, path));
    }
}

/// A disruption budget has one bound. The whole spec is shown, by the names of Go's fields.
pub(super) fn check_budget(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let part = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let (least, most) = (part("minAvailable"), part("maxUnavailable"));
    if !least.is_null() && !most.is_null() {
        let message = format!(
            "Invalid value: {{\"MinAvailable\":{least},\"Selector\":{},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}: \
             minAvailable and maxUnavailable cannot be both set",
            part("selector"),
            part("unhealthyPodEvictionPolicy"),
        );
        errors.push(FieldError::new("FieldValueInvalid", message, path));
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
