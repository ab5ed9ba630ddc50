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
    for name in ["data", "binaryData"] {
        let at = field::child(path, name);
        for key in fields
            .get(name)
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|m| m.keys())
        {
            let wrong = names::config_key(key).into_iter();
            errors.extend(
                wrong.map(|detail| FieldError::invalid(field::key(&at, key), key, &detail)),
            );
        }
    }
}
