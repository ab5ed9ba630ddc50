//! Which APIs are defined by the shared store rather than built into a server.
//!
//! A custom resource definition or an APIService with a service behind it is read by every server from the
//! same store, so each serves it by itself and a request for it is not sent on. Whoever watches the store
//! says what is excluded, by group, version and resource; an exclusion begins and ends when the store says so.
//!
//! Differs: Kubernetes excludes whole group-versions, and keeps them excluded five minutes after the definition
//! is gone, which hides built-in APIs of a peer that share the group-version or take the definition's place.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// One API that the store defines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Exclusion {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name of a custom resource; none for an APIService, which takes the version whole.
    pub resource: Option<String>,
}

impl Exclusion {
    /// A version of a custom resource.
    #[must_use]
    pub fn resource(group: &str, version: &str, resource: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: Some(resource.into()),
        }
    }

    /// A group-version that an APIService hands to a service.
    #[must_use]
    pub fn version(group: &str, version: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: None,
        }
    }
}

/// All APIs that the store defines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exclusions {
    groups: HashMap<String, Arc<GroupExclusions>>,
}

impl Exclusions {
    /// Whether the store defines this resource.
    #[must_use]
    pub fn covers(&self, group: &str, version: &str, resource: &str) -> bool {
        self.groups
            .get(group)
            .is_some_and(|it| it.covers(version, resource))
    }

    /// What is excluded of one group.
    #[must_use]
    pub fn group(&self, group: &str) -> Option<&Arc<GroupExclusions>> {
        self.groups.get(group)
    }

    /// Whether nothing is excluded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl FromIterator<Exclusion> for Exclusions {
    fn from_iter<I: IntoIterator<Item = Exclusion>>(exclusions: I) -> Self {
        let mut groups: HashMap<String, GroupExclusions> = HashMap::new();
        for it in exclusions {
            let group = groups.entry(it.group).or_default();
            let version = group.versions.entry(it.version).or_default();
            match it.resource {
                None => version.whole = true,
                Some(resource) => {
                    version.resources.insert(resource);
                }
            }
        }
        let shared = |(name, group)| (name, Arc::new(group));
        Self {
            groups: groups.into_iter().map(shared).collect(),
        }
    }
}

/// What is excluded of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupExclusions {
    versions: HashMap<String, VersionExclusions>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct VersionExclusions {
    whole: bool,
    resources: HashSet<String>,
}

impl GroupExclusions {
    /// Whether the store defines this resource of the group.
    #[must_use]
    pub fn covers(&self, version: &str, resource: &str) -> bool {
        self.versions
            .get(version)
            .is_some_and(|it| it.whole || it.resources.contains(resource))
    }

    /// Whether the store defines the version whole.
    #[must_use]
    pub fn covers_version(&self, version: &str) -> bool {
        self.versions.get(version).is_some_and(|it| it.whole)
    }
}
