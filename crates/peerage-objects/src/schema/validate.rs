//! What a schema itself demands of an object that was decoded and defaulted: required fields, allowed values,
//! elements that must differ.
//!
//! kube-apiserver checks built-in kinds in code, and is now and then milder than its own OpenAPI (a Role without
//! `rules` is fine), so the caller can waive single fields; it is stricter in many more places, which are rules
//! beside the catalogue.

use serde_json::Value;

use super::{ListType, Property, SchemaKind, StructSchema, TypeId, Types};
use crate::field::{self, FieldError};

/// Lists, and texts that may be empty, that OpenAPI calls required and kube-apiserver does without: the type's last name, and the field.
const LENIENT: [(&str, &str); 9] = [
    ("CSINodeSpec", "drivers"),
    ("EndpointSlice", "endpoints"),
    ("Event", "eventTime"),
    // The core group has no name.
    ("GroupResource", "group"),
    ("LimitRangeSpec", "limits"),
    ("SubjectRulesReviewStatus", "nonResourceRules"),
    ("SubjectRulesReviewStatus", "resourceRules"),
    // The empty audience is the API server's own.
    ("TokenRequest", "audience"),
    ("TokenRequestSpec", "audiences"),
];

/// What is checked.
#[derive(Clone, Copy)]
pub struct Checks<'a> {
    /// Elements of sets and of lists with keys must differ. Custom resources are held to it; of the built-in kinds
    /// some lists may repeat a key (two environment variables of one name).
    pub unique: bool,
    /// The object's `status` is looked into. Custom resources are held to it; what controllers write there of the
    /// built-in kinds is nearly unchecked.
    pub status: bool,
    /// Says of a named type's field that it need not be there although OpenAPI calls it required. By default those
    /// fields of which kube-apiserver is known to say so.
    pub waived: &'a dyn Fn(&str, &str) -> bool,
}

impl Default for Checks<'_> {
    fn default() -> Self {
        Checks {
            unique: false,
            status: false,
            waived: &is_lenient,
        }
    }
}

/// What is wrong with an object, in the order of its fields' names.
pub fn validate(
    types: &Types,
    ty: TypeId,
    value: &Value,
    path: &str,
    checks: Checks<'_>,
) -> Vec<FieldError> {
    let mut walk = Walk {
        types,
        checks,
        errors: Vec::new(),
    };
    walk.value(ty, value, path);
    walk.errors
}

struct Walk<'a> {
    types: &'a Types,
    checks: Checks<'a>,
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    fn value(&mut self, ty: TypeId, value: &Value, path: &str) {
        let schema = self.types.get(ty);
        match (&schema.kind, value) {
            (SchemaKind::Array { items, list }, Value::Array(values)) => {
                self.list(*items, list, values, path);
            }
            (SchemaKind::Map { values: ty }, Value::Object(values)) => {
                for (name, value) in values {
                    self.value(*ty, value, &field::key(path, name));
                }
            }
            (SchemaKind::Struct(schema_fields), Value::Object(fields)) => {
                let name = schema.name.as_deref().unwrap_or_default();
                for (field, property) in &schema_fields.properties {
                    if path.is_empty() && !self.checks.status && **field == *"status" {
                        continue;
                    }
                    let path = field::child(path, field);
                    let value = fields.get(&**field).unwrap_or(&Value::Null);
                    if is_required(schema_fields, field)
                        && is_missing(property, value)
                        && !(self.checks.waived)(name, field)
                    {
                        self.errors.push(FieldError::required(path, ""));
                        continue;
                    }
                    self.property(property, value, &path);
                }
            }
            _ => {}
        }
    }

    fn property(&mut self, property: &Property, value: &Value, path: &str) {
        if let (Some(allowed), Some(text)) = (&property.allowed, value.as_str()) {
            // An empty text is an unset one: whether it may be is a matter of `required`.
            if !text.is_empty() && !allowed.iter().any(|allowed| **allowed == *text) {
                let allowed = allowed.iter().map(|allowed| &**allowed);
                self.errors
                    .push(FieldError::not_supported(path, text, allowed));
            }
        }
        match (&self.types.get(property.ty).kind, value) {
            (SchemaKind::Array { items, list }, Value::Array(values)) => {
                let list = property.list.as_ref().unwrap_or(list);
                self.list(*items, list, values, path);
            }
            _ => self.value(property.ty, value, path),
        }
    }

    fn list(&mut self, items: TypeId, list: &ListType, values: &[Value], path: &str) {
        if self.checks.unique {
            self.unique(list, values, path);
        }
        for (at, value) in values.iter().enumerate() {
            self.value(items, value, &field::index(path, at));
        }
    }

    fn unique(&mut self, list: &ListType, values: &[Value], path: &str) {
        let mut seen = std::collections::HashSet::new();
        for (at, value) in values.iter().enumerate() {
            let identity = match list {
                ListType::Atomic => return,
                ListType::Set => value.clone(),
                ListType::Map(keys) => {
                    let keys = keys.iter().map(|key| {
                        let value = value.get(&**key).cloned().unwrap_or_default();
                        (key.to_string(), value)
                    });
                    Value::Object(keys.collect())
                }
            };
            if !seen.insert(identity.to_string()) {
                let path = field::index(path, at);
                self.errors.push(FieldError::duplicate(path, &identity));
            }
        }
    }
}

fn is_lenient(ty: &str, field: &str) -> bool {
    let name = ty.rsplit('.').next().unwrap_or_default();
    LENIENT.contains(&(name, field))
}

fn is_required(schema: &StructSchema, field: &str) -> bool {
    schema.required.iter().any(|required| **required == *field)
}

/// Whether nothing is there. Where Go always writes a text (its default is the empty one), that is an empty text.
fn is_missing(property: &Property, value: &Value) -> bool {
    let unset = property.default.as_ref().and_then(Value::as_str) == Some("");
    match value {
        Value::Null => !property.nullable,
        Value::String(text) => unset && text.is_empty(),
        _ => false,
    }
}
