//! What the proxy does that Kubernetes 1.37 does not, one named test or more per row of that table, and Kubernetes'
//! own cases beside it, all against peers in this process.
//!
//! Rows of the table are `row_NN_…`; rows 15 and 17 concern stored objects and are the API server's. `B…` in a comment
//! is a public report of such a fault in other software. What the Mixed Version Proxy is said to do:
//!
//! | it | shown by |
//! |---|---|
//! | serves itself what its own discovery lists | `routing::row_01_…` |
//! | looks elsewhere for what it does not list, and sends it to one that has it | `routing::row_01_…`, `health::row_03_…` |
//! | answers 404 itself when nobody has it | `routing::what_nobody_serves_…` |
//! | answers 503 when the chosen peer does not | `forwarding::row_07_…`, `health::row_05_…` |
//! | marks what it sent on, and never sends it on again | `trust::row_09_…` |
//! | gives the answer back unchanged | `forwarding::every_status_…`, `row_13_…`, `row_16_…`, `row_22_…`, `streams` |
//! | speaks mutual TLS with peers | every test; `forwarding::a_peer_without_the_expected_name_…` |
//! | works from aggregated discovery, for all groups and versions | `discovery::nothing_is_listed_that_cannot_be_called` |
//! | shows the APIs of the whole control plane | `discovery::row_02_…`, `row_11_…` |
//! | shows one server's own view for `profile=nopeer` | `discovery::row_02_…`, `upstream::upstream_test_aggregation_enabled` |
//! | falls back to its own APIs without a peer CA | `routing::row_14_…` |
//! | says in audit logs what was sent on | `observability::row_13_both_audit_logs_…` |
//! | refreshes peers' discovery periodically and on demand | `documents::row_04_…`, `documents_can_be_asked_for_on_demand` |
//! | tells what it does in logs and metrics | `observability` |
//! | never answers a false 404 | `hold::row_19_…`, `documents::row_04_…`, `row_06_…` |
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod credentials;
mod discovery;
mod documents;
mod forwarding;
mod front;
mod heads;
mod health;
mod hold;
mod identity;
mod lists;
mod observability;
mod openapi;
mod pressure;
mod replaced;
mod retries;
mod routing;
mod streams;
mod trust;
mod upstream;
