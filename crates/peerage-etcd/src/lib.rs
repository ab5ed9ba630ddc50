//! etcd's v3 protocol over the store: messages, client and server.
//!
//! [`EtcdStore`] is a [`peerage_store::Store`] that some other process keeps: an etcd cluster, or
//! [`serve`] in front of another store. [`serve`] offers any store to other processes: to our own API
//! servers, to kube-apiservers, to `etcdctl`.
//!
//! The [`messages`] are written by hand, those fields that are used, by etcd's numbers; so nothing needs
//! `protoc`.

mod client;
mod convert;
pub mod messages;
mod server;
mod status;

pub use client::{ConnectError, EtcdOptions, EtcdStore, EtcdUser};
pub use server::{ServeError, ServeOptions, StoreTls, serve};
