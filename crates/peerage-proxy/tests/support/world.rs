//! A proxy under test: its registry, its local service, its peers' PKI.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use peerage_auth::VerifiedPeer;
use peerage_core::discovery::{read_core, read_groups};
use peerage_core::{Documents, Exclusion, Exclusions, LocalApis, User};
use peerage_http::Pem;
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{Body, ClientTls, Request, Response, body};
use peerage_proxy::{
    DebugPeers, IdentityLease, PeerProxy, PeerRecord, PollOptions, ProxyOptions, ProxyService,
};
use serde_json::Value;
use tokio::sync::watch;
use tower::{Layer, Service, ServiceExt};

use super::documents;
use super::fake_peer::FakePeer;
use super::pki::Pki;

/// How long any expectation may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The local service: answers `local` to what it is given, 404 to what it does not have.
#[derive(Clone, Default)]
pub struct Local {
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

impl Service<Request> for Local {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let target = request.uri().to_string();
        let path = request.uri().path().to_owned();
        self.seen
            .lock()
            .unwrap()
            .push((target, request.headers().clone()));
        let served = path.starts_with("/api/v1/")
            || path.starts_with("/apis/apps/v1/")
            || path.starts_with("/apis/apiextensions.k8s.io/v1/")
            || path.starts_with("/crd");
        Box::pin(async move {
            let mut response = match path.as_str() {
                "/openapi/v3" => Response::new(body::full(
                    r#"{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=L"},"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=L"}}}"#,
                )),
                "/openapi/v2" => Response::new(body::full(
                    r#"{"swagger":"2.0","paths":{"/local":{}},"definitions":{"Local":{}}}"#,
                )),
                _ => Response::new(body::full("local")),
            };
            if !served && !path.starts_with("/openapi/v") && path != "/version" {
                *response.status_mut() = StatusCode::NOT_FOUND;
                *response.body_mut() = body::full("404 page not found\n");
            }
            Ok(response)
        })
    }
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub async fn of(response: Response) -> Answer {
        let (head, body) = response.into_parts();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    /// A 503 as clients can use it: a Status, with Retry-After.
    pub fn assert_retryable(&self) {
        assert_eq!(self.status, 503, "{}", self.text());
        let status = self.json();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["reason"], "ServiceUnavailable");
        let after = status["details"]["retryAfterSeconds"].to_string();
        assert_eq!(self.header("retry-after"), Some(after));
    }
}

/// The proxy under test.
pub struct World {
    pub pki: Pki,
    pub proxy: PeerProxy,
    pub records: watch::Sender<Arc<[PeerRecord]>>,
    pub local: watch::Sender<Arc<LocalApis>>,
    pub exclusions: watch::Sender<Arc<Exclusions>>,
    pub inner: Local,
    service: ProxyService<Local>,
}

/// What a world is made of.
pub struct WorldBuilder {
    pub options: ProxyOptions,
    pub core: Value,
    pub apis: Value,
    pub records: Vec<PeerRecord>,
    pub with_peers: bool,
}

impl Default for WorldBuilder {
    fn default() -> WorldBuilder {
        let poll = PollOptions {
            interval: Duration::from_millis(40),
            retry: Duration::from_millis(20),
            retry_cap: Duration::from_millis(80),
            probe_deadline: Duration::from_secs(5),
            deadline: Duration::from_secs(5),
            size_limit: 1 << 20,
            starting: Duration::ZERO,
            changing: Duration::ZERO,
            lists_again: Duration::from_secs(30),
        };
        WorldBuilder {
            options: ProxyOptions {
                poll,
                ..ProxyOptions::default()
            },
            core: documents::core(),
            apis: documents::old(),
            records: Vec::new(),
            with_peers: true,
        }
    }
}

impl WorldBuilder {
    pub fn start(mut self, pki: Pki) -> World {
        if self.with_peers {
            let client = pki.client("front-proxy-client");
            let mut tls = ClientTlsOptions::new(pki.ca());
            tls.identity = Some(client.pems());
            self.options.tls = Some(ClientTls::load(tls).unwrap());
        }
        let (records, records_rx) = watch::channel(self.records.into());
        let (local, local_rx) = watch::channel(local_apis(&self.core, &self.apis));
        let (exclusions, exclusions_rx) = watch::channel(Arc::default());
        let proxy = PeerProxy::start(self.options, records_rx, local_rx, exclusions_rx);
        let inner = Local::default();
        World {
            service: proxy.layer().layer(inner.clone()),
            pki,
            proxy,
            records,
            local,
            exclusions,
            inner,
        }
    }
}

/// A proxy with one peer that serves the newer documents, heard and serving.
pub async fn pair() -> (World, FakePeer) {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    (world, peer)
}

/// The local server's documents.
pub fn local_apis(core: &Value, apis: &Value) -> Arc<LocalApis> {
    let core = read_core(core.to_string().as_bytes()).unwrap();
    let apis = read_groups(apis.to_string().as_bytes()).unwrap();
    Arc::new(LocalApis {
        id: "apiserver-local".into(),
        documents: Some(Arc::new(Documents::new(apis, core))),
        server_address: "127.0.0.1:6443".into(),
        is_front: false,
    })
}

impl World {
    /// A world with the older local server and these records.
    pub fn start(pki: Pki, records: Vec<PeerRecord>) -> World {
        WorldBuilder {
            records,
            ..WorldBuilder::default()
        }
        .start(pki)
    }

    pub fn set_records(&self, records: Vec<PeerRecord>) {
        self.records.send_replace(records.into());
    }

    pub fn exclude(&self, exclusions: Vec<Exclusion>) {
        self.exclusions
            .send_replace(Arc::new(exclusions.into_iter().collect()));
    }

    /// Waits until the proxy's description of itself fits.
    pub async fn until(&self, what: &str, fits: impl Fn(&DebugPeers) -> bool) {
        let mut views = self.proxy.views();
        let wait = async {
            while !fits(&self.proxy.debug()) {
                // Some of what is described changes without a new view.
                let _ = tokio::time::timeout(Duration::from_millis(20), views.changed()).await;
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            panic!("not in time: {what}: {:#?}", self.proxy.debug());
        }
    }

    /// Waits until this peer is in this state.
    pub async fn until_state(&self, id: &str, state: &str) {
        self.until(&format!("{id} is {state}"), |debug| {
            debug
                .peers
                .iter()
                .any(|peer| peer.id == id && peer.state == state)
        })
        .await;
    }

    /// Waits until this is answered with this status, and returns that answer.
    pub async fn until_answered(&self, target: &str, status: u16) -> Answer {
        let mut views = self.proxy.views();
        let wait = async {
            loop {
                let answer = self.get(target).await;
                if answer.status == status {
                    return answer;
                }
                let _ = tokio::time::timeout(Duration::from_millis(20), views.changed()).await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(answer) => answer,
            Err(_) => panic!("{target} is not {status}: {:#?}", self.proxy.debug()),
        }
    }

    pub async fn call(&self, request: Request) -> Response {
        self.service.clone().oneshot(request).await.unwrap()
    }

    pub async fn send(&self, request: Request) -> Answer {
        let answer = async { Answer::of(self.call(request).await).await };
        tokio::time::timeout(PATIENCE, answer)
            .await
            .expect("an answer in time")
    }

    pub async fn get(&self, target: &str) -> Answer {
        self.send(request("GET", target)).await
    }

    pub async fn get_accepting(&self, target: &str, accept: &str) -> Answer {
        self.send(with(request("GET", target), "accept", accept))
            .await
    }

    /// A GET of a peer that has proved to be one.
    pub async fn get_as_peer(&self, target: &str, accept: &str) -> Answer {
        let mut request = with(request("GET", target), "accept", accept);
        request.extensions_mut().insert(VerifiedPeer);
        let request = with(request, "x-kubernetes-peer-proxied", "true");
        self.send(request).await
    }

    /// Requests that reached the local service.
    pub fn local_targets(&self) -> Vec<String> {
        self.inner
            .seen
            .lock()
            .unwrap()
            .iter()
            .map(|(target, _)| target.clone())
            .collect()
    }

    /// The header fields of the last request that reached the local service.
    pub fn last_local_headers(&self) -> HeaderMap {
        self.inner.seen.lock().unwrap().last().unwrap().1.clone()
    }

    pub fn service(&self) -> ProxyService<Local> {
        self.service.clone()
    }

    pub fn metrics(&self) -> String {
        let registry = peerage_http::metrics::Registry::default();
        self.proxy.register_metrics(&registry);
        registry.text()
    }
}

/// A request of an ordinary user.
pub fn request(method: &str, target: &str) -> Request {
    request_with_body(method, target, body::empty())
}

pub fn request_with_body(method: &str, target: &str, body: Body) -> Request {
    let mut request = http::Request::builder()
        .method(method)
        .uri(target)
        .body(body)
        .unwrap();
    request.extensions_mut().insert(Arc::new(jane()));
    request.extensions_mut().insert(peerage_http::ConnInfo {
        remote: SocketAddr::from(([192, 0, 2, 7], 4711)),
        local: SocketAddr::from(([192, 0, 2, 1], 6443)),
        tls: None,
    });
    request
}

pub fn with(mut request: Request, name: &'static str, value: &str) -> Request {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

pub fn as_user(mut request: Request, user: User) -> Request {
    request.extensions_mut().insert(Arc::new(user));
    request
}

pub fn jane() -> User {
    User {
        name: "jane".to_owned(),
        uid: "uid 77".to_owned(),
        groups: vec!["b,c \"q\"".to_owned(), "system:authenticated".to_owned()],
        extra: [(
            "acme.com/project".to_owned(),
            vec!["one".to_owned(), "two, three".to_owned()],
        )]
        .into(),
    }
}

pub fn admin() -> User {
    User {
        name: "admin".to_owned(),
        groups: vec![
            "system:masters".to_owned(),
            "system:authenticated".to_owned(),
        ],
        ..User::default()
    }
}

/// The record of a peer that is there.
pub fn live(id: &str, address: SocketAddr) -> PeerRecord {
    PeerRecord {
        id: id.into(),
        address: Some(address.to_string().parse().unwrap()),
        identity_lease: Some(lease(id)),
        endpoint_live: true,
        zone: None,
    }
}

/// A fresh identity Lease.
pub fn lease(id: &str) -> IdentityLease {
    IdentityLease {
        holder: format!("{id}_1").into(),
        renew_time: Some(SystemTime::now()),
        duration: Some(Duration::from_secs(3600)),
        hold: None,
    }
}
