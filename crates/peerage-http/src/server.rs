//! Accepting connections: TLS, HTTP/1.1 and HTTP/2 on one port, limits, graceful shutdown.
//!
//! What every request gets: its target as the raw bytes of the request line (one that the HTTP library would cut off at a
//! `#` is refused), [`ConnInfo`] and [`Drain`] in its
//! extensions, and hyper's `OnUpgrade` when it may be upgraded. What a request means is the service's business.
//!
//! Shutdown: the listener closes first, so that clients connect elsewhere; idle connections are closed, HTTP/2
//! ones get GOAWAY and HTTP/1.1 answers `Connection: close`; when the time for draining has run out, what is
//! left is cut off, tunnels included. Readiness and the delay before all this are the caller's, who says when it begins
//! ([`ServerOptions::leaving`]).
//!
//! Invariants: every connection and tunnel is counted; nothing a client does or fails to do keeps
//! [`Server::serve`] from returning once the drain time is over.

mod connection;
mod leftover;
mod pace;
mod refusal;
mod targets;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::tls::TlsPeer;
use crate::{Request, Response, ServerTls};

/// Within about this time a client that vanished without a word is noticed: by the kernel's probes when nothing
/// is under way, by pings on every HTTP/2 connection.
const DEAD_AFTER: Duration = Duration::from_secs(25);

/// The connection a request came over. In each request's extensions.
#[derive(Debug, Clone)]
pub struct ConnInfo {
    /// The client's address.
    pub remote: SocketAddr,
    /// The address it connected to.
    pub local: SocketAddr,
    /// What the TLS handshake told; none over plain HTTP.
    pub tls: Option<Arc<TlsPeer>>,
}

/// The server's shutdown, for what outlives an answer: watches and tunnels. In each request's extensions.
#[derive(Debug, Clone)]
pub struct Drain {
    /// Cancelled when shutdown begins: a good moment to end a stream between two frames.
    pub closing: CancellationToken,
    /// Cancelled when the time for draining has run out: everything must end.
    pub cut: CancellationToken,
    /// Counts what shutdown waits for besides connections.
    pub tasks: TaskTracker,
}

/// Limits and times of a [`Server`]. The defaults are kube-apiserver's where it has one.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Connections at one time; more wait in the backlog of the listener.
    pub max_connections: usize,
    /// How long the TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a request's head may take, and a new HTTP/1.1 connection until its first request is there.
    pub header_read_timeout: Duration,
    /// After how long without a request a connection is closed.
    pub idle_timeout: Duration,
    /// After how long a client that does not read an answer of known length loses it.
    pub write_stall_timeout: Duration,
    /// The same for answers without a known length: watches and logs, which people pause.
    pub stream_stall_timeout: Duration,
    /// Bytes of a request's head.
    pub max_header_bytes: usize,
    /// Header lines of a request.
    pub max_headers: usize,
    /// Requests at one time on one HTTP/2 connection.
    pub h2_max_streams: u32,
    /// Bytes of a request body that an HTTP/2 client may send before they are read, for each request.
    pub h2_stream_window: u32,
    /// Requests that a client may reset before they were looked at, until its connection is closed.
    pub h2_max_pending_resets: usize,
    /// How long requests and tunnels may go on once shutdown has begun.
    pub drain_timeout: Duration,
    /// Cancelled when the server is about to shut down: clients of HTTP/1.1 are asked from then on to use another
    /// connection for their next request, since one that is idle when serving ends may be closed in the moment in
    /// which a request comes. (HTTP/2 has GOAWAY for that.)
    pub leaving: CancellationToken,
    /// Counts of what happens.
    pub metrics: ServerMetrics,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_connections: 20_000,
            handshake_timeout: Duration::from_secs(10),
            header_read_timeout: Duration::from_secs(32),
            idle_timeout: Duration::from_secs(90),
            write_stall_timeout: Duration::from_secs(60),
            stream_stall_timeout: Duration::from_secs(3600),
            max_header_bytes: 1 << 20,
            max_headers: 2048,
            h2_max_streams: 100,
            h2_stream_window: 256 << 10,
            h2_max_pending_resets: 100,
            drain_timeout: Duration::from_secs(60),
            leaving: CancellationToken::new(),
            metrics: ServerMetrics::default(),
        }
    }
}

/// What a server counts; register it with a [`Registry`](crate::metrics::Registry).
#[derive(Debug, Clone, Default)]
pub struct ServerMetrics {
    /// Connections open now.
    pub connections: Gauge,
    /// Connections accepted.
    pub accepted: Counter,
    /// Handshakes that failed or took too long.
    pub handshake_failures: Counter,
    /// Answers and connections given up because the client did not read.
    pub stalled: Counter,
    /// Requests whose service panicked.
    pub panics: Counter,
}

impl ServerMetrics {
    /// Registers all counts.
    pub fn register(&self, registry: &crate::metrics::Registry) {
        let r = registry;
        r.register(
            "peerage_server_connections",
            "Connections open now",
            self.connections.clone(),
        );
        r.register(
            "peerage_server_connections_total",
            "Connections accepted",
            self.accepted.clone(),
        );
        r.register(
            "peerage_server_handshake_failures_total",
            "TLS handshakes that failed or took too long",
            self.handshake_failures.clone(),
        );
        r.register(
            "peerage_server_stalled_total",
            "Answers given up because the client did not read",
            self.stalled.clone(),
        );
        r.register(
            "peerage_server_panics_total",
            "Requests whose handling panicked",
            self.panics.clone(),
        );
    }
}

/// How a server came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Everything ended by itself.
    Whole,
    /// So many connections and tunnels were cut off when the drain time was over.
    Cut(usize),
}

impl Drained {
    /// Says in the log that a task that served did not come to its own end. What was cut off has been said by then.
    pub fn tell(ended: Result<Drained, JoinError>) {
        if let Err(error) = ended {
            tracing::error!(%error, "serving ended badly");
        }
    }
}

/// An HTTP server.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Serves until `shutdown` is cancelled and everything has ended or the drain time is over.
    pub async fn serve<S>(
        listener: TcpListener,
        tls: ServerTls,
        service: S,
        options: ServerOptions,
        shutdown: CancellationToken,
    ) -> Drained
    where
        S: tower::Service<Request, Response = Response, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let drain = Drain {
            closing: shutdown.clone(),
            cut: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let acceptor = Acceptor::new(tls, options, drain.clone());
        acceptor.accept_all(&listener, service).await;
        drop(listener);
        drain.tasks.close();
        let limit = acceptor.options.drain_timeout;
        if tokio::time::timeout(limit, drain.tasks.wait())
            .await
            .is_ok()
        {
            return Drained::Whole;
        }
        let left = drain.tasks.len();
        tracing::warn!(
            left,
            "connections and tunnels are cut off: the time for draining is over"
        );
        drain.cut.cancel();
        drain.tasks.wait().await;
        Drained::Cut(left)
    }

    /// Waits until somebody says `stop`; if the task that serves ends before, which it should not, how it ended.
    pub async fn ends_before(
        stop: &CancellationToken,
        serving: &mut JoinHandle<Drained>,
    ) -> Option<Result<Drained, JoinError>> {
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            ended = serving => Some(ended),
        }
    }
}

struct Acceptor {
    tls: ServerTls,
    options: Arc<ServerOptions>,
    drain: Drain,
    slots: Arc<Semaphore>,
}

impl Acceptor {
    fn new(tls: ServerTls, options: ServerOptions, drain: Drain) -> Self {
        let slots = options.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        let slots = Arc::new(Semaphore::new(slots));
        Self {
            tls,
            options: Arc::new(options),
            drain,
            slots,
        }
    }

    async fn accept_all<S>(&self, listener: &TcpListener, service: S)
    where
        S: tower::Service<Request, Response = Response, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.closing.cancelled() => return,
                accepted = self.accept(listener) => accepted,
            };
            match accepted {
                Ok((stream, remote, slot)) => self.start(service.clone(), stream, remote, slot),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    // Out of file descriptors or memory: trying at once again would only burn the processor.
                    tracing::error!(%error, "cannot accept connections");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let slot = self
            .slots
            .clone()
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let (stream, remote) = listener.accept().await?;
        Ok((stream, remote, slot))
    }

    fn start<S>(
        &self,
        service: S,
        stream: TcpStream,
        remote: SocketAddr,
        slot: OwnedSemaphorePermit,
    ) where
        S: tower::Service<Request, Response = Response, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let Ok(local) = prepare(&stream) else { return };
        let connection = connection::Connection {
            tls: self.tls.clone(),
            service,
            options: self.options.clone(),
            drain: self.drain.clone(),
            remote,
            local,
        };
        self.options.metrics.accepted.inc();
        let open = OpenConnection::new(self.options.metrics.connections.clone(), slot);
        self.drain.tasks.spawn(async move {
            connection.run(stream).await;
            drop(open);
        });
    }
}

/// Counts a connection for as long as it lives.
struct OpenConnection {
    gauge: Gauge,
    _slot: OwnedSemaphorePermit,
}

impl OpenConnection {
    fn new(gauge: Gauge, slot: OwnedSemaphorePermit) -> Self {
        gauge.inc();
        Self { gauge, _slot: slot }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Small frames go out at once, and an idle client that vanished without a word is noticed.
fn prepare(stream: &TcpStream) -> io::Result<SocketAddr> {
    let local = stream.local_addr()?;
    stream.set_nodelay(true)?;
    crate::io::set_keep_alive(stream, DEAD_AFTER, None)?;
    Ok(local)
}

/// What is to be done about an address that cannot be listened on, to be put behind the failure; empty where that is not
/// known.
#[must_use]
pub fn why_not_bound(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; is another server running there?",
        io::ErrorKind::AddrNotAvailable => ": none of this host's interfaces has that address",
        io::ErrorKind::PermissionDenied => ": this user may not take that port",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn an_address_that_cannot_be_had_is_told_with_what_is_to_be_done() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = taken.local_addr().map(|address| (address, taken)).unwrap();
        for (address, says) in [
            (taken.0, "; is another server running there?"),
            // RFC 5737: no host has that.
            (
                "192.0.2.1:0".parse().unwrap(),
                ": none of this host's interfaces has that address",
            ),
        ] {
            let error = TcpListener::bind(address).await.unwrap_err();
            assert_eq!(why_not_bound(&error), says, "{error}");
        }
    }
}
