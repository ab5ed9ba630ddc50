//! Whether a peer really serves by itself what it lists beyond this server.
//!
//! A peer that does not know `profile=nopeer` (or stands behind a load balancer) may list what all servers serve
//! together; sending it requests for that would be a wrong 404. The legacy list of a group-version is never merged by
//! Kubernetes' servers, so it tells. Asked only when a peer's document changed, and only for what this server lacks.
//!
//! Differs: kube-apiserver believes what it is sent.
//!
//! Invariant: a list that cannot be had takes nothing away.

use std::collections::HashSet;
use std::sync::Arc;

use http::StatusCode;
use peerage_core::discovery::{
    ApiGroupDiscovery, ApiGroupDiscoveryList, ApiVersionDiscovery, read_api_resources,
};
use tokio::time::Instant;

use super::fetch::{Fetch, FetchError, Fetched, fetch};
use super::what;
use crate::peer::{Heard, Link};
use crate::shared::Shared;

/// Group-versions asked about per change: more than two releases lie apart.
const MAX_ASKED: usize = 64;

/// Takes out of `groups` what the peer lists but says it does not serve. Returns how many APIs that were.
pub(super) async fn keep_own(
    shared: &Shared,
    link: &Link,
    own_id: &str,
    old: Option<&Heard>,
    groups: &ApiGroupDiscoveryList,
) -> (ApiGroupDiscoveryList, usize) {
    let mut kept = groups.clone();
    // A front serves nothing itself; what was found out before need not be asked again.
    let known = match (&shared.front, old) {
        (Some(_), Some(old)) => Some(old.served.clone()),
        _ => shared.snapshot.load().view.local_documents().cloned(),
    };
    let Some(known) = known else {
        return (kept, 0);
    };
    // One deadline for all: what has not been asked about by then is believed.
    let deadline = Instant::now() + shared.options.poll.deadline;
    let mut dropped = 0;
    for (at, version) in beyond(groups, &known.apis()) {
        let path = format!("/apis/{}/{version}", groups.items[at].name());
        if let Some(served) = served(shared, link, own_id, &path, deadline).await {
            dropped += retain(Arc::make_mut(&mut kept.items[at]), &version, &served);
        }
    }
    kept.items.retain(|group| !group.versions.is_empty());
    (kept, dropped)
}

/// The group-versions of `theirs` in which there is more than in `ours`: place of the group, and version.
fn beyond(theirs: &ApiGroupDiscoveryList, ours: &ApiGroupDiscoveryList) -> Vec<(usize, String)> {
    let mut beyond = Vec::new();
    for (at, group) in theirs.items.iter().enumerate() {
        let own = ours.group(group.name());
        for version in &group.versions {
            if has_more(version, own.and_then(|g| g.version(&version.version))) {
                beyond.push((at, version.version.clone()));
            }
        }
    }
    beyond.truncate(MAX_ASKED);
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

/// What the peer's own list of this group-version has; `None` if that cannot be said.
async fn served(
    shared: &Shared,
    link: &Link,
    own_id: &str,
    path: &str,
    deadline: Instant,
) -> Option<HashSet<String>> {
    let what = Fetch {
        accept: Some("application/json"),
        deadline,
        ..what(shared, own_id, path)
    };
    match fetch(&link.upstream, what).await {
        Ok(Fetched::Document { bytes, .. }) => {
            let list = read_api_resources(&bytes).ok()?;
            Some(list.resources.into_iter().map(|r| r.name).collect())
        }
        Err(FetchError::Status(StatusCode::NOT_FOUND)) => Some(HashSet::new()),
        _ => None,
    }
}

fn retain(group: &mut ApiGroupDiscovery, version: &str, served: &HashSet<String>) -> usize {
    let mut dropped = 0;
    for it in &mut group.versions {
        if it.version == version {
            let before = it.resources.len();
            it.resources.retain(|r| served.contains(&r.resource));
            dropped += before - it.resources.len();
        }
    }
    group
        .versions
        .retain(|it| it.version != version || !it.resources.is_empty());
    dropped
}
