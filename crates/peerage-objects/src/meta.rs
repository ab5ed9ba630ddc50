//! An object's metadata: reading it, the bookkeeping that a server does with it, and what it must look like.
//!
//! The clock, new UIDs and randomness are arguments. Storage's part (resource versions, conflicts) and the kinds'
//! own rules (which kinds count generations, which delete gracefully) are the caller's.

mod bookkeeping;
mod managed;
mod validate;

use serde_json::{Map, Value};

pub use bookkeeping::{
    Creation, MetaError, Propagation, check_name, generate_name, mark_deleting, prepare_create,
    prepare_update, propagation_finalizers, same_content, spec_changed,
};
pub use managed::{carry as carry_managed_fields, validate_field_manager};
pub use validate::{NameLimits, validate_create, validate_update};

/// The finalizer of a deletion that waits for the dependents to be deleted.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that leaves the dependents behind.
pub const ORPHAN: &str = "orphan";

/// Reads an object's metadata. What is absent is empty.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'o> {
    fields: Option<&'o Map<String, Value>>,
}

impl<'o> Meta<'o> {
    /// The metadata of an object.
    pub fn of(object: &'o Value) -> Meta<'o> {
        let fields = object.get("metadata").and_then(Value::as_object);
        Meta { fields }
    }

    /// `metadata.name`
    pub fn name(self) -> &'o str {
        self.text("name")
    }

    /// `metadata.generateName`
    pub fn generate_name(self) -> &'o str {
        self.text("generateName")
    }

    /// `metadata.namespace`
    pub fn namespace(self) -> &'o str {
        self.text("namespace")
    }

    /// `metadata.uid`
    pub fn uid(self) -> &'o str {
        self.text("uid")
    }

    /// `metadata.resourceVersion`
    pub fn resource_version(self) -> &'o str {
        self.text("resourceVersion")
    }

    /// `metadata.creationTimestamp`
    pub fn creation_timestamp(self) -> &'o str {
        self.text("creationTimestamp")
    }

    /// `metadata.deletionTimestamp`, when the object is being deleted.
    pub fn deletion_timestamp(self) -> Option<&'o str> {
        self.get("deletionTimestamp").and_then(Value::as_str)
    }

    /// `metadata.deletionGracePeriodSeconds`
    pub fn deletion_grace_period_seconds(self) -> Option<i64> {
        self.get("deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
    }

    /// `metadata.generation`, 0 if the kind does not count.
    pub fn generation(self) -> i64 {
        self.get("generation")
            .and_then(Value::as_i64)
            .unwrap_or_default()
    }

    /// `metadata.labels`
    pub fn labels(self) -> Option<&'o Map<String, Value>> {
        self.get("labels").and_then(Value::as_object)
    }

    /// `metadata.annotations`
    pub fn annotations(self) -> Option<&'o Map<String, Value>> {
        self.get("annotations").and_then(Value::as_object)
    }

    /// `metadata.finalizers`
    pub fn finalizers(self) -> Vec<&'o str> {
        self.list("finalizers")
            .iter()
            .filter_map(Value::as_str)
            .collect()
    }

    /// `metadata.ownerReferences`
    pub fn owner_references(self) -> &'o [Value] {
        self.list("ownerReferences")
    }

    /// `metadata.managedFields`
    pub fn managed_fields(self) -> &'o [Value] {
        self.list("managedFields")
    }

    fn get(self, field: &str) -> Option<&'o Value> {
        self.fields?.get(field)
    }

    fn text(self, field: &str) -> &'o str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn list(self, field: &str) -> &'o [Value] {
        let list = self.get(field).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    }
}

/// The metadata of an object to be changed; made if it is absent.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let meta = &mut object["metadata"];
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    match meta {
        Value::Object(fields) => fields,
        _ => unreachable!("it was made an object just now"),
    }
}

/// Sets `metadata.resourceVersion`.
pub fn set_resource_version(object: &mut Value, version: &str) {
    meta_mut(object).insert("resourceVersion".to_owned(), version.into());
}

#[cfg(test)]
mod tests;
