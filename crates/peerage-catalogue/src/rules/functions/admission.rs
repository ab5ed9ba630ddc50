//! Network policies, custom resource definitions and APIServices: what follows from the rest of the object.

use serde_json::{Value, json};

use super::{Create, Fields, made, object, set_default, text};

/// A policy is about what comes in, and about what goes out if it says anything of it.
pub(super) fn network_policy(spec: &mut Fields) {
    let says = |name: &str| {
        spec.get(name)
            .and_then(Value::as_array)
            .is_some_and(|l| !l.is_empty())
    };
    let types = if says("egress") {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    let none = !says("policyTypes");
    if none {
        spec.insert("policyTypes".to_owned(), types);
    }
}

/// The names that follow from the kind, and no conversion.
pub(super) fn custom_resource_definition(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    set_default(spec, "conversion", json!({"strategy": "None"}));
    if let Some(names) = object(spec, "names") {
        let kind = text(names, "kind").to_owned();
        set_default(names, "singular", kind.to_lowercase());
        set_default(names, "listKind", format!("{kind}List"));
    }
}

/// A new definition has objects of its storage version only.
pub(super) fn stored_versions(definition: &mut Value, _: &Create<'_>) {
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    let stored = versions
        .into_iter()
        .flatten()
        .find(|v| v["storage"] == true);
    let stored: Vec<Value> = stored.map(|v| v["name"].clone()).into_iter().collect();
    if let Some(status) = definition.as_object_mut().and_then(|d| made(d, "status")) {
        status.insert("storedVersions".to_owned(), Value::Array(stored));
    }
}

/// An API that the server serves itself is available at once.
pub(super) fn local_api_service(service: &mut Value, create: &Create<'_>) {
    if service
        .pointer("/spec/service")
        .is_some_and(Value::is_object)
    {
        return;
    }
    let condition = json!({
        "type": "Available",
        "status": "True",
        "lastTransitionTime": create.now,
        "reason": "Local",
        "message": "Local APIServices are always available",
    });
    if let Some(status) = service.as_object_mut().and_then(|s| made(s, "status")) {
        status.insert("conditions".to_owned(), json!([condition]));
    }
}
