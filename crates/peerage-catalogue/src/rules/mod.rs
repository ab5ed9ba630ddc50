//! What kube-apiserver does in code and no document shows, as data.
//!
//! `data/rules.txt` is a closed table. Rules of a *type* apply wherever the type occurs (a pod's defaults are those
//! of every pod template): defaults, nulls that Go writes, checks. Rules of a *kind* are about the resource: names,
//! field selectors, generation, what a write resets, what a delete returns. What the table cannot say is a named
//! Rust function in the file of its kind, below [`functions`](self).
//!
//! Running the stages of a write in their order is left to the API server.
//!
//! Invariant: every kind, type and path in the table is in at least one version's schemas, and every function that
//! it names exists; the tests and `cargo xtask catalogue` refuse others.

mod check;
mod condition;
mod defaults;
mod functions;
mod known;
mod path;
mod prepare;
mod table;
mod text;
mod validate;

use std::sync::Arc;

use peerage_objects::names::NameRule;
use serde_json::Value;

pub use check::{Check, CheckKind, Format};
pub use condition::Condition;
pub use functions::Create;
pub use known::unknown;
pub use path::{FieldPath, Step};
pub(crate) use table::Table;
pub use text::RuleTextError;

/// What differs from kind to kind without being a rule of a type.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Rules {
    /// What names may look like.
    pub names: NameRule,
    /// The longest name, where the kind allows less than the shape of its names does.
    pub longest_name: Option<usize>,
    /// The field selectors besides `metadata.name` and `metadata.namespace`.
    pub field_selectors: Vec<FieldSelectorRule>,
    /// How an unknown field selector is refused.
    pub selector_error: SelectorError,
    /// Whether an update of an object that is not there creates it.
    pub create_on_update: bool,
    /// Whether an update needs a resource version.
    pub conditional_update: bool,
    /// What a delete that is done at once returns.
    pub delete_returns: DeleteReturns,
    /// What happens to `metadata.generation`.
    pub generation: Generation,
    /// Whether the status that comes with a create is kept (nodes bring theirs).
    pub keeps_status_on_create: bool,
    /// What a write to `status` leaves as it was, besides everything outside of `metadata` and `status`.
    pub status_write_keeps: Vec<FieldPath>,
    /// Fields that a create sets whatever the client sent.
    pub set_on_create: Vec<(FieldPath, Value)>,
    /// Finalizers that a create adds.
    pub finalizers: Vec<Arc<str>>,
    /// How long a deleted object stays so that its node can end it.
    pub grace: Grace,
    /// What clients are told whenever they use the kind.
    pub deprecated: Option<Arc<str>>,
    /// Named functions that a create runs.
    pub create_functions: Vec<Arc<str>>,
    /// Named functions that an update runs.
    pub update_functions: Vec<Arc<str>>,
    /// Table cells that are fields, by column name.
    pub cells: Vec<(Arc<str>, FieldPath)>,
}

/// A field selector: its label and where its value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSelectorRule {
    /// What clients write.
    pub label: Arc<str>,
    /// The field.
    pub path: FieldPath,
    /// What the field counts as when it is not there (`false` for flags, `0` for counts).
    pub absent: Arc<str>,
}

/// How an unknown field selector is refused; the three texts that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SelectorError {
    /// `"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`
    #[default]
    KnownOnly,
    /// `field label not supported: spec.x`
    NotSupported,
    /// `field label "spec.x" not supported for Job`
    NotSupportedForKind,
}

/// What a delete that is done at once returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeleteReturns {
    /// A `Status` that says success.
    #[default]
    Status,
    /// The object as it was.
    Object,
}

/// What happens to `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Generation {
    /// Nothing: what a client sends is kept on create.
    #[default]
    None,
    /// 1 on create, and never another.
    Starts1,
    /// 1 on create, one more with each change outside of `metadata` and `status`.
    Managed,
    /// As [`Generation::Managed`], and one more with each change of the annotations.
    ManagedWithAnnotations,
    /// As [`Generation::Managed`], and one more with each change of the labels.
    ManagedWithLabels,
}

/// How long a deleted object stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Grace {
    /// Not at all.
    #[default]
    None,
    /// As its pod asks for: see [`crate::Catalogue::grace_seconds`].
    Pod,
}

impl Rules {
    /// The value that a field selector compares with, or none for a label that the kind does not have.
    pub fn selectable<'v>(
        &self,
        label: &str,
        object: &'v Value,
    ) -> Option<std::borrow::Cow<'v, str>> {
        use std::borrow::Cow;
        let text = |v: &'v Value| match v {
            Value::String(text) => Cow::Borrowed(&**text),
            Value::Null => Cow::Borrowed(""),
            other => Cow::Owned(other.to_string()),
        };
        if let "metadata.name" | "metadata.namespace" = label {
            let field = object.get("metadata").and_then(|m| m.get(&label[9..]));
            return Some(field.map_or(Cow::Borrowed(""), text));
        }
        let rule = self.field_selectors.iter().find(|r| &*r.label == label)?;
        match rule.path.get(object) {
            Some(value) => Some(text(value)),
            None => Some(Cow::Owned(rule.absent.to_string())),
        }
    }

    /// Whether a field selector may name that label.
    pub fn is_selectable(&self, label: &str) -> bool {
        matches!(label, "metadata.name" | "metadata.namespace")
            || self.field_selectors.iter().any(|r| &*r.label == label)
    }

    /// The text with which a field selector of an unknown label is refused.
    pub fn selector_error_text(&self, label: &str, kind: &str) -> String {
        match self.selector_error {
            SelectorError::KnownOnly => format!(
                "\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ),
            SelectorError::NotSupported => format!("field label not supported: {label}"),
            SelectorError::NotSupportedForKind => {
                format!("field label \"{label}\" not supported for {kind}")
            }
        }
    }
}
