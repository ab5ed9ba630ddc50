//! A real kube-apiserver on `peerage store`, which is the store's hardest test: it answers recorded conversations as it
//! does on etcd, and loses nothing that it has acknowledged when the store is killed.

use std::time::Duration;

use peerage_testkit::kube::{Backend, ControlPlane};
use peerage_testkit::recording::{Recording, Replayer, Run};
use tokio::time::sleep;

use crate::load::Load;
use crate::ours::executable;
use crate::versions;

/// How often the store is killed.
const KILLS: u32 = 10;
/// How many writes have to be acknowledged between two kills.
const WRITES_BETWEEN: usize = 25;

/// A conversation with a fresh server on a store; `mvp` is one with the older server of a pair.
async fn conversation(name: &str, backend: Backend<'_>) -> Run {
    let recording = Recording::load(name);
    let newer = versions::kube_apiserver("1.37").named("new");
    let pair = name == "mvp";
    let plane = match pair {
        true => {
            let older = versions::kube_apiserver("1.34*").named("old").own_proxy();
            let plane = ControlPlane::on(backend).server(older);
            plane.server(newer.own_proxy()).start().await
        }
        false => ControlPlane::on(backend).server(newer).start().await,
    };
    let asked = plane.server(if pair { "old" } else { "new" });
    if pair {
        let newer_only = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
        asked.serves(newer_only).await;
    }
    let replayer = Replayer::new(asked.address(), plane.pki());
    replayer.run(&recording).await
}

/// The steps that differ from the recording, and where.
fn differing(run: &Run) -> Vec<(&str, Vec<String>)> {
    fn place(difference: &str) -> &str {
        difference.split(": ").next().unwrap()
    }
    let places = |differences: &'_ [String]| -> Vec<_> {
        differences.iter().map(|d| place(d).to_owned()).collect()
    };
    let differing = run.differing();
    differing
        .map(|outcome| (outcome.step.as_str(), places(&outcome.differences)))
        .collect()
}

/// The conversation on both stores; at most so many steps differ from the recording, which was made with other
/// certificates, and the same ones.
async fn is_the_same_on_both(name: &str, most: usize) {
    let (etcd, ours) = tokio::join!(
        conversation(name, Backend::Etcd("3.6")),
        conversation(name, Backend::Peerage(executable()))
    );
    assert_eq!(differing(&ours), differing(&etcd), "{}", ours.in_words());
    let differ = ours.differing().count();
    assert!(differ <= most, "{differ} differ\n{}", ours.in_words());
}

#[tokio::test]
async fn verbs_are_the_same_on_both_stores() {
    is_the_same_on_both("verbs", 0).await;
}

#[tokio::test]
async fn lists_and_watches_are_the_same_on_both_stores() {
    is_the_same_on_both("lists-watches", 0).await;
}

#[tokio::test]
async fn patches_are_the_same_on_both_stores() {
    is_the_same_on_both("patches", 0).await;
}

#[tokio::test]
async fn authentication_and_authorization_are_the_same_on_both_stores() {
    is_the_same_on_both("auth", 0).await;
}

#[tokio::test]
async fn negotiation_is_the_same_on_both_stores() {
    is_the_same_on_both("negotiation", 0).await;
}

#[tokio::test]
async fn paths_without_a_resource_are_the_same_on_both_stores() {
    // One shows the certificates of the authorities.
    is_the_same_on_both("nonresource", 1).await;
}

#[tokio::test]
async fn an_older_server_answers_for_a_newer_peer_the_same_on_both_stores() {
    // Every forwarded answer has doubled headers, which the recording does not ask for.
    is_the_same_on_both("mvp", 59).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_store_is_killed() {
    let newest = versions::kube_apiserver("1.37").named("kube");
    let plane = ControlPlane::on(Backend::Peerage(executable()))
        .server(newest)
        .start()
        .await;
    let server = plane.server("kube");
    let load = Load::start(server).await;
    for kill in 0..KILLS {
        load.acknowledged(WRITES_BETWEEN).await;
        plane.store().kill();
        // The subject: how long it is away, which is another time for each.
        sleep(Duration::from_millis(u64::from(kill) * 150)).await;
        plane.store().restart().await;
    }
    load.acknowledged(WRITES_BETWEEN).await;
    let written = load.stop().await;
    written.is_all_there(server).await;
    // Without what it remembers, it has the store's word alone.
    server.stop().await;
    plane.store().kill();
    plane.store().restart().await;
    server.restart().await;
    written.is_all_there(server).await;
}
