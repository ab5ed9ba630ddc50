//! What clients of gateways see while servers and gateways get certificates of other authorities, beside a server and
//! before all of them.

use std::path::PathBuf;
use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::leases::let_gateways_read;
use peerage_testkit::kube::{
    Apiserver, ApiserverSpec, Backend, ControlPlane, Gateway, RunningGateway,
};
use peerage_testkit::wire::{Incoming, Outgoing};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::changes::{EVERYWHERE, Steady, is_ok};
use super::until_serving;
use crate::ours::start;
use crate::versions;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Files that servers and a gateway read, which a rotation writes anew.
struct Rotated(PathBuf);

impl Rotated {
    fn new(plane: &ControlPlane) -> Self {
        let directory = plane.directory().join("rotated");
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    /// A file with the contents of these, one after the other, put in place at once.
    fn write(&self, plane: &ControlPlane, name: &str, of: &[&str]) {
        let read = |file: &&str| std::fs::read_to_string(plane.pki().file(file)).unwrap();
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}.new")));
        std::fs::write(&new, of.iter().map(read).collect::<String>()).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    fn flag(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.0.join(name).display())
    }

    /// A server's own files, of which only the last flag of a name counts.
    fn server(&self, plane: &ControlPlane, name: &str) -> ApiserverSpec {
        self.write(plane, &format!("{name}.crt"), &["server.crt"]);
        self.write(plane, &format!("{name}.key"), &["server.key"]);
        self.write(
            plane,
            &format!("{name}-proxies.crt"),
            &["front-proxy-ca.crt"],
        );
        let flags = [
            self.flag("tls-cert-file", &format!("{name}.crt")),
            self.flag("tls-private-key-file", &format!("{name}.key")),
            self.flag(
                "requestheader-client-ca-file",
                &format!("{name}-proxies.crt"),
            ),
            // Without it a server that stops waits a minute for its watches.
            "--shutdown-watch-termination-grace-period=1s".to_owned(),
        ];
        let spec = versions::kube_apiserver(&versions::newer()).named(name);
        spec.flags(&flags.each_ref().map(String::as_str))
    }

    /// The gateway's.
    fn gateway(&self, plane: &ControlPlane) -> [String; 3] {
        self.write(plane, "peers.crt", &["old-ca.crt"]);
        self.write(plane, "client.crt", &["front-proxy-client.crt"]);
        self.write(plane, "client.key", &["front-proxy-client.key"]);
        [
            self.flag("peer-ca-file", "peers.crt"),
            self.flag("proxy-client-cert-file", "client.crt"),
            self.flag("proxy-client-key-file", "client.key"),
        ]
    }
}

/// A gateway, and the server that it is beside.
type Way<'a> = (&'a RunningGateway, Option<&'a Apiserver>);

/// A watch, and the server that it is on.
struct Watching {
    on: String,
    lines: mpsc::Receiver<Result<Vec<u8>, peerage_testkit::wire::WireError>>,
}

impl Watching {
    async fn start(gateway: &RunningGateway, user: &str) -> Self {
        let watch = Outgoing::new("GET", &format!("{MAPS}?watch=true"));
        let (head, body): (_, Incoming) = gateway.client(user).open(&watch).await.unwrap();
        assert_eq!(head.status, 200);
        Self {
            on: head.header("x-peerage-peer").unwrap().to_owned(),
            lines: body.lines(),
        }
    }

    async fn sees(&mut self, name: &str) {
        let seen = async {
            while let Some(line) = self.lines.recv().await {
                let event: Value = serde_json::from_slice(&line.unwrap()).unwrap();
                if event["object"]["metadata"]["name"] == name {
                    return true;
                }
            }
            false
        };
        let seen = timeout(Duration::from_secs(20), seen).await;
        assert!(
            seen.unwrap(),
            "the watch on {} ended before {name}",
            self.on
        );
    }
}

/// Watches of so many users that each server has some; through a sidecar they are all on the server beside it.
async fn watches(ways: &[Way<'_>], users: &[String]) -> Vec<Watching> {
    let mut all = Vec::new();
    for (gateway, beside) in ways {
        let own = beside.map(|server| server.address().to_string());
        for user in users {
            let watching = Watching::start(gateway, user).await;
            assert!(
                own.as_ref().is_none_or(|own| *own == watching.on),
                "{}",
                watching.on
            );
            all.push(watching);
        }
    }
    all
}

async fn all_see(open: &mut [Watching], name: &str) {
    for watching in open {
        watching.sees(name).await;
    }
}

async fn make(gateway: &RunningGateway, name: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    gateway.create(MAPS, &map).await;
}

/// How often certificate files were read anew.
async fn reloads(gateway: &RunningGateway) -> u64 {
    let text = gateway.own_metrics().await;
    let lines = text.lines().filter(|line| {
        line.starts_with("peerage_reloads_total") && line.contains("result=\"success\"")
    });
    let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    lines.map(count).sum()
}

/// Waits until each gateway has read so many files anew since `files` began to write them.
async fn read_by_all(ways: &[Way<'_>], count: u64, files: impl FnOnce()) {
    let mut before = Vec::new();
    for (gateway, _) in ways {
        before.push(reloads(gateway).await);
    }
    files();
    for ((gateway, _), before) in ways.iter().zip(before) {
        let what = format!("{} has read {count} files", gateway.name());
        until(&what, || async { reloads(gateway).await >= before + count }).await;
    }
}

/// Restarts a server with what `change` writes; only the watches on it end.
async fn renew(
    ways: &[Way<'_>],
    users: &[String],
    server: &Apiserver,
    name: &str,
    change: impl FnOnce(),
) {
    let mut open = watches(ways, users).await;
    let address = server.address().to_string();
    let elsewhere = open.iter().filter(|it| it.on != address).count();
    assert!(elsewhere > 0 && elsewhere < open.len(), "{elsewhere}");
    change();
    server.stop().await;
    server.restart().await;
    for (gateway, _) in ways {
        gateway.uses(server).await;
    }
    make(ways[0].0, name).await;
    for watching in open.iter_mut().filter(|it| it.on != address) {
        watching.sees(name).await;
    }
}

#[tokio::test]
async fn authorities_are_rotated_without_a_restart_of_the_gateway_or_a_lost_stream() {
    let plane = ControlPlane::on(Backend::Etcd("3.6")).start().await;
    let files = Rotated::new(&plane);
    let pki = plane.pki();
    pki.renew("new-");
    // The clients of this test trust both authorities from the start.
    std::fs::copy(pki.file("ca.crt"), pki.file("old-ca.crt")).unwrap();
    let both =
        ["old-ca.crt", "new-ca.crt"].map(|it| std::fs::read_to_string(pki.file(it)).unwrap());
    std::fs::write(pki.file("ca.crt"), both.concat()).unwrap();
    let users: Vec<String> = (0..24).map(|number| format!("operator-{number}")).collect();
    for user in &users {
        pki.client(user, user, &["system:masters"]);
    }
    let (a, b) = tokio::join!(
        plane.start(files.server(&plane, "a")),
        plane.start(files.server(&plane, "b"))
    );
    let_gateways_read(&a).await;
    let flags = files.gateway(&plane);
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.push("--peers-from-leases");
    let beside = Gateway::beside(&a).peer(&b).flags(&flags);
    let balancing = Gateway::balancing(&[&a, &b]).flags(&flags);
    let (balancer, sidecar) = tokio::join!(start(&plane, balancing), start(&plane, beside));
    let ways = [(&balancer, None), (&sidecar, Some(&a))];
    for (gateway, _) in ways {
        until_serving(gateway, &[&a, &b]).await;
        until_leases_are_read(gateway).await;
    }
    let processes = ways.map(|(gateway, _)| gateway.id());
    let steady = ways.map(|(gateway, _)| Steady::asks(gateway, EVERYWHERE, is_ok));
    let mut kept = watches(&ways, &users).await;

    // Both authorities are believed, by the gateways and then by each server, before anybody shows a new certificate.
    let believing_both = || files.write(&plane, "peers.crt", &["old-ca.crt", "new-ca.crt"]);
    read_by_all(&ways, 1, believing_both).await;
    make(&balancer, "bundle").await;
    all_see(&mut kept, "bundle").await;
    drop(kept);
    for (server, name) in [(&a, "a"), (&b, "b")] {
        let made = format!("{name}-with-new-certificates");
        renew(&ways, &users, server, &made, || {
            let proxies = ["front-proxy-ca.crt", "new-front-proxy-ca.crt"];
            files.write(&plane, &format!("{name}-proxies.crt"), &proxies);
            files.write(&plane, &format!("{name}.crt"), &["new-server.crt"]);
            files.write(&plane, &format!("{name}.key"), &["new-server.key"]);
        })
        .await;
    }

    // The gateways show their new certificate and believe the new authority alone; nothing that is open notices.
    let mut kept = watches(&ways, &users).await;
    let new_alone = || {
        files.write(&plane, "client.crt", &["new-front-proxy-client.crt"]);
        files.write(&plane, "client.key", &["new-front-proxy-client.key"]);
        files.write(&plane, "peers.crt", &["new-ca.crt"]);
    };
    read_by_all(&ways, 2, new_alone).await;
    make(&balancer, "new-alone").await;
    all_see(&mut kept, "new-alone").await;
    drop(kept);
    for (server, name) in [(&a, "a"), (&b, "b")] {
        let made = format!("{name}-believes-the-new-alone");
        renew(&ways, &users, server, &made, || {
            let proxies = ["new-front-proxy-ca.crt"];
            files.write(&plane, &format!("{name}-proxies.crt"), &proxies);
        })
        .await;
    }
    // Both servers were started again since the gateways have other certificates, so these are connections with those.
    for (gateway, _) in ways {
        until_leases_are_read(gateway).await;
    }
    for (steady, name) in steady.into_iter().zip(["balancer", "sidecar"]) {
        steady
            .got_all(&format!("{name}: two authorities rotated"))
            .await;
    }
    assert_eq!(ways.map(|(gateway, _)| gateway.id()), processes);
    for (gateway, _) in ways {
        assert_knows(gateway, "alice").await;
    }
}

async fn until_leases_are_read(gateway: &RunningGateway) {
    until("the Leases are read", || async {
        let state = gateway.own_state().await;
        let sources = state["sources"].as_array().unwrap();
        let leases = sources.iter().find(|it| it["name"] == "leases").unwrap();
        leases["error"].is_null() && leases["ageSeconds"].as_f64().is_some_and(|it| it < 3.0)
    })
    .await;
}

/// The servers still take a client for whom it is.
async fn assert_knows(gateway: &RunningGateway, user: &str) {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = Outgoing::new("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let request = request.json("application/json", &review);
    let answer = gateway.client(user).send(&request).await.unwrap();
    let who = &answer.json()["status"]["userInfo"]["username"];
    assert_eq!(who, user, "{}", answer.in_words());
}
