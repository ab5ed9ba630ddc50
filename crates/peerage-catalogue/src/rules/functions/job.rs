//! Jobs: how often and by which pods.

use serde_json::{Value, json};

use super::{Create, Fields, made, object, set_default};

/// Unless failures are counted by index, six of them end the job.
const BACKOFF_LIMIT: i64 = 6;

/// The defaults of a job.
pub(super) fn job(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    let unset = |name: &str| spec.get(name).is_none_or(Value::is_null);
    if unset("completions") && unset("parallelism") {
        spec.insert("completions".to_owned(), json!(1));
    }
    set_default(spec, "parallelism", 1);
    let by_index = spec
        .get("backoffLimitPerIndex")
        .is_some_and(|v| !v.is_null());
    let limit = if by_index {
        i64::from(i32::MAX)
    } else {
        BACKOFF_LIMIT
    };
    set_default(spec, "backoffLimit", limit);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    set_default(spec, "manualSelector", false);
    let fails = spec.get("podFailurePolicy").is_some_and(Value::is_object);
    let replacement = if fails {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set_default(spec, "podReplacementPolicy", replacement);
}

/// A job finds its pods by its uid, unless it says how it wants to.
pub(super) fn generate_selector(job: &mut Value, _: &Create<'_>) {
    let metadata = |name: &str| -> String {
        let value = job.pointer(&format!("/metadata/{name}"));
        value.and_then(Value::as_str).unwrap_or("").to_owned()
    };
    let (uid, name) = (metadata("uid"), metadata("name"));
    let Some(spec) = job.as_object_mut().and_then(|j| object(j, "spec")) else {
        return;
    };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let template = made(spec, "template")
        .and_then(|t| made(t, "metadata"))
        .and_then(|m| made(m, "labels"));
    if let Some(labels) = template {
        for prefix in ["", "batch.kubernetes.io/"] {
            labels.insert(format!("{prefix}job-name"), name.clone().into());
            labels.insert(format!("{prefix}controller-uid"), uid.clone().into());
        }
    }
    let selector = made(spec, "selector").and_then(|s| made(s, "matchLabels"));
    if let Some(labels) = selector {
        labels.insert("batch.kubernetes.io/controller-uid".to_owned(), uid.into());
    }
}
