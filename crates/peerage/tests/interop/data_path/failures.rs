//! What a gateway's clients see while servers close connections, freeze and die, and while the gateway itself stops.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{
    Apiserver, Backend, ControlPlane, Gateway, GatewaySpec, Logs, RunningGateway, Shared,
};
use peerage_testkit::multiplex::MultiplexError;
use peerage_testkit::wire::{Outgoing, WireError};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::{PROTOBUF, create, map, maps, namespace};
use crate::versions;

/// Two equal servers that often ask HTTP/2 clients to connect anew, a gateway beside one and one in front of both.
struct Failing {
    sidecar: RunningGateway,
    balancer: RunningGateway,
    plane: ControlPlane,
    /// Held by the one test that may disturb them now.
    disturbed: Mutex<()>,
}

impl Logs for Failing {
    fn logs(&self) -> String {
        self.plane.logs() + &self.sidecar.log() + &self.balancer.log()
    }
}

static FAILING: Shared<Failing> = Shared::new(|| {
    Box::pin(async {
        let spec = |name: &str| {
            let spec = versions::kube_apiserver(&versions::newer()).named(name);
            spec.flags(&["--goaway-chance=0.02"])
        };
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(spec("a"))
            .server(spec("b"))
            .start()
            .await;
        let (a, b) = (plane.server("a"), plane.server("b"));
        let (sidecar, balancer) = (Gateway::beside(a).peer(b), Gateway::balancing(&[a, b]));
        let (sidecar, balancer) = tokio::join!(start(&plane, sidecar), start(&plane, balancer));
        namespace(a, "big").await;
        let value = "z".repeat(500_000);
        for number in 0..20 {
            create(a, &maps("big"), &map(&format!("m{number}"), &value)).await;
        }
        Failing {
            sidecar,
            balancer,
            plane,
            disturbed: Mutex::default(),
        }
    })
});

async fn start(plane: &ControlPlane, spec: GatewaySpec) -> RunningGateway {
    let executable = std::path::Path::new(env!("CARGO_BIN_EXE_peerage"));
    spec.start(executable, plane.pki(), plane.directory()).await
}

/// Requests of several clients at once, until they are told to stop.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    answered: AtomicUsize,
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
                Err(MultiplexError::Http2(e)) if e.is_canceled() || e.is_closed() => {
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

/// gravitational/teleport#57766, hyperium/hyper#2500: servers that say goodbye on every fiftieth request cost nobody a request or an event.
#[tokio::test]
async fn goodbyes_of_servers_cost_no_request_and_no_event() {
    let failing = FAILING.get().await;
    let _alone = failing.disturbed.lock().await;
    for (name, way) in [
        ("sidecar", &failing.sidecar),
        ("balancer", &failing.balancer),
    ] {
        let space = format!("goodbye-{name}");
        namespace(failing.plane.server("a"), &space).await;
        let connection = way.multiplexed("admin").await;
        let mut watches = Vec::new();
        for _ in 0..10 {
            let watch = Outgoing::new("GET", &format!("{}?watch=true", maps(&space)));
            watches.push(connection.open(&watch).await.unwrap().1);
        }
        let load = Load::default();
        let get = |_| Outgoing::new("GET", "/api/v1/namespaces/default");
        let post = |who: &'static str| {
            let space = space.clone();
            move |number| {
                let object = map(&format!("{who}-{number}"), "");
                Outgoing::new("POST", &maps(&space)).json("application/json", &object)
            }
        };
        tokio::join!(
            load.http2(way, 1000, get),
            load.http2(way, 1000, get),
            load.http2(way, 1000, get),
            load.http1(way, 1000, get),
            load.http2(way, 1000, post("c")),
            load.http1(way, 1000, post("d")),
        );
        load.is_without_failure();
        create(way, &maps(&space), &map("last", "")).await;
        let list = way
            .client("admin")
            .send(&Outgoing::new("GET", &maps(&space)))
            .await
            .unwrap();
        let written = list.json()["items"].as_array().unwrap().len();
        for body in watches {
            let seen = timeout(Duration::from_secs(10), events_until(body, "last")).await;
            assert_eq!(seen.unwrap(), written, "{name}: each event once");
        }
    }
}

/// How many events come until that of this name.
async fn events_until<B>(mut body: B, name: &str) -> usize
where
    B: BodyExt<Data = bytes::Bytes, Error: std::fmt::Debug> + Unpin,
{
    let (mut text, mut count) = (Vec::new(), 0);
    loop {
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.extend_from_slice(&data);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(&text[..end]).unwrap();
            text.drain(..=end);
            count += 1;
            if event["object"]["metadata"]["name"] == name {
                return count;
            }
        }
    }
}

/// kubernetes/kubernetes#141318: a server that froze gets no more requests, connections that lead to it or not.
#[tokio::test]
async fn a_frozen_server_is_avoided_within_seconds() {
    let failing = FAILING.get().await;
    let _alone = failing.disturbed.lock().await;
    let (frozen, way) = (failing.plane.server("a"), &failing.balancer);
    let connection = way.multiplexed("admin").await;
    let get = Outgoing::new("GET", "/api/v1/namespaces/default");
    for _ in 0..50 {
        assert_eq!(connection.send(&get).await.unwrap().status(), 200);
    }
    frozen.pause();
    let started = Instant::now();
    let mut asked = Vec::new();
    while started.elapsed() < Duration::from_secs(14) {
        let (connection, get, at) = (connection.clone(), get.clone(), started.elapsed());
        asked.push(tokio::spawn(async move {
            let begun = Instant::now();
            let answer = connection.send(&get).await;
            (at, begun.elapsed(), answer.map(|a| a.status()))
        }));
        sleep(Duration::from_millis(100)).await;
    }
    let mut last_slow = Duration::ZERO;
    for one in asked {
        let (at, took, answer) = one.await.unwrap();
        assert_eq!(
            answer.unwrap(),
            200,
            "a read asked at {at:?}, which took {took:?}"
        );
        if took > Duration::from_secs(2) {
            last_slow = last_slow.max(at);
        }
    }
    eprintln!(
        "measured: the last read that waited for the frozen server was asked {last_slow:?} after it froze"
    );
    assert!(last_slow < Duration::from_secs(10), "{last_slow:?}");
    for number in 0..20 {
        let object = map(&format!("frozen-{number}"), "");
        let post = Outgoing::new("POST", &maps("default")).json("application/json", &object);
        assert_eq!(connection.send(&post).await.unwrap().status(), 201);
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
    let (dying, way) = (failing.plane.server("a"), &failing.sidecar);
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
    dying.kill();
    for body in http2 {
        let ended = timeout(Duration::from_secs(10), body.collect()).await;
        assert!(ended.unwrap().is_err(), "HTTP/2: a clean end");
    }
    for body in http1 {
        let mut lines = body.lines();
        let ended = timeout(Duration::from_secs(10), async {
            loop {
                match lines.recv().await {
                    Some(Ok(_)) => {}
                    other => return other,
                }
            }
        });
        let ended = ended.await.unwrap();
        assert!(matches!(ended, Some(Err(_))), "HTTP/1.1: a clean end");
    }
    dying.restart().await;
    serve_again(&failing).await;
}

/// hyperium/hyper#3615, kubernetes/kubernetes#88911: a gateway that is asked to stop says so first, and then loses nothing that anybody is waiting for.
#[tokio::test]
async fn a_gateway_stops_without_losing_anything() {
    let failing = FAILING.get().await;
    let _alone = failing.disturbed.lock().await;
    let (a, b) = (failing.plane.server("a"), failing.plane.server("b"));
    let spec = Gateway::beside(a).peer(b);
    let spec = spec.flags(&["--shutdown-delay-duration=3s", "--drain-timeout=6s"]);
    let way = start(&failing.plane, spec).await;
    namespace(a, "stop").await;

    let connection = way.multiplexed("admin").await;
    let target = format!("{}?watch=true", maps("stop"));
    let (_, json) = way
        .client("admin")
        .open(&Outgoing::new("GET", &target))
        .await
        .unwrap();
    let (_, protobuf) = connection
        .open(&Outgoing::get_as(&target, PROTOBUF))
        .await
        .unwrap();
    let unread = way.multiplexed("admin").await;
    let (_, list) = unread
        .open(&Outgoing::new("GET", &maps("big")))
        .await
        .unwrap();
    let tunnel = Outgoing::new("GET", "/api/v1/podtemplates?watch=true")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Origin", "https://dashboard.example.com")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let (head, tunnel) = way.client("admin").open(&tunnel).await.unwrap();
    assert_eq!(head.status, 101);
    create(a, &maps("stop"), &map("an-event", "")).await;

    let load = Load::default();
    let get = |_| Outgoing::new("GET", "/api/v1/namespaces/default");
    let clock = Instant::now();
    let observe = async {
        sleep(Duration::from_millis(200)).await;
        assert!(!way.says_ready().await, "it is still said to be ready");
        let ready = way
            .client("admin")
            .send(&Outgoing::new("GET", "/readyz"))
            .await
            .unwrap();
        assert_eq!(ready.status(), 500);
        assert_eq!(ready.head.header("connection"), Some("close"));
        // Whoever looks at readiness is gone by now.
        sleep(Duration::from_millis(1800)).await;
        load.over.store(true, Ordering::Relaxed);
        let json = timeout(Duration::from_secs(5), end(json)).await.unwrap();
        json.unwrap();
        let protobuf = timeout(Duration::from_secs(5), protobuf.collect())
            .await
            .unwrap();
        assert!(protobuf.unwrap().to_bytes().len() > 100);
        let watches = clock.elapsed();
        assert!(list.collect().await.unwrap().to_bytes().len() > 10_000_000);
        let _ = end(tunnel).await;
        (watches, clock.elapsed())
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
        "measured: {answered} requests while stopping, watches ended after {watches:?}, a tunnel after {tunnel:?}"
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
async fn end(body: peerage_testkit::wire::Incoming) -> Result<(), WireError> {
    let mut lines = body.lines();
    while let Some(line) = lines.recv().await {
        line?;
    }
    Ok(())
}
