//! Managed fields: who owns which field of an object.
//!
//! Nothing records owners here; server-side apply will, and its place is [`carry`], which every create and
//! update goes through. Until then entries that clients or other servers wrote are carried along and kept well
//! formed.

use serde_json::Value;

use super::{Meta, meta_mut};
use crate::field::{self, FieldError};

/// The longest name of a manager, as in Kubernetes.
const MANAGER_MAX: usize = 128;

/// Carries managed fields into the new state of an object, or into a new object (`old` is null): what was sent, if
/// it is well formed; nothing after the one empty entry by which clients reset them; else what was there.
pub fn carry(new: &mut Value, old: &Value) {
    let sent = Meta::of(new).managed_fields();
    let reset = matches!(sent, [Value::Object(entry)] if entry.is_empty());
    if reset {
        meta_mut(new).remove("managedFields");
        return;
    }
    let good = !sent.is_empty() && validate(sent, "").is_empty();
    if good {
        return;
    }
    let kept = Meta::of(old).managed_fields();
    let meta = meta_mut(new);
    if kept.is_empty() {
        meta.remove("managedFields");
    } else {
        meta.insert("managedFields".to_owned(), kept.to_vec().into());
    }
}

/// What is wrong with entries of managed fields.
pub(super) fn validate(entries: &[Value], path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let path = field::index(path, at);
        let text = |name| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            let path = field::child(&path, "operation");
            errors.push(FieldError::invalid(
                path,
                text("operation"),
                "must be `Apply` or `Update`",
            ));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            let path = field::child(&path, "fieldsType");
            errors.push(FieldError::invalid(
                path,
                text("fieldsType"),
                "must be `FieldsV1`",
            ));
        }
        errors.extend(validate_field_manager(
            text("manager"),
            &field::child(&path, "manager"),
        ));
    }
    errors
}

/// What is wrong with the name of a field manager.
pub fn validate_field_manager(manager: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MANAGER_MAX {
        errors.push(FieldError::too_long(path, MANAGER_MAX));
    }
    // The position is Go's: in bytes.
    let unprintable = manager.char_indices().find(|(_, c)| c.is_control());
    if let Some((at, c)) = unprintable {
        let detail = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(c)
        );
        errors.push(FieldError::invalid(path, manager, &detail));
    }
    errors
}
