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
    /// A peer that is down or has left, whose APIs are listed as `Stale` until its hold time ends.
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
    /// Collects what `parts` list, taking over from `previous` whatever did not change. With `exact`, what a single
    /// server lists is shown as it is.
    pub(super) fn collect(
        previous: Option<&Arc<Self>>,
        parts: &[Part<'_>],
        exclusions: &Exclusions,
        server_address: &Arc<str>,
        exact: bool,
    ) -> Arc<Self> {
        let gathered = gather(parts);
        let mut changed = previous.is_none_or(|it| it.groups.len() != gathered.len());
        let mut groups = HashMap::with_capacity(gathered.len());
        for (name, group) in gathered {
            let rule = exclusions.group(name);
            let before = previous.and_then(|it| it.groups.get_key_value(name));
            let (key, merged) = match before {
                Some((key, before)) if before.is_made_of(&group.parts, rule) => {
                    (Arc::clone(key), Arc::clone(before))
                }
                _ => {
                    changed = true;
                    let name = group.name();
                    let merged = MergedGroup::new(group.parts, rule.cloned(), exact);
                    (name, Arc::new(merged))
                }
            };
            groups.insert(key, merged);
        }
        let names = |part: &Part<'_>| Arc::clone(&part.documents.names);
        let name_lists: Vec<_> = parts.iter().map(names).collect();
        let same_order = previous.filter(|it| it.name_lists == name_lists);
        match same_order {
            Some(same) if !changed && same.server_address == *server_address => Arc::clone(same),
            _ => Arc::new(Self {
                groups,
                order: same_order.map_or_else(Arc::default, |it| Arc::clone(&it.order)),
                name_lists,
                server_address: Arc::clone(server_address),
                documents: Default::default(),
            }),
        }
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

/// What all servers list under one name.
struct Gathered<'a> {
    /// None for the core group, which has no name.
    name: Option<&'a Arc<str>>,
    parts: SmallVec<[GroupPart; 6]>,
}

impl Gathered<'_> {
    fn name(&self) -> Arc<str> {
        self.name.map_or_else(|| "".into(), Arc::clone)
    }
}

/// Puts together what the servers list under each name.
fn gather<'a>(parts: &[Part<'a>]) -> HashMap<&'a str, Gathered<'a>> {
    let most = parts.iter().map(|it| it.documents.names.len()).max();
    let mut gathered = HashMap::with_capacity(most.unwrap_or_default() + 1);
    for part in parts {
        let hashes = &part.documents.hashes;
        let named = part.documents.names.iter().map(Some);
        let groups = named.zip(&part.documents.groups);
        for (name, group) in groups.chain(part.documents.core.iter().map(|core| (None, core))) {
            let same = gathered
                .entry(name.map_or("", |name| &**name))
                .or_insert_with(|| Gathered {
                    name,
                    parts: SmallVec::new(),
                });
            same.parts.push(GroupPart::new(group, part.role, hashes));
        }
    }
    gathered
}

/// Puts the aggregated document together from the JSON of its groups.
fn aggregated<'a>(
    groups: impl Iterator<Item = &'a MergedGroup>,
    version: DiscoveryVersion,
) -> Rendered {
    let items: Vec<&[u8]> = groups.map(MergedGroup::json).collect();
    let size = items.iter().map(|item| item.len() + 1).sum::<usize>() + 128;
    let mut hashed = Vec::with_capacity(size);
    hashed.push(b'{');
    append_items(&mut hashed, items);
    let mut bytes = head(version);
    bytes.reserve_exact(hashed.len());
    bytes.extend_from_slice(&hashed[1..]);
    bytes.push(b'\n');
    Rendered::tagged(bytes, etag_of(&hashed))
}
