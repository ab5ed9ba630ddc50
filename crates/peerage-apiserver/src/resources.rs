//! Which resources this server serves, and where each keeps its objects: a snapshot of the catalogue's
//! resources for one Kubernetes version, each with its store prefix and its cache.
//!
//! Several resources may share one place: `events` of the core group and of `events.k8s.io`, or the versions
//! of one kind. Custom resources and aggregated APIs will be further entries of the same table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use peerage_catalogue::{Catalogue, Resource, Subresource};
use peerage_core::RequestInfo;
use peerage_objects::table::Column;

use crate::cache::{Cache, KindCache, Stored};

/// One served resource.
#[derive(Debug)]
pub(crate) struct Served {
    /// What it is.
    pub(crate) resource: Arc<Resource>,
    /// Such as `apps/v1`.
    pub(crate) api_version: String,
    /// The columns of its Tables.
    pub(crate) columns: Vec<Column>,
    /// Where its objects are; `None` for what is answered and never stored (reviews, tokens).
    pub(crate) place: Option<Place>,
}

/// Where the objects of a kind are stored.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Key prefix, ending in `/`.
    pub(crate) prefix: Arc<str>,
    /// The resource in the version that is stored, or as near to it as this server has.
    pub(crate) stored: Arc<Stored>,
    pub(crate) cache: Arc<KindCache>,
}

impl Served {
    /// The subresource of that name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.resource.subresources.iter().find(|s| &*s.name == name)
    }
}

/// What a request's path leads to.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// A served resource.
    Resource(&'a Arc<Served>),
    /// The group-version is served, the resource is not part of it.
    NoResource,
    /// The group is served, in other versions.
    NoVersion,
    /// The group is not served here.
    NoGroup,
}

type Versions = HashMap<Arc<str>, HashMap<Arc<str>, Arc<Served>>>;

/// The table of served resources.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    groups: HashMap<Arc<str>, Versions>,
}

impl Resources {
    /// Store prefixes of everything in the catalogue, with the resource as it is stored there.
    pub(crate) fn prefixes(
        catalogue: &Arc<Catalogue>,
        root: &str,
    ) -> BTreeMap<String, Arc<Stored>> {
        let mut prefixes = BTreeMap::new();
        for resource in catalogue.resources() {
            if let Some((prefix, stored)) = stored_at(catalogue, resource, root) {
                prefixes.insert(prefix, stored);
            }
        }
        prefixes
    }

    /// What the keys of the resource's objects begin with; `None` for what is never stored.
    pub(crate) fn prefix_of(resource: &Resource, root: &str) -> Option<String> {
        Some(format!("{root}/{}/", resource.storage.as_ref()?.key))
    }

    /// Whether any version of the group is served.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// The table for a catalogue, over a cache that was started with [`Resources::prefixes`].
    pub(crate) fn new(catalogue: &Arc<Catalogue>, root: &str, cache: &Cache) -> Self {
        let mut groups: HashMap<Arc<str>, Versions> = HashMap::new();
        for resource in catalogue.resources() {
            let place = stored_at(catalogue, resource, root).and_then(|(prefix, stored)| {
                let cache = cache.kind(&prefix)?.clone();
                Some(Place {
                    prefix: prefix.into(),
                    stored,
                    cache,
                })
            });
            groups
                .entry(resource.group.clone())
                .or_default()
                .entry(resource.version.clone())
                .or_default()
                .insert(
                    resource.plural.clone(),
                    Arc::new(Served {
                        api_version: resource.api_version(),
                        columns: resource.table_columns(),
                        resource: resource.clone(),
                        place,
                    }),
                );
        }
        Self { groups }
    }

    /// What a resource request's path leads to.
    pub(crate) fn find(&self, info: &RequestInfo<'_>) -> Found<'_> {
        // The group without a name is under /api alone: /apis//v1/pods leads nowhere.
        if info.api_group().is_empty() && info.api_prefix() != "api" {
            return Found::NoGroup;
        }
        let Some(versions) = self.groups.get(info.api_group()) else {
            return Found::NoGroup;
        };
        let Some(resources) = versions.get(info.api_version()) else {
            return Found::NoVersion;
        };
        resources
            .get(info.resource())
            .map_or(Found::NoResource, Found::Resource)
    }

    /// One served resource.
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.version(group, version)?.get(plural)
    }

    fn version(&self, group: &str, version: &str) -> Option<&HashMap<Arc<str>, Arc<Served>>> {
        self.groups.get(group)?.get(version)
    }
}

fn stored_at(
    catalogue: &Arc<Catalogue>,
    resource: &Arc<Resource>,
    root: &str,
) -> Option<(String, Arc<Stored>)> {
    let kind = &resource.storage.as_ref()?.kind;
    let stored = catalogue
        .kind(&kind.group, &kind.version, &kind.kind)
        .unwrap_or(resource)
        .clone();
    let stored = Stored {
        resource: stored,
        catalogue: catalogue.clone(),
    };
    Some((Resources::prefix_of(resource, root)?, Arc::new(stored)))
}
