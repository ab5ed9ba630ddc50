//! What a Kubernetes object is: metadata, selectors, schemas, patches and tables.
//!
//! Everything here is a pure function on JSON values. Which kinds exist, and with which schemas, is the
//! catalogue's (built-in kinds) or the API server's (custom resources) to say; storing and serving them
//! is nobody's business here. Clock and randomness are arguments.

// Tests may stop at the first surprise.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod body;
pub mod field;
pub mod json;
pub mod meta;
pub mod names;
pub mod patch;
pub mod quantity;
pub mod retain;
pub mod schema;
pub mod selector;
pub mod stored;
pub mod table;
pub mod time;
