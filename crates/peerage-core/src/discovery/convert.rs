//! Between the two forms of discovery.
//!
//! Aggregated to legacy is what clients from before 1.26 and bare `curl` read; legacy to aggregated is how
//! servers from before 1.26 are read. The one fact that aggregated documents do not hold, the hash of
//! the storage version, travels beside them in [`StorageVersionHashes`].

use std::collections::HashMap;
use std::sync::Arc;

use super::aggregated::{
    ApiGroupDiscovery, ApiGroupDiscoveryList, ApiResourceDiscovery, ApiSubresourceDiscovery,
    ApiVersionDiscovery, Freshness, ResponseKind, Scope,
};
use super::legacy::{
    ApiGroup, ApiGroupList, ApiResource, ApiResourceList, GroupVersionForDiscovery, group_version,
};

/// Hashes of storage versions by group-version (`apps/v1`) and resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageVersionHashes(HashMap<String, HashMap<String, String>>);

impl StorageVersionHashes {
    /// Remembers the hash of one resource.
    pub fn insert(&mut self, group_version: &str, resource: &str, hash: &str) {
        let resources = self.0.entry(group_version.into()).or_default();
        resources.insert(resource.into(), hash.into());
    }

    /// The hash of one resource.
    #[must_use]
    pub fn get(&self, group_version: &str, resource: &str) -> Option<&str> {
        Some(self.0.get(group_version)?.get(resource)?)
    }

    /// Remembers every hash of a legacy document.
    pub fn insert_all(&mut self, list: &ApiResourceList) {
        for resource in &list.resources {
            if !resource.storage_version_hash.is_empty() {
                let hash = &resource.storage_version_hash;
                self.insert(&list.group_version, &resource.name, hash);
            }
        }
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ApiGroupDiscovery {
    /// The group as an element of the legacy list.
    ///
    /// Differs: a stale version is preferred only when all are, as clients of the aggregated form do it.
    #[must_use]
    pub fn to_legacy(&self) -> ApiGroup {
        let name = self.name();
        let spelled = |it: &ApiVersionDiscovery| GroupVersionForDiscovery::new(name, &it.version);
        let fresh = self.versions.iter().find(|it| !it.freshness.is_stale());
        ApiGroup {
            kind: String::new(),
            api_version: String::new(),
            name: name.into(),
            versions: self.versions.iter().map(spelled).collect(),
            preferred_version: fresh
                .or(self.versions.first())
                .map(spelled)
                .unwrap_or_default(),
        }
    }

    /// The legacy document of one version; `hash` gives the storage version hash of a resource.
    #[must_use]
    pub fn to_legacy_resources<'h>(
        &self,
        version: &ApiVersionDiscovery,
        hash: impl Fn(&str) -> Option<&'h str>,
    ) -> ApiResourceList {
        let mut resources = Vec::with_capacity(version.resources.len() * 2);
        for resource in &version.resources {
            append_resource(&mut resources, self.name(), version, resource, &hash);
        }
        let unversioned = matches!(self.name(), "" | "extensions");
        ApiResourceList {
            kind: ApiResourceList::KIND.into(),
            api_version: if unversioned { "" } else { "v1" }.into(),
            group_version: group_version(self.name(), &version.version),
            resources,
        }
    }
}

impl ApiGroupDiscoveryList {
    /// The legacy document of `/apis`.
    #[must_use]
    pub fn to_legacy(&self) -> ApiGroupList {
        ApiGroupList::new(self.items.iter().map(|group| group.to_legacy()).collect())
    }
}

/// Appends a resource and its subresources. A parent that is only there for its subresources is none here.
fn append_resource<'h>(
    resources: &mut Vec<ApiResource>,
    group: &str,
    version: &ApiVersionDiscovery,
    resource: &ApiResourceDiscovery,
    hash: &impl Fn(&str) -> Option<&'h str>,
) {
    let namespaced = resource.scope == Scope::Namespaced;
    let is_real = !resource.verbs.is_empty() || has_kind(resource.response_kind.as_ref());
    if is_real {
        let (kind_group, kind_version, kind) =
            foreign_kind(group, &version.version, resource.response_kind.as_ref());
        resources.push(ApiResource {
            name: resource.resource.clone(),
            singular_name: resource.singular_resource.clone(),
            namespaced,
            group: kind_group,
            version: kind_version,
            kind,
            verbs: resource.verbs.clone(),
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
            storage_version_hash: hash(&resource.resource).unwrap_or_default().into(),
        });
    }
    for subresource in &resource.subresources {
        let (kind_group, kind_version, kind) =
            foreign_kind(group, &version.version, subresource.response_kind.as_ref());
        resources.push(ApiResource {
            name: format!("{}/{}", resource.resource, subresource.subresource),
            namespaced,
            group: kind_group,
            version: kind_version,
            kind,
            verbs: subresource.verbs.clone(),
            ..ApiResource::default()
        });
    }
}

fn has_kind(kind: Option<&ResponseKind>) -> bool {
    kind.is_some_and(|kind| !kind.kind.is_empty())
}

/// Group, version and kind as legacy documents have them: group and version only where they are not the list's.
fn foreign_kind(
    group: &str,
    version: &str,
    kind: Option<&ResponseKind>,
) -> (String, String, String) {
    let Some(it) = kind else {
        return Default::default();
    };
    if it.group == group && it.version == version {
        return (String::new(), String::new(), it.kind.clone());
    }
    (it.group.clone(), it.version.clone(), it.kind.clone())
}

/// The aggregated document of a server that has only legacy ones.
///
/// `lists` are the resource lists that could be read; a version without one is listed as stale and empty,
/// because nobody knows what it has. Pass the groups of `/apis`, or one unnamed group for `/api`.
#[must_use]
pub fn from_legacy(groups: &[ApiGroup], lists: &[ApiResourceList]) -> ApiGroupDiscoveryList {
    let by_version: HashMap<&str, &ApiResourceList> = lists
        .iter()
        .map(|list| (list.group_version.as_str(), list))
        .collect();
    let version = |group: &ApiGroup, it: &GroupVersionForDiscovery| {
        let list = by_version.get(&*group_version(&group.name, &it.version));
        ApiVersionDiscovery {
            version: it.version.clone(),
            resources: list.map(|list| nested(&list.resources)).unwrap_or_default(),
            freshness: if list.is_some() {
                Freshness::Current
            } else {
                Freshness::Stale
            },
        }
    };
    let group = |group: &ApiGroup| {
        let versions = group.versions.iter().map(|it| version(group, it)).collect();
        Arc::new(ApiGroupDiscovery::new(group.name.clone(), versions))
    };
    ApiGroupDiscoveryList {
        items: groups.iter().map(group).collect(),
    }
}

/// Puts subresources below their resources, in order of first mention.
fn nested(flat: &[ApiResource]) -> Vec<Arc<ApiResourceDiscovery>> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut parents: Vec<ApiResourceDiscovery> = Vec::new();
    for resource in flat {
        let (name, subresource) = match resource.name.split_once('/') {
            Some((name, subresource)) => (name, Some(subresource)),
            None => (resource.name.as_str(), None),
        };
        let place = *places.entry(name).or_insert_with(|| {
            parents.push(placeholder(name, resource.namespaced));
            parents.len() - 1
        });
        let parent = &mut parents[place];
        match subresource {
            None => fill(parent, resource),
            Some(subresource) => parent.subresources.push(ApiSubresourceDiscovery {
                subresource: subresource.into(),
                response_kind: Some(kind_of(resource)),
                accepted_types: Vec::new(),
                verbs: resource.verbs.clone(),
            }),
        }
    }
    parents.into_iter().map(Arc::new).collect()
}

/// A resource that is known only by its subresources so far: with an empty kind, which clients can read.
fn placeholder(name: &str, namespaced: bool) -> ApiResourceDiscovery {
    ApiResourceDiscovery {
        resource: name.into(),
        response_kind: Some(ResponseKind::default()),
        scope: Scope::namespaced(namespaced),
        ..ApiResourceDiscovery::default()
    }
}

fn fill(parent: &mut ApiResourceDiscovery, resource: &ApiResource) {
    parent.response_kind = Some(kind_of(resource));
    parent.scope = Scope::namespaced(resource.namespaced);
    parent.singular_resource = resource.singular_name.clone();
    parent.verbs = resource.verbs.clone();
    parent.short_names = resource.short_names.clone();
    parent.categories = resource.categories.clone();
}

fn kind_of(resource: &ApiResource) -> ResponseKind {
    ResponseKind {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
    }
}
