//! What clients of a gateway see while the servers behind it share a host name, go and come back, at the same address or
//! at another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::leases::{LEASES, let_gateways_read};
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, RunningGateway};
use peerage_testkit::wire::{AGGREGATED, Answer, Outgoing};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{gateway, serving, until_serving};
use crate::versions::{self, NEWER_ONLY};

pub(super) const EVERYWHERE: &str = "/api/v1/namespaces/default";

/// A client that asks for the same again and again, and what it got that it should not have got.
pub(super) struct Steady {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    client: JoinHandle<Vec<String>>,
}

impl Steady {
    pub(super) fn asks(gateway: &RunningGateway, target: &str, fits: fn(&Answer) -> bool) -> Self {
        Self::sends(gateway, Outgoing::new("GET", target), fits)
    }

    pub(super) fn sends(
        gateway: &RunningGateway,
        request: Outgoing,
        fits: fn(&Answer) -> bool,
    ) -> Self {
        let (over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (client, until, count) = (gateway.client("admin"), over.clone(), answered.clone());
        let client = tokio::spawn(async move {
            let mut wrong = Vec::new();
            while !until.load(Ordering::Relaxed) {
                match client.send(&request).await {
                    Ok(answer) if fits(&answer) => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(answer) => wrong.push(answer.in_words()),
                    Err(error) => wrong.push(error.to_string()),
                }
                sleep(Duration::from_millis(20)).await;
            }
            wrong
        });
        Self {
            over,
            answered,
            client,
        }
    }

    pub(super) async fn got_all(self, what: &str) {
        self.over.store(true, Ordering::Relaxed);
        let (wrong, answered) = (
            self.client.await.unwrap(),
            self.answered.load(Ordering::Relaxed),
        );
        eprintln!(
            "measured: {what}: {answered} answers, {} wrong",
            wrong.len()
        );
        let first = &wrong[..wrong.len().min(3)];
        assert!(
            wrong.is_empty(),
            "{what}: {} of {answered}: {first:?}",
            wrong.len()
        );
        assert!(answered > 10, "{what}: {answered}");
    }
}

pub(super) fn is_ok(answer: &Answer) -> bool {
    answer.status() == 200
}

/// Served, or to be asked for again; never "there is no such thing".
pub(super) fn is_ok_or_later(answer: &Answer) -> bool {
    is_ok(answer) || (answer.status() == 503 && answer.head.header("retry-after").is_some())
}

pub(super) async fn get(gateway: &RunningGateway, target: &str) -> Answer {
    let request = Outgoing::new("GET", target);
    gateway.client("admin").send(&request).await.unwrap()
}

pub(super) async fn finds(gateway: &RunningGateway, kind: &str) -> Option<Value> {
    let state = gateway.own_state().await;
    let findings = state["findings"].as_array().unwrap().iter();
    findings.clone().find(|it| it["kind"] == kind).cloned()
}

/// They have one Lease and one endpoint key, in which each writes its own address over the other's.
#[tokio::test]
async fn two_real_servers_of_one_host_name_are_named_and_both_used() {
    let older = versions::older_among_peers_that_go();
    let twin = || {
        versions::kube_apiserver(&versions::newer())
            .named("twin")
            .own_proxy()
    };
    let plane = ControlPlane::on(Backend::Etcd("3.6"));
    let plane = plane.server(older).start().await;
    let older = plane.server("older");
    let (one, other) = tokio::join!(plane.start(twin()), plane.start(twin()));
    let_gateways_read(older).await;
    let etcd = format!("--etcd-servers={}", plane.etcd().url());
    let by_leases = gateway(&plane, &[older], &["--peers-from-leases"]).await;
    let by_etcd = gateway(&plane, &[older], &[&etcd]).await;
    for gateway in [&by_leases, &by_etcd] {
        until_serving(gateway, &[older, &one, &other]).await;
        let found = finds(gateway, "one_id_two_addresses").await;
        let found = found.unwrap_or_else(|| panic!("not told: {}", gateway.log()));
        let servers = found["servers"].to_string();
        for twin in [&one, &other] {
            assert!(servers.contains(&twin.address().to_string()), "{found:#}");
        }
    }
    let read = by_leases
        .client("admin")
        .send(&Outgoing::new("GET", LEASES))
        .await;
    let read = read.unwrap().json();
    assert_eq!(read["items"].as_array().unwrap().len(), 2, "{read:#}");

    // Either does for what no third server has, also when the first leaves and takes their Lease and key with it.
    let steady: Vec<_> = [&by_leases, &by_etcd]
        .map(|gateway| Steady::asks(gateway, NEWER_ONLY, is_ok))
        .into();
    one.stop().await;
    for gateway in [&by_leases, &by_etcd] {
        until_without(gateway, &one).await;
        assert_eq!(get(gateway, NEWER_ONLY).await.status(), 200);
    }
    one.restart().await;
    for gateway in [&by_leases, &by_etcd] {
        until_serving(gateway, &[older, &one, &other]).await;
    }
    other.kill();
    for gateway in [&by_leases, &by_etcd] {
        until_without(gateway, &other).await;
        assert_eq!(get(gateway, NEWER_ONLY).await.status(), 200);
    }
    for steady in steady {
        steady.got_all("one of two twins away").await;
    }
}

async fn until_without(gateway: &RunningGateway, gone: &Apiserver) {
    let address = gone.address().to_string();
    until(&format!("{address} does not serve"), || async {
        !serving(gateway).await.contains(&address)
    })
    .await;
}

#[tokio::test]
async fn a_server_known_by_its_lease_goes_and_comes_back_where_it_was_and_elsewhere() {
    let older = versions::older_among_peers_that_go();
    let newer = || {
        versions::kube_apiserver(&versions::newer())
            .named("newer")
            .own_proxy()
    };
    let plane = ControlPlane::on(Backend::Etcd("3.6"));
    let plane = plane.server(older).start().await;
    let older = plane.server("older");
    let first = plane.start(newer()).await;
    let_gateways_read(older).await;
    let gateway = gateway(&plane, &[older], &["--peers-from-leases"]).await;
    until_serving(&gateway, &[older, &first]).await;
    let everywhere = Steady::asks(&gateway, EVERYWHERE, is_ok);
    let newer_only = Steady::asks(&gateway, NEWER_ONLY, is_ok_or_later);

    first.stop().await;
    until_serving(&gateway, &[older]).await;
    is_put_off(&gateway).await;
    first.restart().await;
    until_serving(&gateway, &[older, &first]).await;
    assert_eq!(get(&gateway, NEWER_ONLY).await.status(), 200);

    first.stop().await;
    until_serving(&gateway, &[older]).await;
    is_put_off(&gateway).await;
    let second = plane.start(newer()).await;
    until_serving(&gateway, &[older, &second]).await;
    assert_eq!(get(&gateway, NEWER_ONLY).await.status(), 200);
    let state = gateway.own_state().await;
    let left = first.address().to_string();
    assert!(!state.to_string().contains(&left), "{state:#}");
    assert_eq!(state["findings"], json!([]), "{state:#}");

    // And without a goodbye: its Lease is still there when it comes back elsewhere.
    second.kill();
    let third = plane.start(newer()).await;
    until_serving(&gateway, &[older, &third]).await;
    assert_eq!(get(&gateway, NEWER_ONLY).await.status(), 200);
    everywhere.got_all("what every server has").await;
    newer_only
        .got_all("what one server has that goes and comes back")
        .await;
}

/// What only a server has that has stopped is not denied, in requests and in discovery.
async fn is_put_off(gateway: &RunningGateway) {
    let answer = get(gateway, NEWER_ONLY).await;
    assert_eq!(answer.status(), 503, "{}", answer.in_words());
    let request = Outgoing::get_as("/apis", AGGREGATED);
    let apis = gateway.client("admin").send(&request).await.unwrap().json();
    let groups = apis["items"].as_array().unwrap();
    let group = groups
        .iter()
        .find(|it| it["metadata"]["name"] == "storagemigration.k8s.io");
    let versions = group
        .map_or(Value::Null, |it| it["versions"].clone())
        .to_string();
    assert!(versions.contains("Stale"), "{versions}");
}
