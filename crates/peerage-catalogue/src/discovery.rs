//! Discovery documents, rebuilt from the catalogue.
//!
//! They list what the catalogue says and nothing else: a verb that is taken out of it is gone from them. Custom
//! resources and other servers' groups are added by who serves them; merging, negotiation and ETags are core's.

use std::sync::Arc;

use peerage_core::discovery::{
    ApiGroupDiscovery, ApiGroupDiscoveryList, ApiResourceDiscovery, ApiSubresourceDiscovery,
    ApiVersionDiscovery, Freshness, ResponseKind, Scope, StorageVersionHashes,
};

use crate::catalogue::{Catalogue, Group};
use crate::resource::{Resource, Subresource};

impl Catalogue {
    /// The aggregated document of `/api`: the core group.
    pub fn core_discovery(&self) -> ApiGroupDiscoveryList {
        self.documents(true)
    }

    /// The aggregated document of `/apis`: all other groups.
    pub fn groups_discovery(&self) -> ApiGroupDiscoveryList {
        self.documents(false)
    }

    /// The hashes that the legacy resource lists show beside what the aggregated documents say.
    pub fn storage_version_hashes(&self) -> StorageVersionHashes {
        let mut hashes = StorageVersionHashes::default();
        for resource in self.resources() {
            if let Some(hash) = &resource.storage_version_hash {
                hashes.insert(&resource.api_version(), &resource.plural, hash);
            }
        }
        hashes
    }

    fn documents(&self, core: bool) -> ApiGroupDiscoveryList {
        let groups = self.groups().iter().filter(|g| g.name.is_empty() == core);
        ApiGroupDiscoveryList {
            items: groups.map(|g| Arc::new(self.group_discovery(g))).collect(),
        }
    }

    fn group_discovery(&self, group: &Group) -> ApiGroupDiscovery {
        let versions = group.versions.iter().map(|version| ApiVersionDiscovery {
            version: version.version.clone(),
            resources: self
                .resources_of(&group.name, &version.version)
                .iter()
                .map(|r| Arc::new(resource(r)))
                .collect(),
            freshness: Freshness::Current,
        });
        let mut document = ApiGroupDiscovery::new(&*group.name, versions.collect());
        document.metadata.creation_timestamp_null = self.shows_null_creation_timestamps();
        document
    }

    /// Up to 1.33 the metadata of each group held `creationTimestamp: null`.
    fn shows_null_creation_timestamps(&self) -> bool {
        let fact = self.base.records.get("info", "null-creation-timestamps");
        fact.is_some_and(|text| text.ends_with(" true"))
    }
}

fn resource(r: &Resource) -> ApiResourceDiscovery {
    ApiResourceDiscovery {
        resource: r.plural.to_string(),
        response_kind: Some(ResponseKind::of(&*r.kind)),
        scope: Scope::namespaced(r.namespaced),
        singular_resource: r.singular.to_string(),
        verbs: texts(&r.verbs),
        short_names: texts(&r.short_names),
        categories: texts(&r.categories),
        subresources: r.subresources.iter().map(subresource).collect(),
    }
}

fn subresource(s: &Subresource) -> ApiSubresourceDiscovery {
    let mut kind = ResponseKind::of(&*s.kind.kind);
    if s.shows_group_version {
        kind.group = s.kind.group.to_string();
        kind.version = s.kind.version.to_string();
    }
    let accepted = s.accepted_types.iter().map(|a| ResponseKind {
        group: a.group.to_string(),
        version: a.version.to_string(),
        kind: a.kind.to_string(),
    });
    ApiSubresourceDiscovery {
        subresource: s.name.to_string(),
        response_kind: Some(kind),
        accepted_types: accepted.collect(),
        verbs: texts(&s.verbs),
    }
}

fn texts(words: &[Arc<str>]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}
