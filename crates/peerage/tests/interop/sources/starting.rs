//! What clients see of a server's custom resources while it starts again: kube-apiserver answers discovery before it has
//! found them, and no other server is there that has them.

use peerage_testkit::kube::{Backend, ControlPlane, Gateway, RunningGateway};
use peerage_testkit::wire::{AGGREGATED, Answer, Outgoing};
use serde_json::{Value, json};

use super::changes::Steady;
use super::until_serving;
use crate::ours::start;
use crate::versions;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LAMPS: &str = "/apis/lonely.example.com/v1/lamps";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.lonely.example.com"},
        "spec": {
            "group": "lonely.example.com", "scope": "Cluster",
            "names": {"plural": "lamps", "singular": "lamp", "kind": "Lamp", "listKind": "LampList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// Its objects, or that they are to be asked for again.
fn lamps_or_later(answer: &Answer) -> bool {
    is_later(answer) || answer.status() == 200 && answer.json()["kind"] == "LampList"
}

/// A document that has them, or, where nobody is there who could say whether it may be read, that it is to be asked for again.
fn lists_lamps_or_later(answer: &Answer) -> bool {
    let groups = answer.json()["items"].as_array().cloned();
    let mut groups = groups.unwrap_or_default().into_iter();
    is_later(answer) || groups.any(|group| group["metadata"]["name"] == "lonely.example.com")
}

/// A kube-apiserver that does not know yet says it in either way.
fn is_later(answer: &Answer) -> bool {
    matches!(answer.status(), 429 | 503)
}

fn ask(gateway: &RunningGateway) -> [Steady; 2] {
    let listing = Outgoing::get_as("/apis", AGGREGATED);
    [
        Steady::asks(gateway, LAMPS, lamps_or_later),
        Steady::sends(gateway, listing, lists_lamps_or_later),
    ]
}

#[tokio::test]
async fn custom_resources_of_the_only_server_are_never_taken_for_gone_while_it_starts_again() {
    let plane = ControlPlane::on(Backend::Etcd("3.6"))
        .server(versions::without_own_proxy(&versions::newer(), "only"))
        .start()
        .await;
    let only = plane.server("only");
    only.create(DEFINITIONS, &definition()).await;
    only.serves(LAMPS).await;
    let (sidecar, balancer) = tokio::join!(
        start(&plane, Gateway::beside(only)),
        start(&plane, Gateway::balancing(&[only])),
    );
    for way in [&sidecar, &balancer] {
        way.serves(LAMPS).await;
    }
    let asked = [&sidecar, &balancer].map(ask);
    for round in 0..3 {
        match round {
            0 => only.kill(),
            _ => drop(only.stop().await),
        }
        only.spawn();
        only.ready().await;
        for way in [&sidecar, &balancer] {
            until_serving(way, &[only]).await;
        }
    }
    for (way, asked) in ["sidecar", "balancer"].into_iter().zip(asked) {
        for (what, steady) in ["objects", "discovery"].into_iter().zip(asked) {
            steady.got_all(&format!("{way} {what}")).await;
        }
    }
}
