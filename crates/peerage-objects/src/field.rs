//! Errors about fields of an object: the field's path, what is wrong with it, the value and a detail.
//!
//! The texts are those of Kubernetes' `field.Error`, which clients show to people and tests match on. Putting
//! them into a `Status` is left to whoever answers the request.

use std::fmt;

use serde_json::Value;

/// What is wrong with a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// The value breaks a rule.
    Invalid,
    /// The value is not of the wanted type.
    TypeInvalid,
    /// The value is not one of those allowed.
    NotSupported,
    /// The value must be unique and is not.
    Duplicate,
    /// The field must not be set, or not be changed.
    Forbidden,
    /// The value refers to what is not there.
    NotFound,
    /// The value is too long.
    TooLong,
    /// There are too many values.
    TooMany,
    /// Validation itself failed.
    Internal,
}

/// The value that an error shows.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Shown {
    /// Text, shown in quotes.
    Text(String),
    /// Anything else, already rendered: a number, `null`, JSON.
    Raw(String),
}

/// One error about one field.
#[derive(Clone, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[error("{field}: {}", self.body())]
pub struct FieldError {
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// Where: `spec.containers[0].name`.
    pub field: String,
    /// The value that is wrong; not shown for kinds that are not about the value.
    pub value: Shown,
    /// More about it; may be empty.
    pub detail: String,
}

impl FieldErrorKind {
    /// The reason of a `Status` cause.
    pub fn reason(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            FieldErrorKind::Required
                | FieldErrorKind::Forbidden
                | FieldErrorKind::TooLong
                | FieldErrorKind::Internal
        )
    }
}

impl FieldError {
    /// An error with all its parts.
    pub fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: impl Into<Shown>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError {
            kind,
            field: field.into(),
            value: value.into(),
            detail: detail.into(),
        }
    }

    /// A value is missing.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Required, field, "", detail)
    }

    /// A value breaks a rule.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Shown>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(FieldErrorKind::Invalid, field, value, detail)
    }

    /// A value must be unique and is not.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Shown>) -> FieldError {
        FieldError::new(FieldErrorKind::Duplicate, field, value, "")
    }

    /// A field must not be set, or not be changed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Forbidden, field, "", detail)
    }

    /// A value is longer than that many bytes.
    pub fn too_long(field: impl Into<String>, bytes: usize) -> FieldError {
        let detail = format!("may not be more than {bytes} bytes");
        FieldError::new(FieldErrorKind::TooLong, field, "", detail)
    }

    /// A value is none of those supported.
    pub fn not_supported<'a>(
        field: impl Into<String>,
        value: impl Into<Shown>,
        supported: impl IntoIterator<Item = &'a str>,
    ) -> FieldError {
        let supported: Vec<String> = supported.into_iter().map(quote).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        FieldError::new(FieldErrorKind::NotSupported, field, value, detail)
    }

    /// The text without the field: the message of a `Status` cause.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if self.kind.shows_value() {
            text.push_str(": ");
            text.push_str(&self.value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shown::Text(text) => f.write_str(&quote(text)),
            Shown::Raw(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Shown {
    fn from(text: &str) -> Shown {
        Shown::Text(text.to_owned())
    }
}

impl From<String> for Shown {
    fn from(text: String) -> Shown {
        Shown::Text(text)
    }
}

impl From<i64> for Shown {
    fn from(number: i64) -> Shown {
        Shown::Raw(number.to_string())
    }
}

impl From<&Value> for Shown {
    fn from(value: &Value) -> Shown {
        match value {
            Value::String(text) => Shown::Text(text.clone()),
            other => Shown::Raw(other.to_string()),
        }
    }
}

/// A text in quotes, as Go's `%q` writes it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_in_kubernetes() {
        let cases = [
            (
                FieldError::required("metadata.name", "name or generateName is required"),
                "metadata.name: Required value: name or generateName is required",
            ),
            (
                FieldError::required("spec.containers", ""),
                "spec.containers: Required value",
            ),
            (
                FieldError::invalid("data[a/b]", "a/b", "no"),
                "data[a/b]: Invalid value: \"a/b\": no",
            ),
            (
                FieldError::invalid("spec.replicas", -2, "must be greater than or equal to 0"),
                "spec.replicas: Invalid value: -2: must be greater than or equal to 0",
            ),
            (
                FieldError::duplicate("spec.volumes[1].name", "v"),
                "spec.volumes[1].name: Duplicate value: \"v\"",
            ),
            (
                FieldError::not_supported("fieldValidation", "Sometimes", ["", "Ignore", "Strict"]),
                "fieldValidation: Unsupported value: \"Sometimes\": supported values: \"\", \"Ignore\", \"Strict\"",
            ),
            (
                FieldError::too_long("metadata.annotations", 262_144),
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn quotes_are_those_of_go() {
        assert_eq!(
            quote("a\"b\\c\n\u{1}\u{85}ü"),
            "\"a\\\"b\\\\c\\n\\x01\\u0085ü\""
        );
    }
}
