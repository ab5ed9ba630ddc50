//! Who answers a request, as tables: requests against small worlds of servers.

#![allow(clippy::unwrap_used)]

use peerage_core::view::PeerView;
use peerage_core::{RequestInfo, Route, Rules, route};

mod absent;
#[path = "../common/mod.rs"]
mod common;
mod definitions;
mod destinations;
mod order;
mod upstream;
mod words;

/// The route in short: `local:served`, `peer:group to b,c`, `unknown:group`, `unsure:peer_gone`.
fn short(route: &Route<'_>) -> String {
    let mut text = format!("{}:{}", route.answer(), route.reason());
    if let Route::Forward { candidates, .. } = route {
        let ids: Vec<&str> = candidates.iter().map(|peer| &*peer.id).collect();
        text.push_str(&format!(" to {}", ids.join(",")));
    }
    text
}

fn ask(view: &PeerView, request: &str) -> String {
    ask_by(view, request, &Rules::default())
}

fn ask_by(view: &PeerView, request: &str, rules: &Rules) -> String {
    let (method, target) = request.split_once(' ').unwrap();
    let info = RequestInfo::parse(method, target).unwrap();
    short(&route(&info, view, rules))
}

/// As from a peer that proved who it is.
const SENT_ON: Rules = Rules {
    from_verified_peer: true,
    ticket: 0,
    retry_after: 1,
};

const OLD: &str =
    "v1: pods[get,list] pods/log; apps/v1: deployments[get,list] deployments/status[get]";
const NEW: &str = "v1: pods[get,list,patch] pods/log pods/resize[patch]; v2: pods; \
    apps/v1: deployments[get,list,watch] deployments/status[get,update] deployments/scale; apps/v2: deployments; \
    new/v1: things[get,list,create] things/status[update]";
