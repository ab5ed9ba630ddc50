//! Two upgraded connections joined: what one side sends, the other gets.
//!
//! Each direction ends by itself (half-close), so output that comes after the input has ended still arrives.
//! There is no idle limit while both directions are open: an idle `exec` may be. Invariant: at most one buffer
//! of each direction is held, whatever the speeds of the two sides.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::Drain;

/// Bytes read before they are written.
const BUFFER: usize = 32 << 10;

/// Times of a tunnel.
#[derive(Debug, Clone, Copy)]
pub struct TunnelOptions {
    /// How long both sides may take to be switched over.
    pub switch_timeout: Duration,
    /// How long nothing may come from the side that is still open after the other has ended.
    pub half_closed_idle: Duration,
}

impl Default for TunnelOptions {
    fn default() -> Self {
        Self {
            switch_timeout: Duration::from_secs(10),
            half_closed_idle: Duration::from_secs(300),
        }
    }
}

/// How a tunnel ended.
#[derive(Debug)]
pub struct Tunnelled {
    /// Bytes from the client to the upstream.
    pub sent: u64,
    /// Bytes from the upstream to the client.
    pub received: u64,
    /// What ended it.
    pub end: TunnelEnd,
}

/// What ended a tunnel.
#[derive(Debug)]
pub enum TunnelEnd {
    /// Both directions came to their end.
    Closed,
    /// One of the two was not switched over in time, or its connection ended before.
    NotSwitched,
    /// One direction ended and the other stayed silent for too long.
    HalfClosed,
    /// The server's time for draining was over.
    Cut,
    /// A connection broke.
    Broken(io::Error),
}

/// Joins the two sides until both have ended. With `drain`, the server waits for the tunnel when it shuts
/// down, and cuts it when the time for that is over.
pub async fn tunnel(
    client: OnUpgrade,
    upstream: OnUpgrade,
    drain: Option<Drain>,
    options: TunnelOptions,
) -> Tunnelled {
    let sent = AtomicU64::new(0);
    let received = AtomicU64::new(0);
    let _counted = drain.as_ref().map(|drain| drain.tasks.token());
    let run = run(client, upstream, &sent, &received, options);
    let end = match &drain {
        None => run.await,
        Some(drain) => tokio::select! {
            end = run => end,
            () = drain.cut.cancelled() => TunnelEnd::Cut,
        },
    };
    Tunnelled {
        sent: sent.into_inner(),
        received: received.into_inner(),
        end,
    }
}

async fn run(
    client: OnUpgrade,
    upstream: OnUpgrade,
    sent: &AtomicU64,
    received: &AtomicU64,
    options: TunnelOptions,
) -> TunnelEnd {
    let both = async { tokio::try_join!(client, upstream) };
    let Ok(Ok((client, upstream))) = timeout(options.switch_timeout, both).await else {
        return TunnelEnd::NotSwitched;
    };
    match join(client, upstream, sent, received, options.half_closed_idle).await {
        Ok(end) => end,
        Err(error) => TunnelEnd::Broken(error),
    }
}

async fn join(
    client: Upgraded,
    upstream: Upgraded,
    sent: &AtomicU64,
    received: &AtomicU64,
    idle: Duration,
) -> io::Result<TunnelEnd> {
    let (client_read, client_write) = tokio::io::split(TokioIo::new(client));
    let (upstream_read, upstream_write) = tokio::io::split(TokioIo::new(upstream));
    let mut out = std::pin::pin!(copy(client_read, upstream_write, sent));
    let mut back = std::pin::pin!(copy(upstream_read, client_write, received));
    let out_first = tokio::select! {
        ended = out.as_mut() => { ended?; true }
        ended = back.as_mut() => { ended?; false }
    };
    if out_first {
        last(back, received, idle).await
    } else {
        last(out, sent, idle).await
    }
}

/// Runs the direction that is still open, until it ends or is silent for `idle`.
async fn last(
    mut copy: std::pin::Pin<&mut impl Future<Output = io::Result<()>>>,
    moved: &AtomicU64,
    idle: Duration,
) -> io::Result<TunnelEnd> {
    let mut before = moved.load(Ordering::Relaxed);
    let mut quiet_since = Instant::now();
    loop {
        match timeout(idle / 4, copy.as_mut()).await {
            Ok(ended) => return ended.map(|()| TunnelEnd::Closed),
            Err(_) if moved.load(Ordering::Relaxed) != before => {
                before = moved.load(Ordering::Relaxed);
                quiet_since = Instant::now();
            }
            Err(_) if quiet_since.elapsed() >= idle => return Ok(TunnelEnd::HalfClosed),
            Err(_) => {}
        }
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
        moved.fetch_add(read as u64, Ordering::Relaxed);
    }
}
