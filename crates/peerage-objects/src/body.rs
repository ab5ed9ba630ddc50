//! What a body says it is (`apiVersion`, `kind`), and the texts for bodies that cannot be an object of the wanted kind.
//!
//! Which kinds exist is the caller's to know.

use std::fmt::Display;

use crate::json::{Node, SyntaxError};
use crate::schema::DecodeError;

/// The type fields of an object; empty where they are absent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TypeMeta {
    /// `apps/v1`
    pub api_version: String,
    /// `Deployment`
    pub kind: String,
}

/// Why the type of a body cannot be told; the texts are Kubernetes'.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TypeMetaError {
    /// The body is no JSON.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Syntax(#[from] SyntaxError),
    /// The body is no object, or its type fields are no text.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Type(#[from] DecodeError),
}

/// How many bytes of a body are shown in an error.
const SUMMARY: usize = 30;

/// The type that a body says it has. `null` says nothing, like `{}`.
pub fn type_meta(node: &Node<'_>) -> Result<TypeMeta, TypeMetaError> {
    if !matches!(node, Node::Object(_) | Node::Null) {
        let (found, wanted) = (node.kind_name().to_owned(), GO_TYPE_META.to_owned());
        return Err(DecodeError::Root { found, wanted }.into());
    }
    Ok(TypeMeta {
        api_version: text_field(node, "apiVersion")?,
        kind: text_field(node, "kind")?,
    })
}

/// The anonymous struct that Kubernetes reads the type fields into, as Go prints it.
const GO_TYPE_META: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

fn text_field(node: &Node<'_>, name: &str) -> Result<String, DecodeError> {
    match node.get(name) {
        None | Some(Node::Null) => Ok(String::new()),
        Some(Node::String(text)) => Ok(text.to_string()),
        Some(other) => Err(DecodeError::Field {
            found: other.kind_name().to_owned(),
            owner: String::new(),
            path: name.to_owned(),
            wanted: "string".to_owned(),
        }),
    }
}

/// The text for a body whose type could not be told.
pub fn unrecognized(wanted_kind: &str, error: &dyn Display, body: &[u8]) -> String {
    let summary = summary(body);
    format!(
        "the object provided is unrecognized (must be of type {wanted_kind}): {error} ({summary})"
    )
}

/// The text for a body of a known type that cannot be read as the wanted kind. `version` is without the group.
pub fn cannot_be_handled(
    kind: &str,
    version: &str,
    wanted_kind: &str,
    error: &dyn Display,
) -> String {
    let version = crate::field::quote(version);
    format!("{kind} in version {version} cannot be handled as a {wanted_kind}: {error}")
}

/// The text for a type that nobody knows.
pub fn no_kind_registered(api_version: &str, kind: &str) -> String {
    let (kind, version) = (crate::field::quote(kind), crate::field::quote(api_version));
    // Where Kubernetes' scheme was made is part of what clients see.
    format!(
        "no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

/// The text for an object of another known kind; the wanted one by its group (`core` for the nameless one).
pub fn unknown_conversion(
    version: &str,
    kind: &str,
    wanted_group: &str,
    wanted_kind: &str,
) -> String {
    format!("converting ({version}.{kind}) to ({wanted_group}.{wanted_kind}): unknown conversion")
}

fn summary(body: &[u8]) -> String {
    let (shown, more) = match body.get(..SUMMARY) {
        Some(start) if body.len() > SUMMARY => (start, " ..."),
        _ => (body, ""),
    };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(body: &str) -> Result<TypeMeta, TypeMetaError> {
        type_meta(&json::parse(body.as_bytes())?)
    }

    #[test]
    fn bodies_that_are_no_object_are_refused_in_kubernetes_words() {
        let cases = [
            (
                "",
                "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
            ),
            (
                "plain words",
                "couldn't get version/kind; json parse error: invalid character 'p' looking for beginning of value (706c61696e20776f726473)",
            ),
            (
                "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\"",
                "couldn't get version/kind; json parse error: unexpected end of JSON input ({\"apiVersion\":\"v1\",\"kind\":\"Con ...)",
            ),
            (
                "[]",
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (5b5d)",
            ),
            (
                "17",
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (3137)",
            ),
        ];
        for (body, text) in cases {
            let error = read(body).unwrap_err();
            assert_eq!(
                unrecognized("ConfigMap", &error, body.as_bytes()),
                format!("the object provided is unrecognized (must be of type ConfigMap): {text}")
            );
        }
        assert_eq!(read("null").unwrap(), TypeMeta::default());
        assert!(read("{\"kind\":1}").is_err());
    }

    #[test]
    fn other_kinds_are_refused_in_kubernetes_words() {
        let error = unknown_conversion("v1", "Secret", "core", "ConfigMap");
        assert_eq!(
            cannot_be_handled("Secret", "v1", "ConfigMap", &error),
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"
        );
        assert_eq!(
            no_kind_registered("apps/v1", "ConfigMap"),
            "no kind \"ConfigMap\" is registered for version \"apps/v1\" in scheme \"pkg/runtime/scheme.go:111\""
        );
    }
}
