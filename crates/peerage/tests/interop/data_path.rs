//! The way of requests and answers through a gateway: streams, compression, large events, clients that go or stop
//! reading. What servers do to it while they fail is in `data_path/failures.rs`.

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use peerage_testkit::cluster::{until, until_within};
use peerage_testkit::daemon::{Daemon, DaemonSpec, Ready};
use peerage_testkit::kube::{Apiserver, ControlPlane, Gateway, RunningGateway};
use peerage_testkit::kubectl;
use peerage_testkit::wire::Outgoing;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::gateway::GATEWAYS;
use crate::ours::start;
use crate::versions::NEWER_ONLY;

mod failures;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// A namespace of a test's own.
async fn namespace(server: &Apiserver, name: &str) {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    server.create("/api/v1/namespaces", &body).await;
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

fn migration(name: &str, note: &str) -> Value {
    json!({
        "apiVersion": "storagemigration.k8s.io/v1",
        "kind": "StorageVersionMigration",
        "metadata": {"name": name, "annotations": {"note": note}, "labels": {"of": "data-path"}},
        "spec": {"resource": {"group": "", "resource": "secrets"}},
    })
}

/// How long the quickest of a few takes: the machine is shared, and what a gateway holds back it holds back each time.
async fn quickest<F: Future<Output = ()>>(mut once: impl FnMut() -> F) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..4 {
        let started = Instant::now();
        once().await;
        best = best.min(started.elapsed());
    }
    best
}

/// What follows a `#` is part of the name or of the query for Kubernetes; without it other objects would be meant.
#[tokio::test]
async fn a_target_with_a_fragment_deletes_nothing_that_was_not_named() {
    let gateways = GATEWAYS.get().await;
    let older = gateways.plane.server("older");
    namespace(older, "fragments").await;
    let all = maps("fragments");
    older.create(&all, &map("a", "kept")).await;
    for (name, way) in gateways.each() {
        for target in [
            format!("{all}/#x"),
            format!("{all}#x"),
            format!("{all}/a#x"),
            format!("{all}/a?fieldManager=x#y&dryRun=All"),
        ] {
            let delete = Outgoing::new("DELETE", &target);
            let answer = way.client("admin").send(&delete).await.unwrap();
            assert_eq!(
                answer.status(),
                400,
                "{name} {target}: {}",
                answer.in_words()
            );
        }
        let read = Outgoing::new("GET", &format!("{all}/a"));
        let answer = way.client("admin").send(&read).await.unwrap();
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
    }
}

/// kubernetes/kubernetes#75837.
#[tokio::test]
async fn the_head_of_a_quiet_watch_is_there_at_once() {
    let gateways = GATEWAYS.get().await;
    namespace(gateways.plane.server("older"), "quiet").await;
    let local = format!("{}?watch=true", maps("quiet"));
    let newer_only = format!("{NEWER_ONLY}?watch=true&labelSelector=of%3Dnobody");
    for (name, way) in gateways.each() {
        for target in [&local, &newer_only] {
            for accept in ["application/json", PROTOBUF] {
                let watch = Outgoing::get_as(target, accept);
                let what = format!("{name}: {target} as {accept}");
                let http1 = quickest(async || {
                    let (head, _) = way.client("admin").open(&watch).await.unwrap();
                    assert_eq!(head.status, 200, "{what}");
                });
                let http1 = http1.await;
                let connection = way.multiplexed("admin").await;
                let http2 = quickest(async || {
                    let (head, _) = connection.open(&watch).await.unwrap();
                    assert_eq!(head.status, 200, "{what}");
                });
                let http2 = http2.await;
                let limit = Duration::from_millis(500);
                assert!(
                    http1 < limit && http2 < limit,
                    "{what}: {http1:?}, {http2:?}"
                );
            }
        }
    }
}

/// kubernetes/kubernetes#11678, apache/apisix#8144: a small event is not kept waiting for more, and one as large as the store takes arrives whole.
#[tokio::test]
async fn events_arrive_as_they_come_and_whole() {
    let gateways = GATEWAYS.get().await;
    let older = gateways.plane.server("older");
    namespace(older, "events").await;
    for (name, way) in gateways.each() {
        let watch = Outgoing::new("GET", &format!("{}?watch=true", maps("events")));
        let (_, body) = way.client("admin").open(&watch).await.unwrap();
        let (mut lines, mut best) = (body.lines(), Duration::MAX);
        for (number, size) in [10, 10, 10, 1_000_000].into_iter().enumerate() {
            let value = "x".repeat(size);
            let mut object = map(&format!("{name}-{number}"), &value);
            object["metadata"]["annotations"] = json!({"note": "y".repeat(size / 4)});
            older.create(&maps("events"), &object).await;
            let created = Instant::now();
            let line = timeout(Duration::from_secs(5), async {
                loop {
                    let line: Value =
                        serde_json::from_slice(&lines.recv().await.unwrap().unwrap()).unwrap();
                    if line["object"]["metadata"]["name"] == object["metadata"]["name"] {
                        return line;
                    }
                }
            });
            let line = line
                .await
                .unwrap_or_else(|_| panic!("{name}: event {number} is kept"));
            assert_eq!(line["object"]["data"]["value"], value, "{name}");
            best = best.min(created.elapsed());
        }
        eprintln!("measured: {name}: an event is there {best:?} after the write's answer");
        assert!(best < Duration::from_millis(100), "{name}: {best:?}");
    }
}

#[tokio::test]
async fn a_compressed_list_is_what_the_server_made_byte_for_byte() {
    let gateways = GATEWAYS.get().await;
    let newer = gateways.plane.server("newer");
    let admin = newer.client("admin");
    for number in 0..40 {
        let words: String = (0..1500)
            .map(|n| format!("{} ", n * (number + 7)))
            .collect();
        newer
            .create(NEWER_ONLY, &migration(&format!("large-{number}"), &words))
            .await;
    }
    let list = format!("{NEWER_ONLY}?labelSelector=of%3Ddata-path");
    let whole = admin.send(&Outgoing::new("GET", &list)).await.unwrap();
    let revision = &whole.json()["metadata"]["resourceVersion"];
    let revision = revision.as_str().unwrap();
    let exact = format!("{list}&resourceVersion={revision}&resourceVersionMatch=Exact");
    for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
        let request = Outgoing::get_as(&exact, accept).header("Accept-Encoding", "gzip");
        let direct = admin.send(&request).await.unwrap();
        assert_eq!(
            direct.head.header("content-encoding"),
            Some("gzip"),
            "{}",
            direct.in_words()
        );
        for (name, way) in gateways.each() {
            let http1 = way.client("admin").send(&request).await.unwrap();
            let http2 = way.multiplexed("admin").await.send(&request).await.unwrap();
            for through in [http1, http2] {
                assert_eq!(
                    through.head.header("content-encoding"),
                    Some("gzip"),
                    "{name}"
                );
                assert!(
                    through.body == direct.body,
                    "{name}: other bytes as {accept}"
                );
            }
        }
    }
}

/// Newer servers compress a watch that begins with a list, each flush as a member of its own (RFC 1952, section 2.2): what is
/// written is there at once, and is unpacked by nobody but the client.
#[tokio::test]
async fn a_compressed_watch_arrives_member_by_member() {
    let gateways = GATEWAYS.get().await;
    let newer = gateways.plane.server("newer");
    let target = format!(
        "{NEWER_ONLY}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let watch = Outgoing::new("GET", &target).header("Accept-Encoding", "gzip");
    for (name, way) in gateways.each() {
        let (before, after) = (format!("{name}-before"), format!("{name}-after"));
        newer.create(NEWER_ONLY, &migration(&before, "")).await;
        let connection = way.multiplexed("admin").await;
        let (head, mut body) = connection.open(&watch).await.unwrap();
        assert_eq!(head.header("content-encoding"), Some("gzip"), "{name}");
        let mut packed = Vec::new();
        for word in [&*before, "k8s.io/initial-events-end", &*after] {
            if word == after {
                newer.create(NEWER_ONLY, &migration(&after, "")).await;
            }
            let arrives = async {
                while !unpacked(&packed).1.contains(word) {
                    let frame = body.frame().await.unwrap().unwrap();
                    packed.extend_from_slice(&frame.into_data().unwrap());
                }
            };
            let arrives = timeout(Duration::from_secs(10), arrives).await;
            assert!(arrives.is_ok(), "{name}: {word} is kept");
        }
        let (members, _) = unpacked(&packed);
        assert!(members > 1, "{name}: {members}");
    }
}

/// How many members have begun, and the text of all, as far as it is there.
fn unpacked(mut bytes: &[u8]) -> (usize, String) {
    let (mut members, mut text) = (0, Vec::new());
    while !bytes.is_empty() {
        members += 1;
        // Reads no further than the end of its member.
        let mut member = flate2::bufread::GzDecoder::new(bytes);
        if member.read_to_end(&mut text).is_err() {
            break;
        }
        bytes = member.into_inner();
    }
    (members, String::from_utf8_lossy(&text).into_owned())
}

/// Row 16 of the README's table, over HTTP/1.1: a large body after `Expect: 100-continue` ends in what the server says.
#[tokio::test]
async fn a_large_body_that_asks_first_ends_in_the_servers_own_answer() {
    let gateways = GATEWAYS.get().await;
    namespace(gateways.plane.server("older"), "expect").await;
    for (name, way) in gateways.each() {
        for (size, status) in [(900_000, 201), (1_200_000, 422), (4_000_000, 413)] {
            let object = map(&format!("{name}-{size}"), &"x".repeat(size));
            let request = Outgoing::new("POST", &maps("expect"))
                .json("application/json", &object)
                .header("Expect", "100-continue");
            let answer = way.client("admin").send(&request).await.unwrap();
            assert_eq!(
                answer.status(),
                status,
                "{name}, {size}: {}",
                answer.in_words()
            );
            let large = migration(&format!("{name}-{size}"), &"x".repeat(size));
            let request = Outgoing::new("POST", NEWER_ONLY)
                .json("application/json", &large)
                .header("Expect", "100-continue");
            let answer = way.client("admin").send(&request).await.unwrap();
            let status = if size < 3_000_000 { 422 } else { 413 };
            assert_eq!(
                answer.status(),
                status,
                "{name}, {size}: {}",
                answer.in_words()
            );
            assert_eq!(answer.json()["kind"], "Status", "{name}, {size}");
        }
    }
}

fn sum(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok());
    lines.filter_map(value).sum::<f64>() as u64
}

/// Requests, watches and tunnels that a gateway has on servers.
async fn streams(gateway: &RunningGateway) -> u64 {
    sum(&gateway.own_metrics().await, "peerage_peer_streams{")
}

/// traefik/traefik#7489: however clients go, their watches go with them, on the server too.
#[tokio::test]
async fn clients_that_go_take_their_watches_with_them() {
    let gateways = GATEWAYS.get().await;
    let plane = &gateways.plane;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let sidecar = start(plane, Gateway::beside(older)).await;
    let balancer = start(plane, Gateway::balancing(&[older, newer])).await;
    for (name, way) in [("sidecar", &sidecar), ("balancer", &balancer)] {
        for how in ["FIN", "RST", "a reset stream"] {
            all_go(way, how, &format!("{name}, {how}"), [older, newer]).await;
        }
    }
}

/// Opens watches through a gateway of its own and lets go of them, until the gateway and the servers have none.
async fn all_go(way: &RunningGateway, how: &str, what: &str, servers: [&Apiserver; 2]) {
    let watches = async || {
        let [older, newer] = servers.map(|server| server.watches("podtemplates"));
        older.await + newer.await
    };
    let watch = Outgoing::new("GET", "/api/v1/podtemplates?watch=true");
    let (mut closing, mut resetting) = (Vec::new(), Vec::new());
    let connection = way.multiplexed("admin").await;
    if how == "a reset stream" {
        for _ in 0..90 {
            resetting.push(connection.open(&watch).await.unwrap().1);
        }
    } else {
        for _ in 0..250 {
            closing.push(way.client("admin").open(&watch).await.unwrap().1);
        }
    }
    let open = (closing.len() + resetting.len()) as u64;
    until("the servers have them", async || watches().await == open).await;
    assert_eq!(streams(way).await, open);
    let started = Instant::now();
    drop(resetting);
    match how {
        "RST" => closing.into_iter().for_each(|body| body.reset()),
        _ => drop(closing),
    }
    while streams(way).await > 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
    }
    let gateways = started.elapsed();
    until("the servers have none", async || watches().await == 0).await;
    let servers = started.elapsed();
    eprintln!(
        "measured: {what}: {open} watches were let go of within {gateways:?}, the servers said so after {servers:?}"
    );
    assert!(gateways < Duration::from_secs(1), "{what}: {gateways:?}");
    // And what it takes a busy server to say so.
    assert!(servers < Duration::from_secs(10), "{what}: {servers:?}");
}

/// The same report: a client that froze, of which nothing on the network says that it is gone, is let go of: after 25 seconds, and what
/// a busy machine takes to see it.
#[tokio::test]
async fn clients_that_freeze_take_their_watches_with_them() {
    let gateways = GATEWAYS.get().await;
    let plane = &gateways.plane;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let sidecar = start(plane, Gateway::beside(older)).await;
    let balancer = start(plane, Gateway::balancing(&[older, newer])).await;
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    let kubectl = tokio::task::spawn_blocking(move || kubectl::NEWEST.fetch(&cache));
    let kubectl = kubectl.await.unwrap();
    let freezes = async |name: &str, way: &RunningGateway| {
        let client = watching(&format!("frozen-{name}"), &kubectl, way, plane).await;
        until("the gateway has its watch", async || {
            streams(way).await == 1
        })
        .await;
        client.pause();
        let paused = Instant::now();
        until_within(Duration::from_secs(60), "it is let go of", async || {
            streams(way).await == 0
        })
        .await;
        let took = paused.elapsed();
        eprintln!("measured: {name}: a frozen kubectl was let go of after {took:?}");
        assert!(took < Duration::from_secs(50), "{name}: {took:?}");
    };
    tokio::join!(freezes("sidecar", &sidecar), freezes("balancer", &balancer));
}

/// A kubectl that watches namespaces.
async fn watching(
    name: &str,
    kubectl: &Path,
    way: &RunningGateway,
    plane: &ControlPlane,
) -> Daemon {
    let config = plane.directory().join(format!("{name}.kubeconfig"));
    let words = kubectl::kubeconfig(&way.url(), plane.pki(), "admin");
    std::fs::write(&config, words).unwrap();
    let spec = DaemonSpec {
        name: name.to_owned(),
        program: kubectl.to_owned(),
        args: vec![
            format!("--kubeconfig={}", config.display()),
            "get".to_owned(),
            "namespaces".to_owned(),
            "--watch".to_owned(),
        ],
        hostname: None,
        directory: plane.directory().to_owned(),
        ready: Ready::Printed("kube-system"),
    };
    Daemon::start(spec).await
}

#[tokio::test]
async fn a_client_has_as_many_streams_on_a_connection_as_it_is_given() {
    let gateways = GATEWAYS.get().await;
    let spec = Gateway::beside(gateways.plane.server("older"));
    let spec = spec.flags(&["--http2-max-streams-per-connection=7"]);
    let gateway = start(&gateways.plane, spec).await;
    let watch = Outgoing::new("GET", "/api/v1/limitranges?watch=true");
    let connection = gateway.multiplexed("admin").await;
    let mut open = Vec::new();
    for _ in 0..7 {
        open.push(connection.open(&watch).await.unwrap().1);
    }
    // What is one too many waits until another has ended.
    let mut eighth = std::pin::pin!(connection.open(&watch));
    let early = timeout(Duration::from_millis(500), eighth.as_mut());
    assert!(early.await.is_err(), "an eighth stream was opened");
    assert_eq!(streams(&gateway).await, 7);
    // Other connections have their own.
    let other = gateway.multiplexed("admin").await;
    let other = other.open(&watch).await.unwrap().1;
    open.pop();
    let late = timeout(Duration::from_secs(5), eighth).await;
    assert_eq!(late.unwrap().unwrap().0.status, 200);
    drop(other);
}

/// hyperium/hyper#2899, hyperium/hyper#4049: hundreds of megabytes for clients that do not read them stay where they are.
#[tokio::test]
async fn clients_that_stop_reading_cost_little_memory_and_nobody_elses_time() {
    let gateways = GATEWAYS.get().await;
    let older = gateways.plane.server("older");
    namespace(older, "slow").await;
    let value = "z".repeat(500_000);
    for number in 0..20 {
        older
            .create(&maps("slow"), &map(&format!("m{number}"), &value))
            .await;
    }
    for (name, way) in gateways.each() {
        nobody_reads(name, way).await;
    }
}

/// Forty clients ask for a list of ten megabytes and do not read it.
async fn nobody_reads(name: &str, gateway: &RunningGateway) {
    let list = Outgoing::new("GET", &format!("{}?resourceVersion=0", maps("slow")));
    let warm = gateway.client("admin").send(&list).await.unwrap();
    assert!(warm.body.len() > 10_000_000);
    let before = resident(gateway);
    let connection = gateway.multiplexed("admin").await;
    let (mut http1, mut http2) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        http1.push(gateway.client("admin").open(&list).await.unwrap().1);
        http2.push(connection.open(&list).await.unwrap().1);
    }
    // 400 MB are on their way. Meanwhile others get theirs.
    for _ in 0..5 {
        let other = gateway.client("admin").send(&list).await.unwrap();
        assert_eq!(other.body.len(), warm.body.len());
    }
    let grown = resident(gateway).saturating_sub(before);
    eprintln!(
        "measured: {name}: 40 lists of 10 MB that nobody reads: {} MB more",
        grown >> 20
    );
    assert!(grown < 50 << 20, "{name}: {grown} bytes more");
    drop(http1);
    http2.truncate(1);
    let late = timeout(Duration::from_secs(30), http2.remove(0).collect());
    let late = late.await.unwrap().unwrap().to_bytes();
    assert_eq!(
        late.len(),
        warm.body.len(),
        "what was not read at once is still whole"
    );
}

/// Bytes of memory that a gateway has.
fn resident(gateway: &RunningGateway) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", gateway.id().unwrap())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

/// CVE-2018-1002105, CVE-2020-8559: what a server refuses joins nothing; the next request on the connection is one of its own.
#[tokio::test]
async fn a_refused_upgrade_leaves_a_connection_on_which_each_request_is_asked_for_itself() {
    let gateways = GATEWAYS.get().await;
    for (name, way) in gateways.each() {
        // The real server answers 403 to alice, and 200 where nothing is to be upgraded.
        for (user, target, status) in [
            ("alice", "/api/v1/namespaces?watch=true", 403),
            ("admin", "/version", 503),
        ] {
            let upgrade = Outgoing::websocket(target);
            let second = Outgoing::new("GET", "/api/v1/secrets");
            let client = way.client(user);
            let (first, second) = client.send_two(&upgrade, &second).await.unwrap();
            assert_eq!(first.status(), status, "{name}: {}", first.in_words());
            let expected = if user == "alice" { 403 } else { 200 };
            assert_eq!(second.status(), expected, "{name}: {}", second.in_words());
            assert!(
                second.head.header("audit-id") != first.head.header("audit-id"),
                "{name}"
            );
        }
    }
}
