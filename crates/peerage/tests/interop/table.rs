//! What Peerage does better, row by row, measured: the same request at the same time through the older server's own
//! proxy, through a gateway beside that server and through a balancer over all.
//!
//! Peerage's columns are asserted. Kubernetes' column is written down as it was seen, so that the tables in the docs are
//! what was measured: `target/interop/table-OLDER-NEWER.json`. Rows are numbered as in the README. The rows run one after
//! the other on one control plane, because most of them stop or pause servers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, Gateway, Logs, RunningGateway};
use peerage_testkit::wire::{Answer, Outgoing};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::versions;

/// What only the newer servers have.
const NEWER_ONLY: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
/// An aggregated discovery document.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The servers and what stands in front of them.
struct World {
    sidecar: RunningGateway,
    balancer: RunningGateway,
    plane: ControlPlane,
}

/// One row, as it was seen.
#[derive(Serialize)]
struct Row {
    row: u32,
    what: &'static str,
    kubernetes: String,
    sidecar: String,
    balancer: String,
}

impl World {
    async fn start() -> World {
        let spec = |version: String, name: &str| {
            versions::kube_apiserver(&version).named(name).own_proxy()
        };
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(spec(versions::older(), "older"))
            .server(spec(versions::newer(), "newer-a"))
            .server(spec(versions::newer(), "newer-b"))
            .start()
            .await;
        let executable = Path::new(env!("CARGO_BIN_EXE_peerage"));
        let [older, a, b] = ["older", "newer-a", "newer-b"].map(|name| plane.server(name));
        let sidecar = Gateway::beside(older).peer(a).peer(b);
        let balancer = Gateway::balancing(&[older, a, b]);
        let (sidecar, balancer) = tokio::join!(
            sidecar.start(executable, plane.pki(), plane.directory()),
            balancer.start(executable, plane.pki(), plane.directory()),
        );
        versions::acquaint(older).await;
        World {
            sidecar,
            balancer,
            plane,
        }
    }

    fn server(&self, name: &str) -> &Apiserver {
        self.plane.server(name)
    }

    /// What clients can be given: the older server with its own proxy, and the gateways.
    fn ways(&self) -> [&Apiserver; 3] {
        [self.server("older"), &self.sidecar, &self.balancer]
    }

    /// The same request through each, at the same time.
    async fn each(&self, request: &Outgoing) -> [Seen; 3] {
        let ask = |way: &Apiserver| {
            let client = way.client("admin");
            async move {
                let started = Instant::now();
                let answer = timeout(Duration::from_secs(70), client.send(request)).await;
                Seen {
                    took: started.elapsed(),
                    answer: answer.ok().and_then(Result::ok),
                }
            }
        };
        let [a, b, c] = self.ways().map(ask);
        let (a, b, c) = tokio::join!(a, b, c);
        [a, b, c]
    }

    /// A row in which the words of each answer say it all.
    async fn ask(&self, row: u32, what: &'static str, request: &Outgoing) -> Row {
        let [kubernetes, sidecar, balancer] = self.each(request).await.map(|seen| seen.words());
        Row {
            row,
            what,
            kubernetes,
            sidecar,
            balancer,
        }
    }

    /// How many of `count` requests through each are answered 200.
    async fn good_of(&self, count: usize, request: &Outgoing) -> [usize; 3] {
        let mut good = [0; 3];
        for _ in 0..count {
            for (good, seen) in good.iter_mut().zip(self.each(request).await) {
                *good += usize::from(seen.status() == Some(200));
            }
        }
        good
    }

    /// Waits until everybody knows that the newer servers are back.
    async fn recover(&self) {
        self.server("newer-a").ready().await;
        self.server("newer-b").ready().await;
        versions::acquaint(self.server("older")).await;
        for way in self.ways() {
            until("the newer servers' API is back", || async {
                let read = Outgoing::new("GET", NEWER_ONLY);
                let answer = way.client("admin").send(&read).await;
                answer.is_ok_and(|answer| answer.status() == 200)
            })
            .await;
        }
    }
}

impl Logs for World {
    fn logs(&self) -> String {
        self.plane.logs() + &self.sidecar.log() + &self.balancer.log()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

/// One answer, or that there was none.
struct Seen {
    took: Duration,
    answer: Option<Answer>,
}

impl Seen {
    fn status(&self) -> Option<u16> {
        self.answer.as_ref().map(Answer::status)
    }

    /// Status, form and what else says whether a client can live with it.
    fn words(&self) -> String {
        let Some(answer) = &self.answer else {
            return format!("no answer in {} s", self.took.as_secs());
        };
        let mut words = answer.status().to_string();
        if answer.status() >= 400 {
            let form = answer.head.header("content-type").unwrap_or("no type");
            let status = answer.json()["kind"] == "Status";
            words += if status { " Status" } else { ", " };
            if !status {
                words += form.split(';').next().unwrap_or_default();
            }
            match answer.head.header("retry-after") {
                Some(after) => words += &format!(", Retry-After: {after}"),
                None if answer.status() == 503 => words += ", no Retry-After",
                None => {}
            }
        }
        if self.took > Duration::from_secs(4) {
            words += &format!(" after {} s", self.took.as_secs());
        }
        words
    }
}

impl Row {
    fn both(&self) -> [&str; 2] {
        [&self.sidecar, &self.balancer]
    }

    fn expect(self, fits: impl Fn(&str) -> bool) -> Row {
        for words in self.both() {
            assert!(fits(words), "row {}, {}: {words}", self.row, self.what);
        }
        self
    }

    fn of(row: u32, what: &'static str, [kubernetes, sidecar, balancer]: [String; 3]) -> Row {
        Row {
            row,
            what,
            kubernetes,
            sidecar,
            balancer,
        }
    }
}

fn has(expected: &'static str) -> impl Fn(&str) -> bool {
    move |words| words.starts_with(expected)
}

fn refused_for_now(words: &str) -> bool {
    words.starts_with("503 Status, Retry-After: ")
}

#[tokio::test]
async fn every_row_is_better_than_kubernetes_own_proxy_beside_it() {
    let world = World::start().await;
    let mut rows = while_all_is_well(&world).await;
    rows.extend(while_servers_fail(&world).await);
    rows.extend(after_a_restart_of_the_older(&world).await);
    rows.sort_by_key(|row| row.row);
    write(&rows);
}

async fn while_all_is_well(world: &World) -> Vec<Row> {
    let mut rows = Vec::new();
    let newer = world.server("newer-a").client("admin");
    let node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": []}});
    let create =
        Outgoing::new("POST", "/apis/storage.k8s.io/v1/csinodes").json("application/json", &node);
    assert_eq!(newer.send(&create).await.unwrap().status(), 201);
    let status = Outgoing::new("GET", "/apis/storage.k8s.io/v1/csinodes/n/status");
    let row = world
        .ask(1, "GET a subresource that only the newer has", &status)
        .await;
    rows.push(row.expect(has("200")));

    let legacy = Outgoing::new("GET", "/apis/storagemigration.k8s.io/v1");
    let row = world
        .ask(2, "legacy discovery of a newer-only group-version", &legacy)
        .await;
    rows.push(row.expect(has("200")));
    let openapi = Outgoing::new("GET", "/openapi/v3/apis/storagemigration.k8s.io/v1");
    let row = world
        .ask(2, "OpenAPI of a newer-only group-version", &openapi)
        .await;
    rows.push(row.expect(has("200")));

    let watch = Outgoing::new("GET", &format!("{NEWER_ONLY}?watch=true&timeoutSeconds=2"))
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Origin", "https://localhost")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let row = world.ask(8, "a watch over WebSocket", &watch).await;
    rows.push(row.expect(has("101")));
    let h2c = Outgoing::new("GET", NEWER_ONLY)
        .header("Connection", "Upgrade, HTTP2-Settings")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQAAP__");
    let row = world.ask(8, "a GET that offers h2c", &h2c).await;
    rows.push(row.expect(has("200")));

    let guard = Outgoing::new("GET", NEWER_ONLY).header("X-Kubernetes-Peer-Proxied", "true");
    let row = world
        .ask(9, "a client sends the guard header", &guard)
        .await;
    rows.push(row.expect(has("200")));

    rows.push(targets(world).await);
    rows.push(headers_once(world).await);

    let big = json!({"apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"name": "Not A Name", "annotations": {"a": "x".repeat(200_000)}}, "spec": {"resource": {"resource": "secrets"}}});
    let expect = Outgoing::new("POST", NEWER_ONLY)
        .json("application/json", &big)
        .header("Expect", "100-continue");
    let row = world
        .ask(16, "an invalid create that waits for 100", &expect)
        .await;
    rows.push(row.expect(has("422 Status")));
    rows
}

/// Row 10: the target as the newer server saw it.
async fn targets(world: &World) -> Row {
    let mut seen = Vec::new();
    for (at, way) in world.ways().into_iter().enumerate() {
        let id = format!("11111111-0000-4000-8000-00000000000{at}");
        let target = format!("{NEWER_ONLY}/a%2Fb?z=1&a=%41&b;c=2&watch=");
        let ask = Outgoing::new("GET", &target).header("Audit-Id", &id);
        way.client("admin").send(&ask).await.unwrap();
        let mut event = Value::Null;
        until("a newer server audited it", || {
            let both = ["newer-a", "newer-b"].map(|name| world.server(name).audit());
            let found = both
                .into_iter()
                .flatten()
                .find(|e| e["auditID"] == id.as_str());
            let there = found.is_some();
            event = found.unwrap_or_default();
            std::future::ready(there)
        })
        .await;
        let uri = event["requestURI"].as_str().unwrap_or_default();
        seen.push(uri.strip_prefix(NEWER_ONLY).unwrap_or(uri).to_owned());
    }
    let seen: [String; 3] = seen.try_into().unwrap();
    let row = Row::of(10, "GET …/a%2Fb?z=1&a=%41&b;c=2&watch= arrives as", seen);
    row.expect(|words| words == "/a%2Fb?z=1&a=%41&b;c=2&watch=")
}

/// Row 13: header lines that should come once.
async fn headers_once(world: &World) -> Row {
    let seen = world
        .each(&Outgoing::new("GET", NEWER_ONLY))
        .await
        .map(|seen| {
            let head = seen.answer.unwrap().head;
            let count = |name: &str| {
                let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
                head.headers.iter().filter(named).count()
            };
            let named = head.header("x-peerage-peer").is_some();
            let told = if named {
                "server named"
            } else {
                "server not named"
            };
            format!(
                "{} × Audit-Id, {} × Cache-Control, {told}",
                count("audit-id"),
                count("cache-control")
            )
        });
    let row = Row::of(
        13,
        "header lines of a forwarded answer, to an administrator",
        seen,
    );
    row.expect(|words| words == "1 × Audit-Id, 1 × Cache-Control, server named")
}

async fn while_servers_fail(world: &World) -> Vec<Row> {
    let mut rows = Vec::new();
    let read = Outgoing::new("GET", NEWER_ONLY);
    let [a, b] = ["newer-a", "newer-b"].map(|name| world.server(name));

    b.kill();
    let good = world
        .good_of(40, &read)
        .await
        .map(|good| format!("{good} of 40"));
    let row = Row::of(3, "reads with one of two newer servers just killed", good);
    rows.push(row.expect(|words| words == "40 of 40"));

    a.kill();
    let row = world
        .ask(
            7,
            "a read right after the last newer server was killed",
            &read,
        )
        .await;
    rows.push(row.expect(refused_for_now));
    sleep(Duration::from_secs(16)).await;
    let row = world.ask(5, "the same 16 s later", &read).await;
    rows.push(row.expect(refused_for_now));
    let listed = world
        .each(&Outgoing::get_as("/apis", AGGREGATED))
        .await
        .map(|it| freshness(&it));
    let row = Row::of(5, "its API in discovery then", listed);
    rows.push(row.expect(|words| words == "Stale"));

    tokio::join!(a.restart(), b.restart());
    world.recover().await;

    a.pause();
    b.pause();
    let row = world
        .ask(6, "a read with both newer servers paused", &read)
        .await;
    rows.push(row.expect(refused_for_now));
    let watch = Outgoing::new("GET", &format!("{NEWER_ONLY}?watch=true"));
    let row = world
        .ask(20, "a watch with both newer servers paused", &watch)
        .await;
    rows.push(row.expect(refused_for_now));
    a.resume();
    b.resume();
    world.recover().await;

    rows.extend(while_newer_ones_restart_cleanly(world).await);
    rows
}

/// Rows 18 and 19: every newer server stops in good order and comes back.
async fn while_newer_ones_restart_cleanly(world: &World) -> Vec<Row> {
    let read = Outgoing::new("GET", NEWER_ONLY);
    let [a, b] = ["newer-a", "newer-b"].map(|name| world.server(name));
    tokio::join!(a.stop(), b.stop());
    // Long enough to be noticed by whoever notices.
    sleep(Duration::from_secs(5)).await;
    let row = world
        .ask(19, "a read while all newer servers restart cleanly", &read)
        .await;
    let stopped = row.expect(refused_for_now);
    let listed = world
        .each(&Outgoing::get_as("/apis", AGGREGATED))
        .await
        .map(|it| freshness(&it));
    let row = Row::of(18, "their API in discovery then", listed);
    let listed = row.expect(|words| words == "Stale");
    a.spawn();
    b.spawn();
    let mut wrong = [0; 3];
    let mut asked = 0;
    let back = Instant::now();
    while back.elapsed() < Duration::from_secs(60) {
        asked += 1;
        let seen = world.each(&read).await;
        for (wrong, seen) in wrong.iter_mut().zip(&seen) {
            *wrong += usize::from(seen.status() == Some(404));
        }
        if seen.iter().all(|seen| seen.status() == Some(200)) {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    let words = wrong.map(|wrong| format!("{wrong} of {asked} are 404"));
    let row = Row::of(19, "reads from their start until they answer", words);
    let restarted = row.expect(|words| words.starts_with("0 of"));
    world.recover().await;
    vec![stopped, listed, restarted]
}

/// Row 17: the older server takes the newer ones' APIServices away when it starts.
async fn after_a_restart_of_the_older(world: &World) -> Vec<Row> {
    let older = world.server("older");
    older.stop().await;
    older.restart().await;
    sleep(Duration::from_secs(4)).await;
    let legacy = Outgoing::new("GET", "/apis");
    let has_group = |seen: &Seen| {
        let groups = seen
            .answer
            .as_ref()
            .map(|answer| answer.json()["groups"].clone());
        let groups = groups.unwrap_or_default();
        let groups = groups.as_array().cloned().unwrap_or_default();
        let there = groups
            .iter()
            .any(|group| group["name"] == "storagemigration.k8s.io");
        if there { "listed" } else { "missing" }.to_owned()
    };
    let seen = world.each(&legacy).await.map(|seen| has_group(&seen));
    let row = Row::of(
        17,
        "a newer-only group in legacy /apis after the older restarted",
        seen,
    );
    vec![row.expect(|words| words == "listed")]
}

/// How the newer-only version is listed.
fn freshness(seen: &Seen) -> String {
    let Some(answer) = &seen.answer else {
        return "no answer".to_owned();
    };
    let document = answer.json();
    let groups = document["items"].as_array().cloned().unwrap_or_default();
    let group = groups
        .iter()
        .find(|group| group["metadata"]["name"] == "storagemigration.k8s.io");
    match group {
        None => "not listed".to_owned(),
        Some(group) => group["versions"][0]["freshness"]
            .as_str()
            .unwrap_or("?")
            .to_owned(),
    }
}

fn write(rows: &[Row]) {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../interop");
    std::fs::create_dir_all(&directory).unwrap();
    let name = format!("table-{}-{}.json", versions::older(), versions::newer());
    let text = serde_json::to_vec_pretty(rows).unwrap();
    std::fs::write(directory.join(name), text).unwrap();
    for row in rows {
        println!(
            "{:2} {} | {} | {} | {}",
            row.row, row.what, row.kubernetes, row.sidecar, row.balancer
        );
    }
}
