//! Objects in Kubernetes' protobuf encoding, read into the JSON that they are the same as.
//!
//! What a field is called and of which type it is says the schema; which number it has says a table of
//! [`Messages`], made from the tags of the Go types. The result is JSON as a client might have sent it, and is
//! decoded like that.
//!
//! A Go client writes every field that is no pointer, also when it is empty: such an empty value is left out here,
//! as Go's JSON would, unless the field is one that is always written.
//!
//! Invariants: nothing here panics on any bytes; nesting is bounded; what is read is at most a small multiple of the
//! bytes that were sent.

mod messages;
mod scalar;

use serde_json::{Map, Value};

use messages::Field;
pub use messages::{Messages, MessagesError};
pub use peerage_core::protobuf::MAGIC;
use peerage_core::protobuf::{EnvelopeError, Reader, Wire, WireError};

use crate::schema::{Property, SchemaKind, StructSchema, TypeId, Types};

/// How deep messages may be nested.
const MAX_DEPTH: usize = 100;

/// Why bytes are no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The magic bytes are missing.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Magic,
    /// The bytes end within a field, or a number is too long.
    #[error("the message is cut off or damaged at byte {0}")]
    Damaged(usize),
    /// A field of a wire type that there is not, or that has gone out of use. The text is that of Go's library.
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    /// A field has another wire type than its schema says.
    #[error("field {number} of {message} has an unexpected wire type")]
    WireType {
        /// The number of the field.
        number: u32,
        /// The type that it is a field of.
        message: String,
    },
    /// A text is not UTF-8.
    #[error("field {number} of {message} is not valid UTF-8")]
    Text {
        /// The number of the field.
        number: u32,
        /// The type that it is a field of.
        message: String,
    },
    /// Messages are nested too deeply.
    #[error("messages are nested more than {MAX_DEPTH} deep")]
    Depth,
    /// No numbers are known of a type.
    #[error("no protobuf encoding is known of {0}")]
    Unknown(String),
    /// Embedded content is not JSON.
    #[error("the embedded content of field {0} is not JSON")]
    Embedded(u32),
}

/// A value as it is sent: its type, and the message that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'b> {
    /// `apps/v1`; empty when it is not said.
    pub api_version: String,
    /// `Deployment`; empty when it is not said.
    pub kind: String,
    /// The object's message.
    pub raw: &'b [u8],
}

/// Opens the envelope (`runtime.Unknown`) of a value.
pub fn open(bytes: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    let envelope = peerage_core::protobuf::Envelope::open(bytes)?;
    Ok(Envelope {
        api_version: envelope.api_version.to_owned(),
        kind: envelope.kind.to_owned(),
        raw: envelope.raw.unwrap_or_default(),
    })
}

impl From<WireError> for ProtobufError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Damaged(at) => Self::Damaged(at),
            WireError::IllegalWireType(wire_type) => Self::IllegalWireType(wire_type),
        }
    }
}

impl From<EnvelopeError> for ProtobufError {
    fn from(error: EnvelopeError) -> Self {
        match error {
            EnvelopeError::Magic => Self::Magic,
            EnvelopeError::Wire(error) => error.into(),
            EnvelopeError::Type(number) => Self::Text {
                number,
                message: "TypeMeta".to_owned(),
            },
        }
    }
}

/// Reads a message of a type into JSON.
pub fn decode(
    types: &Types,
    messages: &Messages,
    ty: TypeId,
    raw: &[u8],
) -> Result<Value, ProtobufError> {
    Decoder { types, messages }.message(ty, raw, 0)
}

struct Decoder<'t> {
    types: &'t Types,
    messages: &'t Messages,
}

impl Decoder<'_> {
    /// A value that is a message of its own: an object, or one of the types that have a form of their own.
    fn message(&self, ty: TypeId, raw: &[u8], depth: usize) -> Result<Value, ProtobufError> {
        if depth > MAX_DEPTH {
            return Err(ProtobufError::Depth);
        }
        let schema = self.types.get(ty);
        match &schema.kind {
            SchemaKind::Struct(fields) => {
                let name = schema.name.as_deref().unwrap_or_default();
                let mut object = Map::new();
                self.fields(fields, name, raw, depth, &mut object)?;
                Ok(Value::Object(object))
            }
            SchemaKind::Array { items, .. } => {
                // A named list type is a message with its elements in field 1.
                let mut list = Vec::new();
                let mut reader = Reader::new(raw);
                while let Some((number, wire)) = reader.next_field()? {
                    if number == 1 {
                        list.push(self.value(*items, wire, number, "list", depth + 1)?);
                    }
                }
                Ok(Value::Array(list))
            }
            kind => scalar::special(kind, raw),
        }
    }

    /// The fields of a message, into the object whose schema this is.
    fn fields(
        &self,
        schema: &StructSchema,
        name: &str,
        raw: &[u8],
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        let message = self
            .messages
            .get(name)
            .ok_or_else(|| ProtobufError::Unknown(name.to_owned()))?;
        let mut reader = Reader::new(raw);
        while let Some((number, wire)) = reader.next_field()? {
            match message.field(number) {
                // A newer client's field that nothing is known of.
                None => {}
                Some(Field::Inline(inner)) => {
                    let Wire::Bytes(raw) = wire else {
                        return Err(unexpected(number, name));
                    };
                    if depth > MAX_DEPTH {
                        return Err(ProtobufError::Depth);
                    }
                    self.fields(schema, inner, raw, depth + 1, object)?;
                }
                Some(Field::Named {
                    name: field,
                    nilable,
                    always,
                }) => {
                    let Some(property) = schema.properties.get(field) else {
                        continue;
                    };
                    self.field(property, field, wire, (number, name), depth, object)?;
                    if !nilable && !always && object.get(&**field).is_some_and(is_zero) {
                        object.remove(&**field);
                    }
                }
            }
        }
        Ok(())
    }

    /// One field: appended to a list, added to a map, or set.
    fn field(
        &self,
        property: &Property,
        field: &str,
        wire: Wire<'_>,
        (number, message): (u32, &str),
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        match &self.types.get(property.ty).kind {
            SchemaKind::Array { items, .. } => {
                let value = self.value(*items, wire, number, message, depth + 1)?;
                let list = object
                    .entry(field)
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    list.push(value);
                }
            }
            SchemaKind::Map { values } => {
                let Wire::Bytes(entry) = wire else {
                    return Err(unexpected(number, message));
                };
                let (key, value) = self.entry(*values, entry, number, message, depth + 1)?;
                let map = object
                    .entry(field)
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
            _ => {
                let value = self.value(property.ty, wire, number, message, depth + 1)?;
                object.insert(field.to_owned(), value);
            }
        }
        Ok(())
    }

    /// An entry of a map: its key in field 1, its value in field 2.
    fn entry(
        &self,
        values: TypeId,
        raw: &[u8],
        number: u32,
        message: &str,
        depth: usize,
    ) -> Result<(String, Value), ProtobufError> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(raw);
        while let Some((part, wire)) = reader.next_field()? {
            match part {
                1 => key = scalar::text(wire, number, message)?,
                2 => value = Some(self.value(values, wire, number, message, depth + 1)?),
                _ => {}
            }
        }
        let value = value.map_or_else(|| self.empty(values), Ok)?;
        Ok((key, value))
    }

    /// What stands for a value that was left out.
    fn empty(&self, ty: TypeId) -> Result<Value, ProtobufError> {
        match &self.types.get(ty).kind {
            SchemaKind::String(_) => Ok(Value::from("")),
            SchemaKind::Boolean => Ok(Value::from(false)),
            SchemaKind::Integer(_) | SchemaKind::Number => Ok(Value::from(0)),
            _ => self.message(ty, &[], 0),
        }
    }

    /// A value of a type in a field.
    fn value(
        &self,
        ty: TypeId,
        wire: Wire<'_>,
        number: u32,
        message: &str,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        let schema = self.types.get(ty);
        match (scalar::read(&schema.kind, wire, number, message)?, wire) {
            (Some(value), _) => Ok(value),
            (None, Wire::Bytes(raw)) => self.message(ty, raw, depth + 1),
            (None, _) => Err(unexpected(number, message)),
        }
    }
}

/// Whether a value is one that Go's `omitempty` leaves out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn unexpected(number: u32, message: &str) -> ProtobufError {
    ProtobufError::WireType {
        number,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
