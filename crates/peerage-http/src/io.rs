//! A connection that can be asked when bytes last moved.
//!
//! hyper does not tell whether a peer still reads and writes; the server's and the pool's watchdogs need it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// When bytes moved on one connection, in milliseconds since it began; 0 stands for never.
#[derive(Debug)]
pub(crate) struct Traffic {
    begun: Instant,
    /// Of the first byte read since [`Traffic::forget_read`].
    read_since: AtomicU64,
    /// Since when a write waits for the other side.
    write_blocked: AtomicU64,
    /// Of the first request that nothing has been read after.
    unanswered: AtomicU64,
    /// Whether anything was ever read.
    heard: AtomicU64,
    /// Bytes made ready to be written since anything was last written.
    unwritten: AtomicUsize,
    /// Who waits for those to be written: the tasks of the answers under way.
    waits: Mutex<Vec<Waker>>,
    /// Rings with the first write after the first read, which in HTTP/2 acknowledges the SETTINGS.
    pub(crate) acknowledged: Notify,
    /// Rings when the connection's socket is let go of.
    pub(crate) gone: Notify,
}

impl Traffic {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            read_since: AtomicU64::new(0),
            write_blocked: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            unwritten: AtomicUsize::new(0),
            waits: Mutex::default(),
            acknowledged: Notify::new(),
            gone: Notify::new(),
        })
    }

    /// Milliseconds since the connection began, never 0.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// When the first byte since the last [`forget_read`](Self::forget_read) came.
    pub(crate) fn read_since(&self) -> Option<u64> {
        some(&self.read_since)
    }

    pub(crate) fn forget_read(&self) {
        self.read_since.store(0, Ordering::Relaxed);
    }

    /// Since when the other side has not taken what was written.
    pub(crate) fn write_blocked(&self) -> Option<u64> {
        some(&self.write_blocked)
    }

    /// Notes that something was sent that the other side will react to.
    pub(crate) fn expect_answer(&self) {
        let _ =
            self.unanswered
                .compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Since when the other side has said nothing although something was sent.
    pub(crate) fn unanswered(&self) -> Option<u64> {
        some(&self.unanswered)
    }

    fn on_read(&self) {
        self.heard.store(1, Ordering::Relaxed);
        self.unanswered.store(0, Ordering::Relaxed);
        if self.read_since.load(Ordering::Relaxed) == 0 {
            self.read_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Notes that so many bytes were made ready to be written.
    pub(crate) fn made_ready(&self, bytes: usize) {
        self.unwritten.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Ready when fewer than `most` bytes wait to be written and the other side takes them.
    pub(crate) fn poll_room(&self, context: &Context<'_>, most: usize) -> Poll<()> {
        let room =
            || self.write_blocked().is_none() && self.unwritten.load(Ordering::Acquire) < most;
        if room() {
            return Poll::Ready(());
        }
        let mut waits = self.waits();
        if !waits.iter().any(|known| known.will_wake(context.waker())) {
            waits.push(context.waker().clone());
        }
        drop(waits);
        // Another task may have written in between, and rung for nobody.
        if room() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn waits(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) {
        self.write_blocked.store(0, Ordering::Relaxed);
        self.unwritten.store(0, Ordering::Release);
        let waiting = std::mem::take(&mut *self.waits());
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn on_flush(&self, blocked: bool) {
        match blocked {
            false => self.written(),
            true if self.write_blocked.load(Ordering::Relaxed) == 0 => {
                self.write_blocked.store(self.now(), Ordering::Relaxed);
            }
            true => {}
        }
    }

    fn on_write(&self, blocked: bool) {
        self.on_flush(blocked);
        if !blocked && self.heard.load(Ordering::Relaxed) == 1 {
            self.heard.store(2, Ordering::Relaxed);
            self.acknowledged.notify_one();
        }
    }
}

fn some(value: &AtomicU64) -> Option<u64> {
    match value.load(Ordering::Relaxed) {
        0 => None,
        at => Some(at),
    }
}

/// A stream whose [`Traffic`] is kept.
pub(crate) struct Observed<S> {
    stream: S,
    traffic: Arc<Traffic>,
}

impl<S> Observed<S> {
    pub(crate) fn new(stream: S, traffic: Arc<Traffic>) -> Self {
        Self { stream, traffic }
    }
}

impl<S> Drop for Observed<S> {
    fn drop(&mut self) {
        self.traffic.gone.notify_one();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.traffic.on_read();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.traffic.on_write(polled.is_pending());
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.traffic.on_write(polled.is_pending());
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.traffic.on_flush(polled.is_pending());
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Makes the kernel notice within about `limit` that the other side of an idle connection is gone.
///
/// With `unacknowledged`, also when sent bytes are not acknowledged for that long. That counts a side that is
/// there and does not read, too, so it is only for connections whose other side always reads.
pub(crate) fn set_keep_alive(
    stream: &tokio::net::TcpStream,
    limit: Duration,
    unacknowledged: Option<Duration>,
) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    let keep_alive = socket2::TcpKeepalive::new()
        .with_time((limit / 2).max(Duration::from_secs(1)))
        .with_interval((limit / 8).max(Duration::from_secs(1)))
        .with_retries(4);
    socket.set_tcp_keepalive(&keep_alive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(unacknowledged)?;
    Ok(())
}
