//! Decoding: from JSON as it was sent to the object as a Go server would hold it.
//!
//! One walk beside the schema does what a round trip through Go's structs does: it refuses values of the wrong
//! type with the texts of Go's decoder, drops `null`, brings quantities, times, durations and bytes into their one
//! form, and drops what the schema does not know. Unknown and duplicate fields are listed in the order in which
//! they stand, for the caller to make warnings or errors of.
//!
//! What OpenAPI cannot say is decided so: an optional list or map that is empty is dropped, as `omitempty` drops
//! it; any other empty value that was sent is kept, for it may be behind a pointer, where Go keeps it.
//!
//! With a stored object beside it (see [`crate::retain`]) fields that only the stored object knows are kept.

use base64_text::Base64Error;
use go_types::{go_name, int_name, wanted};
use peerage_core::duration::{self, DurationError};
use serde_json::{Map, Value};

use super::{IntFormat, SchemaKind, StringFormat, StructSchema, TypeId, Types};
use crate::field;
use crate::json::{Node, Seen};
use crate::quantity::{Quantity, QuantityError};
use crate::retain::{self, Stored};
use crate::time::{self, TimeError};

mod base64_text;
mod go_types;

/// How many unknown and duplicate fields are listed, as in Kubernetes.
const STRICT_LIMIT: usize = 100;

/// What was decoded.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Decoded {
    /// The object.
    pub value: Value,
    /// `unknown field "spec.foo"`, `duplicate field "spec.bar"`, in their order, at most 100.
    pub strict: Vec<String>,
}

/// Why a value is not of its type; the texts are Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value of another type at a field.
    #[error("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")]
    Field {
        /// What was found: `string`, `number 1.5`.
        found: String,
        /// The innermost struct: `DeploymentSpec`.
        owner: String,
        /// The names of the fields from the root: `spec.replicas`.
        path: String,
        /// The Go type: `int32`.
        wanted: String,
    },
    /// A value of another type in place of the whole object.
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    Root {
        /// What was found.
        found: String,
        /// The Go type.
        wanted: String,
    },
    /// A text that is no quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A text that is no time.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A text that is no duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// A text that is no base64.
    #[error(transparent)]
    Base64(#[from] Base64Error),
}

impl DecodeError {
    /// The same error in the words of the converter through which the result of a strategic merge patch goes.
    pub fn conversion_text(&self) -> String {
        let (DecodeError::Field { found, wanted, .. } | DecodeError::Root { found, wanted }) = self
        else {
            return self.to_string();
        };
        let found = match found.split_once(' ').unwrap_or((found, "")) {
            ("number", text) if text.contains(['.', 'e', 'E']) => "float64",
            ("number", _) => "int64",
            ("object", _) => "map",
            ("array", _) => "slice",
            (other, _) => other,
        };
        let number = matches!(found, "int64" | "float64");
        match wanted.as_str() {
            list if list.starts_with("[]") => format!("cannot restore slice from {found}"),
            map if map.starts_with("map[") || map == "v1.ResourceList" => {
                format!("cannot restore map from {found}")
            }
            structure if structure.contains('.') => format!("cannot restore struct from: {found}"),
            scalar if number && scalar != "bool" => format!("cannot convert {found} to {scalar}"),
            scalar => format!("unrecognized type: {scalar}"),
        }
    }
}

/// Decodes a value of a type.
pub fn decode(types: &Types, ty: TypeId, node: &Node<'_>) -> Result<Decoded, DecodeError> {
    Walk::new(types).run(ty, node, None)
}

/// Decodes a value of a type over the object that is stored, whose unknown fields stay.
pub fn decode_over(
    types: &Types,
    ty: TypeId,
    node: &Node<'_>,
    stored: &Value,
) -> Result<Decoded, DecodeError> {
    let stored = retain::has_unknown(types, ty, stored).then_some(Stored::new(stored));
    Walk::new(types).run(ty, node, stored)
}

/// The error of a strict reader: `strict decoding error: unknown field "a", duplicate field "b"`.
pub fn strict_error(strict: &[String]) -> String {
    format!("strict decoding error: {}", strict.join(", "))
}

/// One walk through a value beside its schema.
struct Walk<'t> {
    types: &'t Types,
    /// The Go names of the structs that the walk is in.
    owners: Vec<&'t str>,
    /// The names of the fields, without list indices and map keys.
    fields: Vec<&'t str>,
    strict: Vec<String>,
}

impl<'t> Walk<'t> {
    fn new(types: &'t Types) -> Walk<'t> {
        Walk {
            types,
            owners: Vec::new(),
            fields: Vec::new(),
            strict: Vec::new(),
        }
    }

    fn run(
        mut self,
        ty: TypeId,
        node: &Node<'_>,
        stored: Option<Stored<'_>>,
    ) -> Result<Decoded, DecodeError> {
        let value = self.value(ty, node, "", stored)?;
        let value = value.unwrap_or_else(|| zero(self.types, ty));
        let strict = self.strict;
        Ok(Decoded { value, strict })
    }

    /// The value in its one form; none for `null`.
    fn value(
        &mut self,
        ty: TypeId,
        node: &Node<'_>,
        path: &str,
        stored: Option<Stored<'_>>,
    ) -> Result<Option<Value>, DecodeError> {
        if matches!(node, Node::Null) {
            return Ok(None);
        }
        let schema = self.types.get(ty);
        let value = match (&schema.kind, node) {
            (SchemaKind::Any, _) => node.to_value(),
            (SchemaKind::Boolean, Node::Bool(truth)) => Value::Bool(*truth),
            (SchemaKind::Integer(format), Node::Number(text)) => self.integer(*format, text)?,
            (SchemaKind::Number, Node::Number(_)) => node.to_value(),
            (SchemaKind::String(format), Node::String(text)) => {
                Value::String(canonical_text(*format, text)?)
            }
            (SchemaKind::IntOrString, Node::String(text)) => Value::String(text.to_string()),
            (SchemaKind::IntOrString, Node::Number(text)) => {
                self.integer(IntFormat::Int32, text)?
            }
            (SchemaKind::Quantity, _) => Value::String(quantity(node)?),
            (SchemaKind::Array { items, list }, Node::Array(nodes)) => {
                let stored = stored.map(|stored| stored.list(self.types, *items, list, nodes));
                let mut out = Vec::with_capacity(nodes.len());
                for (at, item) in nodes.iter().enumerate() {
                    let stored = stored.as_ref().and_then(|stored| stored.element(at));
                    let path = field::index(path, at);
                    let value = self.value(*items, item, &path, stored)?;
                    out.push(value.unwrap_or_else(|| zero(self.types, *items)));
                }
                Value::Array(out)
            }
            (SchemaKind::Map { values }, Node::Object(fields)) => {
                self.map(*values, fields, path, stored)?
            }
            (SchemaKind::Struct(schema_fields), Node::Object(fields)) => {
                self.owners.push(go_name(schema.name.as_deref()));
                let value = self.structure(schema_fields, fields, path, stored)?;
                self.owners.pop();
                value
            }
            _ => return Err(self.mismatch(node.kind_name().to_owned(), wanted(self.types, ty))),
        };
        Ok(Some(value))
    }

    fn map(
        &mut self,
        values: TypeId,
        fields: &[(std::borrow::Cow<'_, str>, Node<'_>)],
        path: &str,
        stored: Option<Stored<'_>>,
    ) -> Result<Value, DecodeError> {
        let mut out = Map::new();
        let mut seen = Seen::new(fields.len());
        for (at, (name, node)) in fields.iter().enumerate() {
            let path = field::child(path, name);
            if !seen.insert(fields, at) {
                self.note("duplicate", &path);
            }
            let stored = stored.and_then(|stored| stored.field(name));
            let value = self.value(values, node, &path, stored)?;
            let value = value.unwrap_or_else(|| zero(self.types, values));
            out.insert(name.to_string(), value);
        }
        Ok(Value::Object(out))
    }

    fn structure(
        &mut self,
        schema: &'t StructSchema,
        fields: &[(std::borrow::Cow<'_, str>, Node<'_>)],
        path: &str,
        stored: Option<Stored<'_>>,
    ) -> Result<Value, DecodeError> {
        let mut out = Map::new();
        let mut seen = Seen::new(fields.len());
        for (at, (name, node)) in fields.iter().enumerate() {
            let path = field::child(path, name);
            let Some((name, property)) = schema.properties.get_key_value(&**name) else {
                let keeps = stored.is_some_and(|stored| stored.repeats(name, node));
                if schema.preserve_unknown || keeps {
                    out.insert(name.to_string(), node.to_value());
                } else {
                    self.note("unknown", &path);
                }
                continue;
            };
            let duplicate = !seen.insert(fields, at);
            if duplicate {
                self.note("duplicate", &path);
            }
            self.fields.push(name);
            let stored = stored.and_then(|stored| {
                let list = property.list.as_ref();
                stored
                    .property(self.types, property, node, name)
                    .map(|s| s.with_list(list))
            });
            let value = self.value(property.ty, node, &path, stored)?;
            self.fields.pop();
            match value {
                Some(value) if self.is_left_out(property.ty, &value) => {}
                Some(value) if duplicate => merge(&mut out, name, value),
                Some(value) => {
                    out.insert(name.to_string(), value);
                }
                None if property.nullable => {
                    out.insert(name.to_string(), Value::Null);
                }
                None => {}
            }
        }
        if let Some(stored) = stored {
            stored.keep_unknown(schema, &mut out);
        }
        Ok(Value::Object(out))
    }

    /// Whether Go's `omitempty` leaves the value out: empty lists and maps (a struct is never empty to it).
    fn is_left_out(&self, ty: TypeId, value: &Value) -> bool {
        match (&self.types.get(ty).kind, value) {
            (SchemaKind::Array { .. }, Value::Array(items)) => items.is_empty(),
            (SchemaKind::Map { .. }, Value::Object(fields)) => fields.is_empty(),
            _ => false,
        }
    }

    fn integer(&self, format: IntFormat, text: &str) -> Result<Value, DecodeError> {
        let number = text.parse::<i64>().ok();
        let fits = |number: &i64| format == IntFormat::Int64 || i32::try_from(*number).is_ok();
        match number.filter(fits) {
            Some(number) => Ok(Value::from(number)),
            None => Err(self.mismatch(format!("number {text}"), int_name(format).to_owned())),
        }
    }

    fn mismatch(&self, found: String, wanted: String) -> DecodeError {
        match self.owners.last() {
            Some(owner) => DecodeError::Field {
                found,
                owner: (*owner).to_owned(),
                path: self.fields.join("."),
                wanted,
            },
            None => DecodeError::Root { found, wanted },
        }
    }

    fn note(&mut self, what: &str, path: &str) {
        let text = format!("{what} field {}", field::quote(path));
        if self.strict.len() < STRICT_LIMIT && !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }
}

/// Go decodes a field given twice into the same place: objects merge, everything else is replaced.
fn merge(out: &mut Map<String, Value>, name: &str, value: Value) {
    match (out.get_mut(name), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            for (name, value) in new {
                merge(old, &name, value);
            }
        }
        (_, value) => {
            out.insert(name.to_owned(), value);
        }
    }
}

fn canonical_text(format: StringFormat, text: &str) -> Result<String, DecodeError> {
    Ok(match format {
        StringFormat::Any => text.to_owned(),
        StringFormat::DateTime => time::show(time::parse(text)?),
        StringFormat::MicroTime => time::show_micro(time::parse_micro(text)?),
        StringFormat::Duration => duration::show(duration::parse_signed(text)?),
        StringFormat::Byte => base64_text::canonical(text)?,
    })
}

fn quantity(node: &Node<'_>) -> Result<String, DecodeError> {
    match node {
        Node::String(text) | Node::Number(text) => Ok(Quantity::parse(text.trim())?.to_string()),
        _ => Err(QuantityError::Format.into()),
    }
}

/// What Go holds where `null` was sent and something has to be: an element of a list or map.
fn zero(types: &Types, ty: TypeId) -> Value {
    match &types.get(ty).kind {
        SchemaKind::Any => Value::Null,
        SchemaKind::Boolean => Value::Bool(false),
        SchemaKind::Integer(_) | SchemaKind::Number | SchemaKind::IntOrString => Value::from(0),
        SchemaKind::String(StringFormat::Any) => Value::from(""),
        SchemaKind::String(StringFormat::Duration) => Value::from("0s"),
        SchemaKind::String(_) | SchemaKind::Array { .. } | SchemaKind::Map { .. } => Value::Null,
        SchemaKind::Quantity => Value::from("0"),
        SchemaKind::Struct(_) => Value::Object(Map::new()),
    }
}
