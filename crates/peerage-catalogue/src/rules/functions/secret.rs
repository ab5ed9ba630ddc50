//! Secrets and config maps: `stringData` becomes `data`; the form of keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peerage_objects::field::{self, FieldError};
use peerage_objects::names;
use serde_json::Value;

use super::{Fields, made};

/// `stringData` is written to `data` in base64 and never shown.
pub(super) fn string_data(fields: &mut Fields) {
    let Some(Value::Object(texts)) = fields.remove("stringData") else {
        return;
    };
    let Some(data) = made(fields, "data") else {
        return;
    };
    for (key, text) in texts {
        if let Value::String(text) = text {
            data.insert(key, STANDARD.encode(text).into());
        }
    }
}

/// Keys are letters, digits, `-`, `_` and `.`, and in one of the two maps only.
pub(super) fn check_keys(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let other = fields.get("binaryData");
    for name in ["data", "binaryData"] {
        let at = field::child(path, name);
        for key in fields
            .get(name)
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|m| m.keys())
        {
            if name == "data" && other.is_some_and(|o| o.get(key).is_some()) {
                let at = field::key(&at, key);
                errors.push(FieldError::invalid(
                    at,
                    key,
                    "duplicate of key present in binaryData",
                ));
            }
            let wrong = names::config_key(key).into_iter();
            errors.extend(
                wrong.map(|detail| FieldError::invalid(field::key(&at, key), key, &detail)),
            );
        }
    }
}

/// The keys that a type of secret must have.
const KEYS: [(&str, &[&str]); 4] = [
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
];

/// Secrets of some types have certain keys; one for basic authentication has at least one of two.
pub(super) fn check_type(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or("");
    let at = field::child(path, "data");
    let has = |key: &str| fields.get("data").is_some_and(|d| d.get(key).is_some());
    let missing = |key: &str| FieldError::required(field::key(&at, key), "");
    let wanted = KEYS
        .iter()
        .find(|(k, _)| *k == kind)
        .map_or(&[][..], |(_, keys)| keys);
    errors.extend(
        wanted
            .iter()
            .filter(|key| !has(key))
            .map(|key| missing(key)),
    );
    if kind == "kubernetes.io/basic-auth" && !has("username") && !has("password") {
        errors.extend(["username", "password"].map(missing));
    }
}
