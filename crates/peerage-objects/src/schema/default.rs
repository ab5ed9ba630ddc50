//! Defaults that a schema holds.
//!
//! Defaults that kube-apiserver sets in code are rules beside the catalogue; those come first there and here the
//! schema's fill what is left. After them a required list or map that is absent is shown as `null`, as Go writes
//! a nil slice without `omitempty` (`rules: null` of a Role).

use serde_json::{Map, Value};

use super::{SchemaKind, TypeId, Types};
use crate::json::MAX_DEPTH;

/// Sets absent fields to the schema's defaults, in all levels.
pub fn apply_defaults(types: &Types, ty: TypeId, value: &mut Value) {
    walk(types, ty, value, &mut fill_defaults, 0);
}

/// Shows absent required lists and maps as `null`, in all levels.
pub fn show_nil_lists(types: &Types, ty: TypeId, value: &mut Value) {
    walk(types, ty, value, &mut fill_nulls, 0);
}

type Fill = dyn FnMut(&Types, &super::StructSchema, &mut Map<String, Value>);

fn walk(types: &Types, ty: TypeId, value: &mut Value, fill: &mut Fill, depth: usize) {
    // A default that contains itself would never end; such a schema is wrong, but it is not ours.
    if depth > MAX_DEPTH {
        return;
    }
    match (&types.get(ty).kind, value) {
        (SchemaKind::Array { items, .. }, Value::Array(values)) => {
            for value in values {
                walk(types, *items, value, fill, depth + 1);
            }
        }
        (SchemaKind::Map { values: ty }, Value::Object(values)) => {
            for value in values.values_mut() {
                walk(types, *ty, value, fill, depth + 1);
            }
        }
        (SchemaKind::Struct(schema), Value::Object(fields)) => {
            fill(types, schema, fields);
            for (name, value) in fields {
                if let Some(property) = schema.properties.get(&**name) {
                    walk(types, property.ty, value, fill, depth + 1);
                }
            }
        }
        _ => {}
    }
}

fn fill_defaults(_: &Types, schema: &super::StructSchema, fields: &mut Map<String, Value>) {
    for (name, property) in &schema.properties {
        let Some(default) = &property.default else {
            continue;
        };
        match fields.get_mut(&**name) {
            None => {
                fields.insert(name.to_string(), default.clone());
            }
            Some(value) if value.is_null() && !property.nullable => *value = default.clone(),
            Some(_) => {}
        }
    }
}

fn fill_nulls(types: &Types, schema: &super::StructSchema, fields: &mut Map<String, Value>) {
    for name in &schema.required {
        let Some(property) = schema.properties.get(name) else {
            continue;
        };
        let kind = &types.get(property.ty).kind;
        let nil = matches!(kind, SchemaKind::Array { .. } | SchemaKind::Map { .. });
        if nil && !fields.contains_key(&**name) {
            fields.insert(name.to_string(), Value::Null);
        }
    }
}
