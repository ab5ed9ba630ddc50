//! The gateway's own health, metrics and state, on an address of its own: the main one speaks for the servers behind.
//!
//! Plain HTTP, meant for loopback and for the network that scrapes metrics; nothing here can be changed. Everything is
//! computed when asked for.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use peerage_core::route::Explanation;
use peerage_core::{PlainError, Query};
use peerage_http::metrics::Registry;
use peerage_http::{Request, Response, full};
use peerage_proxy::{DebugPeers, PeerProxy};
use serde::Serialize;
use tower::Service;

use crate::chain::Shared;
use crate::page::text;
use crate::readiness::{Unready, troubles};
use crate::sources::{DebugSource, Finding, Sources};

/// Answers on the gateway's own address.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) shared: Arc<Shared>,
    pub(crate) listening: SocketAddr,
    pub(crate) beside: Option<Arc<str>>,
    pub(crate) proxy: PeerProxy,
    pub(crate) metrics: Registry,
    pub(crate) sources: Option<Arc<Sources>>,
}

/// The proxy's own state, and where its servers come from.
#[derive(Serialize)]
struct State {
    /// Where clients connect.
    listening: SocketAddr,
    /// The ID of the server that it stands beside; none for a balancer.
    beside: Option<Arc<str>>,
    #[serde(flatten)]
    proxy: DebugPeers,
    sources: Vec<DebugSource>,
    findings: Arc<[Finding]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
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
            "/debug/peers" => self.peers(request.uri().query().unwrap_or_default()),
            _ => peerage_http::plain(&PlainError::page_not_found()),
        }
    }

    fn ready(&self) -> Response {
        match Unready::of(&self.shared.stop, &self.proxy) {
            Some(unready) => {
                let details = unready.with_details(&troubles(&self.proxy));
                text(StatusCode::INTERNAL_SERVER_ERROR, details)
            }
            None => text(StatusCode::OK, "ok"),
        }
    }

    /// The servers; with `explain=METHOD PATH`, also which of them can answer that request, and why.
    fn peers(&self, query: &str) -> Response {
        let explanation = match self.proxy.explain(&Query::parse(query)) {
            Ok(explanation) => explanation,
            Err(error) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        let sources = self.sources.as_ref();
        let state = State {
            listening: self.listening,
            beside: self.beside.clone(),
            proxy: self.proxy.debug(),
            sources: sources.map(|it| it.debug()).unwrap_or_default(),
            findings: sources.map(|it| it.findings()).unwrap_or_default(),
            explanation,
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
