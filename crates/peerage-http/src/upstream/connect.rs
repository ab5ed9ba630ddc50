//! From an address to an HTTP connection: lookup, TCP, TLS, HTTP/2 or HTTP/1.1 handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::UpstreamOptions;
use super::error::{Cause, tls_cause, tls_detail};
use super::interim::Counted;
use crate::io::{Observed, Traffic};
use crate::tls::noting_doubted;
use crate::{Body, BoxError};

/// Something both `TcpStream` and a TLS stream are.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(super) type Io = TokioIo<Observed<Box<dyn Stream>>>;
pub(super) type Http1 = http1::SendRequest<Body>;
pub(super) type Http2 = http2::SendRequest<Body>;

/// A new connection, not driven by a task yet.
pub(super) enum Opened {
    Http1(Http1, Box<http1::Connection<Io, Body>>),
    Http2(Http2, http2::Connection<Io, Body, Tasks>, Tasks),
}

/// Runs the tasks of an HTTP/2 connection. The first one is the connection itself, which lives as long as its streams and
/// so longer than what hands requests to it; with it they all end.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<OnceLock<AbortHandle>>);

impl Tasks {
    /// Ends the connection, whatever is on it.
    pub(super) fn end(&self) {
        if let Some(connection) = self.0.get() {
            connection.abort();
        }
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let task = tokio::spawn(task);
        self.0.get_or_init(|| task.abort_handle());
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) source: Option<BoxError>,
}

impl Failure {
    fn timed_out(cause: Cause) -> Self {
        Self {
            cause,
            source: None,
        }
    }

    fn new(cause: Cause, source: impl Into<BoxError>) -> Self {
        Self {
            cause,
            source: Some(source.into()),
        }
    }
}

/// Opens a connection; for a tunnel over HTTP/1.1, whatever else the server can. The server's own certificate comes with
/// it.
pub(super) async fn open(
    options: &UpstreamOptions,
    traffic: &Arc<Traffic>,
    tunnel: bool,
) -> Result<(Opened, Option<CertificateDer<'static>>), Failure> {
    let tcp = connect(options, tunnel).await?;
    let Secured {
        stream,
        http2,
        certificate,
    } = secure(options, tcp, tunnel).await?;
    let io = TokioIo::new(Observed::new(stream, traffic.clone()));
    let handshake = async {
        if http2 {
            open_http2(options, io, traffic).await
        } else {
            open_http1(options, io).await
        }
    };
    match timeout(options.handshake_timeout, handshake).await {
        Ok(Ok(Opened::Http2(_, connection, _))) if connection.current_max_send_streams() == 0 => {
            Err(Failure::new(Cause::Handshake, NO_REQUESTS))
        }
        Ok(Ok(opened)) => Ok((opened, certificate)),
        Ok(Err(error)) => Err(Failure::new(Cause::Handshake, error)),
        Err(_) => Err(Failure::timed_out(Cause::Handshake)),
    }
}

async fn connect(options: &UpstreamOptions, tunnel: bool) -> Result<TcpStream, Failure> {
    let lookup = timeout(
        options.connect_timeout,
        tokio::net::lookup_host(options.address.as_str()),
    );
    let addresses: Vec<SocketAddr> = match lookup.await {
        Err(_) => return Err(Failure::timed_out(Cause::Resolve)),
        Ok(Err(error)) => return Err(Failure::new(Cause::Resolve, error)),
        Ok(Ok(addresses)) => addresses.collect(),
    };
    let share = options.connect_timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut failure = Failure::timed_out(Cause::Resolve);
    for address in addresses {
        failure = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => match prepare(&stream, options, tunnel) {
                Ok(()) => return Ok(stream),
                Err(error) => Failure::new(Cause::Unreachable, error),
            },
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Failure::new(Cause::Refused, error)
            }
            Ok(Err(error)) => Failure::new(Cause::Unreachable, error),
            Err(_) => Failure::timed_out(Cause::ConnectTimeout),
        };
    }
    Err(failure)
}

/// The other end of a tunnel may stop reading for as long as it likes: a paused terminal does.
fn prepare(stream: &TcpStream, options: &UpstreamOptions, tunnel: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let unacknowledged = (!tunnel).then_some(options.dead_after);
    crate::io::set_keep_alive(stream, options.dead_after, unacknowledged)
}

/// A connection after the TLS handshake.
struct Secured {
    stream: Box<dyn Stream>,
    /// Whether HTTP/2 was agreed on.
    http2: bool,
    certificate: Option<CertificateDer<'static>>,
}

/// Does the TLS handshake.
async fn secure(
    options: &UpstreamOptions,
    tcp: TcpStream,
    http1_only: bool,
) -> Result<Secured, Failure> {
    let Some((config, name)) = options.tls.config(http1_only) else {
        return Ok(Secured {
            stream: Box::new(tcp),
            http2: false,
            certificate: None,
        });
    };
    // rustls asks for 4 KiB at a time, which for a long list are four system calls for each TLS record.
    let tcp = BufReader::with_capacity(READ, tcp);
    let expected = name.to_str().into_owned();
    let handshake = noting_doubted(TlsConnector::from(config).connect(name, tcp));
    match timeout(options.handshake_timeout, handshake).await {
        Err(_) => Err(Failure::timed_out(Cause::TlsTimeout)),
        Ok((Err(error), doubted)) => {
            let cause = tls_cause(&error);
            let detail = tls_detail(cause, &error, &expected, doubted.first());
            Err(Failure::new(cause, detail))
        }
        Ok((Ok(stream), _)) => {
            let session = stream.get_ref().1;
            let certificates = session.peer_certificates().unwrap_or_default();
            let certificate = certificates.first().cloned();
            let http2 = session.alpn_protocol() == Some(b"h2");
            Ok(Secured {
                http2,
                certificate,
                stream: match http2 {
                    true => Box::new(Counted::new(stream)),
                    false => Box::new(stream),
                },
            })
        }
    }
}

async fn open_http1(options: &UpstreamOptions, io: Io) -> Result<Opened, hyper::Error> {
    let (sender, connection) = http1::Builder::new()
        // As Go writes them, for the few servers that look at the case.
        .title_case_headers(true)
        .max_headers(options.max_headers)
        .max_buf_size(options.max_header_bytes.max(8192))
        .handshake(io)
        .await?;
    Ok(Opened::Http1(sender, Box::new(connection)))
}

async fn open_http2(
    options: &UpstreamOptions,
    io: Io,
    traffic: &Traffic,
) -> Result<Opened, hyper::Error> {
    let streams = u32::try_from(options.max_streams_per_connection)
        .unwrap_or(u32::MAX)
        .max(1);
    let window = options.stream_window.clamp(1 << 16, 1 << 24);
    let tasks = Tasks::default();
    let (sender, connection) = http2::Builder::new(tasks.clone())
        .timer(TokioTimer::new())
        .initial_stream_window_size(window)
        // Room for every stream: answers that nobody reads must not hold up the others (hyperium/hyper #2899).
        .initial_connection_window_size(window.saturating_mul(streams).min((1 << 31) - 1))
        .max_header_list_size(u32::try_from(options.max_header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(options.ping_interval)
        .keep_alive_timeout(options.ping_timeout)
        // By default h2 ends the connection after 1024 streams that it had to reset itself. They come of frames of a
        // server for requests that were given up meanwhile: one client that asks and gives up again and again would
        // end the watches of all others. A server is trusted not to flood us.
        .max_local_error_reset_streams(None)
        .handshake(io)
        .await?;
    // The server's SETTINGS say how many streams it allows. They come with its first bytes; a server that keeps
    // silent is used all the same.
    let _ = timeout(SETTINGS_WAIT, traffic.acknowledged.notified()).await;
    Ok(Opened::Http2(sender, connection, tasks))
}

/// What is wrong with a server that takes connections and nothing on them.
const NO_REQUESTS: &str =
    "it allows no requests on a connection (SETTINGS_MAX_CONCURRENT_STREAMS is 0)";

/// Bytes that are read from a server at once: two TLS records.
const READ: usize = 32 << 10;

/// How long a new connection waits for the number of streams it may carry.
const SETTINGS_WAIT: Duration = Duration::from_millis(500);
