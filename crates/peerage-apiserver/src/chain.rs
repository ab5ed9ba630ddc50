//! What every request goes through before anything answers it, outermost first: RequestInfo, authentication,
//! audit, impersonation, limits, authorization (discovery included), a deadline; then the proxy, and behind it
//! the local handlers.

mod impersonation;
mod inflight;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Method;
use peerage_auth::audit::{self, AuditContext, AuditLog};
use peerage_auth::{Authenticator, VerifiedPeer};
use peerage_core::{RequestInfo, Status, User};
use peerage_http::{ConnInfo, Drain, HttpService, Request, Response};
use tower::Service;

use crate::authz::{Attributes, Authorizer, Decision};
use crate::error::ApiError;
use crate::metrics::RequestMetrics;
use crate::respond::{self, Respond};
pub(crate) use inflight::Inflight;

/// What the chain needs; shared by all connections.
pub(crate) struct Shared {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) audit: AuditLog,
    pub(crate) inflight: Inflight,
    pub(crate) metrics: RequestMetrics,
    pub(crate) request_timeout: Duration,
    /// Whether the served version knows constrained impersonation.
    pub(crate) constrained_impersonation: bool,
}

/// The outermost service.
#[derive(Clone)]
pub(crate) struct Chain {
    shared: Arc<Shared>,
    /// The proxy around the local handlers.
    inner: HttpService,
}

impl Chain {
    pub(crate) fn new(shared: Arc<Shared>, inner: HttpService) -> Self {
        Self { shared, inner }
    }

    async fn answer(self, mut request: Request) -> Response {
        let started = Instant::now();
        let target = request
            .uri()
            .path_and_query()
            .map_or("/", |t| t.as_str())
            .to_owned();
        let info = match RequestInfo::parse(request.method().as_str(), &target) {
            Ok(info) => Arc::new(info.into_owned()),
            Err(error) => {
                return peerage_http::plain(&error.plain());
            }
        };
        request.extensions_mut().insert(info.clone());
        let method = request.method().clone();
        let shared = self.shared.clone();
        let response = self.identified(request, &info).await;
        shared
            .metrics
            .record(&info, &method, response.status(), started.elapsed());
        response
    }

    /// From authentication on.
    async fn identified(self, request: Request, info: &Arc<RequestInfo<'static>>) -> Response {
        let (mut parts, body) = request.into_parts();
        let Some(conn) = parts.extensions.get::<ConnInfo>().cloned() else {
            return respond::failure(&Status::internal("the connection is unknown"));
        };
        let respond = Respond::plain(&parts.headers, &info.query());
        let id = audit::audit_id(&parts.headers);
        let log = self.shared.audit.clone();
        log.ready().await;
        let identity = match self.shared.authenticator.authenticate(&mut parts, &conn) {
            Ok(identity) => identity,
            Err(error) => {
                tracing::debug!(%error, remote = %conn.remote, "not authenticated");
                let nobody = User::default();
                let record = log.begin(&id, &nobody, info, &parts.headers, &conn);
                let status = Status::unauthorized();
                record.fail(&status);
                return audit::numbered(&id, record.respond(respond.error(&status.into()), false));
            }
        };
        let record = log.begin(&id, &identity.user, info, &parts.headers, &conn);
        if identity.verified_peer {
            parts.extensions.insert(VerifiedPeer);
        }
        parts.extensions.insert(identity.user);
        parts.extensions.insert(record.clone());
        // These have no deadline and no place among the requests in flight.
        let long_running = info.is_long_running() || peerage_http::is_upgrade(&parts.headers);
        let request = Request::from_parts(parts, body);
        let answer = async {
            match self.authorized(request, info, &record, long_running).await {
                Ok(response) => response,
                Err(error) => {
                    if let ApiError::Status(status) = &error {
                        record.fail(status);
                    }
                    respond.error(&error)
                }
            }
        };
        // In a box: the future of a whole request is too large to live in another one.
        let response = audit::observe(&record, long_running, Box::pin(answer)).await;
        audit::numbered(&id, response)
    }

    /// From impersonation on.
    async fn authorized(
        mut self,
        mut request: Request,
        info: &Arc<RequestInfo<'static>>,
        audit: &AuditContext,
        long_running: bool,
    ) -> Result<Response, ApiError> {
        impersonation::apply(
            &self.shared.authorizer,
            self.shared.constrained_impersonation,
            info,
            &mut request,
            audit,
        )?;
        let deadline = deadline(info, self.shared.request_timeout)?;
        let user = request
            .extensions()
            .get::<Arc<User>>()
            .cloned()
            .ok_or_else(Status::unauthorized)?;
        let _permit = match long_running || inflight::is_exempt(&user, info) {
            true => None,
            false => Some(self.shared.inflight.enter(request.method())?),
        };
        let decision = self.shared.authorizer.decide(&user, &Attributes::of(info));
        annotate(audit, &decision);
        if !decision.allowed {
            return Err(Status::forbidden_request(&user.name, info, &decision.reason()).into());
        }
        // It is always ready: nothing behind it has a queue of its own.
        let drain = request.extensions().get::<Drain>().cloned();
        let answer = self.inner.call(request);
        let response = if long_running {
            let watch = info.verb() == "watch";
            let response = answer.await;
            match drain.filter(|_| watch) {
                Some(drain) => response.map(|r| peerage_http::closing::end_with(r, drain.closing)),
                None => response,
            }
        } else {
            match tokio::time::timeout(deadline, answer).await {
                Ok(response) => response,
                Err(_) => return Err(Status::deadline_exceeded().into()),
            }
        };
        match response {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }
}

impl Service<Request> for Chain {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let chain = self.clone();
        Box::pin(async move { Ok(chain.answer(request).await) })
    }
}

fn annotate(audit: &AuditContext, decision: &Decision) {
    if !audit.is_recorded() {
        return;
    }
    audit.annotate(
        "authorization.k8s.io/decision",
        if decision.allowed { "allow" } else { "forbid" },
    );
    audit.annotate("authorization.k8s.io/reason", decision.reason());
}

/// `?timeout=`, at most the server's own.
fn deadline(info: &RequestInfo<'_>, most: Duration) -> Result<Duration, ApiError> {
    let query = info.query();
    let Some(text) = query.first("timeout").filter(|t| !t.is_empty()) else {
        return Ok(most);
    };
    match peerage_core::duration::parse(text) {
        Ok(asked) => Ok(asked.filter(|d| !d.is_zero()).map_or(most, |d| d.min(most))),
        Err(why) => Err(Status::bad_timeout(&why).into()),
    }
}

/// The methods that change nothing.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
