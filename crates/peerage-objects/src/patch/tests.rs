//! Patches of every kind.

use super::*;
use crate::schema::examples::examples;
use serde_json::json;

mod json;
mod properties;
mod strategic;

fn json_patch(document: Value, patch: Value) -> Result<Value, PatchError> {
    let mut document = document;
    let types = Types::new();
    let patch = Patch::parse_json(patch.to_string().as_bytes())?;
    patch
        .apply(&types, TypeId(0), &mut document)
        .map(|()| document)
}

fn strategic(object: Value, patch: Value) -> Result<Value, PatchError> {
    let e = examples();
    let mut object = object;
    let patch = Patch::parse_strategic(patch.to_string().as_bytes())?;
    patch
        .apply(&e.types, e.deployment, &mut object)
        .map(|()| object)
}

fn pod(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}
