//! What metadata must look like, in Kubernetes' order and words.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{FOREGROUND, Meta, ORPHAN, managed};
use crate::field::{self, FieldError, invalid_rendered};
use crate::names::{self, NameRule};

/// How large all annotations of an object together may be, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Of how many controllers too many an error tells: each error repeats the whole list of owners.
const SURPLUS_CONTROLLERS_TOLD: usize = 2;

/// The names that a kind's objects may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NameLimits {
    /// The shape.
    pub rule: NameRule,
    /// The longest name, where the kind allows less than the shape does.
    pub longest: Option<usize>,
}

impl NameLimits {
    fn check(self, name: &str) -> Vec<String> {
        let mut broken = self.rule.check(name);
        if let Some(longest) = self.longest.filter(|longest| name.len() > *longest) {
            broken.push(format!("must be no more than {longest} characters"));
        }
        broken
    }
}

/// What is wrong with the metadata of a new object that [`prepare_create`](super::prepare_create) has gone over.
pub fn validate_create(object: &Value, namespaced: bool, limits: NameLimits) -> Vec<FieldError> {
    let meta = Meta::of(object);
    let mut errors = Vec::new();
    let generate = meta.generate_name();
    if !generate.is_empty() {
        let broken = limits.rule.check_prefix(generate);
        push(&mut errors, "metadata.generateName", generate, broken);
    }
    match meta.name() {
        "" => {
            let detail = "name or generateName is required";
            errors.push(FieldError::required("metadata.name", detail));
        }
        name => push(&mut errors, "metadata.name", name, limits.check(name)),
    }
    let namespace = meta.namespace();
    match (namespaced, namespace) {
        (true, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (true, namespace) => {
            let broken = names::dns1123_label(namespace);
            push(&mut errors, "metadata.namespace", namespace, broken);
        }
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden(
            "metadata.namespace",
            "not allowed on this type",
        )),
    }
    if meta.generation() < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(
            "metadata.generation",
            meta.generation(),
            detail,
        ));
    }
    common(meta, &mut errors);
    finalizers(meta, &mut errors);
    errors.extend(managed::validate(
        meta.managed_fields(),
        "metadata.managedFields",
    ));
    errors
}

/// What is wrong with the metadata of the new state of an object that
/// [`prepare_update`](super::prepare_update) has gone over.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (meta, before) = (Meta::of(new), Meta::of(old));
    let mut errors = Vec::new();
    if before.deletion_timestamp().is_some() {
        no_new_finalizers(meta, before, &mut errors);
    }
    if meta.resource_version().is_empty() {
        let detail = "must be specified for an update";
        errors.push(FieldError::invalid("metadata.resourceVersion", "", detail));
    }
    if meta.generation() < before.generation() {
        let detail = "must not be decremented";
        errors.push(FieldError::invalid(
            "metadata.generation",
            meta.generation(),
            detail,
        ));
    }
    const FIXED: [&str; 6] = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    for name in FIXED {
        let value = meta.get(name).filter(|value| !value.is_null());
        if value != before.get(name).filter(|value| !value.is_null()) {
            let path = field::child("metadata", name);
            errors.push(FieldError::invalid(path, value, "field is immutable"));
        }
    }
    common(meta, &mut errors);
    finalizers(meta, &mut errors);
    errors.extend(managed::validate(
        meta.managed_fields(),
        "metadata.managedFields",
    ));
    errors
}

fn common(meta: Meta<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in meta.labels().into_iter().flatten() {
        push(errors, "metadata.labels", key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        push(errors, "metadata.labels", value, names::label_value(value));
    }
    annotations(meta.annotations(), errors);
    owners(meta.owner_references(), errors);
}

fn annotations(annotations: Option<&Map<String, Value>>, errors: &mut Vec<FieldError>) {
    let path = "metadata.annotations";
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        let broken = names::qualified_name(&key.to_lowercase());
        push(errors, path, key, broken);
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX));
    }
}

fn owners(owners: &[Value], errors: &mut Vec<FieldError>) {
    let list = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    let mut surplus = 0;
    for (at, owner) in owners.iter().enumerate() {
        let path = field::index(list, at);
        let text = |name| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        for name in ["apiVersion", "kind", "name", "uid"] {
            if text(name).is_empty() {
                errors.push(FieldError::required(
                    field::child(&path, name),
                    "must not be empty",
                ));
            }
        }
        // Events come and go too fast to own anything.
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(invalid_rendered(&path, &rendered(owner), detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                None => controller = Some(name),
                Some(_) if surplus == SURPLUS_CONTROLLERS_TOLD => {}
                Some(first) => {
                    surplus += 1;
                    let all: Vec<String> = owners.iter().map(rendered).collect();
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    errors.push(invalid_rendered(
                        list,
                        &format!("[{}]", all.join(",")),
                        &detail,
                    ));
                }
            }
        }
    }
}

/// An owner reference with its fields in the order of its Go type.
fn rendered(owner: &Value) -> String {
    const ORDER: [&str; 6] = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let fields = ORDER.iter().filter_map(|name| {
        let value = owner.get(*name)?;
        Some(format!("\"{name}\":{value}"))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn finalizers(meta: Meta<'_>, errors: &mut Vec<FieldError>) {
    let path = "metadata.finalizers";
    let finalizers = meta.finalizers();
    for finalizer in &finalizers {
        push(errors, path, finalizer, names::qualified_name(finalizer));
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(path, &finalizers, &detail));
    }
    for (at, finalizer) in finalizers.iter().enumerate() {
        let standard = matches!(*finalizer, ORPHAN | FOREGROUND | "kubernetes");
        if !finalizer.contains('/') && !standard {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(
                field::index(path, at),
                *finalizer,
                detail,
            ));
        }
    }
}

fn no_new_finalizers(meta: Meta<'_>, before: Meta<'_>, errors: &mut Vec<FieldError>) {
    let before: HashSet<&str> = before.finalizers().into_iter().collect();
    let mut added = meta.finalizers();
    added.retain(|finalizer| !before.contains(finalizer));
    if !added.is_empty() {
        added.sort_unstable();
        // A list of texts as Go's %#v prints it.
        let added: Vec<String> = added.into_iter().map(field::quote).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        errors.push(FieldError::forbidden("metadata.finalizers", &detail));
    }
}

fn push(errors: &mut Vec<FieldError>, path: &str, value: &str, broken: Vec<String>) {
    let found = broken
        .into_iter()
        .map(|rule| FieldError::invalid(path, value, &rule));
    errors.extend(found);
}
