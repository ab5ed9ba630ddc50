//! Selectors: which objects a list, a watch or a controller is about.
//!
//! [`LabelSelector`] is the grammar of `?labelSelector=` and the `LabelSelector` object of many specs;
//! [`FieldSelector`] is the grammar of `?fieldSelector=`. Which fields a kind can be selected by is the caller's
//! to say. Matching allocates nothing.

mod field;
mod label;
mod lexer;
mod object;

pub use field::{FieldSelector, FieldSelectorError, FieldTerm};
pub use label::{LabelSelector, LabelSelectorError, Labels, Operator, Requirement};
pub use object::{from_object, validate_object};
