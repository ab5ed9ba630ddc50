//! Clients that their users would write, through a gateway, while the servers behind it are upgraded one after the other
//! and then rolled back.
//!
//! A writer creates, changes and deletes ConfigMaps all the time. What has to hold: each client shows each state of each
//! object once and in order, none complains, and no write or Helm command fails.

use std::collections::BTreeMap;
use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{
    Apiserver, ApiserverSpec, Backend, ControlPlane, Follower, Gateway, LIBRARIES, RunningGateway,
    clients,
};
use peerage_testkit::kubectl::kubeconfig;
use peerage_testkit::wire::{Client, Outgoing};
use serde_json::json;
use tokio::process::Command;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::ours::start;
use crate::versions;

/// Where everything happens.
const NAMESPACE: &str = "clients";
/// How many objects there are at a time.
const SLOTS: u64 = 10;
/// How many writes an object's life has: it is created, changed and deleted.
const LIFE: u64 = 5;
/// One write.
const PACE: Duration = Duration::from_millis(25);
/// How long clients may take to show the last write.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two servers on one etcd and what is in front of them. The servers are replaced as versions change.
struct World {
    gateway: RunningGateway,
    servers: Vec<Apiserver>,
    plane: ControlPlane,
}

/// A server that ends watches when it is told to stop. By default it goes on with them until they end or a minute is over,
/// which is what it does here too when `PEERAGE_INTEROP_PATIENT` is set.
fn spec(version: &str, name: &str) -> ApiserverSpec {
    let server = versions::without_own_proxy(version, name);
    match std::env::var_os("PEERAGE_INTEROP_PATIENT") {
        Some(_) => server,
        None => server.flags(&["--shutdown-watch-termination-grace-period=1s"]),
    }
}

impl World {
    async fn start(front: fn(&[Apiserver]) -> peerage_testkit::kube::GatewaySpec) -> World {
        let plane = ControlPlane::on(Backend::Etcd("3.6")).start().await;
        let version = versions::older();
        let mut servers = Vec::new();
        for name in ["first", "second"] {
            servers.push(plane.start(spec(&version, name)).await);
        }
        let gateway = front(&servers);
        let gateway = start(&plane, gateway).await;
        World {
            gateway,
            servers,
            plane,
        }
    }

    /// Stops a server as a service manager does and starts another version in its place.
    async fn replace(&mut self, index: usize, version: &str) {
        let old = &self.servers[index];
        let begun = Instant::now();
        let status = old.stop().await;
        assert!(status.success(), "{}: {status}\n{}", old.name(), old.log());
        let stopped = begun.elapsed();
        let name = ["first", "second"][index];
        let spec = spec(version, name).at(old.address());
        self.servers[index] = self.plane.start(spec).await;
        self.gateway.uses(&self.servers[index]).await;
        let all = begun.elapsed();
        eprintln!("{name} is {version}: stopped after {stopped:.1?}, in use after {all:.1?}");
    }

    async fn follow(&self) -> Vec<Follower> {
        let (url, pki, directory) = (self.gateway.url(), self.plane.pki(), self.plane.directory());
        let following = LIBRARIES.map(|library| library.follow(&url, NAMESPACE, pki, directory));
        futures::future::join_all(following).await
    }
}

/// What was written.
#[derive(Default)]
struct Written {
    /// The sequence numbers of each object's states.
    objects: BTreeMap<String, Life>,
    failures: Vec<String>,
    /// What stopping servers said to writes that they did not begin.
    declined: Vec<String>,
}

#[derive(Default)]
struct Life {
    states: Vec<u64>,
    deleted: bool,
}

/// Writes until it is told to stop, one write after the other. A write that a stopping server declines is repeated when
/// that server says, as client-go does it.
async fn write(client: Client, stop: CancellationToken) -> Written {
    let mut written = Written::default();
    let mut pace = interval(PACE);
    for sequence in 0.. {
        if stop.is_cancelled() {
            break;
        }
        pace.tick().await;
        let (round, slot) = (sequence / SLOTS, sequence % SLOTS);
        let name = format!("item-{slot}-{}", round / LIFE);
        let step = round % LIFE;
        let request = write_request(&name, step, sequence);
        let mut answer = client.send(&request).await;
        while let Ok(declined) = &answer
            && declined.status() == 503
            && let Some(seconds) = declined.head.header("Retry-After")
        {
            written.declined.push(declined.in_words());
            sleep(Duration::from_secs(seconds.parse().unwrap())).await;
            answer = client.send(&request).await;
        }
        match answer {
            Ok(answer) if matches!(answer.status(), 200 | 201) => {}
            Ok(answer) => written.failures.push(answer.in_words()),
            Err(error) => written.failures.push(error.to_string()),
        }
        let life = written.objects.entry(name).or_default();
        match step == LIFE - 1 {
            true => life.deleted = true,
            false => life.states.push(sequence),
        }
    }
    written
}

fn write_request(name: &str, step: u64, sequence: u64) -> Outgoing {
    let all = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let one = format!("{all}/{name}");
    let data = json!({"sequence": sequence.to_string()});
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    match step {
        0 => Outgoing::new("POST", &all).json("application/json", &object),
        step if step == LIFE - 1 => Outgoing::new("DELETE", &one),
        step if step % 2 == 0 => Outgoing::new("PUT", &one).json("application/json", &object),
        _ => Outgoing::new("PATCH", &one)
            .json("application/merge-patch+json", &json!({"data": data})),
    }
}

/// Installs, upgrades and uninstalls a chart again and again; what went wrong, and how often nothing did.
async fn helm(
    kubeconfig: String,
    home: std::path::PathBuf,
    stop: CancellationToken,
) -> (Vec<String>, usize) {
    let executable = clients::helm().await;
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/clients/helm");
    let (mut failures, mut rounds) = (Vec::new(), 0);
    while !stop.is_cancelled() {
        let release = format!("web-{rounds}");
        let commands: [&[&str]; 4] = [
            &["install", &release, chart],
            &["upgrade", &release, chart, "--set", "color=green"],
            &[
                "upgrade",
                "--install",
                &release,
                chart,
                "--set",
                "color=red",
            ],
            &["uninstall", &release],
        ];
        for words in commands {
            let mut command = Command::new(&executable);
            command.args(words).args(["--namespace", NAMESPACE]);
            command.env_clear().env("HOME", &home);
            command.env("KUBECONFIG", &kubeconfig);
            let output = command.output().await.unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if !output.status.success() || !said.is_empty() {
                failures.push(format!(
                    "helm {}: {}\n{said}",
                    words.join(" "),
                    output.status
                ));
            }
        }
        rounds += 1;
    }
    (failures, rounds)
}

/// What a client that sees each state has not shown as it was.
fn missed(follower: &Follower, written: &Written) -> Vec<String> {
    let mut shown = follower.by_object();
    let mut missed = Vec::new();
    for (name, life) in &written.objects {
        let events = shown.remove(name).unwrap_or_default();
        let deleted = events.last().is_some_and(|event| event.kind == "DELETED");
        let states = events.iter().filter(|event| event.kind != "DELETED");
        let mut states: Vec<u64> = states.map(|event| event.sequence).collect();
        states.dedup();
        let complete = match follower.library.sees_each_state {
            true => states == life.states && deleted == life.deleted,
            // A reconciler sees what is there when it looks.
            false => life.deleted || states.last() == life.states.last(),
        };
        if !complete {
            let Life {
                states: all,
                deleted: gone,
            } = life;
            missed.push(format!(
                "{name}: {all:?}, deleted: {gone}, but it shows {events:?}"
            ));
        }
    }
    missed
}

/// What is wrong with a client after the last write.
async fn judge(follower: &Follower, written: &Written) -> Vec<String> {
    let begun = Instant::now();
    let mut wrong = missed(follower, written);
    while !wrong.is_empty() && begun.elapsed() < PATIENCE && follower.ended().is_none() {
        sleep(Duration::from_millis(200)).await;
        wrong = missed(follower, written);
    }
    wrong.extend(follower.complaints());
    let status = match follower.ended() {
        Some(status) => status,
        None => follower.stop().await,
    };
    if !status.success() {
        wrong.push(format!("{status}\n{}", follower.log()));
    }
    let name = follower.name();
    wrong
        .iter()
        .map(|text| format!("{name}: {text:.600}"))
        .collect()
}

async fn an_upgrade_and_a_rollback(mut world: World) {
    let admin = world.gateway.client("admin");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let create = Outgoing::new("POST", "/api/v1/namespaces").json("application/json", &object);
    let created = admin.send(&create).await.unwrap();
    assert_eq!(created.status(), 201, "{}", created.in_words());
    let followers = world.follow().await;

    let stop = CancellationToken::new();
    let writing = tokio::spawn(write(admin, stop.clone()));
    let directory = world.plane.directory();
    let config = directory.join("helm.kubeconfig");
    std::fs::write(
        &config,
        kubeconfig(&world.gateway.url(), world.plane.pki(), "admin"),
    )
    .unwrap();
    let releasing = helm(
        config.display().to_string(),
        directory.to_owned(),
        stop.clone(),
    );
    let releasing = tokio::spawn(releasing);
    for follower in &followers {
        // client-go distrusts a watch that ends before it has shown anything, and lists anew.
        until("the first events are there", || async {
            follower.events().len() > SLOTS as usize
        })
        .await;
    }
    for version in [versions::newer(), versions::older()] {
        for index in 0..world.servers.len() {
            world.replace(index, &version).await;
        }
    }
    stop.cancel();

    let written = writing.await.unwrap();
    let (mut wrong, releases) = releasing.await.unwrap();
    wrong.extend(
        written
            .failures
            .iter()
            .map(|text| format!("writer: {text}")),
    );
    let judging = followers.iter().map(|follower| judge(follower, &written));
    wrong.extend(futures::future::join_all(judging).await.concat());
    let (objects, declined) = (written.objects.len(), &written.declined);
    eprintln!("{objects} objects, {releases} releases, declined: {declined:?}");
    // A stopping server declines for some hundredths of a second, and never the same write twice.
    assert!(declined.len() <= 4, "{declined:?}");
    assert!(objects > 20 && releases > 1, "too few to mean anything");
    let shown = wrong.len().min(40);
    assert!(
        wrong.is_empty(),
        "{}\n{}",
        wrong[..shown].join("\n"),
        world.gateway.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_balancer_notice_nothing_of_a_rolling_upgrade_and_rollback() {
    let world = World::start(|servers| {
        let servers: Vec<&Apiserver> = servers.iter().collect();
        Gateway::balancing(&servers)
    });
    an_upgrade_and_a_rollback(world.await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_sidecar_notice_nothing_when_its_own_server_is_upgraded_and_rolled_back() {
    let world = World::start(|servers| Gateway::beside(&servers[0]).peer(&servers[1]));
    an_upgrade_and_a_rollback(world.await).await;
}
