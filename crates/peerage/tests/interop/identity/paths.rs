//! Every client and every pretence where requests are not simply handed on: upgrades, the documents that a gateway has at
//! hand, and servers that call the headers something else.

use peerage_testkit::kube::{Apiserver, Gateway};
use peerage_testkit::wire::{AGGREGATED, Outgoing};

use super::agreement::{Over, Path, Told, audits_agree};
use super::{cases, people};
use crate::gateway::GATEWAYS;
use crate::ours::start;
use crate::versions::NEWER_ONLY;

/// All who ask, and all that they pretend.
pub(super) fn everybody(robots_token: &str) -> Vec<cases::Case> {
    let mut all = cases::of_clients(robots_token);
    all.extend(cases::of_administrators());
    all.extend(cases::of_front_proxies());
    all
}

/// Watches over WebSocket, of what each server has and of what only the newer has, and a session over SPDY.
pub(super) fn upgrades<'a>(older: &'a Apiserver, newer: &'a Apiserver) -> [Path<'a>; 3] {
    let watch = |target: &str| {
        let request = Outgoing::websocket(&format!("{target}?watch=true"));
        request.instead("Connection", "keep-alive, Upgrade")
    };
    let rows = [
        (watch("/api/v1/namespaces"), older),
        (watch(NEWER_ONLY), newer),
        (cases::spdy(), older),
    ];
    rows.map(|(request, server)| Path {
        request,
        server,
        over: Over::Upgrade,
    })
}

/// Documents that a gateway has at hand.
pub(super) fn documents(server: &Apiserver) -> [Path<'_>; 2] {
    let rows = [
        ("/apis", AGGREGATED, Over::Http2),
        ("/openapi/v3", "application/json", Over::Http1),
    ];
    rows.map(|(target, accept, over)| Path {
        request: Outgoing::get_as(target, accept),
        server,
        over,
    })
}

#[tokio::test]
async fn an_upgrade_is_the_clients_own_whatever_it_sends_with_it() {
    let gateways = GATEWAYS.get().await;
    let everybody = everybody(&people(&gateways).await.robots_token);
    let (older, newer) = (
        gateways.plane.server("older"),
        gateways.plane.server("newer"),
    );
    let ways = gateways.each().map(|(name, way)| (name, &way.server));
    for path in upgrades(older, newer) {
        let servers = [older, newer];
        let compared = audits_agree(&servers, &ways, &everybody, &path, Told::Plainly).await;
        println!("{}: {compared} agree", path.request.target);
    }
}

/// They are answered from memory, but whether the client may read them a server is asked, as the client.
#[tokio::test]
async fn whether_documents_may_be_read_is_asked_as_the_client_whatever_it_sends_with_it() {
    let gateways = GATEWAYS.get().await;
    let everybody = everybody(&people(&gateways).await.robots_token);
    let plane = &gateways.plane;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let each_time = ["--discovery-authorization-ttl=0"];
    let (sidecar, balancer) = tokio::join!(
        start(plane, Gateway::beside(older).peer(newer).flags(&each_time)),
        start(plane, Gateway::balancing(&[older, newer]).flags(&each_time)),
    );
    let (sidecar, balancer) = ([("sidecar", &*sidecar)], [("balancer", &*balancer)]);
    let servers = [older, newer];
    for path in documents(older) {
        let compared = tokio::join!(
            audits_agree(&servers, &sidecar, &everybody, &path, Told::Plainly),
            audits_agree(&servers, &balancer, &everybody, &path, Told::Plainly),
        );
        println!("{}: {compared:?} agree", path.request.target);
    }
}
