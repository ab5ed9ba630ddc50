//! Where pods go: the Service `kubernetes` leads to what is published in its EndpointSlice, and kube-apiservers publish their
//! own port there, which is the gateway's no more where it has moved.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::check::records;
use crate::check::report::{Item, some};
use crate::check::rights;
use crate::check::world::{Gateway, Server, World, good};

const PUBLISHED: &str = "in-cluster";
/// How many addresses are named.
const NAMED: usize = 5;
const FIX: &str = "see docs/gateway.md, \"Clients in the cluster\": leave it where nothing in pods uses what only newer servers \
    have, else publish the gateways; a gateway, or a load balancer before some, that is not known here is to be named as a \
    SERVER";

/// Judges what is published, if there are gateways.
pub(super) fn judge(world: &World) -> Option<Item> {
    let gateways = || world.answering().filter(|it| it.is_gateway());
    if world.gateways.is_empty() && gateways().next().is_none() {
        return None;
    }
    if world.nobody_answers() {
        return None;
    }
    if let Some(url) = world.silent_gateway() {
        let says = format!("not judged while {url} does not say where its clients connect");
        return Some(Item::skip(PUBLISHED, "", says));
    }
    let slices = match good(&world.endpoints) {
        Ok(answer) => answer.json(),
        Err(problem) => {
            return Some(rights::unread(PUBLISHED, "", rights::ENDPOINTS, &problem));
        }
    };
    let published = published(&slices);
    if published.is_empty() {
        let says = "the Service kubernetes has no EndpointSlice with addresses";
        return Some(Item::skip(PUBLISHED, "", says));
    }
    let around: Vec<String> = published
        .iter()
        .filter(|it| !leads_to_gateway(world, **it))
        .map(SocketAddr::to_string)
        .collect();
    if around.is_empty() {
        let all: Vec<String> = published.iter().map(SocketAddr::to_string).collect();
        let says = format!(
            "pods come to gateways: the Service kubernetes publishes {}",
            some(&all, NAMED)
        );
        return Some(Item::pass(PUBLISHED, "", says));
    }
    let says = format!(
        "pods reach servers without a gateway: the Service kubernetes publishes {}, where none of these gateways takes \
         clients",
        some(&around, NAMED)
    );
    Some(Item::warn(PUBLISHED, "", says).fix(FIX))
}

/// The addresses in EndpointSlices.
fn published(slices: &Value) -> BTreeSet<SocketAddr> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut published = BTreeSet::new();
    for slice in list(&slices["items"]) {
        let ports = list(&slice["ports"]);
        let ports = ports
            .iter()
            .filter_map(|it| u16::try_from(it["port"].as_u64()?).ok());
        let ports: Vec<u16> = ports.collect();
        let addresses = list(&slice["endpoints"]).into_iter();
        for address in addresses.flat_map(|it| list(&it["addresses"])) {
            let ip: Option<IpAddr> = address.as_str().and_then(|it| it.parse().ok());
            let sockets = ip
                .into_iter()
                .flat_map(|ip| ports.iter().map(move |port| (ip, *port)));
            published.extend(sockets.map(SocketAddr::from));
        }
    }
    published
}

/// Whether a gateway takes clients there. One that listens on every address of its host does not say which those are: it is
/// believed for its port, unless a server is known to be there.
fn leads_to_gateway(world: &World, at: SocketAddr) -> bool {
    let address = json!(at.to_string());
    let is_at = |it: &&Server| it.is_at(&address);
    let mut answering = world.answering();
    if let Some(server) = answering.find(is_at) {
        return server.is_gateway();
    }
    let states: Vec<Value> = world.gateways.iter().filter_map(Gateway::state).collect();
    let listening = || {
        let all = states.iter().filter_map(|it| it["listening"].as_str());
        all.filter_map(|it| it.parse::<SocketAddr>().ok())
    };
    let leads_back = |state: &Value| {
        let mut aside = state["aside"].as_array().into_iter().flatten();
        aside.any(|it| it["address"] == address && it["kind"] == "oneself")
    };
    if listening().any(|it| it == at) || states.iter().any(leads_back) {
        return true;
    }
    let is_peer = |state: &Value| {
        let mut peers = state["peers"].as_array().into_iter().flatten();
        peers.any(|it| it["address"] == address)
    };
    let mut leases = records::leases(&world.leases).into_iter();
    let is_server = states.iter().any(is_peer) || leases.any(|it| address == json!(it.address));
    !is_server && listening().any(|it| it.ip().is_unspecified() && it.port() == at.port())
}
