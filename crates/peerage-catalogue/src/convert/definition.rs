//! Custom resource definitions: `v1`, and `v1beta1`, as which kube-apiserver stores them.
//!
//! `v1beta1` has one `version` besides the list, and what all versions have in common at the top.

use serde_json::{Value, json};

use super::{Fields, each, made, object};

/// A version's field and its name at the top of `v1beta1`.
const COMMON: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

pub(super) fn to_v1beta1(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    let first = spec
        .get("versions")
        .and_then(|v| v.get(0)?.get("name").cloned());
    if let Some(name) = first {
        spec.insert("version".to_owned(), name);
    }
    for (own, top) in COMMON {
        lift(spec, own, top);
    }
    if let Some(conversion) = object(spec, "conversion")
        && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
    {
        if let Some(client) = webhook.remove("clientConfig") {
            conversion.insert("webhookClientConfig".to_owned(), client);
        }
        conversion.extend(webhook);
    }
    spec.entry("preserveUnknownFields").or_insert(json!(false));
}

/// What all versions have alike is said once, at the top.
fn lift(spec: &mut Fields, own: &str, top: &str) {
    let versions = spec.get("versions").and_then(Value::as_array);
    let mut values = versions.into_iter().flatten().map(|v| v.get(own));
    let Some(Some(first)) = values.next() else {
        return;
    };
    if values.all(|v| v == Some(first)) {
        let first = first.clone();
        for version in each(spec, "versions") {
            version.remove(own);
        }
        spec.insert(top.to_owned(), first);
    }
}

pub(super) fn to_v1(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    let only = spec.remove("version");
    let none = spec
        .get("versions")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty);
    if let Some(name) = only.filter(|_| none) {
        let version = json!({"name": name, "served": true, "storage": true});
        spec.insert("versions".to_owned(), json!([version]));
    }
    for (own, top) in COMMON {
        if let Some(value) = spec.remove(top).filter(|v| !v.is_null()) {
            for version in each(spec, "versions") {
                version.entry(own).or_insert_with(|| value.clone());
            }
        }
    }
    if let Some(conversion) = object(spec, "conversion") {
        let client = conversion.remove("webhookClientConfig");
        let reviews = conversion.remove("conversionReviewVersions");
        let parts = [
            ("clientConfig", client),
            ("conversionReviewVersions", reviews),
        ];
        for (name, value) in parts {
            if let Some(value) = value
                && let Some(webhook) = made(conversion, "webhook")
            {
                webhook.insert(name.to_owned(), value);
            }
        }
    }
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
}
