//! What clients of a gateway see while the servers behind it share a host name, get certificates of other authorities,
//! go and come back, at the same address or at another.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::leases::{LEASES, let_gateways_read};
use peerage_testkit::kube::{Apiserver, ApiserverSpec, Backend, ControlPlane, RunningGateway};
use peerage_testkit::wire::{AGGREGATED, Answer, Incoming, Outgoing};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{gateway, serving, until_serving};
use crate::versions::{self, NEWER_ONLY};

const EVERYWHERE: &str = "/api/v1/namespaces/default";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A client that asks for the same again and again, and what it got that it should not have got.
struct Steady {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    client: JoinHandle<Vec<String>>,
}

impl Steady {
    fn asks(gateway: &RunningGateway, target: &'static str, fits: fn(&Answer) -> bool) -> Self {
        let (over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (client, until, count) = (gateway.client("admin"), over.clone(), answered.clone());
        let client = tokio::spawn(async move {
            let mut wrong = Vec::new();
            while !until.load(Ordering::Relaxed) {
                match client.send(&Outgoing::new("GET", target)).await {
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

    async fn got_all(self, what: &str) {
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

fn is_ok(answer: &Answer) -> bool {
    answer.status() == 200
}

/// Served, or to be asked for again; never "there is no such thing".
fn is_ok_or_later(answer: &Answer) -> bool {
    is_ok(answer) || (answer.status() == 503 && answer.head.header("retry-after").is_some())
}

async fn get(gateway: &RunningGateway, target: &str) -> Answer {
    let request = Outgoing::new("GET", target);
    gateway.client("admin").send(&request).await.unwrap()
}

async fn finds(gateway: &RunningGateway, kind: &str) -> Option<Value> {
    let state = gateway.own_state().await;
    let findings = state["findings"].as_array().unwrap().iter();
    findings.clone().find(|it| it["kind"] == kind).cloned()
}

/// They have one Lease and one endpoint key, in which each writes its own address over the other's.
#[tokio::test]
async fn two_real_servers_of_one_host_name_are_named_and_both_used() {
    let older = versions::kube_apiserver(&versions::older()).named("older");
    let twin = || {
        versions::kube_apiserver(&versions::newer())
            .named("twin")
            .own_proxy()
    };
    let plane = ControlPlane::on(Backend::Etcd("3.6"));
    let plane = plane.server(older.own_proxy()).start().await;
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

/// Watches of so many users that each server has some.
async fn watches(gateway: &RunningGateway, users: &[String]) -> Vec<Watching> {
    let mut all = Vec::new();
    for user in users {
        all.push(Watching::start(gateway, user).await);
    }
    all
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

/// Restarts a server with what `change` writes; only the watches on it end.
async fn renew(
    gateway: &RunningGateway,
    users: &[String],
    server: &Apiserver,
    name: &str,
    change: impl FnOnce(),
) {
    let mut open = watches(gateway, users).await;
    let address = server.address().to_string();
    let elsewhere = open.iter().filter(|it| it.on != address).count();
    assert!(elsewhere > 0 && elsewhere < open.len(), "{elsewhere}");
    change();
    server.stop().await;
    server.restart().await;
    gateway.uses(server).await;
    make(gateway, name).await;
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
    let users: Vec<String> = (0..12).map(|number| format!("operator-{number}")).collect();
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
    let gateway = gateway(&plane, &[&a, &b], &flags).await;
    until_serving(&gateway, &[&a, &b]).await;
    until_leases_are_read(&gateway).await;
    let process = gateway.id();
    let steady = Steady::asks(&gateway, EVERYWHERE, is_ok);
    let mut kept = watches(&gateway, &users).await;

    // Both authorities are believed, by the gateway and then by each server, before anybody shows a new certificate.
    let before = reloads(&gateway).await;
    files.write(&plane, "peers.crt", &["old-ca.crt", "new-ca.crt"]);
    until("the gateway believes both", || async {
        reloads(&gateway).await > before
    })
    .await;
    make(&gateway, "bundle").await;
    for watching in &mut kept {
        watching.sees("bundle").await;
    }
    drop(kept);
    for (server, name) in [(&a, "a"), (&b, "b")] {
        let made = format!("{name}-with-new-certificates");
        renew(&gateway, &users, server, &made, || {
            let proxies = ["front-proxy-ca.crt", "new-front-proxy-ca.crt"];
            files.write(&plane, &format!("{name}-proxies.crt"), &proxies);
            files.write(&plane, &format!("{name}.crt"), &["new-server.crt"]);
            files.write(&plane, &format!("{name}.key"), &["new-server.key"]);
        })
        .await;
    }

    // The gateway shows its new certificate and believes the new authority alone; nothing that is open notices.
    let mut kept = watches(&gateway, &users).await;
    let before = reloads(&gateway).await;
    files.write(&plane, "client.crt", &["new-front-proxy-client.crt"]);
    files.write(&plane, "client.key", &["new-front-proxy-client.key"]);
    files.write(&plane, "peers.crt", &["new-ca.crt"]);
    until("the gateway has read both", || async {
        reloads(&gateway).await >= before + 2
    })
    .await;
    make(&gateway, "new-alone").await;
    for watching in &mut kept {
        watching.sees("new-alone").await;
    }
    drop(kept);
    for (server, name) in [(&a, "a"), (&b, "b")] {
        let made = format!("{name}-believes-the-new-alone");
        renew(&gateway, &users, server, &made, || {
            let proxies = ["new-front-proxy-ca.crt"];
            files.write(&plane, &format!("{name}-proxies.crt"), &proxies);
        })
        .await;
    }
    // Both servers were started again since the gateway has other certificates, so this is a connection with those.
    until_leases_are_read(&gateway).await;
    steady.got_all("two authorities rotated").await;
    assert_eq!(gateway.id(), process);
    assert_knows(&gateway, "alice").await;
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

#[tokio::test]
async fn a_server_known_by_its_lease_goes_and_comes_back_where_it_was_and_elsewhere() {
    let older = versions::kube_apiserver(&versions::older()).named("older");
    let newer = || {
        versions::kube_apiserver(&versions::newer())
            .named("newer")
            .own_proxy()
    };
    let plane = ControlPlane::on(Backend::Etcd("3.6"));
    let plane = plane.server(older.own_proxy()).start().await;
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
