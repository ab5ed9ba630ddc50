//! How a gateway finds real servers, and what happens to clients when it finds others. What happens while those servers
//! change is in the modules below.

use std::path::PathBuf;
use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::leases::{LEASES, lease, let_gateways_read};
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, Gateway, RunningGateway, Shared};
use peerage_testkit::wire::Outgoing;
use serde_json::{Value, json};

use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

mod changes;
mod handed;
mod named;
mod rotated;
mod starting;

/// Two real servers of different versions that write down where they are.
async fn pair() -> ControlPlane {
    let older = versions::kube_apiserver(&versions::older()).named("older");
    let newer = versions::kube_apiserver(&versions::newer()).named("newer");
    ControlPlane::on(Backend::Etcd("3.6"))
        .server(older.own_proxy())
        .server(newer.own_proxy())
        .start()
        .await
}

static PLANE: Shared = Shared::new(|| Box::pin(pair()));

async fn gateway(plane: &ControlPlane, servers: &[&Apiserver], flags: &[&str]) -> RunningGateway {
    let spec = Gateway::balancing(servers).flags(flags);
    start(plane, spec).await
}

/// Where the servers are that answer.
async fn serving(gateway: &RunningGateway) -> Vec<String> {
    let state = gateway.own_state().await;
    let peers = state["peers"].as_array().unwrap().iter();
    let mut serving: Vec<_> = peers
        .filter(|peer| peer["state"] == "serving")
        .filter_map(|peer| Some(peer["address"].as_str()?.to_owned()))
        .collect();
    serving.sort();
    serving
}

pub(crate) async fn until_serving(gateway: &RunningGateway, servers: &[&Apiserver]) {
    let mut expected: Vec<_> = servers.iter().map(|it| it.address().to_string()).collect();
    expected.sort();
    until(
        &format!("{expected:?} serve behind the gateway"),
        || async { serving(gateway).await == expected },
    )
    .await;
}

async fn source(gateway: &RunningGateway, name: &str) -> Value {
    let state = gateway.own_state().await;
    let sources = state["sources"].as_array().unwrap().iter();
    let mut found = sources.filter(|it| it["name"] == name);
    found.next().unwrap_or_else(|| panic!("{state:#}")).clone()
}

#[tokio::test]
async fn servers_are_found_by_their_leases_once_the_gateway_may_read_them() {
    let plane = PLANE.get().await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let gateway = gateway(&plane, &[older], &["--peers-from-leases"]).await;
    // Without the right to read them it says so, and how to give it, and works with what it was told.
    let refused = source(&gateway, "leases").await;
    let error = refused["error"].as_str().unwrap_or_default();
    assert!(error.contains("create rolebinding"), "{refused:#}");
    assert_eq!(serving(&gateway).await, [older.address().to_string()]);

    let_gateways_read(older).await;
    until_serving(&gateway, &[older, newer]).await;
    let read = source(&gateway, "leases").await;
    assert_eq!(
        (&read["servers"], &read["error"]),
        (&json!(2), &Value::Null)
    );
    let admin = gateway.client("admin");
    let answer = admin.send(&Outgoing::new("GET", NEWER_ONLY)).await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.in_words());

    // Forged, stray and broken Leases cost nothing. The first one leads to the gateway itself.
    let own = gateway.address().to_string();
    older
        .create(LEASES, &lease("apiserver-virtual", Some(&own)))
        .await;
    older
        .create(LEASES, &lease("apiserver-broken", Some("not an address")))
        .await;
    let elsewhere = LEASES.replace("kube-system", "default");
    older
        .create(&elsewhere, &lease("apiserver-stray", Some("127.0.0.1:1")))
        .await;
    until("the address of the gateway itself is set aside", || async {
        gateway.own_state().await["aside"]
            .as_array()
            .is_some_and(|aside| aside.iter().any(|it| it["kind"] == "oneself"))
    })
    .await;
    until("the broken one is counted", || async {
        source(&gateway, "leases").await["skipped"] == 1
    })
    .await;
    let state = gateway.own_state().await;
    assert!(!state.to_string().contains("apiserver-stray"), "{state:#}");
    until_serving(&gateway, &[older, newer]).await;
    for _ in 0..20 {
        let answer = admin.send(&Outgoing::new("GET", NEWER_ONLY)).await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.in_words());
    }
    let unknown = Outgoing::new("GET", "/apis/nowhere.example.com/v1/things");
    let answer = admin.send(&unknown).await.unwrap();
    assert_eq!(answer.status(), 404, "{}", answer.in_words());
}

#[tokio::test]
async fn servers_are_found_by_their_keys_in_etcd_and_missed_when_those_run_out() {
    // A plane of its own: the Lease of a server that was killed stays for an hour.
    let plane = pair().await;
    let etcd = format!("--etcd-servers={}", plane.etcd().url());
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let gateway = gateway(&plane, &[], &[&etcd]).await;
    until_serving(&gateway, &[older, newer]).await;
    let third = versions::kube_apiserver(&versions::newer()).named("third");
    let third = plane.start(third.own_proxy()).await;
    until_serving(&gateway, &[older, newer, &third]).await;
    third.kill();
    until_serving(&gateway, &[older, newer]).await;
    let answer = gateway
        .client("admin")
        .send(&Outgoing::new("GET", NEWER_ONLY))
        .await;
    assert_eq!(answer.unwrap().status(), 200);
}

/// The servers here share one certificate, so it does not tell them apart; their session tickets do.
#[tokio::test]
async fn one_real_server_at_two_addresses_is_one_and_two_that_share_a_certificate_are_two() {
    let plane = PLANE.get().await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let again = format!("--peer=https://localhost:{}", newer.address().port());
    let gateway = gateway(&plane, &[older, newer], &[&again]).await;
    until("the second address is set aside", || async {
        let state = gateway.own_state().await;
        let aside = state["aside"].as_array().unwrap().iter();
        aside.map(|it| &it["kind"]).eq([&json!("same_server")])
    })
    .await;
    until_serving(&gateway, &[older, newer]).await;
    let state = gateway.own_state().await;
    let certificates = state["peers"].as_array().unwrap().iter();
    let mut certificates: Vec<_> = certificates
        .map(|it| it["certificate"].to_string())
        .collect();
    certificates.dedup();
    assert_eq!(certificates.len(), 1, "{state:#}");
}

/// Copies of the gateway's certificate files, to be written anew while it runs.
struct Files(PathBuf);

impl Files {
    const ALL: [(&str, &str); 4] = [
        ("tls-cert-file", "server.crt"),
        ("tls-private-key-file", "server.key"),
        ("proxy-client-cert-file", "front-proxy-client.crt"),
        ("proxy-client-key-file", "front-proxy-client.key"),
    ];

    fn write(&self, plane: &ControlPlane, again: bool) -> Vec<String> {
        let flag = |(flag, name): &(&str, &str)| {
            let mut text = std::fs::read_to_string(plane.pki().file(name)).unwrap();
            if again {
                // The same certificate, in a file that is another one.
                text.push('\n');
            }
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            format!("--{flag}={}", path.display())
        };
        Self::ALL.iter().map(flag).collect()
    }
}

#[tokio::test]
async fn a_watch_outlives_a_change_of_servers_and_of_certificates() {
    let plane = PLANE.get().await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let directory = plane.directory().join("changing");
    std::fs::create_dir_all(&directory).unwrap();
    let list = directory.join("peers.yaml");
    let write = |server: &Apiserver| {
        let new = list.with_extension("new");
        std::fs::write(&new, format!("- url: {}\n", server.url())).unwrap();
        std::fs::rename(new, &list).unwrap();
    };
    write(older);
    let files = Files(directory);
    let mut flags = files.write(&plane, false);
    flags.push(format!("--peers-file={}", list.display()));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let gateway = gateway(&plane, &[], &flags).await;

    let maps = "/api/v1/namespaces/default/configmaps";
    let watch = Outgoing::new("GET", &format!("{maps}?watch=true"));
    let (head, body) = gateway.client("admin").open(&watch).await.unwrap();
    assert_eq!(head.status, 200);
    let mut lines = body.lines();
    write(newer);
    until_serving(&gateway, &[newer]).await;
    files.write(&plane, true);
    until("the gateway has read its certificates again", || async {
        let text = gateway.own_metrics().await;
        let changed = |line: &str| {
            line.contains("reload") && line.contains("success") && !line.ends_with(" 0")
        };
        text.lines().filter(|line| changed(line)).count() >= 2
    })
    .await;

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    gateway.server.create(maps, &map).await;
    let seen = async {
        while let Some(line) = lines.recv().await {
            let event: Value = serde_json::from_slice(&line.unwrap()).unwrap();
            if event["object"]["metadata"]["name"] == "late" {
                return true;
            }
        }
        false
    };
    let seen = tokio::time::timeout(Duration::from_secs(30), seen).await;
    assert!(seen.unwrap(), "the watch ended");
}
