//! Clusters in a test, recordings and their replayer.
//!
//! | module | what it is |
//! |---|---|
//! | [`pki`] | certificates for a test |
//! | [`wire`] | an HTTP/1.1 client that sends exactly the bytes it is told to |
//! | [`multiplex`] | an HTTP/2 client of one connection |
//! | [`server`] | an API server in this process |
//! | [`odd`] | servers that are made up, to answer as a test wants |
//! | [`cluster`] | several servers on one store |
//! | [`kubectl`] | real kubectl, fetched and run |
//! | [`process`] | servers and stores as processes of the executable |
//! | [`daemon`] | a program that can be killed, paused and started again |
//! | [`kube`] | real control planes: etcd, kube-apiserver, kube-controller-manager |
//! | [`recording`] | conversations with a real kube-apiserver, and the comparison with them |
//! | [`documented_metrics`] | `docs/metrics.md` against sources and servers |
//! | [`simulation`] | a rolling upgrade under load, and what has to hold meanwhile |
//!
//! For tests only: nothing here is shipped, and what is broken here may panic.

#![allow(clippy::unwrap_used)]

pub mod cluster;
pub mod daemon;
pub mod documented_metrics;
pub mod kube;
pub mod kubectl;
pub mod multiplex;
pub mod odd;
pub mod pki;
pub mod process;
pub mod recording;
pub mod server;
pub mod simulation;
pub mod wire;

pub use peerage_store::testing::seed;
