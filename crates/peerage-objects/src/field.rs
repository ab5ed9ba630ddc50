//! Where a field is in an object, and errors about fields.
//!
//! An error about a field is a cause of a `Status`; the words are [`StatusCause`]'s.

use std::collections::HashSet;

pub use peerage_core::StatusCause;
pub use peerage_core::quote::quote;

/// One error about one field.
pub type FieldError = StatusCause;

/// Adds errors of a second check, but not the same fault of the same field twice, and of a field that has a fault
/// already not that it is missing.
pub fn add_new(errors: &mut Vec<FieldError>, more: Vec<FieldError>) {
    let fault = |error: &FieldError| (error.field.clone(), error.reason.clone());
    let mut known: HashSet<_> = errors.iter().map(fault).collect();
    let faulty: HashSet<String> = errors.iter().map(|error| error.field.clone()).collect();
    errors.extend(more.into_iter().filter(|error| {
        let missing = error.reason == "FieldValueRequired" && faulty.contains(&error.field);
        !missing && known.insert(fault(error))
    }));
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_once() {
        let mut errors = vec![FieldError::required("a", "")];
        let more = vec![
            FieldError::required("a", "really"),
            FieldError::required("b", ""),
            FieldError::forbidden("a", ""),
        ];
        add_new(&mut errors, more);
        let lines: Vec<String> = errors.iter().map(FieldError::line).collect();
        assert_eq!(
            lines,
            ["a: Required value", "b: Required value", "a: Forbidden"]
        );
    }
}
