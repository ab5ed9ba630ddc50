//! Namespaces, volumes and taints: labels, finalizers and times that the server puts.

use serde_json::{Value, json};

use super::{Create, Fields, made, text};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

/// Each namespace carries its name as a label.
pub(super) fn namespace_label(fields: &mut Fields) {
    let Some(metadata) = made(fields, "metadata") else {
        return;
    };
    let name = text(metadata, "name").to_owned();
    if let Some(labels) = made(metadata, "labels").filter(|_| !name.is_empty()) {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
}

/// A namespace stays until what is in it is gone.
pub(super) fn namespace_finalizer(object: &mut Value, _: &Create<'_>) {
    let spec = object.as_object_mut().and_then(|o| made(o, "spec"));
    let list = spec.map(|s| s.entry("finalizers").or_insert_with(|| json!([])));
    if let Some(list) = list.and_then(Value::as_array_mut)
        && !list.iter().any(|f| f == FINALIZER)
    {
        list.push(FINALIZER.into());
    }
}

/// Only `finalize` changes the finalizers of a namespace's spec.
pub(super) fn keep_namespace_finalizers(new: &mut Value, old: &Value) {
    let kept = old.pointer("/spec/finalizers").cloned();
    if let Some(spec) = new.as_object_mut().and_then(|o| made(o, "spec")) {
        match kept {
            Some(list) => drop(spec.insert("finalizers".to_owned(), list)),
            None => drop(spec.remove("finalizers")),
        }
    }
}

/// When the volume came into its first phase.
pub(super) fn volume_transition_time(object: &mut Value, create: &Create<'_>) {
    if let Some(status) = object.as_object_mut().and_then(|o| made(o, "status")) {
        status.insert("lastPhaseTransitionTime".to_owned(), create.now.into());
    }
}

/// When the taint was put, if the client does not say.
pub(super) fn taint_time(object: &mut Value, create: &Create<'_>) {
    let taint = object
        .as_object_mut()
        .and_then(|o| made(o, "spec"))
        .and_then(|s| made(s, "taint"));
    if let Some(taint) = taint {
        taint
            .entry("timeAdded")
            .or_insert_with(|| create.now.into());
    }
}

/// A taint that stays keeps its time.
pub(super) fn keep_taint_time(new: &mut Value, old: &Value) {
    let kept = old.pointer("/spec/taint/timeAdded").cloned();
    let taint = new
        .as_object_mut()
        .and_then(|o| made(o, "spec"))
        .and_then(|s| made(s, "taint"));
    if let (Some(taint), Some(time)) = (taint, kept) {
        taint.entry("timeAdded").or_insert(time);
    }
}
