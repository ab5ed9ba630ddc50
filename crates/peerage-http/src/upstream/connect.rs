//! From an address to an HTTP connection: lookup, TCP, TLS, HTTP/2 or HTTP/1.1 handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::UpstreamOptions;
use super::error::{Cause, tls_cause, tls_detail};
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
    Http2(Http2, http2::Connection<Io, Body, TokioExecutor>),
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
            Ok(Secured {
                http2: session.alpn_protocol() == Some(b"h2"),
                certificate: certificates.first().cloned(),
                stream: Box::new(stream),
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
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
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
    Ok(Opened::Http2(sender, connection))
}

/// Bytes that are read from a server at once: two TLS records.
const READ: usize = 32 << 10;

/// How long a new connection waits for the number of streams it may carry.
const SETTINGS_WAIT: Duration = Duration::from_millis(500);
