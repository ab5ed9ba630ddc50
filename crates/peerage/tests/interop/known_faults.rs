//! Faults that others reported of such software, one test each, among real servers: through gateways beside the older and
//! beside the newer server, and through a balancer over both.
//!
//! Which fault is shown by which test, here and elsewhere, is in docs/known-faults.md; a test names the public report.
//! Servers that misbehave are made up (`peerage_testkit::odd`); everybody else is real.

use peerage_testkit::kube::{Apiserver, ControlPlane, Gateway, Logs, RunningGateway, Shared};
use peerage_testkit::wire::{Answer, Outgoing};
use serde_json::Value;
use tokio::sync::RwLock;

use crate::ours::start;
use crate::versions;

mod discovery;
mod odd_answers;
mod odd_servers;
mod registry;
mod requests;
mod walks;

/// A pair of real servers and gateways of every kind.
struct Fronts {
    beside_older: RunningGateway,
    beside_newer: RunningGateway,
    balancer: RunningGateway,
    plane: ControlPlane,
    /// Held to write by who changes what the servers serve.
    served: RwLock<()>,
}

impl Logs for Fronts {
    fn logs(&self) -> String {
        let gateways = self.each().map(|(_, gateway)| gateway.log());
        self.plane.logs() + &gateways.concat()
    }
}

static FRONTS: Shared<Fronts> = Shared::new(|| {
    Box::pin(async {
        let plane = versions::pair_without_own_proxies().await;
        let (older, newer) = (plane.server("older"), plane.server("newer"));
        let (beside_older, beside_newer, balancer) = tokio::join!(
            start(&plane, Gateway::beside(older).peer(newer)),
            start(&plane, Gateway::beside(newer).peer(older)),
            start(&plane, Gateway::balancing(&[older, newer])),
        );
        Fronts {
            beside_older,
            beside_newer,
            balancer,
            plane,
            served: RwLock::default(),
        }
    })
});

impl Fronts {
    fn each(&self) -> [(&'static str, &RunningGateway); 3] {
        [
            ("beside the older", &self.beside_older),
            ("beside the newer", &self.beside_newer),
            ("balancer", &self.balancer),
        ]
    }

    /// Gateways of a test's own, beside the older server and over both, with more flags.
    async fn more(&self, flags: &[&str]) -> [(&'static str, RunningGateway); 2] {
        let (older, newer) = (self.plane.server("older"), self.plane.server("newer"));
        let (sidecar, balancer) = tokio::join!(
            start(&self.plane, Gateway::beside(older).peer(newer).flags(flags)),
            start(
                &self.plane,
                Gateway::balancing(&[older, newer]).flags(flags)
            ),
        );
        [("sidecar", sidecar), ("balancer", balancer)]
    }
}

async fn send(way: &Apiserver, user: &str, request: &Outgoing) -> Answer {
    way.client(user).send(request).await.unwrap()
}

async fn get(way: &Apiserver, target: &str, accept: &str) -> Answer {
    send(way, "admin", &Outgoing::get_as(target, accept)).await
}

async fn delete(way: &Apiserver, target: &str) {
    let answer = send(way, "admin", &Outgoing::new("DELETE", target)).await;
    assert_eq!(answer.status(), 200, "{target}: {}", answer.in_words());
}

/// A header of an answer.
fn header(answer: &Answer, name: &str) -> Option<String> {
    answer.head.header(name).map(str::to_owned)
}

/// The groups of an aggregated document.
fn groups(document: &Value) -> impl Iterator<Item = &Value> {
    document["items"].as_array().into_iter().flatten()
}

/// A version of a group in an aggregated document.
fn version<'a>(document: &'a Value, group: &str, version: &str) -> Option<&'a Value> {
    let group = groups(document).find(|it| it["metadata"]["name"] == group)?;
    let mut versions = group["versions"].as_array()?.iter();
    versions.find(|it| it["version"] == version)
}
