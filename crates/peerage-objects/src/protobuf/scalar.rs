//! Values that are no objects: numbers and texts, and the Kubernetes types that have a message of their own and are
//! a text or a number in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Number, Value};

use super::{ProtobufError, unexpected};
use crate::schema::{SchemaKind, StringFormat};
use peerage_core::protobuf::{Reader, Wire};

/// The value of a field whose type is no message; `None` for one that is.
pub(super) fn read(
    kind: &SchemaKind,
    wire: Wire<'_>,
    number: u32,
    message: &str,
) -> Result<Option<Value>, ProtobufError> {
    Ok(Some(match (kind, wire) {
        (SchemaKind::Boolean, Wire::Varint(n)) => Value::from(n != 0),
        // Negative numbers are sign-extended to 64 bits.
        (SchemaKind::Integer(_), Wire::Varint(n)) => Value::from(n as i64),
        (SchemaKind::Number, Wire::Fixed64(bits)) => {
            Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, Value::Number)
        }
        (SchemaKind::Number, Wire::Fixed32(bits)) => {
            Number::from_f64(f32::from_bits(bits).into()).map_or(Value::Null, Value::Number)
        }
        (SchemaKind::String(StringFormat::Any), wire) => Value::from(text(wire, number, message)?),
        (SchemaKind::String(StringFormat::Byte), Wire::Bytes(bytes)) => {
            Value::from(STANDARD.encode(bytes))
        }
        (SchemaKind::Boolean | SchemaKind::Integer(_) | SchemaKind::Number, _) => {
            return Err(unexpected(number, message));
        }
        _ => return Ok(None),
    }))
}

/// A text.
pub(super) fn text(wire: Wire<'_>, number: u32, message: &str) -> Result<String, ProtobufError> {
    let Wire::Bytes(bytes) = wire else {
        return Err(unexpected(number, message));
    };
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned).map_err(|_| ProtobufError::Text {
        number,
        message: message.to_owned(),
    })
}

/// A message that is no object in JSON.
pub(super) fn special(kind: &SchemaKind, raw: &[u8]) -> Result<Value, ProtobufError> {
    match kind {
        SchemaKind::Quantity => Ok(Value::from(first_text(raw)?)),
        SchemaKind::IntOrString => int_or_string(raw),
        SchemaKind::String(StringFormat::DateTime) => time(raw, false),
        SchemaKind::String(StringFormat::MicroTime) => time(raw, true),
        SchemaKind::String(StringFormat::Duration) => Ok(Value::from(duration(raw)?)),
        SchemaKind::Any => embedded(raw),
        _ => Err(ProtobufError::Damaged(0)),
    }
}

/// `Quantity`: its text in field 1.
fn first_text(raw: &[u8]) -> Result<String, ProtobufError> {
    let mut found = String::new();
    let mut reader = Reader::new(raw);
    while let Some((number, wire)) = reader.next_field()? {
        if number == 1 {
            found = text(wire, number, "Quantity")?;
        }
    }
    Ok(found)
}

/// `IntOrString`: which of the two in field 1, the number in 2, the text in 3.
fn int_or_string(raw: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number_value, mut text_value) = (false, 0i64, String::new());
    let mut reader = Reader::new(raw);
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Varint(n)) => is_text = n == 1,
            (2, Wire::Varint(n)) => number_value = n as i64,
            (3, wire) => text_value = text(wire, number, "IntOrString")?,
            _ => {}
        }
    }
    Ok(if is_text {
        Value::from(text_value)
    } else {
        Value::from(number_value)
    })
}

/// `Time` and `MicroTime`: seconds in field 1, nanoseconds in 2. Nothing at all is no time.
fn time(raw: &[u8], micro: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (0i64, 0i64);
    let mut reader = Reader::new(raw);
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Varint(n)) => seconds = n as i64,
            (2, Wire::Varint(n)) => nanos = n as i64,
            _ => {}
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| ProtobufError::Damaged(0))?;
    let at = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Damaged(0))?;
    Ok(Value::from(if micro {
        crate::time::show_micro(at)
    } else {
        crate::time::show(at)
    }))
}

/// `Duration`: nanoseconds in field 1.
fn duration(raw: &[u8]) -> Result<String, ProtobufError> {
    let mut nanos = 0i64;
    let mut reader = Reader::new(raw);
    while let Some((number, wire)) = reader.next_field()? {
        if let (1, Wire::Varint(n)) = (number, wire) {
            nanos = n as i64;
        }
    }
    Ok(peerage_core::duration::show(nanos))
}

/// `RawExtension`, `FieldsV1`, `JSON`: JSON in field 1.
fn embedded(raw: &[u8]) -> Result<Value, ProtobufError> {
    let mut reader = Reader::new(raw);
    let mut value = Value::Null;
    while let Some((number, wire)) = reader.next_field()? {
        if let (1, Wire::Bytes(bytes)) = (number, wire)
            && !bytes.is_empty()
        {
            value = serde_json::from_slice(bytes).map_err(|_| ProtobufError::Embedded(number))?;
        }
    }
    Ok(value)
}
