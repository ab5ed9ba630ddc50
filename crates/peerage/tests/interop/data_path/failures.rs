//! What a gateway's clients see while servers close connections, freeze and die, and while the gateway itself stops.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{
    Apiserver, Backend, ControlPlane, Gateway, Logs, RunningGateway, Shared,
};
use peerage_testkit::multiplex::{self, MultiplexError, Multiplexed};
use peerage_testkit::wire::{self, Outgoing, WireError};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::{PROTOBUF, map, maps, namespace};
use crate::ours::start;
use crate::versions;

/// Two servers, `a` newer than `b`, that often ask HTTP/2 clients to connect anew, a gateway beside one and one in front of
/// both.
struct Failing {
    sidecar: RunningGateway,
    balancer: RunningGateway,
    plane: ControlPlane,
    /// Held by the one test that may disturb them now.
    disturbed: Mutex<()>,
}

impl Failing {
    /// Both ways, with their names.
    fn each(&self) -> [(&'static str, &RunningGateway); 2] {
        [("sidecar", &self.sidecar), ("balancer", &self.balancer)]
    }
}

impl Logs for Failing {
    fn logs(&self) -> String {
        self.plane.logs() + &self.sidecar.log() + &self.balancer.log()
    }
}

static FAILING: Shared<Failing> = Shared::new(|| {
    Box::pin(async {
        let spec = |name: &str, version: &str| {
            let spec = versions::kube_apiserver(version).named(name);
            spec.flags(&["--goaway-chance=0.02"])
        };
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(spec("a", &versions::newer()))
            .server(spec("b", &versions::older()))
            .start()
            .await;
        let (a, b) = (plane.server("a"), plane.server("b"));
        let (sidecar, balancer) = (Gateway::beside(a).peer(b), Gateway::balancing(&[a, b]));
        let (sidecar, balancer) = tokio::join!(start(&plane, sidecar), start(&plane, balancer));
        namespace(a, "big").await;
        let value = "z".repeat(500_000);
        for number in 0..20 {
            a.create(&maps("big"), &map(&format!("m{number}"), &value))
                .await;
        }
        Failing {
            sidecar,
            balancer,
            plane,
            disturbed: Mutex::default(),
        }
    })
});

/// Requests of several clients at once, until they are told to stop.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    answered: AtomicUsize,
    /// How often an HTTP/2 client was sent away before its request was.
    reconnects: AtomicUsize,
    failures: std::sync::Mutex<Vec<String>>,
}

impl Load {
    fn note(&self, outcome: Result<u16, String>) {
        match outcome {
            Ok(200 | 201) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
            Ok(code) => self.failures.lock().unwrap().push(code.to_string()),
            Err(error) => self.failures.lock().unwrap().push(error),
        }
    }

    fn goes_on(&self, most: usize) -> bool {
        !self.over.load(Ordering::Relaxed) && self.answered.load(Ordering::Relaxed) < most
    }

    /// Over HTTP/1.1, each on a connection of its own.
    async fn http1(&self, way: &Apiserver, most: usize, request: impl Fn(usize) -> Outgoing) {
        let client = way.client("admin");
        for number in 0.. {
            if !self.goes_on(most) {
                return;
            }
            let answer = client.send(&request(number)).await;
            self.note(
                answer
                    .map(|a| a.status())
                    .map_err(|e| format!("HTTP/1.1: {e}")),
            );
        }
    }

    /// Over HTTP/2, on a new connection when the old one has said goodbye before a request was sent.
    async fn http2(&self, way: &Apiserver, most: usize, request: impl Fn(usize) -> Outgoing) {
        let mut connection = way.multiplexed("admin").await;
        for number in 0.. {
            if !self.goes_on(most) {
                return;
            }
            match connection.send(&request(number)).await {
                Err(error) if is_sent_away(&error) => {
                    self.reconnects.fetch_add(1, Ordering::Relaxed);
                    connection = way.multiplexed("admin").await;
                }
                answer => {
                    self.note(
                        answer
                            .map(|a| a.status())
                            .map_err(|e| format!("HTTP/2: {e}")),
                    );
                }
            }
        }
    }

    fn is_without_failure(&self) {
        let failures = self.failures.lock().unwrap();
        let answered = self.answered.load(Ordering::Relaxed);
        assert!(
            failures.is_empty(),
            "{} of {answered}: {:?}",
            failures.len(),
            &failures[..failures.len().min(5)]
        );
    }
}

/// Whether the connection had ended before the request was sent.
fn is_sent_away(error: &MultiplexError) -> bool {
    match error {
        MultiplexError::Ended => true,
        MultiplexError::Http2(e) => e.is_canceled() || e.is_closed(),
        _ => false,
    }
}

/// gravitational/teleport#57766, hyperium/hyper#2500: servers that say goodbye on every fiftieth request cost nobody a request or an event.
#[tokio::test]
async fn goodbyes_of_servers_cost_no_request_and_no_event() {
    let failing = FAILING.get().await;
    let _alone = failing.disturbed.lock().await;
    for (name, way) in failing.each() {
        let (space, doomed) = (format!("goodbye-{name}"), format!("doomed-{name}"));
        namespace(failing.plane.server("a"), &space).await;
        namespace(failing.plane.server("a"), &doomed).await;
        let connection = way.multiplexed("admin").await;
        let mut watches = Vec::new();
        for _ in 0..100 {
            let watch = Outgoing::new("GET", &format!("{}?watch=true", maps(&space)));
            watches.push(connection.open(&watch).await.unwrap().1);
        }
        for (who, number) in ["e", "f"]
            .into_iter()
            .flat_map(|who| (0..400).map(move |it| (who, it)))
        {
            let object = map(&format!("{who}-{number}"), "");
            failing
                .plane
                .server("a")
                .create(&maps(&doomed), &object)
                .await;
        }
        let (reads, writes) = (Load::default(), Load::default());
        let deletions = [Load::default(), Load::default()];
        let get = |_| Outgoing::new("GET", "/api/v1/namespaces/default");
        let post = |who: &'static str| {
            let space = space.clone();
            move |number| {
                let object = map(&format!("{who}-{number}"), "");
                Outgoing::new("POST", &maps(&space)).json("application/json", &object)
            }
        };
        // Without a body, and 404 the second time.
        let delete = |who: &'static str| {
            let maps = maps(&doomed);
            move |number| Outgoing::new("DELETE", &format!("{maps}/{who}-{number}"))
        };
        let all = async {
            tokio::join!(
                reads.http2(way, 9700, get),
                reads.http2(way, 9700, get),
                reads.http2(way, 9700, get),
                reads.http1(way, 9700, get),
                writes.http2(way, 300, post("c")),
                writes.http1(way, 300, post("d")),
                deletions[0].http2(way, 400, delete("e")),
                deletions[1].http1(way, 400, delete("f")),
            )
        };
        let begun = Instant::now();
        let all = timeout(Duration::from_secs(180), all).await;
        assert!(all.is_ok(), "{name}: not all is answered in time");
        eprintln!("measured: {name}: 10 800 requests in {:?}", begun.elapsed());
        reads.is_without_failure();
        writes.is_without_failure();
        deletions.iter().for_each(Load::is_without_failure);
        // The servers' goodbyes are between them and the gateway: it keeps its own connections.
        let loads = [&reads, &writes].into_iter().chain(&deletions);
        let reconnects: usize = loads
            .map(|load| load.reconnects.load(Ordering::Relaxed))
            .sum();
        assert_eq!(reconnects, 0, "{name}: the gateway sent clients away");
        way.create(&maps(&space), &map("last", "")).await;
        let list = way
            .client("admin")
            .send(&Outgoing::new("GET", &maps(&space)))
            .await
            .unwrap();
        let list = list.json();
        let mut written: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(name_of)
            .collect();
        written.sort();
        // All at once: they share the room that a connection has for what is not read yet.
        let seen = watches.into_iter().map(|body| added_until(body, "last"));
        let seen = timeout(Duration::from_secs(60), futures::future::join_all(seen)).await;
        for mut seen in seen.unwrap() {
            seen.sort();
            assert_eq!(seen, written, "{name}: each event once");
        }
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Of which objects a watch tells that they have come, until that of this name.
async fn added_until<B>(mut body: B, name: &str) -> Vec<String>
where
    B: BodyExt<Data = bytes::Bytes, Error: std::fmt::Debug> + Unpin,
{
    let (mut text, mut names) = (Vec::new(), Vec::new());
    loop {
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.extend_from_slice(&data);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(&text[..end]).unwrap();
            text.drain(..=end);
            assert_eq!(event["type"], "ADDED", "{event}");
            names.push(name_of(&event["object"]));
            if names.last().is_some_and(|it| it == name) {
                return names;
            }
        }
    }
}

/// kubernetes/kubernetes#141318: a server that froze gets no more requests, connections that lead to it or not.
#[tokio::test]
async fn a_frozen_server_is_avoided_within_seconds() {
    let failing = FAILING.get().await;
    let _alone = failing.disturbed.lock().await;
    let frozen = failing.plane.server("a");
    let (sidecar, balancer) = (&failing.sidecar, &failing.balancer);
    let ways = tokio::join!(sidecar.multiplexed("admin"), balancer.multiplexed("admin"));
    let ways = [("sidecar", ways.0), ("balancer", ways.1)];
    let get = Outgoing::new("GET", "/api/v1/namespaces/default");
    for (name, way) in &ways {
        for _ in 0..50 {
            assert_eq!(way.send(&get).await.unwrap().status(), 200, "{name}");
        }
    }
    frozen.pause();
    let started = Instant::now();
    let mut asked = Vec::new();
    while started.elapsed() < Duration::from_secs(14) {
        for (name, way) in &ways {
            let (name, way, get, at) = (*name, way.clone(), get.clone(), started.elapsed());
            asked.push(tokio::spawn(async move {
                let begun = Instant::now();
                let answer = way.send(&get).await;
                (name, at, begun.elapsed(), answer.map(|a| a.status()))
            }));
        }
        sleep(Duration::from_millis(100)).await;
    }
    let mut last_slow = Duration::ZERO;
    for one in asked {
        let (name, at, took, answer) = one.await.unwrap();
        assert_eq!(
            answer.unwrap(),
            200,
            "{name}: a read asked at {at:?}, which took {took:?}"
        );
        if took > Duration::from_secs(2) {
            last_slow = last_slow.max(at);
        }
    }
    eprintln!(
        "measured: the last read that waited for the frozen server was asked {last_slow:?} after it froze"
    );
    assert!(last_slow < Duration::from_secs(10), "{last_slow:?}");
    for (name, way) in &ways {
        for number in 0..20 {
            let object = map(&format!("frozen-{name}-{number}"), "");
            let post = Outgoing::new("POST", &maps("default")).json("application/json", &object);
            assert_eq!(way.send(&post).await.unwrap().status(), 201, "{name}");
        }
    }
    frozen.resume();
    frozen.ready().await;
    serve_again(&failing).await;
}

async fn serve_again(failing: &Failing) {
    for way in [&failing.sidecar, &failing.balancer] {
        until("both servers are known to serve", async || {
            let debug = way.own_state().await;
            let peers = debug["peers"].as_array().unwrap();
            peers.iter().all(|peer| peer["state"] == "serving")
        })
        .await;
    }
}

/// What ends because a server died does not look as if it had ended well.
#[tokio::test]
async fn what_a_server_did_not_finish_breaks_off_for_its_client_too() {
    let failing = FAILING.get().await;
    let _alone = failing.disturbed.lock().await;
    let (a, b) = (failing.plane.server("a"), failing.plane.server("b"));
    // The balancer may have asked either.
    let ends: [(_, _, &[&Apiserver]); 2] = [
        ("sidecar", &failing.sidecar, &[a]),
        ("balancer", &failing.balancer, &[a, b]),
    ];
    for (name, way, dying) in ends {
        breaks_off(name, way, dying).await;
        for server in dying {
            server.restart().await;
        }
        serve_again(&failing).await;
    }
}

/// Watches and a list that nobody reads, over both versions of HTTP, while these servers are killed.
async fn breaks_off(name: &str, way: &RunningGateway, dying: &[&Apiserver]) {
    let watch = Outgoing::new("GET", "/api/v1/podtemplates?watch=true");
    let list = Outgoing::new("GET", &maps("big"));
    let connection = way.multiplexed("admin").await;
    let unread = way.multiplexed("admin").await;
    let client = way.client("admin");
    let http1 = [
        client.open(&watch).await.unwrap().1,
        client.open(&list).await.unwrap().1,
    ];
    let http2 = [
        connection.open(&watch).await.unwrap().1,
        unread.open(&list).await.unwrap().1,
    ];
    for server in dying {
        server.kill();
    }
    for body in http2 {
        let ended = timeout(Duration::from_secs(10), body.collect()).await;
        assert!(ended.unwrap().is_err(), "{name}, HTTP/2: a clean end");
    }
    for body in http1 {
        let ended = timeout(Duration::from_secs(10), end(body)).await;
        assert!(ended.unwrap().is_err(), "{name}, HTTP/1.1: a clean end");
    }
}

/// Clients of a gateway that wait for something that takes longer than it goes on.
struct Waiting {
    json: wire::Incoming,
    protobuf: multiplex::Incoming,
    list: multiplex::Incoming,
    tunnel: wire::Incoming,
    _connections: [Multiplexed; 2],
}

impl Waiting {
    async fn on(way: &RunningGateway, space: &str) -> Self {
        let client = way.client("admin");
        let target = format!("{}?watch=true", maps(space));
        let (_, json) = client.open(&Outgoing::new("GET", &target)).await.unwrap();
        let connection = way.multiplexed("admin").await;
        let watch = Outgoing::get_as(&target, PROTOBUF);
        let (_, protobuf) = connection.open(&watch).await.unwrap();
        let unread = way.multiplexed("admin").await;
        let list = Outgoing::new("GET", &maps("big"));
        let (_, list) = unread.open(&list).await.unwrap();
        let tunnel = Outgoing::websocket("/api/v1/podtemplates?watch=true");
        let (head, tunnel) = client.open(&tunnel).await.unwrap();
        assert_eq!(head.status, 101);
        Self {
            json,
            protobuf,
            list,
            tunnel,
            _connections: [connection, unread],
        }
    }

    /// Watches end well and a list is whole; when the watches had ended, and when the tunnel.
    async fn get_all(self, clock: Instant) -> (Duration, Duration) {
        let watches = async {
            end(self.json).await.unwrap();
            self.protobuf.collect().await.unwrap().to_bytes()
        };
        let told = timeout(Duration::from_secs(10), watches).await.unwrap();
        assert!(told.len() > 100);
        let watches = clock.elapsed();
        assert!(self.list.collect().await.unwrap().to_bytes().len() > 10_000_000);
        let _ = end(self.tunnel).await;
        (watches, clock.elapsed())
    }
}

/// How long a gateway that stops goes on as if it did not.
const DELAY: Duration = Duration::from_secs(3);

/// hyperium/hyper#3615, kubernetes/kubernetes#88911: a gateway that is asked to stop says so first, and then loses nothing that anybody is waiting for.
#[tokio::test]
async fn a_gateway_stops_without_losing_anything() {
    let failing = FAILING.get().await;
    let _alone = failing.disturbed.lock().await;
    let (a, b) = (failing.plane.server("a"), failing.plane.server("b"));
    let ways = [
        ("stop-sidecar", Gateway::beside(a).peer(b)),
        ("stop-balancer", Gateway::balancing(&[a, b])),
    ];
    for (name, spec) in ways {
        namespace(a, name).await;
        let spec = spec.flags(&["--shutdown-delay-duration=3s", "--drain-timeout=6s"]);
        let way = start(&failing.plane, spec).await;
        stops_without_a_loss(name, a, way).await;
    }
}

/// The gateway is told to stop in [`DELAY`] and six seconds, with watches of that namespace.
async fn stops_without_a_loss(space: &str, server: &Apiserver, way: RunningGateway) {
    let waiting = Waiting::on(&way, space).await;
    server.create(&maps(space), &map("an-event", "")).await;

    let load = Load::default();
    let get = |_| Outgoing::new("GET", "/api/v1/namespaces/default");
    let clock = Instant::now();
    let observe = async {
        until("it is not said to be ready", async || {
            !way.says_ready().await
        })
        .await;
        let ready = way
            .client("admin")
            .send(&Outgoing::new("GET", "/readyz"))
            .await
            .unwrap();
        assert_eq!(ready.status(), 500);
        assert_eq!(ready.head.header("connection"), Some("close"));
        // The delay is the subject: clients come for most of it, and are gone when it ends.
        sleep((DELAY * 2 / 3).saturating_sub(clock.elapsed())).await;
        load.over.store(true, Ordering::Relaxed);
        waiting.get_all(clock).await
    };
    let (status, (watches, tunnel), ..) = tokio::join!(
        way.stop(),
        observe,
        load.http1(&way, usize::MAX, get),
        load.http1(&way, usize::MAX, get),
        load.http2(&way, usize::MAX, get),
        load.http2(&way, usize::MAX, get),
    );
    load.is_without_failure();
    let answered = load.answered.load(Ordering::Relaxed);
    eprintln!(
        "measured: {space}: {answered} requests while stopping, watches ended after {watches:?}, a tunnel after {tunnel:?}"
    );
    assert!(status.success(), "{status}");
    assert!(
        answered > 20 && watches < Duration::from_secs(6),
        "{watches:?}"
    );
    assert!(
        tunnel > Duration::from_secs(8),
        "a tunnel was cut early: {tunnel:?}"
    );
    assert!(clock.elapsed() < Duration::from_secs(15));
}

/// Reads to the end, which is an error when it is none.
async fn end(body: wire::Incoming) -> Result<(), WireError> {
    let mut lines = body.lines();
    while let Some(line) = lines.recv().await {
        line?;
    }
    Ok(())
}
