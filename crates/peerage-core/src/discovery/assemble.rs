//! The document of one server from the group-versions that it serves for different reasons.
//!
//! Built-in APIs, custom resources and APIServices each bring group-versions with priorities; this decides which
//! of them counts when several bring the same one, and the order, as kube-apiserver's aggregated discovery
//! does: the result depends on what is brought and never on when.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::aggregated::{ApiGroupDiscovery, ApiGroupDiscoveryList, ApiVersionDiscovery};
use crate::compare_versions;

/// Why a server serves a group-version. Of several that bring the same one the first in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An APIService with a service behind it.
    Aggregated,
    /// It is built in.
    BuiltIn,
    /// A custom resource definition.
    Custom,
}

/// Where a group-version stands among others: the higher, the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Priority {
    /// Of the group; the highest of its versions counts.
    pub group: i32,
    /// Of the version within its group.
    pub version: i32,
}

impl Priority {
    /// That of a group-version for which nothing is said.
    pub const DEFAULT: Self = Self {
        group: 1000,
        version: 15,
    };

    /// That of custom resources.
    pub const CUSTOM: Self = Self {
        group: 1000,
        version: 100,
    };

    /// That of `apiregistration.k8s.io/v1`, which comes before everything.
    pub const REGISTRATION: Self = Self {
        group: 20_001,
        version: 0,
    };
}

/// A group-version that a server serves for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedVersion {
    /// The group.
    pub group: String,
    /// The version with its resources.
    pub version: ApiVersionDiscovery,
    /// Where it stands.
    pub priority: Priority,
    /// Why it is served.
    pub source: Source,
}

/// Puts a server's document together. Of the same group-version from the same source the first counts.
#[must_use]
pub fn assemble(served: impl IntoIterator<Item = ServedVersion>) -> ApiGroupDiscoveryList {
    let mut groups: BTreeMap<String, Vec<ServedVersion>> = BTreeMap::new();
    for mut it in served {
        let name = std::mem::take(&mut it.group);
        let versions = groups.entry(name).or_default();
        let same = |other: &&mut ServedVersion| other.version.version == it.version.version;
        match versions.iter_mut().find(same) {
            None => versions.push(it),
            Some(other) if it.source < other.source => *other = it,
            Some(_) => {}
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    // The sort keeps the order by name among equals.
    groups.sort_by_key(|(_, versions)| Reverse(versions.iter().map(|it| it.priority.group).max()));
    let group = |(name, versions)| Arc::new(ApiGroupDiscovery::new(name, in_order(versions)));
    ApiGroupDiscoveryList {
        items: groups.into_iter().map(group).collect(),
    }
}

fn in_order(mut versions: Vec<ServedVersion>) -> Vec<ApiVersionDiscovery> {
    versions.sort_by(|a, b| {
        let higher = b.priority.version.cmp(&a.priority.version);
        higher.then_with(|| compare_versions(&a.version.version, &b.version.version))
    });
    versions.into_iter().map(|it| it.version).collect()
}
