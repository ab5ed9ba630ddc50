//! Daemon sets: the template's own generation, kept in an annotation since `apps/v1`.

use serde_json::Value;

use super::{Create, made};

const ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// The first template is the first generation.
pub(super) fn first_generation(object: &mut Value, _: &Create<'_>) {
    put(object, 1);
}

/// Each other template is the next one.
pub(super) fn next_generation(new: &mut Value, old: &Value) {
    let before = old
        .pointer("/metadata/annotations")
        .and_then(|a| a.get(ANNOTATION)?.as_str()?.parse::<i64>().ok())
        .unwrap_or(1);
    let template = "/spec/template";
    let changed = new.pointer(template) != old.pointer(template);
    put(new, before + i64::from(changed));
}

fn put(object: &mut Value, generation: i64) {
    let annotations = object
        .as_object_mut()
        .and_then(|o| made(o, "metadata"))
        .and_then(|m| made(m, "annotations"));
    if let Some(annotations) = annotations {
        annotations.insert(ANNOTATION.to_owned(), generation.to_string().into());
    }
}
