//! Who would answer a request, for whoever asks why one went where it went.
//!
//! The decision is `route`'s, as for requests; a front's own choice among those who can answer comes on top.

use std::sync::Arc;

use http::HeaderMap;
use peerage_core::route::explanation::question;
use peerage_core::route::{Explanation, Route, Rules, route};
use peerage_core::{Query, RequestInfo, RequestInfoError};

use crate::front::Client;
use crate::shared::{Shared, Snapshot};

/// Answers `?explain=METHOD PATH`; none if the query does not ask.
pub(crate) fn explain(
    shared: &Shared,
    query: &Query<'_>,
) -> Result<Option<Explanation>, RequestInfoError> {
    let Some((method, target)) = question(query) else {
        return Ok(None);
    };
    let info = RequestInfo::parse(method, target)?;
    let snapshot = shared.snapshot.load();
    let mut route = route(&info, &snapshot.view, &Rules::default());
    let chosen = choose(shared, &snapshot, &info, &route);
    if let (Route::Forward { candidates, .. }, Some(order)) = (&mut route, chosen) {
        let place = |id: &str| order.iter().position(|it| **it == *id);
        candidates.retain(|peer| place(&peer.id).is_some());
        candidates.sort_by_key(|peer| place(&peer.id));
    }
    let explanation = Explanation::of_route(method, target, &info, &route);
    Ok(Some(explanation))
}

/// The servers that a front would try, in order; none where it has no choice or cannot make it.
fn choose(
    shared: &Shared,
    snapshot: &Snapshot,
    info: &RequestInfo<'_>,
    route: &Route<'_>,
) -> Option<Vec<Arc<str>>> {
    let front = shared.front.as_ref()?;
    let Route::Forward { candidates, .. } = route else {
        return None;
    };
    let peers = candidates
        .iter()
        .filter_map(|it| snapshot.peers.get(&it.id));
    let peers = peers.map(|known| (known.peer.health.rank(), known.peer.clone()));
    let nobody = Client::of(None, &HeaderMap::new(), None);
    let ordered = front.order(info, &nobody, false, peers.collect()).ok()?;
    Some(
        ordered
            .into_iter()
            .map(|(_, peer)| peer.id.clone())
            .collect(),
    )
}
