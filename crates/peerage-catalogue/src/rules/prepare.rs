//! What a create and an update do to an object before it is validated: kube-apiserver's strategies.
//!
//! Names, uid, times and resource versions are the API server's; so is the order of the stages.

use serde_json::{Map, Value};

use super::functions::{self, Create};
use super::{Generation, Grace};
use crate::catalogue::Catalogue;
use crate::resource::Resource;

/// How long a pod's containers have to end when it does not say.
const POD_GRACE: i64 = 30;

impl Catalogue {
    /// Prepares an object that is to be created: `metadata.uid` and `metadata.name` are set already.
    pub fn prepare_create(&self, resource: &Resource, object: &mut Value, create: &Create<'_>) {
        let rules = &resource.rules;
        if resource.subresource("status").is_some() && !rules.keeps_status_on_create {
            take(object, "status");
        }
        for (path, value) in &rules.set_on_create {
            path.put(object, value.clone());
        }
        for name in &rules.create_functions {
            functions::run_create(name, object, create);
        }
        add_finalizers(object, &rules.finalizers);
        if rules.generation != Generation::None {
            set_generation(object, Some(1));
        }
        self.apply_defaults(resource, object);
    }

    /// Prepares an object that is to replace another one through its main resource.
    pub fn prepare_update(&self, resource: &Resource, new: &mut Value, old: &Value) {
        if resource.subresource("status").is_some() {
            copy(new, old, "status");
        }
        for name in &resource.rules.update_functions {
            functions::run_update(name, new, old);
        }
        self.apply_defaults(resource, new);
        set_generation(new, next_generation(resource.rules.generation, new, old));
    }

    /// Prepares an object that is to replace another one through `status`.
    pub fn prepare_status_update(&self, resource: &Resource, new: &mut Value, old: &Value) {
        let own = ["apiVersion", "kind", "metadata", "status"];
        let Some(fields) = new.as_object_mut() else {
            return;
        };
        fields.retain(|name, _| own.contains(&&**name));
        for (name, value) in old.as_object().into_iter().flatten() {
            if !own.contains(&&**name) {
                fields.insert(name.clone(), value.clone());
            }
        }
        for path in &resource.rules.status_write_keeps {
            match path.get(old) {
                Some(value) => path.put(new, value.clone()),
                None => drop(path.remove(new)),
            }
        }
        set_generation(new, generation(old));
        self.apply_defaults(resource, new);
    }

    /// How long an object stays after its deletion was asked for; none for kinds that go at once.
    ///
    /// `requested` is `gracePeriodSeconds`. A pod that is on no node, or has ended, goes at once (0).
    pub fn grace_seconds(
        &self,
        resource: &Resource,
        object: &Value,
        requested: Option<i64>,
    ) -> Option<i64> {
        if resource.rules.grace == Grace::None {
            return None;
        }
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("");
        if text("/spec/nodeName").is_empty()
            || ["Failed", "Succeeded"].contains(&text("/status/phase"))
        {
            return Some(0);
        }
        let own = object
            .pointer("/spec/terminationGracePeriodSeconds")
            .and_then(Value::as_i64);
        let seconds = requested.or(own).unwrap_or(POD_GRACE);
        Some(if seconds < 0 { 1 } else { seconds })
    }
}

fn take(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

fn copy(new: &mut Value, old: &Value, field: &str) {
    let Some(fields) = new.as_object_mut() else {
        return;
    };
    match old.get(field) {
        Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
        None => drop(fields.remove(field)),
    }
}

fn add_finalizers(object: &mut Value, names: &[std::sync::Arc<str>]) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    for name in names {
        let list = metadata
            .entry("finalizers")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Some(list) = list.as_array_mut()
            && !list.iter().any(|f| *f == **name)
        {
            list.push(Value::from(&**name));
        }
    }
}

fn generation(object: &Value) -> Option<i64> {
    object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
}

fn set_generation(object: &mut Value, generation: Option<i64>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    match generation {
        Some(number) => drop(metadata.insert("generation".to_owned(), number.into())),
        None => drop(metadata.remove("generation")),
    }
}

fn next_generation(rule: Generation, new: &Value, old: &Value) -> Option<i64> {
    let before = generation(old);
    let changed = match rule {
        Generation::None | Generation::Starts1 => false,
        Generation::Managed => content_differs(new, old),
        Generation::ManagedWithAnnotations => {
            content_differs(new, old) || metadata_differs(new, old, "annotations")
        }
        Generation::ManagedWithLabels => {
            content_differs(new, old) || metadata_differs(new, old, "labels")
        }
    };
    if changed {
        Some(before.unwrap_or(0) + 1)
    } else {
        before
    }
}

fn metadata_differs(new: &Value, old: &Value, field: &str) -> bool {
    let of = |object: &'_ Value| object.get("metadata").and_then(|m| m.get(field)).cloned();
    of(new) != of(old)
}

/// Whether two objects differ outside of their metadata and status.
fn content_differs(new: &Value, old: &Value) -> bool {
    let empty = Map::new();
    let own = ["apiVersion", "kind", "metadata", "status"];
    let content = |v: &'_ Value| -> Map<String, Value> {
        let fields = v.as_object().unwrap_or(&empty);
        let content = fields.iter().filter(|(name, _)| !own.contains(&&***name));
        content
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    content(new) != content(old)
}
