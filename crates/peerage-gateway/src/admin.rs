//! The gateway's own health, metrics and state, on an address of its own: the main one speaks for the servers behind.
//!
//! Plain HTTP, meant for loopback and for the network that scrapes metrics; nothing here can be changed. Everything is
//! computed when asked for.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use peerage_core::route::Explanation;
use peerage_core::shown::one_line;
use peerage_core::{PlainError, Query};
use peerage_http::metrics::Registry;
use peerage_http::{Request, Response, full};
use peerage_proxy::{DebugPeers, PeerProxy};
use serde::Serialize;
use tower::Service;

use crate::chain::Shared;
use crate::sources::{DebugSource, Finding, Sources};

/// What `/readyz` says from the first moment of stopping.
pub(crate) const STOPPING: &str = "this gateway is stopping\n";

/// Servers of which `/readyz` says why they cannot be used.
const TROUBLES: usize = 8;

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
        if self.shared.stop.is_cancelled() {
            return text(StatusCode::INTERNAL_SERVER_ERROR, STOPPING);
        }
        match unready(&self.proxy) {
            Some(unready) => {
                let details = unready.with_details(&troubles(&self.proxy));
                text(StatusCode::INTERNAL_SERVER_ERROR, details)
            }
            None => text(StatusCode::OK, "ok"),
        }
    }

    /// The servers; with `explain=METHOD PATH`, also which of them can answer that request, and why.
    fn peers(&self, query: &str) -> Response {
        let explanation = match Explanation::asked(&Query::parse(query), &self.proxy.view()) {
            Ok(explanation) => explanation,
            Err(error) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        let sources = self.sources.as_ref();
        let state = State {
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

/// Why a gateway that runs is not ready.
#[derive(Clone, Copy)]
pub(crate) enum Unready {
    /// Some server was neither heard nor given up since the start.
    Unheard,
    /// No server can be used.
    NoneUsable,
}

/// None if it is ready. Anybody may ask a balancer, as often as they like, so this costs next to nothing.
pub(crate) fn unready(proxy: &PeerProxy) -> Option<Unready> {
    if !proxy.view().synced() {
        return Some(Unready::Unheard);
    }
    (!proxy.has_usable_peer()).then_some(Unready::NoneUsable)
}

impl Unready {
    /// In one line, for everybody.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Unready::Unheard => {
                "not every server behind this gateway has said yet what it serves\n"
            }
            Unready::NoneUsable => "no server behind this gateway can be used\n",
        }
    }

    /// With a line for each server that cannot be used, for who runs the gateway.
    fn with_details(self, troubles: &[String]) -> String {
        let mut text = self.text().to_owned();
        for trouble in troubles.iter().take(TROUBLES) {
            let trouble: String = trouble.chars().take(400).collect();
            text.push_str(&one_line(&trouble));
            text.push('\n');
        }
        if let Some(more @ 1..) = troubles.len().checked_sub(TROUBLES) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "and {more} more");
        }
        text
    }
}

/// What is wrong with each server that cannot be used.
fn troubles(proxy: &PeerProxy) -> Vec<String> {
    let peers = proxy.debug().peers.into_iter();
    let unusable = peers.filter(|peer| peer.state != "serving");
    unusable
        .map(|peer| {
            let said = peer.error.map_or(peer.why, |it| it.message);
            format!("{}: {said}", peer.id)
        })
        .collect()
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
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_the_gateway_is_told_what_is_wrong_with_each_server() {
        let troubles = [
            "a: it answered 401".to_owned(),
            "b: no\n\u{1b}c\u{202e}".to_owned(),
        ];
        let unready = Unready::NoneUsable;
        assert_eq!(
            unready.with_details(&troubles),
            "no server behind this gateway can be used\na: it answered 401\nb: no \\u{1b}c\\u{202e}\n"
        );
        let many = vec!["it is away".to_owned(); TROUBLES + 2];
        let details = Unready::Unheard.with_details(&many);
        assert_eq!(details.lines().count(), 1 + TROUBLES + 1);
        assert!(details.ends_with("it is away\nand 2 more\n"), "{details}");
        assert_eq!(
            unready.text(),
            "no server behind this gateway can be used\n"
        );
    }
}
