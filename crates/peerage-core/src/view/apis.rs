//! The documents of several servers as one: which groups, in which order, and the bytes of each document.
//!
//! Collecting the groups is all that happens when a view is built. Merging, ordering and writing happen when
//! a document is first asked for, once per group, and survive into later views for every group that no
//! server changed.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::Documents;
use super::group::{GroupPart, MergedGroup};
use super::render::{Lookup, Rendered};
use crate::discovery::aggregated::{append_items, head};
use crate::discovery::{
    ApiGroupDiscoveryList, ApiGroupList, ApiVersions, DiscoveryVersion, to_body,
};
use crate::etag::etag_of;
use crate::exclusion::Exclusions;
use crate::index::ServedGroup;
use crate::merge::order::consensus;

/// One server's documents in the whole.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) documents: &'a Arc<Documents>,
    pub(super) role: Role,
}

/// In what capacity a server contributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The server that this is, listed without any exclusion.
    Local,
    /// A peer that can be reached.
    Candidate,
    /// A peer that is gone for now.
    Held,
}

/// The documents of several servers as one.
#[derive(Debug)]
pub(super) struct Apis {
    groups: HashMap<Arc<str>, Arc<MergedGroup>>,
    name_lists: Vec<Arc<[Arc<str>]>>,
    order: Arc<OnceLock<Vec<Arc<str>>>>,
    server_address: Arc<str>,
    documents: [OnceLock<Rendered>; 6],
}

/// The documents that list everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    Apis(DiscoveryVersion),
    Core(DiscoveryVersion),
    LegacyGroups,
    LegacyVersions,
}

impl Apis {
    /// Collects what `parts` list, taking over from `previous` whatever did not change.
    pub(super) fn collect(
        previous: Option<&Arc<Self>>,
        parts: &[Part<'_>],
        exclusions: &Exclusions,
        server_address: &Arc<str>,
        exact: bool,
    ) -> Arc<Self> {
        let mut collected: HashMap<&str, (Option<&Arc<str>>, SmallVec<[GroupPart; 6]>)> =
            HashMap::with_capacity(parts.first().map_or(0, |it| it.documents.names.len() + 1));
        for part in parts {
            let hashes = &part.documents.hashes;
            let mut add = |name, key, group: &Arc<ServedGroup>| {
                let (_, same) = collected
                    .entry(name)
                    .or_insert_with(|| (key, SmallVec::new()));
                same.push(GroupPart::new(group, part.role, hashes));
            };
            for (name, group) in part.documents.names.iter().zip(&part.documents.groups) {
                add(name, Some(name), group);
            }
            if let Some(core) = &part.documents.core {
                add("", None, core);
            }
        }
        let mut unchanged = previous.is_some_and(|it| it.groups.len() == collected.len());
        let mut groups = HashMap::with_capacity(collected.len());
        for (name, (key, same)) in collected {
            let before = previous.and_then(|it| it.groups.get_key_value(name));
            let rule = exclusions.group(name);
            if let Some((key, before)) = before
                && before.is_made_of(&same, rule)
            {
                groups.insert(Arc::clone(key), Arc::clone(before));
                continue;
            }
            unchanged = false;
            let key = key.map_or_else(|| name.into(), Arc::clone);
            groups.insert(key, Arc::new(MergedGroup::new(same, rule.cloned(), exact)));
        }
        let name_lists: Vec<_> = parts
            .iter()
            .map(|part| Arc::clone(&part.documents.names))
            .collect();
        let same_order = previous.filter(|it| it.name_lists == name_lists);
        if let Some(same) = same_order
            && unchanged
            && same.server_address == *server_address
        {
            return Arc::clone(same);
        }
        Arc::new(Self {
            groups,
            order: same_order
                .map(|it| Arc::clone(&it.order))
                .unwrap_or_default(),
            name_lists,
            server_address: Arc::clone(server_address),
            documents: Default::default(),
        })
    }

    /// The aggregated document of `/apis`.
    pub(super) fn list(&self) -> ApiGroupDiscoveryList {
        let items = self.ordered().map(|group| Arc::clone(group.discovery()));
        ApiGroupDiscoveryList {
            items: items.collect(),
        }
    }

    /// A document that lists everything.
    pub(super) fn whole(&self, which: Whole) -> &Rendered {
        let slot = match which {
            Whole::Apis(DiscoveryVersion::V2) => 0,
            Whole::Apis(DiscoveryVersion::V2Beta1) => 1,
            Whole::Core(DiscoveryVersion::V2) => 2,
            Whole::Core(DiscoveryVersion::V2Beta1) => 3,
            Whole::LegacyGroups => 4,
            Whole::LegacyVersions => 5,
        };
        self.documents[slot].get_or_init(|| match which {
            Whole::Apis(version) => aggregated(self.ordered(), version),
            Whole::Core(version) => aggregated(self.group("").into_iter(), version),
            Whole::LegacyGroups => self.legacy_groups(),
            Whole::LegacyVersions => self.legacy_versions(),
        })
    }

    /// The legacy document of one group.
    pub(super) fn legacy_group(&self, group: &str) -> Lookup<'_> {
        match self.group(group) {
            Some(group) => Lookup::Found(group.legacy()),
            None => Lookup::Unknown,
        }
    }

    /// The legacy document of one version.
    pub(super) fn legacy_resources(&self, group: &str, version: &str) -> Lookup<'_> {
        match self.group(group) {
            Some(group) => group.legacy_resources(version),
            None => Lookup::Unknown,
        }
    }

    /// A group that has any version left.
    pub(super) fn group(&self, name: &str) -> Option<&MergedGroup> {
        let group = self.groups.get(name)?;
        (!group.discovery().versions.is_empty()).then_some(group)
    }

    /// The groups of `/apis` in the one order.
    fn ordered(&self) -> impl Iterator<Item = &MergedGroup> {
        let order = self.order.get_or_init(|| self.consensus());
        order.iter().filter_map(|name| self.group(name))
    }

    fn consensus(&self) -> Vec<Arc<str>> {
        let lists: Vec<Vec<&str>> = self
            .name_lists
            .iter()
            .map(|list| list.iter().map(|name| &**name).collect())
            .collect();
        consensus(&lists, str::cmp)
            .into_iter()
            .filter_map(|name| self.groups.get_key_value(name))
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    fn legacy_groups(&self) -> Rendered {
        let groups = self.ordered().map(|it| it.discovery().to_legacy());
        Rendered::untagged(to_body(&ApiGroupList::new(groups.collect())))
    }

    fn legacy_versions(&self) -> Rendered {
        let core = self.group("").map(|core| &core.discovery().versions);
        let versions = core.into_iter().flatten().map(|it| it.version.clone());
        let document = ApiVersions::new(versions.collect(), &self.server_address);
        Rendered::untagged(to_body(&document))
    }
}

/// Puts the aggregated document together from the JSON of its groups.
fn aggregated<'a>(
    groups: impl Iterator<Item = &'a MergedGroup>,
    version: DiscoveryVersion,
) -> Rendered {
    let mut hashed = vec![b'{'];
    append_items(&mut hashed, groups.map(MergedGroup::json));
    let mut bytes = head(version);
    bytes.reserve_exact(hashed.len());
    bytes.extend_from_slice(&hashed[1..]);
    bytes.push(b'\n');
    Rendered {
        bytes: bytes.into(),
        etag: Some(etag_of(&hashed)),
    }
}
