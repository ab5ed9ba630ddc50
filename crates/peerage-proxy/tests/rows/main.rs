//! What the proxy does that Kubernetes 1.37 does not, one named test or more per row of that table, and Kubernetes'
//! own cases beside it, all against peers in this process.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod discovery;
mod documents;
mod forwarding;
mod health;
mod hold;
mod observability;
mod routing;
mod streams;
mod trust;
mod upstream;
