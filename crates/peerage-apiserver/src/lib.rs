//! A Kubernetes-compatible API server, generic over the catalogue: every resource of the chosen Kubernetes
//! version, with no code per kind, and the Mixed Version Proxy in its handler chain.
//!
//! | module | what it is |
//! |---|---|
//! | `server` | builds everything below and runs it until told to stop |
//! | `chain` | what a request goes through before anything answers it |
//! | `local` | which handler answers what the proxy leaves to this server |
//! | `verbs` | one file each, generic over the resource |
//! | `write` | the pipeline that every write runs through |
//! | `backing`, `cache` | the store with deadlines, and what it holds in memory |
//! | `render`, `respond` | objects and documents as clients see them |
//! | `authz` | RBAC |
//! | `registry` | this server and its peers in the store |
//! | `exclusions` | APIs that the store itself defines |
//! | `controllers` | what runs beside: namespaces |
//!
//! What an object is belongs to `peerage-objects`, which kinds exist to `peerage-catalogue`, peers and routing to
//! `peerage-proxy`.

// Tests may stop at the first surprise.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api;
mod authz;
mod backing;
mod bootstrap;
mod cache;
mod call;
mod chain;
mod compaction;
mod continuation;
mod controllers;
mod discovery;
mod encoding;
mod error;
mod event_leases;
mod exclusions;
mod health;
mod list_options;
mod local;
mod loopback;
mod metrics;
mod openapi;
pub mod options;
mod registry;
mod render;
mod resources;
mod respond;
mod server;
mod tables;
#[cfg(test)]
mod tests;
mod validate;
mod verbs;
mod warnings;
mod wire;
mod write;

pub use encoding::stored_json;
pub use options::Options;
pub use registry::server_id;
pub use server::{RunError, Running, run, start};
