//! Nodes: address ranges, what can be given to pods, and the first taint.

use serde_json::{Value, json};

use super::{Create, Fields, made, set_default, text};

/// `podCIDR` is the first of `podCIDRs`.
pub(super) fn pod_cidrs(spec: &mut Fields) {
    let first = text(spec, "podCIDR").to_owned();
    if !first.is_empty() {
        set_default(spec, "podCIDRs", json!([first]));
    }
}

/// What can be given to pods is all that there is, unless the node says less.
pub(super) fn allocatable(status: &mut Fields) {
    if let Some(capacity) = status.get("capacity").filter(|c| c.is_object()).cloned() {
        set_default(status, "allocatable", capacity);
    }
}

/// A new node is not ready: nothing is scheduled to it.
pub(super) fn not_ready_taint(node: &mut Value, _: &Create<'_>) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let spec = node.as_object_mut().and_then(|n| made(n, "spec"));
    let taints = spec.map(|s| s.entry("taints").or_insert_with(|| json!([])));
    if let Some(taints) = taints.and_then(Value::as_array_mut)
        && !taints.contains(&taint)
    {
        taints.push(taint);
    }
}
