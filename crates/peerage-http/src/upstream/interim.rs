//! Interim answers (1xx) of a server, which are absorbed: so many of them, and no flood.
//!
//! Over HTTP/1.1 the library tells of each. Over HTTP/2 it tells nobody and goes on for ever, so what arrives is read
//! along as frames: a head that is not the last thing on its stream is an interim answer or the one that all wait for.
//! Who sends too many of them loses the connection, since nothing says whose request is to be given up.
//!
//! Invariants: what is read along is never changed or held back; nothing is kept but numbers, of fixed size.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::Request;

/// Interim answers to one request that are absorbed. Servers send one or two.
const MOST: usize = 64;

/// What ends a connection with too many interim answers. The library keeps no more of an error than its kind, and nothing
/// else on the way to a server fails like this.
pub(super) const TOO_MANY: io::ErrorKind = io::ErrorKind::QuotaExceeded;

/// Counts the interim answers to a request over HTTP/1.1.
#[derive(Default)]
pub(super) struct Interim {
    count: AtomicUsize,
    too_many: Notify,
}

impl Interim {
    /// Counts those to this request.
    pub(super) fn of(request: &mut Request) -> Arc<Self> {
        let interim = Arc::new(Self::default());
        let counts = interim.clone();
        hyper::ext::on_informational(request, move |_| {
            if counts.count.fetch_add(1, Ordering::Relaxed) == MOST {
                counts.too_many.notify_one();
            }
        });
        interim
    }

    /// Returns when there are too many.
    pub(super) async fn too_many(&self) -> TooMany {
        self.too_many.notified().await;
        TooMany
    }
}

/// The server answers and answers, and never at last.
#[derive(Debug, thiserror::Error)]
#[error("it sent more than {MOST} interim answers (1xx)")]
pub(super) struct TooMany;

/// A connection over HTTP/2 that ends when there are too many interim answers to a request on it.
pub(super) struct Counted<S> {
    stream: S,
    heads: Heads,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S) -> Self {
        let heads = Heads::default();
        Self { stream, heads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = self.heads.read(&buffer.filled()[before..]);
        Poll::Ready(read.map_err(|too_many| io::Error::new(TOO_MANY, too_many)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Octets of a frame before its payload (RFC 9113, 4.1).
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
/// Streams that are counted apart from each other: more than are open at one time.
const SLOTS: usize = 128;

/// Counts heads by stream.
struct Heads {
    /// Of the frame that is under way, so much as has been read.
    frame: [u8; FRAME_HEAD],
    read: usize,
    /// Octets of its payload that are to come.
    payload: usize,
    /// The newest stream of a slot, and heads on it and on older ones of the slot since it began.
    slots: [(u32, u32); SLOTS],
}

impl Default for Heads {
    fn default() -> Self {
        Self {
            frame: [0; FRAME_HEAD],
            read: 0,
            payload: 0,
            slots: [(0, 0); SLOTS],
        }
    }
}

impl Heads {
    fn read(&mut self, mut octets: &[u8]) -> Result<(), TooMany> {
        loop {
            let passed = self.payload.min(octets.len());
            self.payload -= passed;
            octets = &octets[passed..];
            if octets.is_empty() {
                return Ok(());
            }
            let taken = octets.len().min(FRAME_HEAD - self.read);
            self.frame[self.read..self.read + taken].copy_from_slice(&octets[..taken]);
            self.read += taken;
            octets = &octets[taken..];
            if self.read == FRAME_HEAD {
                self.read = 0;
                self.frame()?;
            }
        }
    }

    /// The head of a frame is there.
    fn frame(&mut self) -> Result<(), TooMany> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = self.frame;
        self.payload = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        if kind == HEADERS && flags & END_STREAM == 0 {
            self.count(u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1))?;
        }
        Ok(())
    }

    fn count(&mut self, stream: u32) -> Result<(), TooMany> {
        // The numbers of a client's streams are odd.
        let (newest, heads) = &mut self.slots[(stream / 2) as usize % SLOTS];
        if stream > *newest {
            (*newest, *heads) = (stream, 0);
        }
        *heads += 1;
        // The one that is no interim answer is among them.
        match *heads as usize > MOST + 1 {
            true => Err(TooMany),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()];
        [&head.concat(), payload].concat()
    }

    fn heads(stream: u32, count: usize) -> Vec<u8> {
        frame(HEADERS, 4, stream, &[0x88]).repeat(count)
    }

    #[test]
    fn heads_are_counted_by_stream_however_they_are_cut_into_pieces() {
        let ends = frame(HEADERS, 5, 1, &[0x88]).repeat(1000);
        let data = frame(0, 0, 1, &[HEADERS; 300]).repeat(1000);
        let longer = |stream| [heads(stream, MOST + 1), ends.clone(), data.clone()].concat();
        let fine: Vec<u8> = (0..300).flat_map(|it| longer(2 * it + 1)).collect();
        for piece in [1, 7, 9, 10, 4096, fine.len()] {
            let mut follows = Heads::default();
            for octets in fine.chunks(piece) {
                assert!(follows.read(octets).is_ok());
            }
            assert!(follows.read(&heads(599, 1)).is_err(), "{piece}");
        }
    }

    #[test]
    fn streams_that_take_turns_in_one_slot_are_not_counted_anew_each_time() {
        let mut follows = Heads::default();
        let turns = [heads(1, 1), heads(2 * 128 + 1, 1)].concat();
        let all = turns.repeat(MOST);
        assert!(follows.read(&all).is_err());
    }
}
