//! Resource claims and their templates: `v1beta1` has what a device request asks for beside its name; since
//! `v1beta2` it is inside of `exactly`, and a request for the first available of several has no such part.

use serde_json::{Map, Value};

use super::{Fields, each, object};

pub(super) fn claim_to_exactly(fields: &mut Fields) {
    if let Some(spec) = object(fields, "spec") {
        to_exactly(spec);
    }
}

pub(super) fn claim_to_flat(fields: &mut Fields) {
    if let Some(spec) = object(fields, "spec") {
        to_flat(spec);
    }
}

pub(super) fn template_to_exactly(fields: &mut Fields) {
    if let Some(spec) = object(fields, "spec") {
        claim_to_exactly(spec);
    }
}

pub(super) fn template_to_flat(fields: &mut Fields) {
    if let Some(spec) = object(fields, "spec") {
        claim_to_flat(spec);
    }
}

/// The fields of a request that stay where they are.
const OUTSIDE: [&str; 3] = ["name", "firstAvailable", "exactly"];

fn to_exactly(spec: &mut Fields) {
    let Some(devices) = object(spec, "devices") else {
        return;
    };
    for request in each(devices, "requests") {
        let names: Vec<String> = request
            .keys()
            .filter(|n| !OUTSIDE.contains(&&***n))
            .cloned()
            .collect();
        let mut exactly = Map::new();
        for name in names {
            if let Some(value) = request.remove(&name) {
                exactly.insert(name, value);
            }
        }
        if !exactly.is_empty() {
            request.insert("exactly".to_owned(), Value::Object(exactly));
        }
    }
}

fn to_flat(spec: &mut Fields) {
    let Some(devices) = object(spec, "devices") else {
        return;
    };
    for request in each(devices, "requests") {
        if let Some(Value::Object(exactly)) = request.remove("exactly") {
            request.extend(exactly);
        }
    }
}
