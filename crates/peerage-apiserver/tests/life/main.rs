//! The life of a server: its start, its store going away and coming back, its place among others, its end.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bootstrap;
mod exclusions;
mod metrics;
mod namespaces;
mod registry;
mod shutdown;
mod store_away;
mod support;
