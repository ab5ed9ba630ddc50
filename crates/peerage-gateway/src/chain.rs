//! What every request goes through before the proxy: what it asks for, whether it has been here before, whom its
//! certificate stands for, audit.
//!
//! Who presents a certificate of the client CA is known here and told to the servers in identity headers. Whoever does
//! not is nobody's business but theirs: the request travels with the credentials that it has, over connections that
//! carry none of ours. What anyone may do is the servers' decision in both cases.
//!
//! Invariants: no identity header that a client sent survives, whatever way its request takes; a request that was here
//! before is not sent on again.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use peerage_auth::audit::{self, AuditContext, AuditLog};
use peerage_auth::{AuthError, Authenticated, Authenticator, PassedCredentials, VerifiedPeer};
use peerage_core::{RequestInfo, Status, User};
use peerage_http::{ConnInfo, Drain, HttpService, Request, Response, closing};
use peerage_proxy::{Form, LogGate, PeerProxy, Rendering, headers};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::page;
use crate::readiness::Unready;

/// What a client that ran into a loop is told to wait: somebody has to mend it.
const LOOP_RETRY: u32 = 5;

/// Between two log lines about certificates that nobody vouches for.
const STRANGERS_LOG: Duration = Duration::from_secs(60);

/// What the chain needs; shared by all connections.
pub(crate) struct Shared {
    pub(crate) id: Arc<str>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) audit: AuditLog,
    pub(crate) rendering: Rendering,
    /// Cancelled when the gateway is to stop.
    pub(crate) stop: CancellationToken,
    pub(crate) loops: Counter,
    /// Whose own readiness the client's address tells too; none beside a server, whose readiness is passed on.
    pub(crate) balancer: Option<PeerProxy>,
    pub(crate) strangers: Strangers,
}

impl Shared {
    /// What `/readyz` on the clients' address says while nothing that is sent on would be answered.
    fn red(&self) -> Option<Response> {
        let unready = match &self.balancer {
            Some(proxy) => Unready::of(&self.stop, proxy),
            // Beside a server it is that server's readiness that clients ask for.
            None => self.stop.is_cancelled().then_some(Unready::Stopping),
        }?;
        let status = match unready {
            Unready::Stopping => StatusCode::INTERNAL_SERVER_ERROR,
            Unready::Unheard | Unready::NoneUsable => StatusCode::SERVICE_UNAVAILABLE,
        };
        Some(page::text(status, unready.text()))
    }
}

/// Clients whose certificates nobody vouches for: with a wrong `--client-ca-file` these are all of them.
pub(crate) struct Strangers {
    pub(crate) refused: Counter,
    log_gate: LogGate,
}

impl Strangers {
    pub(crate) fn new(refused: Counter) -> Strangers {
        let log_gate = LogGate::new(STRANGERS_LOG);
        Strangers { refused, log_gate }
    }

    fn note(&self, error: &AuthError, conn: &ConnInfo) {
        let shown = conn.tls.as_ref().and_then(|tls| tls.certificates.first());
        let (AuthError::Certificate(why), Some(shown)) = (error, shown) else {
            return;
        };
        self.refused.inc();
        let Some(held_back) = self.log_gate.pass(Instant::now()) else {
            return;
        };
        let issuer = peerage_http::tls::issuer(shown);
        let reason = why.source().map(ToString::to_string);
        let reason = reason.unwrap_or_else(|| why.to_string());
        let remote = conn.remote;
        tracing::warn!(
            %remote,
            held_back,
            "a client showed a certificate of {issuer} that is not accepted (--client-ca-file), and was answered 401: {reason}"
        );
    }
}

/// The outermost service.
#[derive(Clone)]
pub(crate) struct Chain {
    shared: Arc<Shared>,
    /// The proxy.
    inner: HttpService,
}

impl Chain {
    pub(crate) fn new(shared: Arc<Shared>, inner: HttpService) -> Chain {
        Chain { shared, inner }
    }

    /// Answers to `/version` tell that a gateway stands here, to whoever asks: it has no version of its own, and to tools
    /// it would pass for the server that it asks. All others are as the servers give them.
    async fn answer(self, request: Request) -> Response {
        let asks_version = request.uri().path() == "/version";
        let mut response = self.unmarked(request).await;
        if asks_version {
            headers::mark_gateway(response.headers_mut());
        }
        response
    }

    async fn unmarked(self, mut request: Request) -> Response {
        let target = request.uri().path_and_query().map_or("/", |t| t.as_str());
        let info = match RequestInfo::parse(request.method().as_str(), target) {
            Ok(info) => Arc::new(info.into_owned()),
            Err(error) => {
                let id = audit::audit_id(request.headers());
                return audit::numbered(&id, peerage_http::plain(&error.plain()));
            }
        };
        request.extensions_mut().insert(info.clone());
        if headers::has_trace(request.headers(), &self.shared.id) {
            return self.refuse_loop(&request, &info);
        }
        if info.path() == "/readyz"
            && let Some(red) = self.shared.red()
        {
            return red;
        }
        self.identified(request, &info).await
    }

    /// The request left this gateway and came back to it: an address leads to where it should not.
    fn refuse_loop(&self, request: &Request, info: &RequestInfo<'_>) -> Response {
        self.shared.loops.inc();
        let message = "this request has passed through this gateway before: an upstream or peer address leads back to it";
        let status = Status::service_unavailable(message).with_retry_after(LOOP_RETRY);
        let mut response = Form::of(request, info).say(&status, &self.shared.rendering);
        headers::name_server(response.headers_mut(), &self.shared.id);
        audit::numbered(&audit::audit_id(request.headers()), response)
    }

    /// From authentication on.
    async fn identified(self, request: Request, info: &Arc<RequestInfo<'static>>) -> Response {
        let form = Form::of(&request, info);
        let (mut parts, body) = request.into_parts();
        let Some(conn) = parts.extensions.get::<ConnInfo>().cloned() else {
            let status = Status::internal("the connection is unknown");
            return form.say(&status, &self.shared.rendering);
        };
        let id = audit::audit_id(&parts.headers);
        let log = self.shared.audit.clone();
        log.ready().await;
        let authenticator = &self.shared.authenticator;
        let known = authenticator.authenticate_certificate(&mut parts, &conn);
        let user = match &known {
            Ok(Some(known)) => known.user.clone(),
            // Whose credentials they are is found out by the server that gets them.
            Ok(None) | Err(_) => Arc::new(User::default()),
        };
        let record = log.begin(&id, &user, info, &parts.headers, &conn);
        let response = match known {
            Ok(known) => {
                introduce(&mut parts, known);
                parts.extensions.insert(record.clone());
                let request = Request::from_parts(parts, body);
                self.observed(request, info, &record).await
            }
            Err(error) => {
                self.shared.strangers.note(&error, &conn);
                tracing::debug!(%error, remote = %conn.remote, "not authenticated");
                let status = Status::unauthorized();
                record.fail(&status);
                let response = form.say(&status, &self.shared.rendering);
                record.respond(response, false)
            }
        };
        audit::numbered(&id, response)
    }

    /// From the proxy on, with what becomes of it recorded.
    async fn observed(
        mut self,
        request: Request,
        info: &RequestInfo<'_>,
        record: &AuditContext,
    ) -> Response {
        let long_running = info.is_long_running() || peerage_http::is_upgrade(request.headers());
        let drain = request.extensions().get::<Drain>().cloned();
        let drain = drain.filter(|_| info.verb() == "watch");
        let answer = async move {
            let response = match self.inner.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            match drain {
                Some(drain) => closing::end_with(response, drain.closing),
                None => response,
            }
        };
        audit::observe(record, long_running, Box::pin(answer)).await
    }
}

/// Tells those who come after what was found out of the client.
fn introduce(parts: &mut Parts, known: Option<Authenticated>) {
    let Some(known) = known else {
        parts.extensions.insert(PassedCredentials);
        return;
    };
    if known.verified_peer {
        parts.extensions.insert(VerifiedPeer);
    }
    parts.extensions.insert(known.user);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use peerage_http::TlsPeer;
    use peerage_http::testing::Authority;

    #[test]
    fn certificates_that_nobody_vouches_for_are_counted_and_told_of_now_and_then() {
        let strangers = Strangers::new(Counter::default());
        let certificate = Authority::new("other ca").client("alice").der;
        let address = "127.0.0.1:1".parse().unwrap();
        let conn = ConnInfo {
            remote: address,
            local: address,
            tls: Some(Arc::new(TlsPeer::new(vec![certificate], None))),
        };
        for _ in 0..3 {
            strangers.note(&AuthError::Certificate("unknown issuer".into()), &conn);
        }
        strangers.note(&AuthError::NoCredentials, &conn);
        assert_eq!(strangers.refused.get(), 3);
        assert!(strangers.log_gate.pass(Instant::now()).is_none());
    }
}
