//! Who asks for a certificate.

use serde_json::Value;

use super::{Create, made};

/// The fields of a request's spec that only the server writes.
const REQUESTER: [&str; 4] = ["username", "uid", "groups", "extra"];

/// A signer is told who asked, whatever the request says.
pub(super) fn requester(object: &mut Value, create: &Create<'_>) {
    let Some(spec) = object.as_object_mut().and_then(|o| made(o, "spec")) else {
        return;
    };
    for name in REQUESTER {
        spec.remove(name);
    }
    if let Ok(Value::Object(user)) = serde_json::to_value(create.user) {
        spec.extend(user);
    }
}

/// What was asked for, and by whom, stays.
pub(super) fn keep_spec(new: &mut Value, old: &Value) {
    match old.get("spec") {
        Some(spec) => new["spec"] = spec.clone(),
        None => drop(new.as_object_mut().map(|new| new.remove("spec"))),
    }
}
