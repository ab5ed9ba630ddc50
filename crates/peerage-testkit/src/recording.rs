//! Conversations with a real kube-apiserver, replayed against a server of ours.
//!
//! | module | what it does |
//! |---|---|
//! | [`model`] | the files: steps, requests, answers |
//! | [`replay`] | asks what was asked and compares what is answered |
//! | [`mask`] | what differs from run to run is made the same |
//! | [`compare`] | what differs between two answers |
//! | [`rename`] | the same conversation with other names |
//! | [`reasons`] | why an answer differs where it should |
//! | [`report`] | what a run shows, as a document |
//!
//! What is masked and how is part of the recordings' format: they were masked in the same way when they were made.

pub mod compare;
pub mod mask;
pub mod model;
pub mod reasons;
pub mod rename;
pub mod replay;
pub mod report;

pub use model::{Recording, Step};
pub use reasons::{Reason, Reasons};
pub use rename::Renaming;
pub use replay::{Outcome, Replayer, Run};

/// The recordings, in the order of the report.
pub const NAMES: [&str; 7] = [
    "mvp",
    "negotiation",
    "nonresource",
    "verbs",
    "lists-watches",
    "patches",
    "auth",
];
