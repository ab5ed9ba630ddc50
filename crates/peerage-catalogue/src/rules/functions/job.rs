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
    // Labels that came from the template follow it.
    let shared = job.pointer("/metadata/labels") == job.pointer("/spec/template/metadata/labels");
    let Some(spec) = job.as_object_mut().and_then(|j| object(j, "spec")) else {
        return;
    };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    if let Some(template) = made(spec, "template") {
        put_labels(template, &uid, &name);
    }
    let selector = made(spec, "selector").and_then(|s| made(s, "matchLabels"));
    if let Some(labels) = selector {
        let key = "batch.kubernetes.io/controller-uid";
        labels.insert(key.to_owned(), uid.clone().into());
    }
    if let Some(job) = job.as_object_mut().filter(|_| shared) {
        put_labels(job, &uid, &name);
    }
}

fn put_labels(object: &mut Fields, uid: &str, name: &str) {
    if let Some(labels) = made(object, "metadata").and_then(|m| made(m, "labels")) {
        for prefix in ["", "batch.kubernetes.io/"] {
            labels.insert(format!("{prefix}job-name"), name.into());
            labels.insert(format!("{prefix}controller-uid"), uid.into());
        }
    }
}
