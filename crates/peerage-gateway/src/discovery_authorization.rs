//! Whether a client may read the documents that the gateway has at hand.
//!
//! Discovery and OpenAPI are answered from memory, so no server would see whether this client may read them at all.
//! It is asked of the server that the client's requests go to, with the client's own request: same method, same path,
//! same credentials, over the same connections. Where that server's own tag of the document is known the question is
//! conditional, and a yes costs it a 304. What it says counts for these credentials, this method and this path, for a
//! short time; whatever is no yes is the client's answer, as the server said it, and is not remembered.
//!
//! | the server says | then |
//! |---|---|
//! | 200, 304 | yes |
//! | 404, 405, 406 | yes: authorization comes before the router and before negotiation |
//! | anything else | the client gets it |
//! | nothing | 503 with Retry-After |
//!
//! A flood of credentials that nobody knows costs the servers a bounded number of questions a second; beyond it they are
//! told 429 here. Whoever was let in lately, shows a certificate that was checked here, or asks for the first time from
//! another address than the flood, is not held up by it.
//!
//! Invariants: no document leaves without a yes; credentials are kept as salted hashes only; one question at a time for
//! the same thing; what is remembered has a fixed bound; without a remembered time every request asks.

mod answers;
mod credential;
mod rate;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, RANGE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use peerage_core::{RequestInfo, Status};
use peerage_http::metrics::Registry;
use peerage_http::{Body, ConnInfo, HttpService, Request, Response, body};
use peerage_proxy::{Answers, Form, Question, Rendering};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::time::{Instant, timeout};
use tower::{Service as _, ServiceExt as _};

use answers::{Remembered, Seat};
use credential::{Credential, Kind};
use rate::Rates;

/// The longest refusal that is handed on whole: a Status with a reason.
const REFUSAL_LIMIT: usize = 64 << 10;

/// How long the body of an answer to a question may take.
const REFUSAL_TIME: Duration = Duration::from_secs(5);

/// What clients are told to wait whose question was not asked.
const RETRY: u32 = 1;

/// Tells who answers a request ([`peerage_proxy::PeerProxy::answers`]).
pub(crate) type WhoAnswers = Arc<dyn Fn(&Method, &RequestInfo<'_>) -> Answers + Send + Sync>;

/// The layer between the chain and the proxy.
#[derive(Clone)]
pub(crate) struct DiscoveryAuthorization {
    shared: Arc<Shared>,
    /// The proxy, which answers from memory what it can.
    inner: HttpService,
    /// One of the servers, whatever is asked.
    servers: HttpService,
}

struct Shared {
    who_answers: WhoAnswers,
    remembered: Remembered,
    rates: Rates,
    salt: credential::Salt,
    rendering: Rendering,
    outcomes: Family<Outcome, Counter>,
}

/// How it was found out that a document may be read, or why it was not.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// What a question came to.
#[derive(Clone, Debug)]
enum Verdict {
    Yes,
    No(Arc<Refusal>),
    /// It was not asked.
    Later,
}

/// A server's refusal, for everybody who waited for it.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    headers: HeaderMap,
    body: bytes::Bytes,
}

impl DiscoveryAuthorization {
    pub(crate) fn new(
        ttl: Duration,
        who_answers: WhoAnswers,
        rendering: Rendering,
        inner: HttpService,
        servers: HttpService,
    ) -> Self {
        let shared = Shared {
            who_answers,
            remembered: Remembered::new(ttl),
            rates: Rates::new(Instant::now()),
            salt: credential::Salt::new(),
            rendering,
            outcomes: Family::default(),
        };
        Self {
            shared: Arc::new(shared),
            inner,
            servers,
        }
    }

    pub(crate) fn register_metrics(&self, metrics: &Registry) {
        metrics.register(
            "peerage_gateway_discovery_authorizations_total",
            "Requests for documents that the gateway has at hand, by how it was found out whether the client may read them",
            self.shared.outcomes.clone(),
        );
    }

    async fn answer(self, request: Request) -> Response {
        let info = request.extensions().get::<Arc<RequestInfo<'static>>>();
        let Some(info) = info.cloned() else {
            return call(self.inner, request).await;
        };
        match (self.shared.who_answers)(request.method(), &info) {
            Answers::AsRouted => return call(self.inner, request).await,
            Answers::Server => return call(self.servers, request).await,
            Answers::FromMemory => {}
        }
        let form = Form::of(&request, &info);
        let (parts, body) = request.into_parts();
        match self.verdict(&parts, info.path()).await {
            Verdict::Yes => call(self.inner, Request::from_parts(parts, body)).await,
            Verdict::No(refusal) => refusal.response(),
            Verdict::Later => {
                let message = "too many requests with credentials that are not known here; please try again later";
                let status = Status::too_many_requests(message, RETRY);
                form.say(&status, &self.shared.rendering)
            }
        }
    }

    async fn verdict(&self, parts: &Parts, path: &str) -> Verdict {
        let shared = self.shared.clone();
        let credential = Credential::of(parts, &shared.salt);
        let key = credential.asking(&parts.method, path, &shared.salt);
        let verdict = match shared.remembered.seat(key, Instant::now()) {
            Seat::Known => {
                shared.count("remembered");
                return Verdict::Yes;
            }
            Seat::Ask(cell) => {
                let ask = || self.ask(&credential, question(parts));
                let verdict = cell.get_or_init(ask).await.clone();
                if !matches!(verdict, Verdict::Yes) {
                    shared.remembered.forget(&key, &cell);
                }
                verdict
            }
            Seat::Always => self.ask(&credential, question(parts)).await,
        };
        shared.count(match &verdict {
            Verdict::Yes => "asked",
            Verdict::No(_) => "refused",
            Verdict::Later => "limited",
        });
        verdict
    }

    async fn ask(&self, credential: &Credential, question: Request) -> Verdict {
        let now = Instant::now();
        let from = question.extensions().get::<ConnInfo>();
        let from = from.map(|conn| conn.remote.ip());
        if credential.kind != Kind::Checked && !self.shared.rates.admit(credential, from, now) {
            return Verdict::Later;
        }
        let response = call(self.servers.clone(), question).await;
        if is_yes(response.status()) {
            self.shared.rates.let_in(credential, now);
            // Read beside this, so that the connection can be used again; cut off where that would be dearer than a new one.
            tokio::spawn(read(response.into_body()));
            return Verdict::Yes;
        }
        Verdict::No(Arc::new(Refusal::read(response).await))
    }
}

impl tower::Service<Request> for DiscoveryAuthorization {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let layer = self.clone();
        Box::pin(async move { Ok(layer.answer(request).await) })
    }
}

impl Shared {
    fn count(&self, outcome: &'static str) {
        self.outcomes.get_or_create(&Outcome { outcome }).inc();
    }
}

impl Refusal {
    async fn read(response: Response) -> Self {
        let (mut head, stream) = response.into_parts();
        let body = read(stream).await;
        head.headers.remove(CONTENT_LENGTH);
        head.headers.remove(TRANSFER_ENCODING);
        Self {
            status: head.status,
            headers: head.headers,
            // The status says it all where the words cannot be had.
            body,
        }
    }

    fn response(&self) -> Response {
        let mut response = Response::new(body::full(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }
}

/// As much as is small and comes soon; else nothing.
async fn read(stream: Body) -> Bytes {
    let whole = body::collect(stream, REFUSAL_LIMIT, REFUSAL_TIME);
    let whole = timeout(REFUSAL_TIME, whole).await;
    whole.ok().and_then(Result::ok).unwrap_or_default()
}

/// The client's request as a question: without conditions of its own, whose answers would say nothing.
fn question(parts: &Parts) -> Request {
    let mut question = Request::new(body::empty());
    *question.method_mut() = parts.method.clone();
    *question.uri_mut() = parts.uri.clone();
    *question.version_mut() = parts.version;
    *question.extensions_mut() = parts.extensions.clone();
    question.extensions_mut().insert(Question);
    let headers = question.headers_mut();
    headers.clone_from(&parts.headers);
    for name in [
        ACCEPT_ENCODING,
        CONTENT_LENGTH,
        IF_MATCH,
        IF_MODIFIED_SINCE,
        IF_NONE_MATCH,
        IF_UNMODIFIED_SINCE,
        RANGE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    question
}

fn is_yes(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::OK
            | StatusCode::NOT_MODIFIED
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
    )
}

async fn call(service: HttpService, request: Request) -> Response {
    let answer = async {
        let mut service = service;
        service.ready().await?.call(request).await
    };
    match answer.await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests;
