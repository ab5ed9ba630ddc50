//! Patches: JSON patch, merge patch and strategic merge patch, as kube-apiserver takes them.
//!
//! Reading a patch and applying it are two steps, so that a patch is read once and applied again after each
//! conflict. What comes out is JSON that has still to be decoded. Server-side apply is not here.

mod json;
mod merge;
mod strategic;

use std::fmt::Write;

use peerage_core::{GroupKind, Status, StatusCause};
use serde_json::{Map, Value};

pub use json::JsonPatch;

use crate::json::{self as json_text, Node, SyntaxError};
use crate::schema::{DecodeError, TypeId, Types};

/// How many operations a JSON patch may have, as in Kubernetes.
pub const MAX_OPERATIONS: usize = 10_000;

/// A patch that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// `application/json-patch+json`, RFC 6902.
    Json(JsonPatch),
    /// `application/merge-patch+json`, RFC 7386.
    Merge(MapPatch),
    /// `application/strategic-merge-patch+json`.
    Strategic(MapPatch),
}

/// A patch that has the shape of the object.
#[derive(Clone, Debug, PartialEq)]
pub struct MapPatch {
    /// The patch.
    pub fields: Map<String, Value>,
    /// The fields that it gives twice, as a strict reader names them.
    pub strict: Vec<String>,
}

/// Why a patch cannot be read or applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PatchError {
    /// It is no JSON.
    #[error("invalid JSON patch")]
    Syntax(#[source] SyntaxError),
    /// It is JSON of another shape.
    #[error("error decoding patch: json: cannot unmarshal {found} into Go {wanted}")]
    Shape {
        /// What was found: `array`.
        found: &'static str,
        /// What Go wanted there.
        wanted: &'static str,
    },
    /// A strategic merge patch of another shape; Kubernetes words this one on its own.
    #[error("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")]
    StrategicShape {
        /// What was found.
        found: &'static str,
    },
    /// A merge patch that is `null`.
    #[error("Invalid JSON Patch")]
    Null,
    /// Too many operations.
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// An operation does not apply. The reason is for logs: Kubernetes does not tell it.
    #[error("the JSON patch does not apply: {0}")]
    Operation(String),
    /// A directive or a list of a strategic merge patch is wrong.
    #[error("{reason}")]
    Strategic {
        /// What is wrong.
        reason: String,
        /// The whole patch, as Go prints it.
        patch: String,
    },
}

impl Patch {
    /// Reads a JSON patch.
    pub fn parse_json(body: &[u8]) -> Result<Patch, PatchError> {
        JsonPatch::parse(body).map(Patch::Json)
    }

    /// Reads a merge patch.
    pub fn parse_merge(body: &[u8]) -> Result<Patch, PatchError> {
        let node = json_text::parse(body).map_err(PatchError::Syntax)?;
        match &node {
            Node::Object(_) => Ok(Patch::Merge(MapPatch::of(&node))),
            Node::Null => Err(PatchError::Null),
            other => Err(PatchError::Shape {
                found: other.kind_name(),
                wanted: "value of type map[string]interface {}",
            }),
        }
    }

    /// Reads a strategic merge patch. `null` changes nothing.
    pub fn parse_strategic(body: &[u8]) -> Result<Patch, PatchError> {
        let node = json_text::parse(body).map_err(PatchError::Syntax)?;
        match &node {
            Node::Object(_) | Node::Null => Ok(Patch::Strategic(MapPatch::of(&node))),
            other => Err(PatchError::StrategicShape {
                found: other.kind_name(),
            }),
        }
    }

    /// Applies the patch to an object of a type. After an error the object is not to be used.
    pub fn apply(&self, types: &Types, ty: TypeId, object: &mut Value) -> Result<(), PatchError> {
        match self {
            Patch::Json(patch) => patch.apply(object),
            Patch::Merge(patch) => {
                merge::apply(object, &patch.fields);
                Ok(())
            }
            Patch::Strategic(patch) => {
                strategic::apply(types, ty, object, &patch.fields).map_err(|reason| {
                    PatchError::Strategic {
                        reason,
                        patch: patch.shown(),
                    }
                })
            }
        }
    }

    /// The answer when what the patch makes of an object is not of its kind.
    pub fn undecodable(&self, result: &Value, error: &DecodeError) -> Status {
        match self {
            Patch::Strategic(_) => self.refused(result, &error.conversion_text()),
            _ => self.refused(result, &error.to_string()),
        }
    }

    /// The answer when what the patch makes of an object is refused for another reason, such as unknown fields.
    pub fn refused(&self, result: &Value, reason: &str) -> Status {
        match self {
            Patch::Strategic(patch) => invalid_patch(&patch.shown(), reason),
            _ => invalid_patch(&shown_object(result), reason),
        }
    }

    /// The fields that the patch gives twice, as a strict reader names them.
    pub fn strict(&self) -> &[String] {
        match self {
            Patch::Json(_) => &[],
            Patch::Merge(patch) | Patch::Strategic(patch) => &patch.strict,
        }
    }
}

impl MapPatch {
    fn of(node: &Node<'_>) -> MapPatch {
        let fields = match node.to_value() {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let strict = node.duplicate_fields(100);
        let strict = strict
            .iter()
            .map(|path| format!("duplicate field {}", crate::field::quote(path)));
        MapPatch {
            fields,
            strict: strict.collect(),
        }
    }

    /// The patch as Go prints a map: `map[spec:map[replicas:3]]`.
    pub fn shown(&self) -> String {
        let mut out = String::new();
        push_map(&mut out, &self.fields);
        out
    }
}

impl PatchError {
    /// The answer to the client.
    ///
    /// Differs: kube-apiserver answers 500 for a wrong strategic merge patch; it is the request that is wrong.
    pub fn status(&self) -> Status {
        match self {
            PatchError::TooManyOperations(_) => Status::too_large(self),
            PatchError::Operation(_) => Status::generic(422, ""),
            PatchError::Strategic { reason, patch } => invalid_patch(patch, reason),
            _ => Status::bad_request(self.to_string()),
        }
    }
}

/// The answer for a patch whose result is no object of the kind; `shown` is the result (JSON and merge patch) or
/// the patch ([`MapPatch::shown`], strategic).
pub(crate) fn invalid_patch(shown: &str, reason: &str) -> Status {
    let cause = StatusCause::invalid("patch", shown, reason);
    Status::invalid(GroupKind::new("", ""), "", vec![cause])
}

/// An object's JSON with its metadata in the order of its Go type, as it is shown in errors about patches.
fn shown_object(object: &Value) -> String {
    const ORDER: [&str; 15] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    let Value::Object(fields) = object else {
        return object.to_string();
    };
    let member = |name: &str, value: &str| format!("{}:{value}", Value::from(name));
    let rank = |name: &str| {
        ORDER
            .iter()
            .position(|known| *known == name)
            .unwrap_or(ORDER.len())
    };
    let members = fields.iter().map(|(name, value)| match value {
        Value::Object(meta) if name == "metadata" => {
            let mut names: Vec<&String> = meta.keys().collect();
            names.sort_by_key(|name| rank(name));
            let inner = names
                .into_iter()
                .map(|name| member(name, &meta[name].to_string()));
            let inner: Vec<String> = inner.collect();
            member(name, &format!("{{{}}}", inner.join(",")))
        }
        value => member(name, &value.to_string()),
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// A value as Go's `%v` prints it.
fn go_value(value: &Value) -> String {
    let mut out = String::new();
    push_value(&mut out, value);
    out
}

fn push_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                push_value(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => push_map(out, fields),
        // Writing to a String cannot fail.
        other => drop(write!(out, "{other}")),
    }
}

fn push_map(out: &mut String, fields: &Map<String, Value>) {
    out.push_str("map[");
    for (at, (name, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        out.push_str(name);
        out.push(':');
        push_value(out, value);
    }
    out.push(']');
}

#[cfg(test)]
mod tests;
