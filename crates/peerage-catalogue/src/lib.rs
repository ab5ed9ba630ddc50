//! The built-in APIs of each Kubernetes version, as data.
//!
//! A version is a text file in `data/` that says what changed since the version before: its group-versions and
//! resources, their schemas, the columns of their tables, the objects of a fresh cluster. `cargo xtask catalogue`
//! writes it from what a kube-apiserver of that version said; facts only, no prose. The files are in the binary,
//! compressed. [`Catalogue::load`] expands one version with the APIs that are on.
//!
//! Custom resources and what other servers serve are left to the API server and to the proxy.

mod bootstrap;
mod catalogue;
mod cells;
pub mod convert;
mod data;
mod discovery;
pub mod records;
mod resource;
mod resource_text;
pub mod rules;
mod runtime_config;
pub mod type_text;
mod version_info;

pub use catalogue::{Catalogue, CatalogueError, Group, GroupVersion};
pub use data::{version_text, versions};
pub use resource::{Column, GroupVersionKind, Resource, Storage, Subresource, api_version};
pub use resource_text::ResourceTextError;
pub use rules::{Create, Rules};
pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use type_text::KindList;
pub use version_info::VersionInfo;

/// What discovery shows of the kind as which a resource is stored.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(format!("{group}/{version}/{kind}").as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&hash[..8])
}
