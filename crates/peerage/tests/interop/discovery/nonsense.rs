//! Servers that are well by their own account and answer discovery with nonsense, beside two real ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use peerage_http::{Response, body};
use peerage_testkit::kube::Gateway;
use peerage_testkit::odd::{serve, shared_pair};
use peerage_testkit::pki::Pki;
use peerage_testkit::wire::{AGGREGATED, Outgoing};
use tokio_util::sync::DropGuard;

use super::{get, header};
use crate::gateway::GATEWAYS;
use crate::ours::start;

/// What one of them does.
#[derive(Clone, Copy, Debug)]
enum Nonsense {
    Garbage,
    HalfADocument,
    AHundredMegabytes,
    ARedirect,
    AnEmpty200,
    Nothing,
}

const ALL: [Nonsense; 6] = [
    Nonsense::Garbage,
    Nonsense::HalfADocument,
    Nonsense::AHundredMegabytes,
    Nonsense::ARedirect,
    Nonsense::AnEmpty200,
    Nonsense::Nothing,
];

struct Absurd {
    url: String,
    /// Requests of clients that came here.
    clients: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Absurd {
    async fn start(pki: &Pki, nonsense: Nonsense) -> Absurd {
        let clients: Arc<AtomicUsize> = Arc::default();
        let counted = clients.clone();
        let (address, stop) = serve(shared_pair(pki), move |request| {
            let user = request.headers.get("x-remote-user");
            if user.is_some_and(|user| user == "admin") {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            async move { nonsense.answer(request.uri.path()).await }
        })
        .await;
        Absurd {
            url: format!("https://{address}"),
            clients,
            _stop: stop,
        }
    }
}

impl Nonsense {
    async fn answer(self, path: &str) -> Response {
        match path {
            "/readyz" => return Response::new(body::full("ok")),
            "/version" => return Response::new(body::full(r#"{"major":"1","minor":"36"}"#)),
            _ => {}
        }
        let text = match self {
            Nonsense::Garbage => Bytes::from_static(&[0, 159, 146, 150]),
            Nonsense::HalfADocument => Bytes::from_static(
                br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","ite"#,
            ),
            Nonsense::AHundredMegabytes => Bytes::from(vec![b' '; 100 << 20]),
            Nonsense::AnEmpty200 => Bytes::new(),
            Nonsense::ARedirect => {
                let mut response = Response::new(body::empty());
                *response.status_mut() = StatusCode::FOUND;
                let elsewhere = HeaderValue::from_static("https://elsewhere.example.com/");
                response.headers_mut().insert("location", elsewhere);
                return response;
            }
            Nonsense::Nothing => std::future::pending().await,
        };
        Response::new(body::full(text))
    }
}

#[tokio::test]
async fn servers_that_answer_nonsense_cost_nobody_else_anything() {
    let gateways = GATEWAYS.get().await;
    let plane = &gateways.plane;
    let mut odd = Vec::new();
    for nonsense in ALL {
        odd.push(Absurd::start(plane.pki(), nonsense).await);
    }
    let peers: Vec<String> = odd.iter().map(|it| format!("--peer={}", it.url)).collect();
    let peers: Vec<&str> = peers.iter().map(|it| &**it).collect();
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let balancer = Gateway::balancing(&[older, newer]).flags(&peers);
    let balancer = start(plane, balancer);
    let sidecar = Gateway::beside(older).peer(newer).flags(&peers);
    let sidecar = start(plane, sidecar);
    let (balancer, sidecar) = tokio::join!(balancer, sidecar);
    let alone = get(&newer.client("admin"), "/apis", AGGREGATED).await;
    for (name, gateway) in [("balancer", &balancer), ("sidecar", &sidecar)] {
        let client = gateway.client("admin");
        let mut longest = Duration::ZERO;
        for round in 0..60 {
            let (path, accept) = match round % 6 {
                0 => ("/apis", AGGREGATED),
                1 => ("/version", "application/json"),
                2 => (crate::versions::NEWER_ONLY, "application/json"),
                3 => ("/openapi/v3", "application/json"),
                4 => ("/openapi/v2", "application/json"),
                _ => ("/api/v1/namespaces", "application/json"),
            };
            let started = Instant::now();
            let answer = client.send(&Outgoing::get_as(path, accept)).await.unwrap();
            longest = longest.max(started.elapsed());
            assert_eq!(answer.status(), 200, "{name} {path}: {}", answer.in_words());
            if path == "/apis" {
                assert_eq!(header(&answer, "etag"), header(&alone, "etag"), "{name}");
            }
        }
        assert!(longest < Duration::from_secs(10), "{name}: {longest:?}");
    }
    for (odd, nonsense) in odd.iter().zip(ALL) {
        let clients = odd.clients.load(Ordering::Relaxed);
        assert_eq!(clients, 0, "{nonsense:?} was sent requests of clients");
    }
}
