//! The names of Go types that a decoder's errors show, as far as OpenAPI tells them.

use crate::schema::{IntFormat, SchemaKind, StringFormat, TypeId, Types};

pub(super) fn int_name(format: IntFormat) -> &'static str {
    match format {
        IntFormat::Int32 => "int32",
        IntFormat::Int64 => "int64",
    }
}

/// The Go name of a struct: the last part of its name in OpenAPI.
pub(super) fn go_name(name: Option<&str>) -> &str {
    name.and_then(|name| name.rsplit('.').next())
        .unwrap_or_default()
}

/// The Go type that a decoder's error names. Types that read themselves name what they read.
pub(super) fn wanted(types: &Types, ty: TypeId) -> String {
    match &types.get(ty).kind {
        SchemaKind::IntOrString => "int32".to_owned(),
        SchemaKind::String(StringFormat::Byte) => "[]uint8".to_owned(),
        SchemaKind::String(_) => "string".to_owned(),
        _ => go_type(types, ty, 0),
    }
}

fn go_type(types: &Types, ty: TypeId, depth: usize) -> String {
    let schema = types.get(ty);
    // A type that contains itself without a name cannot be written down; nobody needs more levels than this.
    if depth > 8 {
        return "interface {}".to_owned();
    }
    match &schema.kind {
        SchemaKind::Any => "interface {}".to_owned(),
        SchemaKind::Boolean => "bool".to_owned(),
        SchemaKind::Integer(format) => int_name(*format).to_owned(),
        SchemaKind::Number => "float64".to_owned(),
        SchemaKind::String(StringFormat::Any) => "string".to_owned(),
        SchemaKind::String(StringFormat::DateTime) => "v1.Time".to_owned(),
        SchemaKind::String(StringFormat::MicroTime) => "v1.MicroTime".to_owned(),
        SchemaKind::String(StringFormat::Duration) => "v1.Duration".to_owned(),
        SchemaKind::String(StringFormat::Byte) => "[]uint8".to_owned(),
        SchemaKind::IntOrString => "intstr.IntOrString".to_owned(),
        SchemaKind::Quantity => "resource.Quantity".to_owned(),
        SchemaKind::Array { items, .. } => format!("[]{}", go_type(types, *items, depth + 1)),
        SchemaKind::Map { values } => match types.get(*values).kind {
            // The one map that has a name of its own in nearly every place.
            SchemaKind::Quantity => "v1.ResourceList".to_owned(),
            _ => format!("map[string]{}", go_type(types, *values, depth + 1)),
        },
        SchemaKind::Struct(_) => {
            let name = schema.name.as_deref().unwrap_or_default();
            let mut parts = name.rsplit('.');
            let kind = parts.next().unwrap_or_default();
            format!("{}.{kind}", parts.next().unwrap_or_default())
        }
    }
}
