//! How a failure, or a success without an object, is said: `meta/v1` Status and the plain-text answers.
//!
//! The constructors hold the exact texts, reasons, details and codes of kube-apiserver, because clients
//! compare them; handlers never write such texts themselves. A Status knows its HTTP code and Retry-After.
//! Writing it as JSON or YAML is the server's.

mod field;
mod generic;
mod plain;
mod protobuf;
mod rows;

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

pub use plain::PlainError;

/// A resource with its group, as messages name it: `deployments.apps`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupResource<'a> {
    /// The group; empty for the core group.
    pub group: &'a str,
    /// The resource, in the plural.
    pub resource: &'a str,
}

impl<'a> GroupResource<'a> {
    /// A resource of a group.
    #[must_use]
    pub fn new(group: &'a str, resource: &'a str) -> Self {
        GroupResource { group, resource }
    }
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, self.resource, self.group)
    }
}

/// A kind with its group, as messages name it: `Deployment.apps`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupKind<'a> {
    /// The group; empty for the core group.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
}

impl<'a> GroupKind<'a> {
    /// A kind of a group.
    #[must_use]
    pub fn new(group: &'a str, kind: &'a str) -> Self {
        GroupKind { group, kind }
    }
}

impl fmt::Display for GroupKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, self.kind, self.group)
    }
}

fn write_qualified(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    if group.is_empty() {
        f.write_str(name)
    } else {
        write!(f, "{name}.{group}")
    }
}

/// `meta/v1` Status. It is an error too, so that handlers can return it with `?`; its text is the message.
///
/// Its fields are those of [`StatusBody`], behind a box so that a `Result` with it stays small.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}", .0.message)]
#[serde(transparent)]
pub struct Status(Box<StatusBody>);

impl Deref for Status {
    type Target = StatusBody;

    fn deref(&self) -> &StatusBody {
        &self.0
    }
}

impl DerefMut for Status {
    fn deref_mut(&mut self) -> &mut StatusBody {
        &mut self.0
    }
}

impl From<StatusBody> for Status {
    fn from(body: StatusBody) -> Self {
        Status(Box::new(body))
    }
}

/// The fields of a [`Status`], in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusBody {
    /// `Status`; empty only in the answer to a request whose time ran out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// `v1`; empty only where `kind` is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Always written, usually empty.
    pub metadata: StatusMeta,
    /// `Success` or `Failure`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs, such as `NotFound`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the failure is about. Present-but-empty and absent are different on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code; 0 (absent) in the answer to a deletion.
    #[serde(skip_serializing_if = "is_zero_u16")]
    pub code: u16,
}

/// The list metadata of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusMeta {
    /// The revision that the answer speaks of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Where an expired list can go on.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// What a Status is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The group of the resource or kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, or for invalid objects the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single faults.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub causes: Vec<StatusCause>,
    /// When to try again; 0 says nothing.
    #[serde(skip_serializing_if = "is_zero_u32")]
    pub retry_after_seconds: u32,
}

/// One fault of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusCause {
    /// For programs, such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the faulty field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    /// The HTTP status code of the answer that carries it.
    #[must_use]
    pub fn code(&self) -> u16 {
        match (self.code, self.is_success()) {
            (0, true) => 200,
            (0, false) => 500,
            (code, _) => code,
        }
    }

    /// The value of the answer's Retry-After header, when it has one.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        self.details
            .as_ref()
            .map(|details| details.retry_after_seconds)
            .filter(|seconds| *seconds > 0)
    }

    /// Whether it tells of a success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == "Success"
    }

    /// The same, asking the client to come back after so many seconds.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The same with one more cause.
    #[must_use]
    pub fn with_cause(mut self, cause: StatusCause) -> Self {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }
}

fn is_zero_u16(value: &u16) -> bool {
    *value == 0
}

fn is_zero_u32(value: &u32) -> bool {
    *value == 0
}

/// Go writes an absent list as null.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
