//! Rows about which servers take each other for peers, and what they tell each other: 21 and 23; and 15, since it wants
//! the same gateways.

use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::leases::{LEASES, lease, let_gateways_read};
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, Gateway, RunningGateway};
use peerage_testkit::wire::{AGGREGATED, Outgoing};
use serde_json::{Value, json};

use super::{Row, World, freshness, later, send_each};
use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

/// For how long reads of discovery are counted.
const COUNTED: Duration = Duration::from_secs(6);
/// Two documents of each of three servers. Gateways read them every three seconds, so that one of two windows may have a
/// round more than the other.
const ROUND: usize = 6;

/// Gateways that find the other servers by their Leases, as kube-apiservers do.
pub(super) struct Finders {
    sidecar: RunningGateway,
    balancer: RunningGateway,
}

impl Finders {
    pub(super) async fn start(world: &World) -> Finders {
        let older = world.server("older");
        let_gateways_read(older).await;
        let flags = ["--peers-from-leases", "--writes=newest"];
        let sidecar = Gateway::beside(older).flags(&flags);
        let balancer = Gateway::balancing(&[older]).flags(&flags);
        let (sidecar, balancer) =
            tokio::join!(start(&world.plane, sidecar), start(&world.plane, balancer));
        sidecar.serves(NEWER_ONLY).await;
        balancer.serves(NEWER_ONLY).await;
        Finders { sidecar, balancer }
    }

    /// Waits until a server has failed to tell either gateway what it serves.
    pub(super) async fn fail_to_read(&self, address: &str) {
        for gateway in [&self.sidecar, &self.balancer] {
            until("the failure is known", || async {
                let peer = gateway.peer(address).await;
                peer.is_some_and(|peer| !peer["error"].is_null())
            })
            .await;
        }
    }

    pub(super) fn ways<'a>(&'a self, world: &'a World) -> [&'a Apiserver; 3] {
        [world.server("older"), &self.sidecar, &self.balancer]
    }
}

/// A Lease such as kube-apiservers renew, of a server at an address.
pub(super) async fn register(server: &Apiserver, namespace: &str, name: &str, address: &str) {
    let lease = lease(name, Some(address));
    server
        .create(&LEASES.replace("kube-system", namespace), &lease)
        .await;
}

/// Takes a server's Lease away.
pub(super) async fn withdraw(server: &Apiserver, namespace: &str, name: &str) {
    let target = LEASES.replace("kube-system", namespace);
    let delete = Outgoing::new("DELETE", &format!("{target}/{name}"));
    let deleted = server.client("admin").send(&delete).await.unwrap();
    assert_eq!(deleted.status(), 200, "{}", deleted.in_words());
}

/// Says that a server is another process than before.
pub(super) async fn register_again(server: &Apiserver, name: &str) {
    let patch = json!({"spec": {"holderIdentity": format!("{name}_2")}});
    let request = Outgoing::new("PATCH", &format!("{LEASES}/{name}"))
        .json("application/merge-patch+json", &patch);
    let answer = server.client("admin").send(&request).await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.in_words());
}

/// Row 15: a label patch of a Node of which the newer servers know more.
pub(super) async fn a_label_patch(world: &World, finders: &Finders) -> Row {
    let newer = world.server("newer-a").client("admin");
    let merge = "application/merge-patch+json";
    let mut seen = Vec::new();
    for (at, way) in finders.ways(world).into_iter().enumerate() {
        let name = format!("node-{at}");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        world.server("newer-a").create("/api/v1/nodes", &node).await;
        let target = format!("/api/v1/nodes/{name}");
        let told = json!({"status": {"nodeInfo": {"runningInUserNamespace": true}}});
        let write = Outgoing::new("PATCH", &format!("{target}/status")).json(merge, &told);
        assert_eq!(newer.send(&write).await.unwrap().status(), 200);
        let label = json!({"metadata": {"labels": {"seen": "yes"}}});
        let label = Outgoing::new("PATCH", &target).json(merge, &label);
        let patched = way.client("admin").send(&label).await;
        let patched = patched.map_or_else(|e| e.to_string(), |answer| answer.status().to_string());
        if patched != "200" {
            seen.push(patched);
            continue;
        }
        let read = newer.send(&Outgoing::new("GET", &target)).await.unwrap();
        let kept = &read.json()["status"]["nodeInfo"]["runningInUserNamespace"];
        seen.push(if kept == true { "kept" } else { "erased" }.to_owned());
    }
    let what = "fields that only the newer knows, after a label patch (gateways: --writes=newest)";
    let row = Row::of(15, what, seen.try_into().unwrap());
    row.expect(|words| words == "kept")
}

/// Row 21: what a server tells a peer of 1.34, which does not ask for the server's own documents only.
pub(super) async fn a_fetch_of_an_old_peer(world: &World) -> Row {
    let fetch = Outgoing::get_as("/apis", AGGREGATED)
        .header("X-Kubernetes-Peer-Proxied", "true")
        .header("X-Remote-User", "system:apiserver")
        .header("X-Remote-Group", "system:authenticated");
    let seen = send_each(world.ways(), "front-proxy-client", &fetch).await;
    let told = seen.map(|seen| {
        if seen.status() != Some(200) {
            return seen.words();
        }
        let own = freshness(&seen) == "not listed";
        if own { "its own" } else { "everybody's" }.to_owned()
    });
    let what = "whose APIs a 1.34 peer is told for the server's own";
    let row = Row::of(21, what, told);
    row.expect_beside(|words| words == "its own").in_merging()
}

/// Row 21: a 1.34 server with two peers, of which one has the API and both list it.
pub(super) async fn beside_an_old_server() -> Row {
    let spec =
        |version: &str, name: &str| versions::kube_apiserver(version).named(name).own_proxy();
    let plane = ControlPlane::on(Backend::Etcd("3.6"))
        .server(spec(&versions::older(), "older"))
        .server(spec("1.35*", "middle"))
        .server(spec(&versions::newer(), "newer"))
        .start()
        .await;
    let [older, middle, newer] = ["older", "middle", "newer"].map(|name| plane.server(name));
    versions::acquaint(middle).await;
    versions::acquaint(older).await;
    let sidecar = Gateway::beside(older).peer(middle).peer(newer);
    let balancer = Gateway::balancing(&[older, middle, newer]);
    let (sidecar, balancer) = tokio::join!(start(&plane, sidecar), start(&plane, balancer));
    sidecar.serves(NEWER_ONLY).await;
    balancer.serves(NEWER_ONLY).await;
    let read = Outgoing::new("GET", NEWER_ONLY);
    let mut wrong = [0; 3];
    for _ in 0..60 {
        let seen = send_each([older, &sidecar, &balancer], "admin", &read).await;
        for (wrong, seen) in wrong.iter_mut().zip(seen) {
            *wrong += usize::from(seen.status() != Some(200));
        }
    }
    let words = wrong.map(|wrong| format!("{wrong} of 60 go wrong"));
    let what = "reads through an old server of whose two peers one lacks the API";
    let row = Row::of(21, what, words);
    row.expect(|words| words == "0 of 60 go wrong")
}

/// Row 23: how often discovery is read because of a stray Lease.
pub(super) async fn a_stray_lease(world: &World, finders: &Finders) -> Row {
    let before = reads_of_discovery(world, finders).await;
    // A gateway of which nothing is counted would seem to do well.
    assert!(before[1] > 0 && before[2] > 0, "{before:?}");
    let older = world.server("older");
    register(older, "default", "apiserver-stray", "127.0.0.1:1").await;
    let after = reads_of_discovery(world, finders).await;
    withdraw(older, "default", "apiserver-stray").await;
    let words = [0, 1, 2].map(|at| after[at].saturating_sub(before[at]).to_string());
    let what = "more reads of discovery in the 6 s after a stray Lease came to another namespace, where up to 6 are a usual round";
    let row = Row::of(23, what, words);
    row.expect(|words| words.parse().is_ok_and(|more: usize| more <= ROUND))
}

/// By the proxies of kube-apiservers, at one newer server; by each gateway, at all.
async fn reads_of_discovery(world: &World, finders: &Finders) -> [usize; 3] {
    let count = || async {
        let gateways = [&finders.sidecar, &finders.balancer];
        let [a, b] = gateways.map(|gateway| async { fetches(&gateway.own_metrics().await) });
        let (a, b) = tokio::join!(a, b);
        [asked_by_peers(world.server("newer-a")), a, b]
    };
    let before = count().await;
    later(COUNTED).await;
    let after = count().await;
    [0, 1, 2].map(|at| after[at] - before[at])
}

/// kube-apiservers' proxies ask in their own name and say nothing of their program.
fn asked_by_peers(server: &Apiserver) -> usize {
    let fetch = |event: &Value| {
        event["requestURI"] == "/apis"
            && event["user"]["username"] == "system:apiserver"
            && event["userAgent"].as_str().is_none_or(str::is_empty)
    };
    server.audit().iter().filter(|event| fetch(event)).count()
}

/// Documents that a gateway has asked for, by its own count.
fn fetches(metrics: &str) -> usize {
    let lines = metrics.lines().filter(|line| {
        line.starts_with("apiserver_rerouted_request_total") && line.contains("group=\"\"")
    });
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as usize
}

/// Waits until the older server, by its own proxy, and both gateways answer 200.
pub(super) async fn all_serve(ways: [&Apiserver; 3], target: &str) {
    for way in ways {
        until(&format!("{} serves {target}", way.name()), || async {
            let answer = way
                .client("admin")
                .send(&Outgoing::new("GET", target))
                .await;
            answer.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
    }
}
