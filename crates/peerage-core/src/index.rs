//! Looking up one group, version, resource, subresource and verb in what one server lists.
//!
//! An index is built once per group of a document and shared for as long as that group does not change. Lookups
//! do not allocate.

use std::sync::Arc;

use crate::RequestInfo;
use crate::discovery::{ApiGroupDiscovery, ApiResourceDiscovery, ApiVersionDiscovery};

/// What a request asks for, as far as routing is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The API group; empty for core.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The verb as Kubernetes names it, or empty when the method has none.
    pub verb: &'a str,
}

impl<'a> Target<'a> {
    /// What a request asks for.
    #[must_use]
    pub fn of(info: &'a RequestInfo<'_>) -> Self {
        Self {
            group: info.api_group(),
            version: info.api_version(),
            resource: info.resource(),
            subresource: info.subresource(),
            verb: info.verb(),
        }
    }
}

/// How much of a [`Target`] a server lists. Each step includes those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Not even the group.
    #[default]
    Nothing,
    /// The group.
    Group,
    /// The group and version.
    Version,
    /// The resource, but not the subresource.
    Resource,
    /// The resource and, if one is asked for, the subresource; but not the verb.
    Endpoint,
    /// Everything.
    Verb,
}

/// The result of a lookup in one server's documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// How much was found.
    pub depth: Depth,
    /// Whether the version found is marked stale.
    pub stale: bool,
    /// Whether the version found lists no resource at all, which in a stale one means that nobody knows.
    pub empty: bool,
}

/// One group of one server with its index: the places of each version's resources, sorted by name.
#[derive(Debug)]
pub(crate) struct ServedGroup {
    pub(crate) discovery: Arc<ApiGroupDiscovery>,
    by_name: Box<[Box<[u32]>]>,
}

impl ServedGroup {
    pub(crate) fn new(discovery: Arc<ApiGroupDiscovery>) -> Self {
        let by_name = discovery.versions.iter().map(sorted_places).collect();
        Self { discovery, by_name }
    }

    pub(crate) fn find(&self, target: &Target<'_>) -> Found {
        let mut versions = self.discovery.versions.iter().zip(&self.by_name);
        let Some((version, places)) = versions.find(|(it, _)| it.version == target.version) else {
            return Found {
                depth: Depth::Group,
                ..Found::default()
            };
        };
        let resource = |place: &u32| &*version.resources[*place as usize];
        let found = places.binary_search_by(|it| (*resource(it).resource).cmp(target.resource));
        Found {
            depth: found.map_or(Depth::Version, |at| depth(resource(&places[at]), target)),
            stale: version.freshness.is_stale(),
            empty: version.resources.is_empty(),
        }
    }
}

fn sorted_places(version: &ApiVersionDiscovery) -> Box<[u32]> {
    let mut places: Box<[u32]> = (0..).zip(&version.resources).map(|(at, _)| at).collect();
    places.sort_by_key(|place| &*version.resources[*place as usize].resource);
    places
}

/// How much of the target a resource of the right name has.
fn depth(resource: &ApiResourceDiscovery, target: &Target<'_>) -> Depth {
    let verbs = if target.subresource.is_empty() {
        &resource.verbs
    } else {
        let mut subresources = resource.subresources.iter();
        match subresources.find(|it| it.subresource == target.subresource) {
            Some(subresource) => &subresource.verbs,
            None => return Depth::Resource,
        }
    };
    // A method that has no verb asks for none in particular.
    if target.verb.is_empty() || verbs.iter().any(|verb| verb == target.verb) {
        Depth::Verb
    } else {
        Depth::Endpoint
    }
}
