//! Sending requests to one server.
//!
//! [`Upstream::send`] takes a request, finds or opens a connection, and returns the answer as soon as its head
//! is there; the body streams. To a GET, an answer that announces a short body comes with the beginning of that:
//! the client cannot use the head alone, one write to it is cheaper than two, and a server that breaks off between
//! the two can still be replaced by another. [`Upstream::upgrade`] uses a connection of its own, since HTTP/2 cannot
//! be upgraded. Which server to ask, what headers identify the user, and what a failure looks like to a client are
//! the callers' business.
//!
//! What this does to a request: `Host` (or `:authority`) becomes the server's address, `Expect` is dropped
//! because the body is never held back, trailers that servers refuse are dropped, the extensions stay here. The path and query go out byte for byte,
//! bodies in whatever encoding they have. Nothing is followed, rewritten or unpacked.
//!
//! Retries, all before the first byte of an answer: a request that the server certainly has not looked at
//! (GOAWAY, REFUSED_STREAM, a pooled connection that was already closed) goes over another connection, the last time
//! over a new one that it has to itself until its answer begins, so that no other request has it turned away again; a safe
//! one also once when a used connection broke under it. Everything else is the caller's decision, who gets the
//! request back when that is harmless (see [`SendError::take_request`]).
//!
//! Invariants: everything that waits has a limit; dropping a future or a body cancels what it stands for on
//! the server at once; a body that breaks off is an error for its reader, never a clean end.

mod begun;
mod connect;
mod error;
mod handed;
mod interim;
mod pool;
mod replay;
mod same;

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT, HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Uri, Version};
use hyper::client::conn::TrySendError;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

pub use error::{SendError, Stage, Stranger};
pub use same::is_same_server;

use crate::{Body, BoxError, ClientTls, Request, Response, body, hop};
use begun::{Begun, is_short};
use connect::Opened;
use error::{Cause, exchange_cause};
use interim::{Interim, TooMany};
use pool::{Lease, NoPlace, Place, Pool, Sender, Wanted};
use replay::Replay;

/// How often a request that was turned away unseen is sent again.
const RETRIES: usize = 3;

/// Where an upstream is and how long each step with it may take.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    /// The server: `host:port`.
    pub address: String,
    /// How to connect: trusted CAs, expected name, own certificate.
    pub tls: ClientTls,
    /// Connections at one time, and as many again that take no more requests and still carry answers.
    pub max_connections: usize,
    /// Whether each request has a connection to itself until its answer begins: for requests that have servers close the
    /// connection that they come over.
    pub alone_until_answered: bool,
    /// Requests at one time on one HTTP/2 connection; less if the server allows less.
    pub max_streams_per_connection: usize,
    /// Requests that may wait for a connection.
    pub max_waiting: usize,
    /// How long a request may wait for a connection.
    pub queue_timeout: Duration,
    /// How long looking up the name, and making the TCP connection, may each take.
    pub connect_timeout: Duration,
    /// How long the TLS handshake, and then the HTTP one, may each take.
    pub handshake_timeout: Duration,
    /// How long the server may take to begin its answer.
    pub first_byte_timeout: Duration,
    /// After how long without a request a connection is closed.
    pub idle_timeout: Duration,
    /// How long nothing may be heard after a request until new ones avoid the connection.
    pub suspect_after: Duration,
    /// How often an HTTP/2 connection with open requests and without traffic is pinged. Not less than ten
    /// seconds, or servers close connections for it.
    pub ping_interval: Duration,
    /// How long the answer to a ping may take.
    pub ping_timeout: Duration,
    /// How long the other end may leave sent bytes unacknowledged until the kernel gives it up.
    pub dead_after: Duration,
    /// Bytes of one answer that are taken before they are read by whom they are for.
    pub stream_window: u32,
    /// Bytes of an answer's head.
    pub max_header_bytes: usize,
    /// Header lines of an answer.
    pub max_headers: usize,
}

impl UpstreamOptions {
    /// The usual limits for a server at this `host:port`.
    #[must_use]
    pub fn new(address: impl Into<String>, tls: ClientTls) -> Self {
        Self {
            address: address.into(),
            tls,
            max_connections: 128,
            alone_until_answered: false,
            max_streams_per_connection: 100,
            max_waiting: 10_000,
            queue_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            suspect_after: Duration::from_secs(3),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
            dead_after: Duration::from_secs(10),
            stream_window: 512 << 10,
            max_header_bytes: 1 << 20,
            max_headers: 1024,
        }
    }
}

/// What an upstream's connections are doing: for tests.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpstreamStats {
    /// Connections that take requests.
    pub connections: usize,
    /// Connections being opened.
    pub opening: usize,
    /// Connections that take no more requests and still carry answers.
    pub closing: usize,
    /// Requests waiting for a connection.
    pub waiting: usize,
    /// Requests on HTTP/2 connections.
    pub streams: usize,
    /// HTTP/2 connections on which an expected answer is late.
    pub suspect: usize,
}

/// One remote server. Clones share its connections, which end when the last clone is dropped.
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

struct Inner {
    options: Arc<UpstreamOptions>,
    /// None if the address is none that a request could name; nothing is sent then.
    to: Option<To>,
    pool: Arc<Pool>,
}

/// Whom requests are for, as HTTP/2 and HTTP/1.1 say it.
struct To {
    authority: Authority,
    host: HeaderValue,
}

impl To {
    fn read(address: &str) -> Option<Self> {
        Some(Self {
            authority: address.parse().ok()?,
            host: HeaderValue::try_from(address).ok()?,
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pool.shut();
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Upstream")
            .field(&self.0.options.address)
            .finish()
    }
}

impl Upstream {
    /// A server; nothing is opened before the first request.
    #[must_use]
    pub fn new(options: UpstreamOptions) -> Self {
        let options = Arc::new(options);
        Self(Arc::new(Inner {
            to: To::read(&options.address),
            pool: Pool::new(options.clone(), Default::default()),
            options,
        }))
    }

    /// The same server over connections of its own, at most so many: what waits for a place on the other ones does not hold
    /// up what is sent over these, which are pinged this often while an answer is awaited. Both know the certificate that
    /// the server showed to either last.
    #[must_use]
    pub fn apart(&self, max_connections: usize, ping_interval: Duration) -> Self {
        let options = Arc::new(UpstreamOptions {
            max_connections,
            ping_interval,
            ..UpstreamOptions::clone(&self.0.options)
        });
        Self(Arc::new(Inner {
            to: To::read(&options.address),
            pool: Pool::new(options.clone(), self.0.pool.shown().clone()),
            options,
        }))
    }

    /// Forgets what was heard until now.
    pub fn listen(&self) {
        self.0.pool.listen();
    }

    /// Whether anything has come over an HTTP/2 connection since [`listen`](Self::listen), if only what answers a ping: a
    /// server of which this is true is there, however long it takes to answer requests.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.0.pool.is_heard()
    }

    /// The server's `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.0.options.address
    }

    /// What its connections are doing.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn stats(&self) -> UpstreamStats {
        self.0.pool.stats()
    }

    /// The certificate that the server showed when it was last connected to, other than for an upgrade.
    #[must_use]
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.0.pool.certificate()
    }

    /// Returns when the server ends a connection that could have been used again, at once if it did since this returned
    /// last.
    pub async fn ended(&self) {
        self.0.pool.ended().await;
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// [`SendError`], with the request in it when it may be sent elsewhere.
    pub async fn send(&self, request: Request) -> Result<Response, SendError> {
        let to = match &self.0.to {
            _ if request.method() == Method::CONNECT => Err(Cause::NotForwarded),
            None => Err(Cause::Address),
            Some(to) => Ok(to),
        };
        let to = match to {
            Ok(to) => to,
            Err(cause) => return Err(self.error(cause, None).with_request(Some(request))),
        };
        let (head, body) = request.into_parts();
        let replay = Replay::new(body);
        let failed = match self.exchange_with_retries(to, &head, &replay).await {
            Ok(response) => {
                replay.commit();
                return Ok(response);
            }
            Err(failed) => failed,
        };
        let harmless = !failed.sent() || head.method.is_safe();
        let request = harmless.then(|| replay.read()).flatten();
        Err(failed.with_request(request.map(|body| Request::from_parts(head, body))))
    }

    /// The last failure says whether any attempt sent something.
    async fn exchange_with_retries(
        &self,
        to: &To,
        head: &http::request::Parts,
        replay: &Replay,
    ) -> Result<Response, SendError> {
        let mut sent = false;
        let mut wanted = Wanted::default();
        let mut second_chance = head.method.is_safe();
        let mut retries = RETRIES;
        let mut before = None;
        let failed = loop {
            let Some(body) = replay.read() else {
                // The body is as the client sent it: what kept it from being sent whole is to blame.
                break before.unwrap_or_else(|| self.error(Cause::RequestBody, None));
            };
            let lease = match self.0.pool.place(wanted).await {
                Ok(lease) => lease,
                Err(none) => break self.no_place(none),
            };
            let reused = lease.reused;
            let error = match self.exchange(to, lease, head, body, replay).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            sent |= error.sent();
            let unseen = !error.sent();
            let mut broke = || is_broken(&error) && reused && std::mem::take(&mut second_chance);
            if retries == 0 || !(unseen || broke()) {
                break error;
            }
            before = Some(error);
            retries -= 1;
            wanted = Wanted {
                from_id: Pool::next_id(),
                new: retries == 0,
            };
        };
        Err(failed.with_sent(sent))
    }

    /// Sends a request that asks for an upgrade, over a connection of its own, and waits for the head of its
    /// answer. After a `101` hyper's `OnUpgrade` is in the response's extensions; any other answer is an
    /// ordinary one, to be judged by the caller.
    ///
    /// # Errors
    /// [`SendError`]; also for a request that is no upgrade by [`hop::is_upgrade`].
    pub async fn upgrade(&self, request: Request) -> Result<Response, SendError> {
        if !hop::is_upgrade(request.headers()) {
            return Err(self
                .error(Cause::NoUpgrade, None)
                .with_request(Some(request)));
        }
        let Some(to) = &self.0.to else {
            return Err(self.error(Cause::Address, None).with_request(Some(request)));
        };
        let traffic = crate::io::Traffic::new();
        let (sender, connection) = match connect::open(&self.0.options, &traffic, true).await {
            Ok((Opened::Http1(sender, connection), _)) => (sender, connection),
            Ok((Opened::Http2(..), _)) => {
                return Err(self
                    .error(Cause::Handshake, None)
                    .with_request(Some(request)));
            }
            Err(failure) => {
                let error = self.error(failure.cause, failure.source);
                return Err(error.with_request(Some(request)));
            }
        };
        let address = self.0.options.address.clone();
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(address, %error, "upgraded connection ended");
            }
        });
        let (head, body) = request.into_parts();
        let replay = Replay::new(body);
        let limit = self.0.options.first_byte_timeout;
        let body = replay.read().unwrap_or_else(body::empty);
        let request = http1_request(to, &head, body);
        match timeout(limit, handed::over_http1(sender, request)).await {
            Ok((Ok(response), sender)) => {
                replay.commit();
                Ok(response.map(|body| body::guarded(body::boxed(body), Held(sender))))
            }
            Ok((Err(mut error), _)) => {
                let unsent = error.take_message();
                let error = error.into_error();
                let error = self.error(exchange_cause(&error, replay.broke()), Some(error.into()));
                let request = unsent.and_then(|_| replay.read());
                let request = request.map(|body| Request::from_parts(head, body));
                Err(error.with_sent(request.is_none()).with_request(request))
            }
            Err(_) => Err(self.error(Cause::FirstByte, None).with_sent(true)),
        }
    }

    async fn exchange(
        &self,
        to: &To,
        lease: Lease,
        head: &http::request::Parts,
        body: Body,
        replay: &Replay,
    ) -> Result<Response, SendError> {
        let Lease {
            sender, mut place, ..
        } = lease;
        let connection = place.connection();
        let answer = async {
            let response = match sender {
                Sender::Http2(sender) => {
                    let mut request = http2_request(to, head, body).map_err(Failed::Unfit)?;
                    if !head.method.is_safe() && matches!(replay, Replay::Empty) {
                        end_apart(&mut request);
                    }
                    let response = handed::over_http2(sender, request).await?;
                    place.answered();
                    response
                }
                Sender::Http1(sender) => {
                    let mut request = http1_request(to, head, body);
                    let interim = Interim::of(&mut request);
                    let (told, sender) = tokio::select! {
                        told = handed::over_http1(sender, request) => told,
                        too_many = interim.too_many() => return Err(Failed::Interim(too_many)),
                    };
                    let response = told?;
                    if let Some(sender) = sender {
                        place.keep(sender);
                    }
                    response
                }
            };
            let waits = head.method == Method::GET && is_short(&response);
            Ok(Begun::of(response, waits).await?)
        };
        match timeout(self.0.options.first_byte_timeout, answer).await {
            Ok(Ok(begun)) => Ok(begun.receive(place)),
            Ok(Err(failed)) => Err(self.failed_exchange(failed, &place, replay)),
            Err(_) => Err(self.error(Cause::FirstByte, None).with_sent(true)),
        }
        .map_err(|error| error.with_connection(connection))
    }

    fn failed_exchange(&self, failed: Failed, place: &Place, replay: &Replay) -> SendError {
        let (unsent, error) = match failed {
            Failed::Unfit(error) => {
                return self.error(Cause::NotForwarded, Some(error.into()));
            }
            Failed::Interim(too_many) => {
                return self
                    .error(Cause::BadAnswer, Some(too_many.into()))
                    .with_sent(true);
            }
            Failed::Http { unsent, error } => (unsent, error),
        };
        let cause = exchange_cause(&error, replay.broke());
        use Cause::{Closed, EndedHere, GoAway, PingTimeout};
        if matches!(cause, Closed | PingTimeout | EndedHere | GoAway) {
            place.retire();
        }
        let sent = !unsent && !cause.is_unprocessed();
        self.error(cause, Some(error.into())).with_sent(sent)
    }

    fn no_place(&self, none: NoPlace) -> SendError {
        match none {
            NoPlace::Saturated => self.error(Cause::Saturated, None),
            NoPlace::Failed(number, failure) => {
                let source = failure
                    .source
                    .as_ref()
                    .map(|source| BoxError::from(source.to_string()));
                self.error(failure.cause, source).with_connection(number)
            }
        }
    }

    fn error(&self, cause: Cause, source: Option<BoxError>) -> SendError {
        SendError::new(cause, &self.0.options.address, source)
    }
}

/// Whether the connection broke under the request.
fn is_broken(error: &SendError) -> bool {
    use Cause::{Closed, EndedHere, PingTimeout};
    matches!(error.cause(), Closed | PingTimeout | EndedHere)
}

fn http1_request(to: &To, head: &http::request::Parts, body: Body) -> Request {
    let mut request = http::Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = head.headers.clone();
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = Uri::from(target(&head.uri));
    request.headers_mut().remove(EXPECT);
    request.headers_mut().insert(HOST, to.host.clone());
    request
}

fn http2_request(
    to: &To,
    head: &http::request::Parts,
    body: Body,
) -> Result<Request, http::uri::InvalidUriParts> {
    let mut request = http::Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = head.headers.clone();
    *request.version_mut() = Version::HTTP_2;
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(to.authority.clone());
    parts.path_and_query = Some(target(&head.uri));
    *request.uri_mut() = Uri::from_parts(parts)?;
    request.headers_mut().remove(EXPECT);
    request.headers_mut().remove(HOST);
    Ok(request)
}

/// Has the end of a request without a body sent after its head, by itself. hyper says GOAWAY also of a request whose head it
/// had sent when it heard of that, whatever the server has looked at; it has not read the body then, so what was sent is no
/// whole request. That there is no content its head says in other words.
fn end_apart(request: &mut Request) {
    let headers = request.headers_mut();
    headers
        .entry(CONTENT_LENGTH)
        .or_insert(HeaderValue::from_static("0"));
    *request.body_mut() = body::ends_apart();
}

/// The path and query as they came.
fn target(uri: &Uri) -> PathAndQuery {
    let root = || PathAndQuery::from_static("/");
    uri.path_and_query().cloned().unwrap_or_else(root)
}

/// An exchange that did not come to an answer.
enum Failed {
    /// The request cannot be said over this connection.
    Unfit(http::uri::InvalidUriParts),
    /// The server sends interim answers only.
    Interim(TooMany),
    Http {
        /// Whether nothing of the request was sent.
        unsent: bool,
        error: hyper::Error,
    },
}

impl From<TrySendError<Request>> for Failed {
    fn from(mut error: TrySendError<Request>) -> Self {
        let unsent = error.take_message().is_some();
        let error = error.into_error();
        Self::Http { unsent, error }
    }
}

impl From<hyper::Error> for Failed {
    fn from(error: hyper::Error) -> Self {
        let unsent = false;
        Self::Http { unsent, error }
    }
}

/// Keeps the sender of an upgraded connection while its answer is read.
struct Held<S>(#[allow(dead_code)] S);
impl<S> Unpin for Held<S> {}
