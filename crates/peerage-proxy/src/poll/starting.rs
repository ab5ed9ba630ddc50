//! Whether a peer that lists less than before is only starting.
//!
//! What it listed before goes into the view as that of a peer that is away, so others are asked for it or nobody; what it
//! lists now counts as that of any peer.
//!
//! Invariant: that has an end, also where the peer is never ready: the first good round after the hold time.

use std::sync::Arc;

use peerage_core::discovery::ApiGroupDiscoveryList;
use tokio::time::Instant;

use crate::peer::{Before, Heard, Part, Peer};
use crate::shared::Shared;

/// What the peer listed before and does not list now because, as far as can be told, it is only starting: kube-apiserver
/// answers, and even says that it is ready, before it lists custom resources and aggregated APIs. An older version has less
/// for good; of a peer that does not tell its version that cannot be ruled out once it is ready.
pub(super) fn before(
    shared: &Shared,
    peer: &Peer,
    old: Option<&Heard>,
    core: &Part,
    groups: &Part,
) -> Option<Before> {
    let old = old?;
    let before = old.before.clone().unwrap_or_else(|| Before {
        core: old.core.list.clone(),
        groups: old.groups.list.clone(),
        served: old.served.clone(),
        version: old.version,
        since: Instant::now(),
    });
    let lists_all =
        |now: &Arc<ApiGroupDiscoveryList>, was| Arc::ptr_eq(now, was) || now.lists_all_of(was);
    let version = peer.version();
    let stirred = || peer.has_stirred_within(shared.options.poll.starting);
    let may_start = !peer.health.is_ready() || version.is_some() && stirred();
    let is_older = version.is_some_and(|now| before.version.is_some_and(|was| now < was));
    let holds = may_start
        && !is_older
        && before.since.elapsed() < shared.options.hold
        && !(lists_all(&core.list, &before.core) && lists_all(&groups.list, &before.groups));
    holds.then_some(before)
}

/// Says that a peer begins to be taken for starting, and how that ends.
pub(super) fn say(peer: &Peer, old: Option<&Before>, new: Option<&Before>) {
    match (old, new) {
        (None, Some(_)) => {
            peer.counts.error("starting");
            tracing::info!(
                peer = &*peer.id,
                "a peer lists less than before it was away or not ready: what is missing is taken for away, until it lists it \
                 again or has been ready for a while"
            );
        }
        (Some(_), None) => tracing::info!(
            peer = &*peer.id,
            "what a peer lists is taken for all that it has again"
        ),
        _ => {}
    }
}
