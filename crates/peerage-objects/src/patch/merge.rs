//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

/// Merges a patch into a document; `null` removes.
pub(super) fn apply(document: &mut Value, patch: &Map<String, Value>) {
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let Value::Object(fields) = document else {
        return;
    };
    for (name, value) in patch {
        match value {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(patch) => apply(fields.entry(name.clone()).or_insert(Value::Null), patch),
            value => {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
}
