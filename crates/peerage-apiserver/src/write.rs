//! A write, from the request's bytes to the store: decode, default, convert, admit, default again, validate,
//! admit again, compare-and-update; the whole run again on a conflict, and all but the store for a dry run.
//!
//! Handlers say what the new object is to be, given the current one; everything that has to hold for every
//! write is here.

pub(crate) mod admission;
pub(crate) mod body;
mod commit;
pub(crate) mod delete_options;
pub(crate) mod options;
mod prepare;
mod services;
mod versions;

pub(crate) use commit::{
    Committed, create, current, exists, modify, reload, remove, unreadable, unreadable_of,
};
pub(crate) use options::WriteOptions;
pub(crate) use prepare::{Change, before_create, before_update, finished_terminating};
pub(crate) use versions::{from_stored, to_stored};
