//! Whether a peer really serves by itself what it lists beyond this server.
//!
//! A peer that does not know `profile=nopeer` (or stands behind a load balancer) may list what all servers serve
//! together; sending it requests for that would be a wrong 404. The legacy list of a group-version is never merged by
//! Kubernetes' servers, so it tells. Asked only when a peer's document changed, and only for what this server lacks; a
//! front, which has nothing itself, asks for everything that changed and keeps what it heard of the rest.
//!
//! Differs: kube-apiserver believes what it is sent.
//!
//! A server may also list what its lists lack for a moment only, as while a custom resource is installed. So lists that
//! lacked something are read again while the documents stay the same.
//!
//! Invariants: a list that cannot be had takes nothing away; what a list took away stays away until the list has it.

use std::collections::HashSet;
use std::sync::Arc;

use peerage_core::discovery::{
    ApiGroupDiscovery, ApiGroupDiscoveryList, ApiResourceDiscovery, ApiResourceList,
    ApiVersionDiscovery,
};
use tokio::time::Instant;

use super::lists::{Asker, Lists};
use crate::peer::{Heard, Part};

/// Group-versions that a server asks about per change: more than two releases lie apart.
const MAX_ASKED: usize = 64;

/// The same for a front: all of a large cluster.
const MAX_ASKED_BY_FRONT: usize = 2000;

/// Takes out of `groups` what the peer lists but says it does not serve. Returns how many APIs that were.
pub(super) async fn keep_own(
    asker: Asker<'_>,
    lists: &mut Lists,
    old: Option<&Heard>,
    core: &Part,
    groups: &Part,
) -> (ApiGroupDiscoveryList, usize) {
    let Some(asked) = to_ask(asker, lists, old, core, groups) else {
        return ((*groups.list).clone(), 0);
    };
    // One deadline for all: what has not been asked about by then is believed.
    let deadline = Instant::now() + asker.shared.options.poll.deadline;
    let _ = lists.read(asker, asked, deadline).await;
    lists.doubt(doubtful([core, groups], lists));
    own(&groups.list, lists)
}

/// Reads again what lacked something, for documents that are the same as before. Returns the same as [`keep_own`] if that
/// may have changed.
pub(super) async fn look_again(
    asker: Asker<'_>,
    lists: &mut Lists,
    core: &Part,
    groups: &Part,
) -> Option<(ApiGroupDiscoveryList, usize)> {
    // Those of a server that has no other documents are read again anyway.
    if groups.is_legacy || !lists.read_again(asker).await {
        return None;
    }
    lists.doubt(doubtful([core, groups], lists));
    Some(own(&groups.list, lists))
}

/// The group-versions that were asked about and of which a list could not be had, or lacks something that is listed.
fn doubtful(parts: [&Part; 2], lists: &Lists) -> Vec<String> {
    let groups = parts.into_iter().flat_map(|part| &part.list.items);
    let versions = groups.flat_map(|group| group.versions.iter().map(|it| (group.name(), it)));
    let versions = versions.filter(|(_, version)| !version.freshness.is_stale());
    let named = versions.map(|(group, version)| (name(group, &version.version), version));
    let doubtful = named.filter(|(name, version)| {
        lists.was_asked(name) && lists.get(name).is_none_or(|list| lacks(list, version))
    });
    doubtful.map(|(name, _)| name).collect()
}

fn lacks(list: &ApiResourceList, version: &ApiVersionDiscovery) -> bool {
    let served = served(list);
    let mut listed = version.resources.iter();
    !listed.all(|it| served.contains(&*it.resource))
}

/// Which group-versions to ask about (`apps/v1`). What was heard of them before is forgotten, so that the lists that are
/// left afterwards belong to what is listed now.
fn to_ask(
    asker: Asker<'_>,
    lists: &mut Lists,
    old: Option<&Heard>,
    core: &Part,
    groups: &Part,
) -> Option<Vec<String>> {
    if asker.shared.front.is_none() {
        let snapshot = asker.shared.snapshot.load();
        let ours = snapshot.view.local_documents()?.apis();
        let mut asked = beyond(&groups.list, &ours, has_more);
        lists.retain(|_| false);
        asked.truncate(MAX_ASKED);
        return Some(asked);
    }
    let nothing = ApiGroupDiscoveryList::default();
    let mut asked = Vec::new();
    let before = old.map(|old| (&*old.core.list, &*old.groups.list));
    let before = before.unwrap_or((&nothing, &nothing));
    for (now, before) in [(&core.list, before.0), (&groups.list, before.1)] {
        // All of a group whose versions changed: each list tells in which version objects are stored.
        let changed = now
            .items
            .iter()
            .filter(|it| before.group(it.name()) != Some(it));
        let versions = |group: &Arc<ApiGroupDiscovery>| {
            let names = group
                .versions
                .iter()
                .map(|it| name(group.name(), &it.version));
            names.collect::<Vec<_>>()
        };
        let changed: HashSet<String> = changed.flat_map(versions).collect();
        lists.retain(|it| !changed.contains(it));
        // With them what could not be had before: nothing else would have it asked for again.
        let all = beyond(now, &nothing, |it, _| !it.freshness.is_stale());
        asked.extend(all.into_iter().filter(|name| !lists.has_heard(name)));
    }
    asked.truncate(MAX_ASKED_BY_FRONT);
    Some(asked)
}

/// What is listed, without what the lists lack, and how many APIs that was.
fn own(listed: &ApiGroupDiscoveryList, lists: &Lists) -> (ApiGroupDiscoveryList, usize) {
    let mut kept = listed.clone();
    let mut dropped = 0;
    for (group, kept) in listed.items.iter().zip(&mut kept.items) {
        for version in group.versions.iter().filter(|it| !it.freshness.is_stale()) {
            let name = name(group.name(), &version.version);
            let served = match lists.get(&name) {
                Some(list) => served(list),
                None if lists.is_absent(&name) => HashSet::new(),
                None => continue,
            };
            let is_own = |it: &Arc<ApiResourceDiscovery>| served.contains(&*it.resource);
            if !version.resources.iter().all(is_own) {
                dropped += retain(Arc::make_mut(kept), &version.version, is_own);
            }
        }
    }
    kept.items.retain(|group| !group.versions.is_empty());
    (kept, dropped)
}

/// The group-versions of `theirs` that differ in this way from `ours`.
fn beyond(
    theirs: &ApiGroupDiscoveryList,
    ours: &ApiGroupDiscoveryList,
    differ: impl Fn(&ApiVersionDiscovery, Option<&ApiVersionDiscovery>) -> bool,
) -> Vec<String> {
    let mut beyond = Vec::new();
    for group in &theirs.items {
        let own = ours.group(group.name());
        for version in &group.versions {
            if differ(version, own.and_then(|g| g.version(&version.version))) {
                beyond.push(name(group.name(), &version.version));
            }
        }
    }
    beyond
}

fn name(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        _ => format!("{group}/{version}"),
    }
}

fn has_more(theirs: &ApiVersionDiscovery, ours: Option<&ApiVersionDiscovery>) -> bool {
    let Some(ours) = ours else {
        return !theirs.resources.is_empty() && !theirs.freshness.is_stale();
    };
    theirs
        .resources
        .iter()
        .any(|resource| ours.resource(&resource.resource).is_none())
}

/// What the list names: resources, and what is only there for its subresources.
fn served(list: &ApiResourceList) -> HashSet<&str> {
    let parent = |name: &'_ str| {
        name.split_once('/')
            .map_or(name.len(), |(parent, _)| parent.len())
    };
    let names = list.resources.iter().map(|it| &it.name[..parent(&it.name)]);
    names.collect()
}

fn retain(
    group: &mut ApiGroupDiscovery,
    version: &str,
    is_own: impl Fn(&Arc<ApiResourceDiscovery>) -> bool,
) -> usize {
    let mut dropped = 0;
    for it in &mut group.versions {
        if it.version == version && !it.freshness.is_stale() {
            let before = it.resources.len();
            it.resources.retain(&is_own);
            dropped += before - it.resources.len();
        }
    }
    // A version that lists nothing was not emptied here, unless something was dropped.
    if dropped > 0 {
        let emptied = |it: &ApiVersionDiscovery| it.version == version && it.resources.is_empty();
        group.versions.retain(|it| !emptied(it));
    }
    dropped
}
