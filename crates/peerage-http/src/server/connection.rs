//! One accepted connection: handshake, requests, and a watchdog beside them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::leftover::Leftover;
use super::pace::{Answers, InFlight};
use super::refusal::{self, Refusals};
use super::targets::{Cut, Targets};
use super::{ConnInfo, Drain, ServerOptions, TlsPeer};
use crate::io::{Observed, Traffic};
use crate::{Request, Response, ServerTls, body};

/// What kube-apiserver says when a handler panicked.
const PANIC_TEXT: &str = "This request caused apiserver to panic. Look in the logs for details.\n";

pub(super) struct Connection<S> {
    pub(super) tls: ServerTls,
    pub(super) service: S,
    pub(super) options: Arc<ServerOptions>,
    pub(super) drain: Drain,
    pub(super) remote: SocketAddr,
    pub(super) local: SocketAddr,
}

/// What the watchdog wants done.
enum Verdict {
    Fine,
    CloseWhenIdle,
    Cut,
}

impl<S> Connection<S>
where
    S: tower::Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    pub(super) async fn run(self, stream: TcpStream) {
        let Some(config) = self.tls.config() else {
            return self.serve(stream, None).await;
        };
        let handshake = handshake(
            TlsAcceptor::from(config),
            stream,
            self.remote,
            self.options.handshake_timeout,
            self.drain.closing.clone(),
        );
        let Some(stream) = handshake.await else {
            self.options.metrics.handshake_failures.inc();
            return;
        };
        let peer = Arc::new(TlsPeer::of(&stream));
        self.serve(stream, Some(peer)).await;
    }

    async fn serve<I>(self, stream: I, peer: Option<Arc<TlsPeer>>)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let http2 = peer
            .as_ref()
            .is_some_and(|peer| peer.alpn.as_deref() == Some(b"h2"));
        let traffic = Traffic::new();
        let answers = Answers::new(traffic.clone(), http2);
        let builder = builder(&self.options, peer.as_deref());
        let cut = Arc::new(Cut::default());
        // Without TLS the first bytes say what is spoken.
        let targets = Targets::new(cut.clone(), peer.is_some().then_some(http2));
        let service = self.hyper_service(peer, answers.clone(), cut);
        let stream = Observed::new(stream, traffic.clone());
        let io = TokioIo::new(Refusals::new(stream, answers.clone(), targets));
        let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
        let mut ticks = tokio::time::interval(tick(&self.options));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut closing = false;
        loop {
            let verdict = tokio::select! {
                // What has arrived is looked at before the time it took is judged.
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(remote = %self.remote, error, "connection ended");
                    }
                    return;
                }
                () = self.drain.cut.cancelled() => return,
                () = self.drain.closing.cancelled(), if !closing => Verdict::CloseWhenIdle,
                _ = ticks.tick() => self.watch(&traffic, &answers, http2),
            };
            match verdict {
                Verdict::Fine => {}
                Verdict::Cut => return,
                Verdict::CloseWhenIdle if closing => {}
                Verdict::CloseWhenIdle => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    /// Judges the connection by what moved on it.
    fn watch(&self, traffic: &Traffic, answers: &Answers, http2: bool) -> Verdict {
        let now = traffic.now();
        let over =
            |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_millis();
        let options = &self.options;
        let (answer_limit, stream_limit) =
            (options.write_stall_timeout, options.stream_stall_timeout);
        let stalled = answers.sweep(answer_limit, stream_limit);
        options.metrics.stalled.inc_by(stalled as u64);
        let limit = if answers.streams() > 0 {
            stream_limit
        } else {
            answer_limit
        };
        if traffic
            .write_blocked()
            .is_some_and(|since| over(since, limit))
        {
            options.metrics.stalled.inc();
            tracing::debug!(remote = %self.remote, "connection cut: the client does not read");
            return Verdict::Cut;
        }
        let Some(idle_since) = answers.idle_since() else {
            return Verdict::Fine;
        };
        let head_since = match traffic.read_since() {
            _ if http2 => None,
            None if answers.total() == 0 => Some(0),
            since => since,
        };
        if head_since.is_some_and(|since| over(since, options.header_read_timeout)) {
            tracing::debug!(remote = %self.remote, "connection cut: the request's head took too long");
            return Verdict::Cut;
        }
        if over(idle_since, options.idle_timeout) {
            return Verdict::CloseWhenIdle;
        }
        Verdict::Fine
    }

    fn hyper_service(
        &self,
        tls: Option<Arc<TlsPeer>>,
        answers: Arc<Answers>,
        cut: Arc<Cut>,
    ) -> Requests<S> {
        Requests {
            info: ConnInfo {
                remote: self.remote,
                local: self.local,
                tls,
            },
            drain: self.drain.clone(),
            service: self.service.clone(),
            panics: self.options.metrics.panics.clone(),
            max_headers: self.options.max_headers,
            leaving: self.options.leaving.clone(),
            answers,
            cut,
        }
    }
}

/// The service as hyper wants it: adds what a request is told about its connection, and keeps count.
struct Requests<S> {
    info: ConnInfo,
    drain: Drain,
    service: S,
    panics: Counter,
    max_headers: usize,
    leaving: CancellationToken,
    answers: Arc<Answers>,
    cut: Arc<Cut>,
}

impl<S> hyper::service::Service<http::Request<Incoming>> for Requests<S>
where
    S: tower::Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let in_flight = self.answers.begin();
        let head_only = request.method() == Method::HEAD;
        let shown = move |response| match head_only {
            true => without_body(response),
            false => response,
        };
        if let Some(refused) = refusal::of(&request, self.max_headers, &self.cut) {
            let refused = shown(refused.map(|body| in_flight.pace(body)));
            return Box::pin(std::future::ready(Ok(refused)));
        }
        let is_http1 = request.version() < Version::HTTP_2;
        let mut request = request.map(body::boxed);
        request.extensions_mut().insert(self.info.clone());
        request.extensions_mut().insert(self.drain.clone());
        let (request, leftover) = Leftover::of(request);
        let answer = self.service.clone().oneshot(request);
        let panics = self.panics.clone();
        let leaving = is_http1.then(|| self.leaving.clone());
        let answered = answered(answer, leftover, in_flight, panics, leaving);
        Box::pin(answered.map_ok(shown))
    }
}

/// Waits for an answer, be it that of a panic.
async fn answered(
    answer: impl Future<Output = Result<Response, Infallible>> + Send,
    leftover: Leftover,
    in_flight: InFlight,
    panics: Counter,
    leaving: Option<CancellationToken>,
) -> Result<Response, Infallible> {
    let mut response = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(response)) => response,
        Err(_) => {
            panics.inc();
            panicked()
        }
    };
    leftover.discard().await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        in_flight.upgrade();
    } else if leaving.is_some_and(|leaving| leaving.is_cancelled()) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    Ok(response.map(|body| in_flight.pace(body)))
}

/// What HEAD is answered: hyper leaves the body out over HTTP/1.1 only, and clients of HTTP/2 take one for an error.
///
/// The length is what GET would have had (RFC 9110, 9.3.2), as far as that is known: who answers HEAD without a body says
/// with that nothing of a length. Go does the same.
fn without_body(mut response: Response) -> Response {
    let length = response.body().size_hint().exact();
    let headers = response.headers_mut();
    let is_stated = headers.contains_key(CONTENT_LENGTH);
    if let Some(length) = length.filter(|length| *length > 0 && !is_stated) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    response.map(|_| body::empty())
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    remote: SocketAddr,
    limit: Duration,
    closing: CancellationToken,
) -> Option<TlsStream<TcpStream>> {
    let shaken = tokio::select! {
        () = closing.cancelled() => return None,
        shaken = tokio::time::timeout(limit, acceptor.accept(stream)) => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::debug!(%remote, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%remote, "TLS handshake took too long"),
    }
    None
}

fn panicked() -> Response {
    let mut response = Response::new(body::full(PANIC_TEXT));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

/// How often the watchdog looks: a fraction of the shortest time it watches over.
fn tick(options: &ServerOptions) -> Duration {
    let shortest = options
        .header_read_timeout
        .min(options.idle_timeout)
        .min(options.write_stall_timeout);
    (shortest / 8).clamp(Duration::from_millis(10), Duration::from_secs(5))
}

fn builder(options: &ServerOptions, peer: Option<&TlsPeer>) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_headers(options.max_headers)
        // hyper refuses smaller buffers.
        .max_buf_size(options.max_header_bytes.max(8192));
    let streams = options.h2_max_streams.max(1);
    let window = options.h2_stream_window.clamp(1 << 16, 1 << 24);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(super::DEAD_AFTER / 2)
        .keep_alive_timeout(super::DEAD_AFTER / 2)
        .max_concurrent_streams(streams)
        .max_pending_accept_reset_streams(options.h2_max_pending_resets)
        .max_local_error_reset_streams(options.h2_max_pending_resets)
        .max_header_list_size(u32::try_from(options.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(window)
        // Room for every stream, so that a body nobody reads cannot hold up the others (hyperium/hyper #2899).
        .initial_connection_window_size(window.saturating_mul(streams).min((1 << 31) - 1));
    match peer.map(|peer| peer.alpn.as_deref()) {
        None => builder,
        Some(Some(b"h2")) => builder.http2_only(),
        Some(_) => builder.http1_only(),
    }
}
