//! This server's own discovery documents, for the proxy to show and merge.

use std::sync::Arc;

use peerage_catalogue::Catalogue;
use peerage_core::view::{Documents, LocalApis};

/// The documents of what the catalogue serves.
pub(crate) fn local(catalogue: &Catalogue, id: &Arc<str>, address: &str) -> LocalApis {
    let documents = Documents::new(catalogue.groups_discovery(), catalogue.core_discovery())
        .with_hashes(Arc::new(catalogue.storage_version_hashes()));
    LocalApis {
        id: id.clone(),
        documents: Some(Arc::new(documents)),
        server_address: address.into(),
        is_front: false,
    }
}
