//! Merging discovery documents of several servers into the one that all of them answer.
//!
//! The result depends on the set of documents alone: not on who merges, on server names, or on the order of the
//! arguments. So every server that has heard the same documents answers the same bytes and entity tag.
//!
//! | level | rule |
//! |---|---|
//! | groups | union, in [`order::consensus`] order, ties by name |
//! | versions | union, in consensus order, ties in Kubernetes' version order (highest first) |
//! | a version listed by several | current beats stale: what a server itself lists as stale then adds nothing, what one that is away had is listed on; freshness is the best one |
//! | resources | union, in consensus order, ties by name |
//! | a resource listed differently | verbs: sorted union; subresources: union sorted by name, each merged alike; short names and categories: union; kind, scope and singular from the fullest entry |
//!
//! Where Kubernetes' own merge (KEP-4020, its peer-aggregated discovery) depends on no server name and finds no
//! contradiction, the result is the same.
//!
//! Differs: see [`order`]; ties between versions are broken by Kubernetes' version order and not by name, so that
//! a peer's newer version becomes the preferred one; current beats stale; a missing `responseKind` is
//! written as an empty one, because some released clients cannot read a document without.

mod graph;
pub mod order;
mod resource;

use std::collections::HashMap;
use std::sync::Arc;

use crate::compare_versions;
use crate::discovery::{
    ApiGroupDiscovery, ApiGroupDiscoveryList, ApiResourceDiscovery, ApiVersionDiscovery, Freshness,
};

/// One server's document in a merge.
#[derive(Debug, Clone, Copy)]
pub struct ListSource<'a> {
    /// What it lists.
    pub list: &'a ApiGroupDiscoveryList,
    /// Whether the server is away, so that everything it lists is stale.
    pub held: bool,
}

/// One server's group in a merge.
#[derive(Debug, Clone, Copy)]
pub struct GroupSource<'a> {
    /// What it lists.
    pub group: &'a ApiGroupDiscovery,
    /// Whether the server is away, so that everything it lists is stale.
    pub held: bool,
}

/// Merges whole documents.
#[must_use]
pub fn merge_lists(sources: &[ListSource<'_>]) -> ApiGroupDiscoveryList {
    let names: Vec<Vec<&str>> = sources
        .iter()
        .map(|source| source.list.items.iter().map(|group| group.name()).collect())
        .collect();
    let mut groups: HashMap<&str, Vec<GroupSource<'_>>> = HashMap::new();
    for source in sources {
        for group in &source.list.items {
            let held = source.held;
            let same = groups.entry(group.name()).or_default();
            same.push(GroupSource { group, held });
        }
    }
    let items = order::consensus(&names, str::cmp)
        .into_iter()
        .filter_map(|name| groups.get(name))
        .map(|sources| merge_groups(sources))
        .filter(|group| !group.versions.is_empty())
        .map(Arc::new)
        .collect();
    ApiGroupDiscoveryList { items }
}

/// Merges what several servers list of the same group. A group without versions comes out of none.
#[must_use]
pub fn merge_groups(sources: &[GroupSource<'_>]) -> ApiGroupDiscovery {
    let names: Vec<Vec<&str>> = sources
        .iter()
        .map(|source| {
            source
                .group
                .versions
                .iter()
                .map(|it| &*it.version)
                .collect()
        })
        .collect();
    let merged = |name: &str| {
        let versions: Vec<(&ApiVersionDiscovery, bool)> = sources
            .iter()
            .filter_map(|source| Some((source.group.version(name)?, source.held)))
            .collect();
        merge_versions(name, &versions)
    };
    let versions = order::consensus(&names, compare_versions);
    let mut group = ApiGroupDiscovery::new(
        sources.first().map_or("", |source| source.group.name()),
        versions.into_iter().map(merged).collect(),
    );
    group.metadata.creation_timestamp_null = !sources.is_empty()
        && sources
            .iter()
            .all(|source| source.group.metadata.creation_timestamp_null);
    group
}

/// Each source's version, with whether that server is away.
///
/// What only a server has that is away stays listed beside what others have: requests for it are answered 503, so that
/// controllers wait. Without it a namespace would be deleted, and objects of that kind left in it.
fn merge_versions(name: &str, sources: &[(&ApiVersionDiscovery, bool)]) -> ApiVersionDiscovery {
    let shown = |(version, held): &(&ApiVersionDiscovery, bool)| match held {
        true => Freshness::Stale,
        false => version.freshness,
    };
    let freshness = sources.iter().map(shown).max().unwrap_or_default();
    let heard: Vec<&ApiVersionDiscovery> = sources
        .iter()
        .filter(|(version, held)| {
            let was_current = *held && !version.freshness.is_stale();
            was_current || version.freshness.is_stale() == freshness.is_stale()
        })
        .map(|(version, _)| *version)
        .collect();
    ApiVersionDiscovery {
        version: name.into(),
        resources: merge_resources(&heard),
        freshness,
    }
}

fn merge_resources(versions: &[&ApiVersionDiscovery]) -> Vec<Arc<ApiResourceDiscovery>> {
    if let [first, rest @ ..] = versions
        && rest.iter().all(|it| it.resources == first.resources)
    {
        return first.resources.iter().map(resource::filled).collect();
    }
    let names: Vec<Vec<&str>> = versions
        .iter()
        .map(|version| version.resources.iter().map(|it| &*it.resource).collect())
        .collect();
    let mut variants: HashMap<&str, Vec<&Arc<ApiResourceDiscovery>>> = HashMap::new();
    for it in versions.iter().flat_map(|version| &version.resources) {
        variants.entry(&it.resource).or_default().push(it);
    }
    order::consensus(&names, str::cmp)
        .into_iter()
        .filter_map(|name| resource::merge(variants.get(name)?))
        .collect()
}
