//! Row 12: a custom resource in a group-version that a peer has too.

use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::wire::Outgoing;
use serde_json::json;

use super::{Row, World, has, later};
use crate::versions::NEWER_ONLY;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAME: &str = "extras.storagemigration.k8s.io";
const EXTRAS: &str = "/apis/storagemigration.k8s.io/v1/extras";

/// A definition takes a name beside the newer servers' own resource, and gives it up again.
pub(super) async fn while_a_definition_comes_and_goes(world: &World) -> Vec<Row> {
    let older = world.server("older").client("admin");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": "storagemigration.k8s.io", "scope": "Cluster",
            "names": {"plural": "extras", "singular": "extra", "kind": "Extra", "listKind": "ExtraList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let create = Outgoing::new("POST", DEFINITIONS).json("application/json", &definition);
    let created = older.send(&create).await.unwrap();
    assert_eq!(created.status(), 201, "{}", created.in_words());
    // On the newer servers their own API has the group-version to itself.
    answers(world, 200).await;
    let read = Outgoing::new("GET", NEWER_ONLY);
    let row = world
        .ask(
            12,
            "a read of a peer's resource while a CRD has another in its group-version",
            &read,
        )
        .await;
    let during = row.expect(has("200")).in_merging();

    let delete = Outgoing::new("DELETE", &format!("{DEFINITIONS}/{NAME}"));
    let deleted = older.send(&delete).await.unwrap();
    assert_eq!(deleted.status(), 200, "{}", deleted.in_words());
    answers(world, 404).await;
    later(Duration::from_secs(5)).await;
    let row = world
        .ask(12, "the same 5 s after the CRD was deleted", &read)
        .await;
    vec![during, row.expect(has("200")).in_merging()]
}

/// Waits until the custom resource is there, or gone, at the older server and through each gateway.
async fn answers(world: &World, status: u16) {
    for way in world.ways() {
        let what = format!("{}: {EXTRAS} is {status}", way.name());
        until(&what, || async {
            let answer = way
                .client("admin")
                .send(&Outgoing::new("GET", EXTRAS))
                .await;
            answer.is_ok_and(|answer| answer.status() == status)
        })
        .await;
    }
}
