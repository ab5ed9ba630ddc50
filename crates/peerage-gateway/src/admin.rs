//! The gateway's own health, metrics and state, on an address of its own: the main one speaks for the servers behind.
//!
//! Plain HTTP, meant for loopback and for the network that scrapes metrics; nothing here can be changed. Everything is
//! computed when asked for.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use peerage_core::PlainError;
use peerage_http::metrics::Registry;
use peerage_http::{Request, Response, full};
use peerage_proxy::{DebugPeers, PeerProxy};
use serde::Serialize;
use tower::Service;

use crate::chain::Shared;
use crate::sources::{DebugSource, Finding, Sources};

/// What `/readyz` says from the first moment of stopping.
pub(crate) const STOPPING: &str = "this gateway is stopping\n";

/// Answers on the gateway's own address.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) shared: Arc<Shared>,
    pub(crate) proxy: PeerProxy,
    pub(crate) metrics: Registry,
    pub(crate) sources: Option<Arc<Sources>>,
}

/// The proxy's own state, and where its servers come from.
#[derive(Serialize)]
struct State {
    #[serde(flatten)]
    proxy: DebugPeers,
    sources: Vec<DebugSource>,
    findings: Arc<[Finding]>,
}

impl Admin {
    fn answer(&self, request: &Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET is answered here\n",
            );
        }
        match request.uri().path() {
            "/healthz" | "/livez" => text(StatusCode::OK, "ok"),
            "/readyz" => self.ready(),
            "/metrics" => self.metrics.response(),
            "/debug/peers" => self.peers(),
            _ => peerage_http::plain(&PlainError::page_not_found()),
        }
    }

    fn ready(&self) -> Response {
        if self.shared.stop.is_cancelled() {
            return text(StatusCode::INTERNAL_SERVER_ERROR, STOPPING);
        }
        let view = self.proxy.view();
        if !view.synced() {
            let why = "not every server behind this gateway has said yet what it serves\n";
            return text(StatusCode::INTERNAL_SERVER_ERROR, why);
        }
        let serving = |peer: &peerage_proxy::debug::DebugPeer| peer.state == "serving";
        if !self.proxy.debug().peers.iter().any(serving) {
            let why = "no server behind this gateway answers\n";
            return text(StatusCode::INTERNAL_SERVER_ERROR, why);
        }
        text(StatusCode::OK, "ok")
    }

    fn peers(&self) -> Response {
        let sources = self.sources.as_ref();
        let state = State {
            proxy: self.proxy.debug(),
            sources: sources.map(|it| it.debug()).unwrap_or_default(),
            findings: sources.map(|it| it.findings()).unwrap_or_default(),
        };
        let body = serde_json::to_vec_pretty(&state).unwrap_or_default();
        let mut response = Response::new(full(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl Service<Request> for Admin {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ready(Ok(self.answer(&request)))
    }
}

/// A short text.
pub(crate) fn text(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(PlainError::CONTENT_TYPE),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
