//! A peer that does what a test tells it: serves documents, errors, silence or nonsense, and keeps what it was sent.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::pki::{PEER_NAME, Pki};
use peerage_http::testing::Pair;

pub type PeerBody = BoxBody<Bytes, std::io::Error>;
pub type PeerRequest = http::Request<Incoming>;
type Handler = Arc<dyn Fn(PeerRequest) -> BoxFuture<'static, Response<PeerBody>> + Send + Sync>;

/// A request as the peer saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub target: String,
    pub headers: HeaderMap,
    pub version: http::Version,
    /// The number of the connection it came over, for [`FakePeer::cut`].
    pub connection: usize,
}

/// What a peer answers on a discovery path.
#[derive(Clone, Debug)]
pub enum Document {
    /// 200 with these bytes and an ETag, 304 when asked with it.
    Serve { body: String, etag: String },
    /// 200 with these bytes, whatever they are.
    Raw { body: Vec<u8>, content_type: String },
    /// Only a status.
    Status(u16),
    /// No answer.
    Silence,
}

impl Document {
    pub fn of(body: &serde_json::Value) -> Document {
        let body = body.to_string();
        Document::Serve {
            etag: format!("\"{:X}\"", fingerprint(&body)),
            body,
        }
    }
}

fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

struct Behaviour {
    api: Document,
    apis: Document,
    /// None does not answer.
    ready: Option<StatusCode>,
    streams: Option<u32>,
    named: Option<&'static str>,
    probes: Handler,
    others: Handler,
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    seen: Mutex<Vec<Seen>>,
    connections: Mutex<Vec<CancellationToken>>,
    changed: tokio::sync::Notify,
}

/// The peer. Dropping it kills it.
pub struct FakePeer {
    pub id: Arc<str>,
    pub address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl FakePeer {
    /// Starts a peer that serves these documents over HTTP/2 and HTTP/1.1 and answers all else with its own name.
    pub async fn start(
        pki: &Pki,
        id: &str,
        api: &serde_json::Value,
        apis: &serde_json::Value,
    ) -> FakePeer {
        FakePeer::start_with(pki, id, api, apis, &["h2", "http/1.1"], PEER_NAME).await
    }

    pub async fn start_with(
        pki: &Pki,
        id: &str,
        api: &serde_json::Value,
        apis: &serde_json::Value,
        alpn: &[&str],
        name: &str,
    ) -> FakePeer {
        FakePeer::start_showing(pki, id, api, apis, alpn, &pki.server(name)).await
    }

    /// The same with a certificate that others may have too.
    pub async fn start_showing(
        pki: &Pki,
        id: &str,
        api: &serde_json::Value,
        apis: &serde_json::Value,
        alpn: &[&str],
        certificate: &Pair,
    ) -> FakePeer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = id.to_owned();
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(Behaviour {
                api: Document::of(api),
                apis: Document::of(apis),
                ready: Some(StatusCode::OK),
                streams: None,
                named: None,
                probes: Arc::new(|_| Box::pin(async { text(StatusCode::FORBIDDEN, "no") })),
                others: Arc::new(move |_| {
                    let answer = answer.clone();
                    Box::pin(async move { text(StatusCode::OK, &answer) })
                }),
            }),
            seen: Mutex::default(),
            connections: Mutex::default(),
            changed: tokio::sync::Notify::new(),
        });
        let stop = CancellationToken::new();
        let tls = TlsAcceptor::from(pki.server_config(certificate, alpn));
        tokio::spawn(accept(listener, tls, shared.clone(), stop.clone()));
        FakePeer {
            id: id.into(),
            address,
            shared,
            stop,
        }
    }

    /// Ends the listener and every connection at once, as SIGKILL does.
    pub fn kill(&self) {
        self.stop.cancel();
    }

    pub fn set_api(&self, document: Document) {
        self.shared.behaviour.lock().unwrap().api = document;
    }

    pub fn set_apis(&self, document: Document) {
        self.shared.behaviour.lock().unwrap().apis = document;
    }

    pub fn set_ready(&self, status: StatusCode) {
        self.shared.behaviour.lock().unwrap().ready = Some(status);
    }

    /// Leaves the question whether it is ready without an answer, as a server does that has its hands full.
    pub fn leave_probes_unanswered(&self) {
        self.shared.behaviour.lock().unwrap().ready = None;
    }

    /// How many requests it takes at a time on each HTTP/2 connection that is opened from now on.
    pub fn allow_streams(&self, streams: u32) {
        self.shared.behaviour.lock().unwrap().streams = Some(streams);
    }

    /// Ends one connection.
    pub fn cut(&self, connection: usize) {
        self.shared.connections.lock().unwrap()[connection].cancel();
    }

    /// Waits until so many requests have come.
    pub async fn requested(&self, times: usize) {
        loop {
            let changed = self.shared.changed.notified();
            if self.requests().len() >= times {
                return;
            }
            changed.await;
        }
    }

    /// Makes it say in its discovery answers which server it is.
    pub fn name_itself(&self, id: &'static str) {
        self.shared.behaviour.lock().unwrap().named = Some(id);
    }

    /// What to do with everything that is not a discovery fetch.
    pub fn on_request<F, Fut>(&self, handler: F)
    where
        F: Fn(PeerRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response<PeerBody>> + Send + 'static,
    {
        self.shared.behaviour.lock().unwrap().others =
            Arc::new(move |request| Box::pin(handler(request)));
    }

    /// What to answer when peers ask for more than discovery: OpenAPI, legacy lists.
    pub fn on_probe<F, Fut>(&self, handler: F)
    where
        F: Fn(PeerRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response<PeerBody>> + Send + 'static,
    {
        self.shared.behaviour.lock().unwrap().probes =
            Arc::new(move |request| Box::pin(handler(request)));
    }

    /// Everything but discovery fetches and readiness probes.
    pub fn requests(&self) -> Vec<Seen> {
        let seen = self.shared.seen.lock().unwrap();
        seen.iter().filter(|s| !is_poll(s)).cloned().collect()
    }

    /// What was asked by the proxy itself.
    pub fn polls(&self) -> Vec<Seen> {
        let seen = self.shared.seen.lock().unwrap();
        seen.iter().filter(|s| is_poll(s)).cloned().collect()
    }

    /// Waits until so many polls of this path have come.
    pub async fn polled(&self, path: &str, times: usize) {
        loop {
            let changed = self.shared.changed.notified();
            if self.polls().iter().filter(|s| s.target == path).count() >= times {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for FakePeer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn is_poll(seen: &Seen) -> bool {
    seen.headers.get("x-remote-user").map(HeaderValue::as_bytes) == Some(b"system:apiserver")
}

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = stream else { return };
        let (tls, shared) = (tls.clone(), shared.clone());
        connections.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let mut server = auto::Builder::new(TokioExecutor::new());
            let mut http2 = server.http2();
            http2.max_header_list_size(1 << 20);
            if let Some(streams) = shared.behaviour.lock().unwrap().streams {
                http2.max_concurrent_streams(streams);
            }
            let (number, cut) = shared.connected();
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(shared.answer(request, number).await) }
            });
            let served = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
            tokio::select! {
                _ = served => {}
                () = cut.cancelled() => {}
            }
        });
    }
}

impl Shared {
    fn connected(&self) -> (usize, CancellationToken) {
        let mut connections = self.connections.lock().unwrap();
        connections.push(CancellationToken::new());
        let number = connections.len() - 1;
        (number, connections[number].clone())
    }

    async fn answer(&self, request: PeerRequest, connection: usize) -> Response<PeerBody> {
        let seen = Seen {
            method: request.method().clone(),
            target: request
                .uri()
                .path_and_query()
                .map(ToString::to_string)
                .unwrap_or_default(),
            headers: request.headers().clone(),
            version: request.version(),
            connection,
        };
        self.seen.lock().unwrap().push(seen.clone());
        self.changed.notify_waiters();
        if is_poll(&seen) {
            if matches!(seen.target.as_str(), "/api" | "/apis" | "/readyz") {
                let mut answer = self.poll(&seen).await;
                if let Some(id) = self.behaviour.lock().unwrap().named {
                    let id = HeaderValue::from_static(id);
                    answer.headers_mut().insert("x-peerage-peer", id);
                }
                return answer;
            }
            let handler = self.behaviour.lock().unwrap().probes.clone();
            return handler(request).await;
        }
        let handler = self.behaviour.lock().unwrap().others.clone();
        handler(request).await
    }

    async fn poll(&self, seen: &Seen) -> Response<PeerBody> {
        let document = {
            let behaviour = self.behaviour.lock().unwrap();
            match (seen.target.as_str(), behaviour.ready) {
                ("/readyz", Some(ready)) => return text(ready, "ok"),
                ("/readyz", None) => Document::Silence,
                ("/api", _) => behaviour.api.clone(),
                _ => behaviour.apis.clone(),
            }
        };
        match document {
            Document::Serve { body, etag } => {
                if seen.headers.get("if-none-match").map(HeaderValue::as_bytes)
                    == Some(etag.as_bytes())
                {
                    return response(StatusCode::NOT_MODIFIED, &[("etag", &etag)], "");
                }
                let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
                response(
                    StatusCode::OK,
                    &[("etag", &etag), ("content-type", kind)],
                    &body,
                )
            }
            Document::Raw { body, content_type } => {
                response(StatusCode::OK, &[("content-type", &content_type)], body)
            }
            Document::Status(status) => text(StatusCode::from_u16(status).unwrap(), "no"),
            Document::Silence => std::future::pending().await,
        }
    }
}

/// A plain answer.
pub fn text(status: StatusCode, body: &str) -> Response<PeerBody> {
    response(status, &[("content-type", "text/plain")], body)
}

/// An answer with these headers.
pub fn response(
    status: StatusCode,
    headers: &[(&'static str, &str)],
    body: impl Into<PeerBytes>,
) -> Response<PeerBody> {
    let body: PeerBytes = body.into();
    let mut response = Response::new(Full::new(body.0).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    for (name, value) in headers {
        response
            .headers_mut()
            .append(*name, HeaderValue::from_str(value).unwrap());
    }
    response
}

/// Bytes from whatever a test has at hand.
pub struct PeerBytes(Bytes);

impl From<&str> for PeerBytes {
    fn from(text: &str) -> PeerBytes {
        PeerBytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&String> for PeerBytes {
    fn from(text: &String) -> PeerBytes {
        text.as_str().into()
    }
}

impl From<Vec<u8>> for PeerBytes {
    fn from(bytes: Vec<u8>) -> PeerBytes {
        PeerBytes(bytes.into())
    }
}
