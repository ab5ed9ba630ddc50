//! Conversions between the versions of a kind.
//!
//! What is stored may be of any version that some Kubernetes stored. Most versions of a kind differ in their name
//! only: then `apiVersion` is changed and nothing else. The others have a file each.
//!
//! Invariants: converting to a version and back gives an object with the same meaning; fields that a conversion does
//! not know are carried over as they are.

mod autoscaler;
mod definition;
mod event;
mod resource_claim;
mod resource_slice;

use serde_json::{Map, Value};

use crate::catalogue::Catalogue;
use crate::resource::{GroupVersionKind, Resource};

/// The fields of an object.
type Fields = Map<String, Value>;

/// A conversion: from the fields of one version to those of another.
type Convert = fn(&mut Fields);

/// Kind, from, to; an entry's versions are prefixes of `apiVersion`.
const CONVERSIONS: &[(&str, &str, &str, Convert)] = &[
    ("Event", "v1", "events.k8s.io/v1", event::to_events),
    ("Event", "events.k8s.io/v1", "v1", event::to_core),
    (
        "HorizontalPodAutoscaler",
        "autoscaling/v1",
        "autoscaling/v2",
        autoscaler::to_v2,
    ),
    (
        "HorizontalPodAutoscaler",
        "autoscaling/v2",
        "autoscaling/v1",
        autoscaler::to_v1,
    ),
    (
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1",
        "apiextensions.k8s.io/v1beta1",
        definition::to_v1beta1,
    ),
    (
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1beta1",
        "apiextensions.k8s.io/v1",
        definition::to_v1,
    ),
    (
        "ResourceClaim",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1beta2",
        resource_claim::claim_to_exactly,
    ),
    (
        "ResourceClaim",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1",
        resource_claim::claim_to_exactly,
    ),
    (
        "ResourceClaim",
        "resource.k8s.io/v1beta2",
        "resource.k8s.io/v1beta1",
        resource_claim::claim_to_flat,
    ),
    (
        "ResourceClaim",
        "resource.k8s.io/v1",
        "resource.k8s.io/v1beta1",
        resource_claim::claim_to_flat,
    ),
    (
        "ResourceClaimTemplate",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1beta2",
        resource_claim::template_to_exactly,
    ),
    (
        "ResourceClaimTemplate",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1",
        resource_claim::template_to_exactly,
    ),
    (
        "ResourceClaimTemplate",
        "resource.k8s.io/v1beta2",
        "resource.k8s.io/v1beta1",
        resource_claim::template_to_flat,
    ),
    (
        "ResourceClaimTemplate",
        "resource.k8s.io/v1",
        "resource.k8s.io/v1beta1",
        resource_claim::template_to_flat,
    ),
    (
        "ResourceSlice",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1beta2",
        resource_slice::to_flat,
    ),
    (
        "ResourceSlice",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1",
        resource_slice::to_flat,
    ),
    (
        "ResourceSlice",
        "resource.k8s.io/v1beta2",
        "resource.k8s.io/v1beta1",
        resource_slice::to_basic,
    ),
    (
        "ResourceSlice",
        "resource.k8s.io/v1",
        "resource.k8s.io/v1beta1",
        resource_slice::to_basic,
    ),
];

/// Makes an object of another version of its kind. An object that is already of that version stays as it is.
pub fn convert(to: &GroupVersionKind, mut object: Value) -> Value {
    let Some(fields) = object.as_object_mut() else {
        return object;
    };
    let wanted = to.api_version();
    let from = text(fields, "apiVersion").to_owned();
    if from == wanted {
        return object;
    }
    let found = CONVERSIONS
        .iter()
        .find(|(kind, f, t, _)| **kind == *to.kind && **f == *from && **t == *wanted);
    if let Some((_, _, _, convert)) = found {
        convert(fields);
    }
    fields.insert("apiVersion".to_owned(), wanted.into());
    object
}

/// Whether the two versions of a kind differ in more than their name.
pub fn is_identity(kind: &str, from: &str, to: &str) -> bool {
    !CONVERSIONS
        .iter()
        .any(|(k, f, t, _)| *k == kind && *f == from && *t == to)
}

impl Catalogue {
    /// Makes an object of one resource the object of another: of another version of the same kind.
    pub fn convert(&self, to: &Resource, object: Value) -> Value {
        convert(&to.gvk(), object)
    }

    /// The object as it is stored.
    pub fn to_stored(&self, resource: &Resource, object: Value) -> Value {
        match &resource.storage {
            Some(storage) => convert(&storage.kind, object),
            None => object,
        }
    }

    /// An object of a resource from what is stored, whatever version that is.
    pub fn from_stored(&self, resource: &Resource, stored: Value) -> Value {
        convert(&resource.gvk(), stored)
    }
}

fn text<'v>(fields: &'v Fields, name: &str) -> &'v str {
    fields.get(name).and_then(Value::as_str).unwrap_or("")
}

/// Gives a field another name.
fn rename(fields: &mut Fields, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

/// An object field that is there.
fn object<'v>(fields: &'v mut Fields, name: &str) -> Option<&'v mut Fields> {
    fields.get_mut(name)?.as_object_mut()
}

/// An object field, made if it is not there.
fn made<'v>(fields: &'v mut Fields, name: &str) -> Option<&'v mut Fields> {
    fields
        .entry(name)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

/// The objects in a list.
fn each<'v>(fields: &'v mut Fields, name: &str) -> impl Iterator<Item = &'v mut Fields> {
    let list = fields.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}
