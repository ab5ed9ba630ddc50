//! Servers whose own proxy is on, which may say that they serve what they only pass on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use peerage_http::tls::ServerTlsOptions;
use peerage_http::{HttpService, Request, Response, Server, ServerOptions, ServerTls, body};
use peerage_testkit::cluster::{serves_group, until};
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, Gateway, RunningGateway};
use peerage_testkit::odd::shared_pair;
use peerage_testkit::pki::Pki;
use peerage_testkit::wire::{AGGREGATED, Answer, Client, Outgoing};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::get;
use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

const GROUP: &str = "storagemigration.k8s.io";
/// How many requests tell that none goes astray.
const MANY: usize = 30;

fn lists(answer: &Answer, group: &str) -> bool {
    let document = answer.json();
    let groups = document["items"].as_array().cloned().unwrap_or_default();
    groups.iter().any(|it| it["metadata"]["name"] == group)
}

/// What a server lists as its own.
async fn own(server: &Apiserver) -> Answer {
    let accept = format!("{AGGREGATED};profile=nopeer");
    get(&server.client("admin"), "/apis", &accept).await
}

/// Asks for what only the newer server has; each time that one answers, and it was asked by the gateway.
async fn all_go_to(newer: &Apiserver, older: &Apiserver, name: &str, gateway: &RunningGateway) {
    let client = gateway.client("admin");
    for _ in 0..MANY {
        let answer = client
            .send(&Outgoing::new("GET", NEWER_ONLY))
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
        let id = answer.head.header("audit-id").unwrap();
        newer.audited(id).await;
        assert!(older.audit_with(id).is_empty(), "{name}: it was passed on");
    }
}

#[tokio::test]
async fn servers_with_their_own_proxy_on_are_read_and_asked_each_for_its_own() {
    let spec =
        |version: String, name: &str| versions::kube_apiserver(&version).named(name).own_proxy();
    let plane = ControlPlane::on(Backend::Etcd("3.6"))
        .server(spec(versions::older(), "older"))
        .server(spec(versions::newer(), "newer"))
        .start()
        .await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    versions::acquaint(older).await;
    assert!(
        !lists(&own(older).await, GROUP),
        "the older server does not heed the profile"
    );
    let (sidecar, balancer) = tokio::join!(
        start(&plane, Gateway::beside(older).peer(newer)),
        start(&plane, Gateway::balancing(&[older, newer])),
    );
    for (name, gateway) in [("sidecar", &sidecar), ("balancer", &balancer)] {
        all_go_to(newer, older, name, gateway).await;
        let metrics = gateway.own_metrics().await;
        assert!(!metrics.contains("merged_documents"), "{name}: {metrics}");
        assert!(lists(
            &get(&gateway.client("admin"), "/apis", AGGREGATED).await,
            GROUP
        ));
        println!("{name}: {MANY} of {MANY} by the newer server");
    }
}

/// A real server behind something that takes `profile=nopeer` off, so that what it answers is merged, and real.
struct Unheeding {
    url: String,
    address: String,
    /// Requests for what only the newer server has.
    astray: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Unheeding {
    async fn before(server: &Apiserver, pki: &Pki) -> Unheeding {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (certificate, key) = shared_pair(pki);
        let tls = ServerTls::load(ServerTlsOptions::new(certificate, key)).unwrap();
        let (astray, stop) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
        let (client, counted) = (server.client("front-proxy-client"), astray.clone());
        let service = HttpService::new(tower::service_fn(move |request: Request| {
            let is_astray = request.uri().path() == NEWER_ONLY;
            counted.fetch_add(usize::from(is_astray), Ordering::Relaxed);
            relay(client.clone(), request)
        }));
        let options = ServerOptions::default();
        tokio::spawn(Server::serve(listener, tls, service, options, stop.clone()));
        Unheeding {
            url: format!("https://{address}"),
            address: address.to_string(),
            astray,
            _stop: stop.drop_guard(),
        }
    }
}

/// Whose gateway may name users may do so through it too.
async fn relay(client: Client, request: Request) -> Result<Response, std::convert::Infallible> {
    let (parts, sent) = request.into_parts();
    let sent = body::collect(sent, 1 << 20, Duration::from_secs(5))
        .await
        .unwrap();
    let target = parts.uri.path_and_query().unwrap().as_str();
    let mut asked = Outgoing::new(parts.method.as_str(), target);
    asked.headers.clear();
    for (name, value) in &parts.headers {
        let kept = !matches!(
            name.as_str(),
            "host" | "content-length" | "connection" | "te"
        );
        let value = value.to_str().unwrap().replace(";profile=nopeer", "");
        asked
            .headers
            .extend(kept.then(|| (name.to_string(), value)));
    }
    asked.body = (!sent.is_empty()).then(|| sent.to_vec());
    let Ok(answer) = client.send(&asked).await else {
        let mut gone = Response::new(body::empty());
        *gone.status_mut() = StatusCode::BAD_GATEWAY;
        return Ok(gone);
    };
    let mut response = Response::new(body::full(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.head.status).unwrap();
    for (name, value) in &answer.head.headers {
        let name = HeaderName::try_from(name.as_str()).unwrap();
        if !matches!(
            name.as_str(),
            "content-length" | "transfer-encoding" | "connection"
        ) {
            response
                .headers_mut()
                .append(name, HeaderValue::try_from(value).unwrap());
        }
    }
    Ok(response)
}

#[tokio::test]
async fn a_server_that_answers_merged_documents_as_its_own_is_found_out_and_sent_nothing_astray() {
    // One that merges, and does not serve by itself what only the newest does.
    let older = versions::kube_apiserver("1.34*").named("older");
    let newer = versions::kube_apiserver(&versions::newer()).named("newer");
    let plane = ControlPlane::on(Backend::Etcd("3.6"))
        .server(older.own_proxy())
        .server(newer.own_proxy())
        .start()
        .await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    serves_group(&older.client("admin"), GROUP).await;
    let unheeding = Unheeding::before(older, plane.pki()).await;
    let flags = ["upstream", "peer"].map(|flag| format!("--{flag}={}", unheeding.url));
    let (sidecar, balancer) = tokio::join!(
        start(&plane, Gateway::balancing(&[newer]).flags(&[&flags[0]])),
        start(&plane, Gateway::balancing(&[newer]).flags(&[&flags[1]])),
    );
    for (name, gateway) in [("sidecar", &sidecar), ("balancer", &balancer)] {
        all_go_to(newer, older, name, gateway).await;
        until(&format!("{name}: it is counted"), || async {
            let metrics = gateway.own_metrics().await;
            let mut lines = metrics.lines();
            lines.any(|it| it.contains("merged_documents") && it.contains(&unheeding.address))
        })
        .await;
        let log = std::fs::read_to_string(gateway.log_file()).unwrap();
        let said = log
            .lines()
            .find(|it| it.contains("seems to answer merged documents"));
        println!(
            "{name}: {}",
            said.unwrap_or_else(|| panic!("{name}: {log}"))
        );
        let peer = gateway.peer(&unheeding.address).await.unwrap();
        assert!(
            peer["notItsOwn"].as_u64().is_some_and(|it| it > 0),
            "{peer:#}"
        );
    }
    assert_eq!(unheeding.astray.load(Ordering::Relaxed), 0);
}
