//! Where a field is in an object, and errors about fields.
//!
//! An error about a field is a cause of a `Status`; the words are [`StatusCause`]'s.

pub use peerage_core::StatusCause;
pub use peerage_core::quote::quote;

/// One error about one field.
pub type FieldError = StatusCause;

/// A field's path with one more name: `spec` and `name` give `spec.name`.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// A field's path with an index: `spec.containers[0]`.
pub fn index(path: &str, at: usize) -> String {
    format!("{path}[{at}]")
}

/// A field's path with a key: `data[a/b]`.
pub fn key(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

/// The error that a value breaks a rule, for a value already rendered in the order of its Go type.
pub(crate) fn invalid_rendered(path: &str, rendered: &str, detail: &str) -> FieldError {
    let message = format!("Invalid value: {rendered}: {detail}");
    FieldError::new("FieldValueInvalid", message, path)
}
