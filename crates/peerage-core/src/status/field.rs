//! Faults of single fields, with the message forms of Kubernetes' field errors.
//!
//! A form is `<what>`, or `<what>: <value>` where the value helps, then `: <detail>` when there is one.
//! Strings are quoted, numbers and booleans bare, everything else is JSON.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;

use super::StatusCause;
use crate::quote::quote;

impl StatusCause {
    /// A cause of a reason that has no constructor of its own.
    pub fn new(
        reason: impl Into<String>,
        message: impl Into<String>,
        field: impl Into<String>,
    ) -> Self {
        StatusCause {
            reason: reason.into(),
            message: message.into(),
            field: field.into(),
        }
    }

    /// A field that must be set is not. The detail may be empty.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            "FieldValueRequired",
            with_detail("Required value".to_owned(), detail),
            field,
        )
    }

    /// A field has a value that it must not have.
    pub fn invalid(field: impl Into<String>, value: impl Serialize, detail: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            with_value("Invalid value", value, detail),
            field,
        )
    }

    /// A field has none of the values that it may have; they are listed in the order given.
    pub fn not_supported<S: AsRef<str>>(
        field: impl Into<String>,
        value: impl Serialize,
        supported: impl IntoIterator<Item = S>,
    ) -> Self {
        let quoted: Vec<String> = supported
            .into_iter()
            .map(|value| quote(value.as_ref()))
            .collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(
            "FieldValueNotSupported",
            with_value("Unsupported value", value, &detail),
            field,
        )
    }

    /// A value appears twice where it may appear once.
    pub fn duplicate(field: impl Into<String>, value: impl Serialize) -> Self {
        Self::new(
            "FieldValueDuplicate",
            with_value("Duplicate value", value, ""),
            field,
        )
    }

    /// A field refers to something that is not there.
    pub fn not_found(field: impl Into<String>, value: impl Serialize) -> Self {
        Self::new(
            "FieldValueNotFound",
            with_value("Not found", value, ""),
            field,
        )
    }

    /// A field must not be set, or not in this way.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            "FieldValueForbidden",
            with_detail("Forbidden".to_owned(), detail),
            field,
        )
    }

    /// A string is longer than so many bytes.
    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> Self {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max_bytes} {unit}");
        Self::new(
            "FieldValueTooLong",
            with_detail("Too long".to_owned(), &detail),
            field,
        )
    }

    /// A list has more than so many items.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(
            "FieldValueTooMany",
            with_value("Too many", actual, &detail),
            field,
        )
    }

    /// The server itself failed while it looked at a field.
    pub fn internal(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            "InternalError",
            with_detail("Internal error".to_owned(), detail),
            field,
        )
    }

    /// The fault as one line of an error message: the field, then the message.
    #[must_use]
    pub fn line(&self) -> String {
        if self.field.is_empty() {
            return self.message.clone();
        }
        format!("{}: {}", self.field, self.message)
    }
}

fn with_detail(what: String, detail: &str) -> String {
    if detail.is_empty() {
        what
    } else {
        format!("{what}: {detail}")
    }
}

fn with_value(what: &str, value: impl Serialize, detail: &str) -> String {
    let value = match serde_json::to_value(value).unwrap_or_default() {
        Value::String(text) => quote(&text),
        other => compact(&other),
    };
    with_detail(format!("{what}: {value}"), detail)
}

fn compact(value: &Value) -> String {
    let bytes = crate::json::to_vec(value).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How many faults an answer tells. A body of 3 MiB can have hundreds of thousands, each with a long text.
pub(super) const MOST_FAULTS: usize = 256;

/// Leaves out what is more than [`MOST_FAULTS`], and says how many those were.
///
/// Differs: kube-apiserver tells all of them.
pub(super) fn bounded(mut causes: Vec<StatusCause>) -> Vec<StatusCause> {
    let left_out = causes.len().saturating_sub(MOST_FAULTS);
    if left_out > 0 {
        causes.truncate(MOST_FAULTS);
        causes.push(StatusCause {
            message: format!("and {left_out} more"),
            ..StatusCause::default()
        });
    }
    causes
}

/// The faults as one text: alone as it is, several in brackets, equal ones once.
pub(super) fn aggregate(causes: &[StatusCause]) -> String {
    let mut lines: Vec<String> = causes.iter().map(StatusCause::line).collect();
    let mut told = HashSet::with_capacity(lines.len());
    lines.retain(|line| told.insert(line.clone()));
    if lines.len() == 1 {
        lines.remove(0)
    } else {
        format!("[{}]", lines.join(", "))
    }
}
