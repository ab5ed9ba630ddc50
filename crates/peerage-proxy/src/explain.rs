//! Who would answer a request, for whoever asks why one went where it went.
//!
//! The decision is `route`'s, as for requests; a front's own choice among those who can answer comes on top, and in its
//! words: it serves nothing itself, so what it does not answer from memory is passed on.

use std::sync::Arc;

use http::{HeaderMap, Method};
use peerage_core::route::explanation::{Candidate, question};
use peerage_core::route::{Explanation, QuestionError, Route, Rules, route};
use peerage_core::{Query, RequestInfo};

use crate::PeerProxy;
use crate::forward::usable;
use crate::front::{Answers, Client, Front};
use crate::health::Rank;
use crate::peer::Peer;
use crate::service;

/// Answers `?explain=METHOD PATH`; none if the query does not ask.
pub(crate) fn explain(
    proxy: &PeerProxy,
    query: &Query<'_>,
) -> Result<Option<Explanation>, QuestionError> {
    let Some((method, target)) = question(query)? else {
        return Ok(None);
    };
    let info = RequestInfo::parse(method, target)?;
    let snapshot = proxy.shared.snapshot.load();
    let route = route(&info, &snapshot.view, &Rules::default());
    let mut explanation = Explanation::of_route(method, target, &info, &route, &snapshot.view);
    if let Some(front) = &proxy.shared.front {
        let method = Method::try_from(method).unwrap_or_default();
        let from_memory = proxy.answers(&method, &info) == Answers::FromMemory;
        match &route {
            Route::Local(_) if from_memory => {
                let says = "answered by this gateway, of what the servers behind it serve";
                says.clone_into(&mut explanation.explanation);
            }
            Route::Local(reason) => {
                let behind = service::behind(&snapshot);
                let usable = usable(&proxy.shared, &info, false, behind);
                pass_on(&mut explanation, front, &info, usable, &reason.to_string());
            }
            Route::Forward { candidates, reason } => {
                let known = candidates
                    .iter()
                    .filter_map(|it| snapshot.peers.get(&it.id));
                let able = known.map(|it| it.peer.clone()).collect();
                let usable = usable(&proxy.shared, &info, true, able);
                pass_on(&mut explanation, front, &info, usable, &reason.to_string());
            }
            Route::Unknown(_) | Route::Unsure { .. } => {}
        }
    }
    Ok(Some(explanation))
}

/// Says to which of these servers a front passes a request on: in the order in which it tries them, where it has a
/// choice and can make it.
fn pass_on(
    explanation: &mut Explanation,
    front: &Front,
    info: &RequestInfo<'_>,
    usable: Vec<(Rank, Arc<Peer>)>,
    reason: &str,
) {
    let nobody = Client::of(None, &HeaderMap::new(), None);
    let able: Vec<_> = usable.iter().map(|(_, peer)| peer.clone()).collect();
    let ordered = front.order(info, &nobody, false, usable);
    let order: Vec<Arc<Peer>> = match ordered {
        Ok(ordered) => ordered.into_iter().map(|(_, peer)| peer).collect(),
        Err(refused) => {
            explanation.answer = "unsure".to_owned();
            explanation.explanation = format!("503: {refused}");
            return;
        }
    };
    let choice = order.first();
    let choice = choice.and_then(|first| front.choice(info, &able, first));
    let choice = choice.map_or_else(String::new, |why| {
        format!("; of {} that can answer, the first is {why}", able.len())
    });
    let address = |peer: &Arc<Peer>| peer.link().map(|link| link.address.to_string());
    let candidate = |peer: &Arc<Peer>| Candidate {
        id: peer.id.to_string(),
        address: address(peer).unwrap_or_default(),
    };
    explanation.candidates = order.iter().map(candidate).collect();
    let urls = explanation
        .candidates
        .iter()
        .map(|it| match it.address.as_str() {
            "" => it.id.clone(),
            address => format!("https://{address}"),
        });
    let urls: Vec<String> = urls.collect();
    (explanation.answer, explanation.explanation) = match urls.is_empty() {
        true => (
            "unsure".to_owned(),
            "503: no server behind this gateway can be asked".to_owned(),
        ),
        false => (
            "peer".to_owned(),
            format!("passed on to {}: {reason}{choice}", urls.join(", else ")),
        ),
    };
}
