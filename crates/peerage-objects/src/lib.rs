//! What a Kubernetes object is: metadata, selectors, schemas, patches and tables.
//!
//! Everything here is a pure function on JSON values. Which kinds exist, and with which schemas, is the
//! catalogue's (built-in kinds) or the API server's (custom resources) to say; storing and serving them
//! is nobody's business here. Clock and randomness are arguments.
//!
//! | module | answers |
//! |---|---|
//! | [`body`] | what does a body say it is |
//! | [`json`] | what was sent, with the order and the doubles of fields |
//! | [`schema`] | which JSON does a kind take; decoding, defaults, what a schema demands |
//! | [`retain`] | what becomes of fields that only another version knows |
//! | [`patch`] | what does a patch make of an object |
//! | [`meta`] | what does a server do with metadata, what must it look like |
//! | [`names`] | what may names, keys and label values look like |
//! | [`field`] | where is a field, what is wrong with it |
//! | [`selector`] | which objects are meant |
//! | [`table`] | what do people see of an object |
//! | [`stored`] | how are stored bytes put into lists and watch frames |
//! | [`quantity`], [`time`] | what is the one form of a quantity, time or duration |

// Tests may stop at the first surprise.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod body;
pub mod field;
pub mod json;
pub mod meta;
pub mod names;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod retain;
pub mod schema;
pub mod selector;
pub mod stored;
pub mod table;
pub mod time;
