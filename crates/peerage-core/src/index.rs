//! Looking up one group, version, resource, subresource and verb in what one server lists.
//!
//! An index is built once per group of a document and shared for as long as that group does not change. Lookups
//! do not allocate.

use std::collections::HashMap;
use std::sync::Arc;

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

/// One group of one server with its index.
#[derive(Debug)]
pub(crate) struct ServedGroup {
    pub(crate) discovery: Arc<ApiGroupDiscovery>,
    versions: Vec<VersionIndex>,
}

impl ServedGroup {
    pub(crate) fn new(discovery: Arc<ApiGroupDiscovery>) -> Self {
        let versions = discovery.versions.iter().map(VersionIndex::new).collect();
        Self {
            discovery,
            versions,
        }
    }

    pub(crate) fn find(&self, target: &Target<'_>) -> Found {
        let named = |it: &&VersionIndex| *it.name == *target.version;
        match self.versions.iter().find(named) {
            Some(version) => version.find(target),
            None => Found {
                depth: Depth::Group,
                ..Found::default()
            },
        }
    }
}

#[derive(Debug)]
struct VersionIndex {
    name: Box<str>,
    stale: bool,
    resources: HashMap<Box<str>, Ability>,
}

impl VersionIndex {
    fn new(version: &ApiVersionDiscovery) -> Self {
        let entry =
            |it: &Arc<ApiResourceDiscovery>| (it.resource.as_str().into(), Ability::new(it));
        Self {
            name: version.version.as_str().into(),
            stale: version.freshness.is_stale(),
            resources: version.resources.iter().map(entry).collect(),
        }
    }

    fn find(&self, target: &Target<'_>) -> Found {
        let depth = match self.resources.get(target.resource) {
            Some(ability) => ability.depth(target),
            None => Depth::Version,
        };
        Found {
            depth,
            stale: self.stale,
            empty: self.resources.is_empty(),
        }
    }
}

/// What a server can do with one resource.
#[derive(Debug)]
struct Ability {
    verbs: VerbSet,
    subresources: Box<[(Box<str>, VerbSet)]>,
}

impl Ability {
    fn new(resource: &ApiResourceDiscovery) -> Self {
        let subresources = resource
            .subresources
            .iter()
            .map(|it| (it.subresource.as_str().into(), VerbSet::new(&it.verbs)))
            .collect();
        Self {
            verbs: VerbSet::new(&resource.verbs),
            subresources,
        }
    }

    fn depth(&self, target: &Target<'_>) -> Depth {
        let verbs = if target.subresource.is_empty() {
            &self.verbs
        } else {
            let named = |it: &&(Box<str>, VerbSet)| *it.0 == *target.subresource;
            match self.subresources.iter().find(named) {
                Some((_, verbs)) => verbs,
                None => return Depth::Resource,
            }
        };
        if verbs.has(target.verb) {
            Depth::Verb
        } else {
            Depth::Endpoint
        }
    }
}

/// A set of verbs: the common ones as bits.
#[derive(Debug)]
struct VerbSet {
    common: u8,
    others: Box<[Box<str>]>,
}

/// The verbs of requests for stored objects, one bit each.
const COMMON: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

impl VerbSet {
    fn new(verbs: &[String]) -> Self {
        let mut common = 0;
        let mut others: Vec<Box<str>> = Vec::new();
        for verb in verbs {
            match bit(verb) {
                Some(bit) => common |= bit,
                None => others.push(verb.as_str().into()),
            }
        }
        Self {
            common,
            others: others.into(),
        }
    }

    /// Whether the verb is there. A method that has no verb asks for none in particular.
    fn has(&self, verb: &str) -> bool {
        match bit(verb) {
            Some(bit) => self.common & bit != 0,
            None => verb.is_empty() || self.others.iter().any(|it| **it == *verb),
        }
    }
}

fn bit(verb: &str) -> Option<u8> {
    COMMON.iter().position(|it| *it == verb).map(|at| 1 << at)
}
