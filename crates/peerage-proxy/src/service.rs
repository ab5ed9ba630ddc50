//! The proxy as a tower layer: for each request, who answers it.
//!
//! A request comes with its `Arc<RequestInfo<'static>>`, its `Arc<User>` and, where a front-proxy certificate and
//! the guard header proved it, the `VerifiedPeer` marker in its extensions; authentication and authorization lie
//! outside. Discovery and OpenAPI are answered from the snapshot, everything else goes where
//! `peerage_core::route` says.
//!
//! Invariants: one request sees one snapshot; the guard is honoured from a verified peer only and never reaches
//! the local service; a verified peer's request is never sent on; a request that is served here costs no allocation
//! but its route.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, Either, FutureExt};
use http::{HeaderMap, Method};
use peerage_auth::VerifiedPeer;
use peerage_core::route::UnsureReason;
use peerage_core::{RequestInfo, Route, Rules, ViewScope, route};
use peerage_http::{Request, Response};
use tokio_util::sync::DropGuard;
use tower::{Layer, Service};

use crate::answer::Form;
use crate::audit::Audit;
use crate::discovery;
use crate::error::ProxyError;
use crate::forward::{self, Why};
use crate::front::is_write;
use crate::headers::{self, GUARD, GUARD_VALUE, PEER, REASON, STALE_VIEW};
use crate::openapi::answer as openapi;
use crate::peer::Peer;
use crate::shared::{Known, Shared, Snapshot, ticket};

/// Puts the proxy around a local service.
#[derive(Clone)]
pub struct ProxyLayer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tasks: Arc<DropGuard>,
}

/// A local service with the proxy around it.
#[derive(Clone)]
pub struct ProxyService<S> {
    shared: Arc<Shared>,
    _tasks: Arc<DropGuard>,
    inner: S,
}

impl<S> Layer<S> for ProxyLayer {
    type Service = ProxyService<S>;

    fn layer(&self, inner: S) -> ProxyService<S> {
        ProxyService {
            shared: self.shared.clone(),
            _tasks: self.tasks.clone(),
            inner,
        }
    }
}

impl<S> Service<Request> for ProxyService<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let verified = request.extensions().get::<VerifiedPeer>().is_some();
        let claims = Claims::take(&self.shared, request.headers_mut(), verified);
        let Some(info) = info(&mut request) else {
            // No RequestInfo can be made of it, and the local chain has the words for that.
            return Either::Left(self.inner.call(request));
        };
        if let Some(claims) = claims {
            claims.annotate(&request);
        }
        // The service that was ready is called; its clone waits for the next request.
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
        let snapshot = self.shared.snapshot.load_full();
        let call = Call {
            shared: self.shared.clone(),
            snapshot,
            info,
            verified,
        };
        call.run(inner, request)
    }
}

/// One request with what decides about it.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) info: Arc<RequestInfo<'static>>,
    pub(crate) verified: bool,
}

/// What is to be done, without a borrow of the view.
enum Plan {
    Local,
    Unknown,
    Forward(Vec<Arc<Peer>>, Why),
    Refuse(ProxyError),
}

type Answer<F> = Either<F, BoxFuture<'static, Result<Response, Infallible>>>;

impl Call {
    fn run<S>(self, mut inner: S, request: Request) -> Answer<S::Future>
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        if !self.info.is_resource_request() {
            if let Some(asked) = discovery::Asked::of(self.info.path()) {
                if let Some(response) = discovery::answer(&self, &asked, &request) {
                    return Either::Right(std::future::ready(Ok(response)).boxed());
                }
                return Either::Left(inner.call(request));
            }
            let reads = matches!(*request.method(), Method::GET | Method::HEAD);
            if reads
                && !self.verified
                && let Some(what) = openapi::Asked::of(self.info.path())
            {
                let inner = Box::new(move |request| inner.call(request).boxed());
                return Either::Right(openapi::answer(self, what, inner, request).boxed());
            }
        }
        match self.plan() {
            Plan::Local if changes_apis(&self.info) => {
                let answer = inner.call(request);
                let noticed = move |answer: Result<Response, _>| {
                    answer.inspect(|response| self.notice_change(response))
                };
                Either::Right(answer.map(noticed).boxed())
            }
            Plan::Local => Either::Left(inner.call(request)),
            Plan::Unknown => self.unknown(inner.call(request)),
            Plan::Refuse(error) => {
                let form = Form::of(&request, &self.info);
                let response = form.refuse(&self, &error);
                Either::Right(std::future::ready(Ok(response)).boxed())
            }
            Plan::Forward(peers, why) => {
                Either::Right(self.forward(request, peers, why).map(Ok).boxed())
            }
        }
    }

    /// The local chain says 404.
    fn unknown<F>(&self, answer: F) -> Answer<F>
    where
        F: Future<Output = Result<Response, Infallible>> + Send + 'static,
    {
        self.shared.metrics.unknown.inc();
        if !self.verified {
            return Either::Left(answer);
        }
        // The peer lists it for somebody: it should look again before it tells its client 404.
        let marked = |mut response: Response| {
            response.headers_mut().insert(STALE_VIEW, GUARD_VALUE);
            response
        };
        Either::Right(answer.map(move |answer| answer.map(marked)).boxed())
    }

    fn plan(&self) -> Plan {
        // What a verified peer sent to the server that this front stands beside is not sent on by handing it over.
        let beside = self.beside().filter(|_| self.verified);
        let rules = Rules {
            from_verified_peer: self.verified && beside.is_none(),
            ticket: ticket(),
            ..Rules::default()
        };
        match route(&self.info, &self.snapshot.view, &rules) {
            Route::Local(_) => Plan::Local,
            Route::Unknown(_) => Plan::Unknown,
            Route::Unsure { reason, .. } => Plan::Refuse(if self.verified {
                self.shared.metrics.refused_hops.inc();
                let why = reason.to_string();
                ProxyError::NotForPeers { why }
            } else {
                let mut peers = self.snapshot.peers.values();
                let nobody = self.shared.front.is_some() && !peers.any(Known::is_serving);
                ProxyError::not_known(reason, nobody)
            }),
            Route::Forward { candidates, reason } => {
                let peer = |it: &Arc<peerage_core::Peer>| {
                    let known = self.snapshot.peers.get(&it.id)?;
                    Some(known.peer.clone())
                };
                let mut peers: Vec<_> = candidates.into_iter().filter_map(peer).collect();
                if let Some(beside) = beside {
                    peers.retain(|peer| peer.id == *beside);
                    if peers.is_empty() {
                        self.shared.metrics.refused_hops.inc();
                        let why = UnsureReason::AlreadySent.to_string();
                        return Plan::Refuse(ProxyError::NotForPeers { why });
                    }
                }
                Plan::Forward(peers, Why::Listed(reason))
            }
        }
    }

    /// The server that this front stands beside; a balancer, and whoever is no front, has none.
    fn beside(&self) -> Option<&Arc<str>> {
        self.shared.front.as_ref()?.options.beside.as_ref()
    }

    /// Sends the request to one of these peers, or says why not.
    pub(crate) async fn forward(
        self,
        request: Request,
        peers: Vec<Arc<Peer>>,
        why: Why,
    ) -> Response {
        let form = Form::of(&request, &self.info);
        let own_id = self.snapshot.view.local_id();
        match forward::forward(&self.shared, &self.info, request, peers, own_id, why).await {
            Ok(response) => {
                if changes_apis(&self.info) {
                    self.notice_change(&response);
                }
                response
            }
            Err(error) => form.refuse(&self, &error),
        }
    }

    /// The answer to a request that may change which APIs there are.
    fn notice_change(&self, response: &Response) {
        if response.status().is_success() {
            let peers = self.snapshot.peers.values();
            peers.for_each(|known| known.peer.apis_change());
        }
    }

    /// Whose documents this caller gets; `own` if it asked for those of one server.
    pub(crate) fn scope(&self, own: bool) -> ViewScope {
        let front = self.shared.front.as_ref();
        // A balancer is no server that could have documents of its own.
        let alone = front.is_some_and(|front| front.options.beside.is_none());
        if !alone && (own || self.verified || self.shared.options.tls.is_none()) {
            ViewScope::Local
        } else {
            ViewScope::Merged
        }
    }
}

/// Sends every request to one of the servers behind a front ([`PeerProxy::behind`](crate::PeerProxy::behind)).
#[derive(Clone)]
pub struct Behind {
    pub(crate) shared: Arc<Shared>,
    pub(crate) _tasks: Arc<DropGuard>,
}

impl Service<Request> for Behind {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let Some(info) = info(&mut request) else {
            let mut response = Response::new(peerage_http::empty());
            *response.status_mut() = http::StatusCode::BAD_REQUEST;
            return std::future::ready(Ok(response)).boxed();
        };
        let snapshot = self.shared.snapshot.load_full();
        let mut peers = behind(&snapshot);
        let call = Call {
            shared: self.shared.clone(),
            snapshot,
            info,
            verified: request.extensions().get::<VerifiedPeer>().is_some(),
        };
        if let Some(beside) = call.beside().filter(|_| call.verified) {
            peers.retain(|peer| peer.id == *beside);
        }
        call.forward(request, peers, Why::Behind).map(Ok).boxed()
    }
}

/// The servers behind a front that a request goes to which any of them may answer. Whoever has never said anything
/// sensible about itself answers only where there is nobody else.
pub(crate) fn behind(snapshot: &Snapshot) -> Vec<Arc<Peer>> {
    let there = |sane: bool| -> Vec<Arc<Peer>> {
        let known = snapshot.peers.values();
        let known = known.filter(|it| it.peer.link().is_some() && (it.heard || !sane));
        known.map(|it| it.peer.clone()).collect()
    };
    match there(true) {
        sane if sane.is_empty() => there(false),
        sane => sane,
    }
}

/// Whether a request may change which APIs there are.
fn changes_apis(info: &RequestInfo<'_>) -> bool {
    let defines = match info.api_group() {
        "apiextensions.k8s.io" => info.resource() == "customresourcedefinitions",
        "apiregistration.k8s.io" => info.resource() == "apiservices",
        _ => false,
    };
    defines && is_write(info.verb())
}

/// What the chain around us made of the request line; made here where nothing is around.
fn info(request: &mut Request) -> Option<Arc<RequestInfo<'static>>> {
    if let Some(info) = request.extensions().get::<Arc<RequestInfo<'static>>>() {
        return Some(info.clone());
    }
    let target = request.uri().path_and_query()?.as_str();
    let info = RequestInfo::parse(request.method().as_str(), target).ok()?;
    let info = Arc::new(info.into_owned());
    request.extensions_mut().insert(info.clone());
    Some(info)
}

/// What a verified peer says about a request that it sent here.
struct Claims {
    peer: Option<String>,
    reason: Option<String>,
}

impl Claims {
    /// Takes what only peers may say off the request; `None` unless a verified peer says it.
    fn take(shared: &Shared, headers: &mut HeaderMap, verified: bool) -> Option<Claims> {
        if !verified && headers.contains_key(GUARD) {
            shared.metrics.guard_ignored.inc();
        }
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let claims = verified.then(|| Claims {
            peer: text(PEER),
            reason: text(REASON),
        });
        headers::strip_peer_claims(headers);
        claims
    }

    fn annotate(self, request: &Request) {
        // Kubernetes' own servers do not give their name.
        let peer = self.peer.as_deref().unwrap_or("unnamed");
        Audit::of(request.extensions()).came(peer, self.reason.as_deref());
    }
}
