//! One group as several servers list it.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::apis::Role;
use super::render::{Lookup, Rendered};
use crate::discovery::{
    ApiGroupDiscovery, ApiVersionDiscovery, StorageVersionHashes, to_body, to_json,
};
use crate::exclusion::GroupExclusions;
use crate::index::ServedGroup;
use crate::merge::{GroupSource, merge_groups};

/// What one server contributes to a group.
#[derive(Debug, Clone)]
pub(super) struct GroupPart {
    group: Arc<ServedGroup>,
    role: Role,
    hashes: Option<Arc<StorageVersionHashes>>,
}

impl GroupPart {
    pub(super) fn new(
        group: &Arc<ServedGroup>,
        role: Role,
        hashes: &Option<Arc<StorageVersionHashes>>,
    ) -> Self {
        Self {
            group: Arc::clone(group),
            role,
            hashes: hashes.clone(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let same_hashes = match (&self.hashes, &other.hashes) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            (None, None) => true,
            _ => false,
        };
        self.role == other.role && same_hashes && Arc::ptr_eq(&self.group, &other.group)
    }
}

/// One group, merged when first asked for.
#[derive(Debug)]
pub(super) struct MergedGroup {
    parts: SmallVec<[GroupPart; 6]>,
    rule: Option<Arc<GroupExclusions>>,
    /// Whether the one part is to be shown as it is.
    exact: bool,
    discovery: OnceLock<Arc<ApiGroupDiscovery>>,
    json: OnceLock<Box<[u8]>>,
    legacy: OnceLock<Rendered>,
    legacy_resources: OnceLock<Box<[Rendered]>>,
}

impl MergedGroup {
    pub(super) fn new(
        parts: SmallVec<[GroupPart; 6]>,
        rule: Option<Arc<GroupExclusions>>,
        exact: bool,
    ) -> Self {
        Self {
            parts,
            rule,
            exact,
            discovery: OnceLock::new(),
            json: OnceLock::new(),
            legacy: OnceLock::new(),
            legacy_resources: OnceLock::new(),
        }
    }

    /// Whether merging these parts would come to the same.
    pub(super) fn is_made_of(
        &self,
        parts: &[GroupPart],
        rule: Option<&Arc<GroupExclusions>>,
    ) -> bool {
        let same_rule = match (&self.rule, rule) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            (None, None) => true,
            _ => false,
        };
        same_rule
            && self.parts.len() == parts.len()
            && self.parts.iter().zip(parts).all(|(a, b)| a.is_same(b))
    }

    /// The merged group. It may have no versions, and is not listed then.
    pub(super) fn discovery(&self) -> &Arc<ApiGroupDiscovery> {
        self.discovery.get_or_init(|| match &*self.parts {
            [only] if self.exact => Arc::clone(&only.group.discovery),
            _ => Arc::new(self.merged()),
        })
    }

    /// The merged group as JSON.
    pub(super) fn json(&self) -> &[u8] {
        self.json
            .get_or_init(|| to_json(&**self.discovery()).into())
    }

    /// The legacy document of the group.
    pub(super) fn legacy(&self) -> &Rendered {
        self.legacy.get_or_init(|| {
            let document = self.discovery().to_legacy().into_document();
            Rendered::untagged(to_body(&document))
        })
    }

    /// The legacy document of one version.
    pub(super) fn legacy_resources(&self, version: &str) -> Lookup<'_> {
        let versions = &self.discovery().versions;
        let Some(place) = versions.iter().position(|it| it.version == version) else {
            return Lookup::Unknown;
        };
        if versions[place].freshness.is_stale() {
            return Lookup::Stale;
        }
        let rendered = self.legacy_resources.get_or_init(|| {
            let versions = &self.discovery().versions;
            versions.iter().map(|it| self.resource_list(it)).collect()
        });
        Lookup::Found(&rendered[place])
    }

    fn resource_list(&self, version: &ApiVersionDiscovery) -> Rendered {
        let group = self.discovery();
        let spelled = crate::discovery::legacy::group_version(group.name(), &version.version);
        let hash = |resource: &str| self.agreed_hash(&spelled, resource);
        let document = group.to_legacy_resources(version, hash);
        Rendered::untagged(to_body(&document))
    }

    /// The hash on which all servers that tell one agree.
    fn agreed_hash(&self, group_version: &str, resource: &str) -> Option<&str> {
        let mut told = self
            .parts
            .iter()
            .filter_map(|part| part.hashes.as_ref()?.get(group_version, resource));
        let first = told.next()?;
        told.all(|other| other == first).then_some(first)
    }

    fn merged(&self) -> ApiGroupDiscovery {
        let local = self.parts.iter().find(|part| part.role == Role::Local);
        let local = local.map(|part| &*part.group.discovery);
        let kept: Vec<(Arc<ApiGroupDiscovery>, bool)> = self
            .parts
            .iter()
            .map(|part| (self.without_excluded(part, local), part.role == Role::Held))
            .collect();
        let sources: Vec<GroupSource<'_>> = kept
            .iter()
            .map(|(group, held)| GroupSource { group, held: *held })
            .collect();
        merge_groups(&sources)
    }

    /// What a peer lists, without what the store defines and this server does not list itself: a peer may have
    /// heard of a definition earlier or later than this server, and requests for it are not sent on.
    fn without_excluded(
        &self,
        part: &GroupPart,
        local: Option<&ApiGroupDiscovery>,
    ) -> Arc<ApiGroupDiscovery> {
        let listed = &part.group.discovery;
        let (Some(rule), false) = (&self.rule, part.role == Role::Local) else {
            return Arc::clone(listed);
        };
        let mut kept = ApiGroupDiscovery::clone(listed);
        kept.versions.retain_mut(|version| {
            let local = local.and_then(|group| group.version(&version.version));
            retain_included(version, rule, local)
        });
        Arc::new(kept)
    }
}

/// Removes excluded resources from a peer's version; whether the version itself stays.
///
/// A version that this server lists as stale is left alone: a peer that can reach what is behind it is asked.
fn retain_included(
    version: &mut ApiVersionDiscovery,
    rule: &GroupExclusions,
    local: Option<&ApiVersionDiscovery>,
) -> bool {
    if local.is_some_and(|local| local.freshness.is_stale()) {
        return true;
    }
    let was_empty = version.resources.is_empty();
    let name = &version.version;
    version.resources.retain(|it| {
        !rule.covers(name, &it.resource)
            || local.is_some_and(|local| local.resource(&it.resource).is_some())
    });
    let emptied = version.resources.is_empty() && !was_empty;
    let whole = rule.covers_version(name);
    local.is_some() || !(emptied || whole)
}
