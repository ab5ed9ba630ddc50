//! What can be seen of the proxy's work.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

use http::StatusCode;
use peerage_auth::VerifiedPeer;
use peerage_auth::audit::{AuditLog, AuditOptions};
use peerage_core::RequestInfo;
use peerage_core::audit::{Level, Policy};
use peerage_http::{ConnInfo, Request};

use super::support::world::{jane, request, with};
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

/// Kubernetes' own series under their names, labels and help texts.
#[tokio::test]
async fn row_13_kubernetes_series_and_those_of_each_peer_are_counted() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    world.get(WIDGETS).await;
    peer.on_request(|_| async { text(StatusCode::NOT_FOUND, "{}") });
    world.get(WIDGETS).await;
    peer.kill();
    world.until_state("apiserver-new", "unreachable").await;
    world.get(WIDGETS).await.assert_retryable();

    let metrics = world.metrics();
    let api = "group=\"new.example.com\",version=\"v1\",resource=\"widgets\"";
    for line in [
        "# HELP apiserver_rerouted_request_total [ALPHA] Total number of requests that were proxied to a peer kube-apiserver because the local apiserver was not capable of serving it, broken down by 'group', 'version', and 'resource' indicating the GVR of the request. If all three are empty (\"\"), the request is a discovery request.",
        "# TYPE apiserver_rerouted_request_total counter",
        &format!("apiserver_rerouted_request_total{{code=\"200\",{api}}} 1"),
        &format!("apiserver_rerouted_request_total{{code=\"404\",{api}}} 1"),
        "apiserver_rerouted_request_total{code=\"200\",group=\"\",version=\"\",resource=\"\"}",
        "# HELP apiserver_peer_proxy_errors_total [ALPHA] Total number of errors encountered while proxying requests to a peer kube apiserver",
        &format!("apiserver_peer_proxy_errors_total{{type=\"endpoint_resolution\",{api}}} 1"),
        "apiserver_peer_discovery_sync_errors_total{type=\"fetch_discovery\"}",
        "# TYPE aggregator_discovery_aggregation_count_total counter",
        "# TYPE aggregator_discovery_peer_aggregated_cache_hits_total counter",
        "# TYPE aggregator_discovery_peer_aggregated_cache_misses_total counter",
        "# TYPE aggregator_discovery_nopeer_requests_total counter",
        "peerage_peer_requests_total{peer=\"apiserver-new\",outcome=\"answered\"} 1",
        "peerage_peer_requests_total{peer=\"apiserver-new\",outcome=\"client_error\"} 1",
        "peerage_peer_errors_total{peer=\"apiserver-new\",reason=\"connect_refused\"}",
        "peerage_peer_latency_seconds_count{peer=\"apiserver-new\"} 2",
        "peerage_peer_document_age_seconds{peer=\"apiserver-new\"}",
        "peerage_peer_live{peer=\"apiserver-new\"} 1",
        "peerage_peer_answering{peer=\"apiserver-new\"} 0",
        "peerage_proxy_refused_total{reason=\"not_known\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }

    world.set_records(Vec::new());
    world.until_state("apiserver-new", "left").await;
    assert!(
        world
            .metrics()
            .contains("peerage_peer_live{peer=\"apiserver-new\"} 0")
    );
}

/// What `GET /debug/peers` shows.
#[tokio::test]
async fn the_state_of_each_peer_can_be_read() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let debug = serde_json::to_value(world.proxy.debug()).unwrap();
    assert_eq!(debug["server"], "apiserver-local");
    assert_eq!(debug["enabled"], true);
    let shown = &debug["peers"][0];
    assert_eq!(shown["id"], "apiserver-new");
    assert_eq!(shown["address"], peer.address.to_string());
    assert_eq!(shown["ready"], true);
    assert_eq!(shown["notItsOwn"], 0);
    assert!(shown["documentAgeSeconds"].as_f64().unwrap() < 5.0);
    assert_eq!(
        shown["onlyHere"],
        serde_json::json!([
            "apps/v1 fleets",
            "apps/v2 deployments",
            "new.example.com/v1 widgets"
        ])
    );
    assert!(shown["error"].is_null());
}

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// While there is only one subscriber, `tracing` asks the thread that logs a line for the first time, which may be that of
/// another test, whether anybody wants it. With two it asks both.
static ANOTHER: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default()));

impl Lines {
    fn install(&self) -> tracing::subscriber::DefaultGuard {
        LazyLock::force(&ANOTHER);
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || lines.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// kubernetes/kubernetes#130410.
#[tokio::test]
async fn each_forwarded_request_is_one_line_and_unknown_ones_and_failures_do_not_flood() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let lines = Lines::default();
    let _guard = lines.install();
    for _ in 0..3 {
        world.get(WIDGETS).await;
    }
    let text = lines.text();
    assert_eq!(text.matches("forwarded a request").count(), 3, "{text}");
    for word in [
        "peer=\"apiserver-new\"",
        "user=\"jane\"",
        "code=200",
        "reason=\"group\"",
        WIDGETS,
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    for _ in 0..1000 {
        world.get("/apis/nosuch.example.com/v1/things").await;
    }
    peer.on_request(|_| std::future::pending());
    for _ in 0..20 {
        assert_eq!(
            world.get(&format!("{WIDGETS}?timeout=1ms")).await.status,
            504
        );
    }
    let text = lines.text();
    assert!(
        !text.contains("ERROR") && !text.contains("nosuch"),
        "{text}"
    );
    assert_eq!(
        text.matches("an attempt to forward a request failed")
            .count(),
        1,
        "{text}"
    );
}

#[tokio::test]
async fn the_line_per_request_can_be_turned_down() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-new", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.log_requests = false;
    builder.options.name_peer_to_all = true;
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    let lines = Lines::default();
    let _guard = lines.install();
    let answer = world.get(WIDGETS).await;
    assert_eq!(
        answer.header("x-peerage-peer").as_deref(),
        Some("apiserver-new")
    );
    assert!(!lines.text().contains("forwarded a request"));
}

/// One number over both hops, annotations on both sides that say which peer and why.
#[tokio::test]
async fn row_13_both_audit_logs_say_that_a_request_was_sent_on_to_whom_and_why() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let log = AuditFile::open();
    world
        .send(log.begin(request("GET", WIDGETS), "number-1"))
        .await;
    let sent = peer.requests().pop().unwrap();
    assert_eq!(sent.headers["audit-id"], "number-1");

    // What the peer got, as its own proxy sees it.
    let mut received = request("GET", "/apis/apps/v1/deployments");
    received.extensions_mut().insert(VerifiedPeer);
    for name in ["x-peerage-peer", "x-peerage-reason"] {
        received
            .headers_mut()
            .insert(name, sent.headers[name].clone());
    }
    world.send(log.begin(received, "number-2")).await;
    peer.kill();
    world.until_state("apiserver-new", "unreachable").await;
    world
        .send(log.begin(request("GET", WIDGETS), "number-3"))
        .await;

    let annotations = log.annotations().await;
    for (number, key, value) in [
        ("number-1", "peerage.io/sent-to", "apiserver-new"),
        ("number-1", "peerage.io/sent-reason", "group"),
        ("number-2", "peerage.io/came-from", "apiserver-local"),
        ("number-2", "peerage.io/came-reason", "group"),
        ("number-3", "peerage.io/refused", "not_known"),
    ] {
        assert_eq!(
            annotations[number][key], value,
            "{number} {key}: {annotations}"
        );
    }
    // A client cannot make itself a peer in the log.
    let liar = with(
        request("GET", "/apis/apps/v1/deployments"),
        "x-peerage-peer",
        "somebody",
    );
    world.send(log.begin(liar, "number-4")).await;
    assert!(
        log.annotations()
            .await
            .get("number-4")
            .is_none_or(|a| a.get("peerage.io/came-from").is_none())
    );
}

struct AuditFile {
    log: AuditLog,
    file: tempfile::NamedTempFile,
}

impl AuditFile {
    fn open() -> AuditFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut options = AuditOptions::new(Policy::uniform(Level::Metadata));
        options.path = Some(file.path().to_owned());
        AuditFile {
            log: AuditLog::open(options).unwrap(),
            file,
        }
    }

    fn begin(&self, mut request: Request, number: &str) -> Request {
        let target = request.uri().to_string();
        let info = RequestInfo::parse(request.method().as_str(), &target).unwrap();
        let connection = request.extensions().get::<ConnInfo>().unwrap().clone();
        let event = self
            .log
            .begin(number, &jane(), &info, request.headers(), &connection);
        request.extensions_mut().insert(event);
        request
    }

    /// The annotations of each request's last event.
    async fn annotations(&self) -> serde_json::Value {
        self.log.flush().await;
        let text = std::fs::read_to_string(self.file.path()).unwrap();
        let mut all = serde_json::Map::new();
        for line in text.lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            if event["stage"] == "ResponseComplete" {
                let number = event["auditID"].as_str().unwrap().to_owned();
                all.insert(number, event["annotations"].clone());
            }
        }
        all.into()
    }
}
