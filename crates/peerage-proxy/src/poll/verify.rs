//! Whether a peer really serves by itself what it lists beyond this server.
//!
//! A peer that does not know `profile=nopeer` (or stands behind a load balancer) may list what all servers serve
//! together; sending it requests for that would be a wrong 404. The legacy list of a group-version is never merged by
//! Kubernetes' servers, so it tells. Asked only when a peer's document changed, and only for what this server lacks; a
//! front, which has nothing itself, asks for everything that changed.
//!
//! Differs: kube-apiserver believes what it is sent.
//!
//! Invariant: a list that cannot be had takes nothing away.

use std::collections::HashSet;
use std::sync::Arc;

use peerage_core::discovery::{
    ApiGroupDiscovery, ApiGroupDiscoveryList, ApiResourceList, ApiVersionDiscovery,
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
    let mut kept = (*groups.list).clone();
    let Some(asked) = to_ask(asker, old, core, groups) else {
        return (kept, 0);
    };
    // One deadline for all: what has not been asked about by then is believed.
    let deadline = Instant::now() + asker.shared.options.poll.deadline;
    let anew: HashSet<&str> = asked.iter().map(|(_, name)| &**name).collect();
    lists.retain(|it| !anew.contains(it));
    let names = asked.iter().map(|(_, name)| name.clone());
    let _ = lists.read(asker, names.collect(), deadline).await;
    let mut dropped = 0;
    for (at, name) in &asked {
        let (Some(at), Some((_, version))) = (at, name.rsplit_once('/')) else {
            continue;
        };
        let served = match lists.get(name) {
            Some(list) => served(list),
            None if lists.is_absent(name) => HashSet::new(),
            None => continue,
        };
        dropped += retain(Arc::make_mut(&mut kept.items[*at]), version, &served);
    }
    kept.items.retain(|group| !group.versions.is_empty());
    (kept, dropped)
}

/// Which group-versions to ask about (`apps/v1`), each with the place of its group; none of the core group.
fn to_ask(
    asker: Asker<'_>,
    old: Option<&Heard>,
    core: &Part,
    groups: &Part,
) -> Option<Vec<(Option<usize>, String)>> {
    let nothing = ApiGroupDiscoveryList::default();
    let mut asked = Vec::new();
    if asker.shared.front.is_some() {
        let before = old.map_or(&nothing, |old| &old.core.list);
        let changed = beyond(&core.list, before, |new, old| old != Some(new));
        asked.extend(changed.into_iter().map(|(_, name)| (None, name)));
        let before = old.map_or(&nothing, |old| &old.groups.list);
        let changed = beyond(&groups.list, before, |new, old| old != Some(new));
        asked.extend(changed.into_iter().map(|(at, name)| (Some(at), name)));
        asked.truncate(MAX_ASKED_BY_FRONT);
    } else {
        let snapshot = asker.shared.snapshot.load();
        let ours = snapshot.view.local_documents()?.apis();
        let more = beyond(&groups.list, &ours, has_more);
        asked.extend(more.into_iter().map(|(at, name)| (Some(at), name)));
        asked.truncate(MAX_ASKED);
    }
    Some(asked)
}

/// The group-versions of `theirs` that differ in this way from `ours`: place of the group, and name (`apps/v1`).
fn beyond(
    theirs: &ApiGroupDiscoveryList,
    ours: &ApiGroupDiscoveryList,
    differ: impl Fn(&ApiVersionDiscovery, Option<&ApiVersionDiscovery>) -> bool,
) -> Vec<(usize, String)> {
    let mut beyond = Vec::new();
    for (at, group) in theirs.items.iter().enumerate() {
        let own = ours.group(group.name());
        for version in &group.versions {
            if differ(version, own.and_then(|g| g.version(&version.version))) {
                let name = match group.name() {
                    "" => version.version.clone(),
                    group => format!("{group}/{}", version.version),
                };
                beyond.push((at, name));
            }
        }
    }
    beyond
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

fn retain(group: &mut ApiGroupDiscovery, version: &str, served: &HashSet<&str>) -> usize {
    let mut dropped = 0;
    for it in &mut group.versions {
        if it.version == version && !it.freshness.is_stale() {
            let before = it.resources.len();
            it.resources.retain(|r| served.contains(&*r.resource));
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
