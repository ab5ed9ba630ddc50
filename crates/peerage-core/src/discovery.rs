//! Discovery documents: what a server says it serves.
//!
//! [`aggregated`] is the one document that modern servers answer (`apidiscovery.k8s.io` v2, and v2beta1 with the
//! same fields), [`legacy`] the four that every server answers, [`read`] takes either from a server leniently
//! and refuses what cannot be true, [`convert`] turns the one form into the other, [`assemble`] makes the
//! document of one server from what it serves for different reasons, [`protobuf`] writes any of them in protobuf. Which form a client gets is
//! negotiated in `media`; which documents are merged is [`crate::merge`]'s.
//!
//! Invariant: reading a document that kube-apiserver wrote and writing it again gives the same bytes.

pub mod aggregated;
pub mod assemble;
pub mod convert;
pub mod legacy;
pub mod protobuf;
pub mod read;

pub use aggregated::{
    ApiGroupDiscovery, ApiGroupDiscoveryList, ApiResourceDiscovery, ApiSubresourceDiscovery,
    ApiVersionDiscovery, DiscoveryVersion, Freshness, GroupMetadata, ResponseKind, Scope,
};
pub use assemble::{Priority, ServedVersion, Source};
pub use convert::{StorageVersionHashes, from_legacy};
pub use legacy::{
    ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, GroupVersionForDiscovery,
    ServerAddressByClientCidr,
};
pub use read::{
    DocumentError, MAX_DOCUMENT_BYTES, read_api_resources, read_api_versions, read_core,
    read_groups, read_legacy_group, read_legacy_groups,
};

/// A document as JSON without a newline.
pub(crate) fn to_json<T: serde::Serialize>(document: &T) -> Vec<u8> {
    let written = crate::json::to_vec(document);
    debug_assert!(
        written.is_ok(),
        "documents are structs, which JSON can hold"
    );
    written.unwrap_or_default()
}

/// A document as a response body.
pub(crate) fn to_body<T: serde::Serialize>(document: &T) -> Vec<u8> {
    let mut body = to_json(document);
    body.push(b'\n');
    body
}
