//! The gateway's own health, metrics and state, on an address of its own: the main one speaks for the servers behind.
//!
//! Plain HTTP, meant for loopback and for the network that scrapes metrics; nothing here can be changed. Everything is
//! computed when asked for.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
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
        match unready(&self.proxy) {
            Some(unready) => text(StatusCode::INTERNAL_SERVER_ERROR, unready.with_details()),
            None => text(StatusCode::OK, "ok"),
        }
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

/// Why a gateway that runs is not ready.
pub(crate) enum Unready {
    /// Some server was neither heard nor given up since the start.
    Unheard,
    /// There are servers, each with what is wrong with it, and none can be used.
    NoneUsable(Vec<String>),
}

/// None if it is ready.
pub(crate) fn unready(proxy: &PeerProxy) -> Option<Unready> {
    if !proxy.view().synced() {
        return Some(Unready::Unheard);
    }
    let peers = proxy.debug().peers;
    if peers.iter().any(|peer| peer.state == "serving") {
        return None;
    }
    let trouble = peers.iter().take(TROUBLES).map(|peer| {
        let said = peer.error.as_ref().map_or(&peer.why, |it| &it.message);
        let said: String = said.chars().take(300).flat_map(printed).collect();
        format!("{}: {said}", peer.id)
    });
    Some(Unready::NoneUsable(trouble.collect()))
}

/// A character of what a server said, in a text of lines.
fn printed(character: char) -> impl Iterator<Item = char> {
    let plain = !character.is_control();
    let escaped = (!plain).then(|| character.escape_default());
    plain
        .then_some(character)
        .into_iter()
        .chain(escaped.into_iter().flatten())
}

impl Unready {
    /// In one line, for everybody.
    pub(crate) fn text(&self) -> &'static str {
        match self {
            Unready::Unheard => {
                "not every server behind this gateway has said yet what it serves\n"
            }
            Unready::NoneUsable(_) => "no server behind this gateway can be used\n",
        }
    }

    /// With a line for each server, for who runs the gateway.
    fn with_details(&self) -> String {
        let mut text = self.text().to_owned();
        if let Unready::NoneUsable(troubles) = self {
            for trouble in troubles {
                text.push_str(trouble);
                text.push('\n');
            }
        }
        text
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
        let troubles = vec!["a: it answered 401".to_owned(), "b: nobody".to_owned()];
        let unready = Unready::NoneUsable(troubles);
        assert_eq!(
            unready.with_details(),
            "no server behind this gateway can be used\na: it answered 401\nb: nobody\n"
        );
        assert_eq!(
            unready.text(),
            "no server behind this gateway can be used\n"
        );
        let said: String = "a\nb\u{1b}c".chars().flat_map(printed).collect();
        assert_eq!(said, r"a\nb\u{1b}c");
    }
}
