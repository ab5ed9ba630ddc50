//! Answers that a client stops reading are given up, and large ones are handed over in pieces.
//!
//! hyper takes a frame of any size at once and asks for the next when the client has room. A [`Paced`] body
//! splits large frames, so that a slow client holds the body and whatever is released with it (a place among
//! the requests in flight) for exactly as long as it reads; [`Answers::sweep`] drops bodies whose client has
//! not made room for too long. A body that waits for its own next frame (a quiet watch) is never stalled.
//!
//! Over HTTP/2 a stream's window says when there is room. Over HTTP/1.1 hyper would buffer as much as a head may
//! be large, for each of the watches that nobody reads; so there a body says nothing while the connection cannot
//! write.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::io::Traffic;
use crate::{Body, BoxError};

/// The largest piece handed over at once.
const PIECE: usize = 128 << 10;

/// The answers of one connection that are under way.
pub(super) struct Answers {
    traffic: Arc<Traffic>,
    http2: bool,
    upgraded: AtomicBool,
    requests: AtomicUsize,
    total: AtomicU64,
    idle_since: AtomicU64,
    paced: Mutex<HashMap<u64, Arc<Slot>>>,
    /// Answers without a known length.
    streams: AtomicUsize,
}

/// The client did not read for too long.
#[derive(Debug, thiserror::Error)]
#[error("the client stopped reading the answer")]
struct Stalled;

/// A request until its answer has been handed over.
pub(super) struct InFlight {
    answers: Arc<Answers>,
    number: u64,
}

/// A body under the eyes of [`Answers::sweep`].
struct Slot {
    stream: bool,
    content: Mutex<Option<Content>>,
    /// When the last piece was handed over; 0 while the client waits for the next.
    handed_over: AtomicU64,
}

struct Content {
    body: Body,
    rest: Bytes,
}

impl Answers {
    pub(super) fn new(traffic: Arc<Traffic>, http2: bool) -> Arc<Self> {
        Arc::new(Self {
            traffic,
            http2,
            upgraded: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            total: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            paced: Mutex::default(),
            streams: AtomicUsize::new(0),
        })
    }

    /// Counts a request.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.traffic.forget_read();
        let number = self.total.fetch_add(1, Ordering::Relaxed);
        InFlight {
            answers: self.clone(),
            number,
        }
    }

    /// Whether the connection has become a tunnel.
    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Acquire)
    }

    /// Whether a head of HTTP/1.1 may be written on the connection that answers no request.
    pub(super) fn may_refuse(&self) -> bool {
        !self.http2 && !self.upgraded.load(Ordering::Acquire)
    }

    /// How many requests there ever were.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Since when there has been no request; none while there is one.
    pub(super) fn idle_since(&self) -> Option<u64> {
        let idle = self.requests.load(Ordering::Acquire) == 0;
        idle.then(|| self.idle_since.load(Ordering::Relaxed))
    }

    /// How many answers without a known length are under way.
    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Drops every body whose client has made no room for longer than the limit of its kind; says how many.
    pub(super) fn sweep(&self, answer_limit: Duration, stream_limit: Duration) -> usize {
        let now = self.traffic.now();
        let stalled = |slot: &&Arc<Slot>| {
            let limit = if slot.stream {
                stream_limit
            } else {
                answer_limit
            };
            match slot.handed_over.load(Ordering::Relaxed) {
                0 => false,
                at => u128::from(now.saturating_sub(at)) > limit.as_millis(),
            }
        };
        let slots: Vec<_> = self.paced().values().filter(stalled).cloned().collect();
        slots
            .iter()
            .filter(|slot| slot.content().take().is_some())
            .count()
    }

    fn paced(&self) -> MutexGuard<'_, HashMap<u64, Arc<Slot>>> {
        self.paced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlight {
    /// Notes that the answer is a 101: the connection carries something else from now on.
    pub(super) fn upgrade(&self) {
        self.answers.upgraded.store(true, Ordering::Release);
    }

    /// The answer's body, which keeps the request counted until it has been handed over.
    pub(super) fn pace(self, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let length = body.size_hint().exact();
        let small = length.is_some_and(|length| length <= PIECE as u64);
        let stream = length.is_none();
        if stream {
            self.answers.streams.fetch_add(1, Ordering::Relaxed);
        }
        let slot = Arc::new(Slot {
            stream,
            content: Mutex::new(Some(Content {
                body,
                rest: Bytes::new(),
            })),
            handed_over: AtomicU64::new(0),
        });
        if !small {
            self.answers.paced().insert(self.number, slot.clone());
        }
        Paced {
            slot,
            small,
            request: Some(self),
        }
        .boxed_unsync()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.answers
            .idle_since
            .store(self.answers.traffic.now(), Ordering::Relaxed);
        self.answers.traffic.forget_read();
        self.answers.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Slot {
    fn content(&self) -> MutexGuard<'_, Option<Content>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Paced {
    slot: Arc<Slot>,
    small: bool,
    request: Option<InFlight>,
}

impl Paced {
    fn finish(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        if !self.small {
            request.answers.paced().remove(&request.number);
        }
        if self.slot.stream {
            request.answers.streams.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits while the connection has more to write than it should hold.
    fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        match &self.request {
            Some(request) if !request.answers.http2 => {
                request.answers.traffic.poll_room(context, PIECE)
            }
            _ => Poll::Ready(()),
        }
    }

    fn poll_piece(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut content = self.slot.content();
        let Some(content) = content.as_mut() else {
            return Poll::Ready(Some(Err(Stalled.into())));
        };
        if content.rest.is_empty() {
            self.slot.handed_over.store(0, Ordering::Relaxed);
            match ready!(Pin::new(&mut content.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => content.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let piece = content.rest.split_to(content.rest.len().min(PIECE));
        if let Some(request) = &self.request {
            self.slot
                .handed_over
                .store(request.answers.traffic.now(), Ordering::Relaxed);
            request.answers.traffic.made_ready(piece.len());
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        ready!(self.poll_room(context));
        let piece = ready!(self.poll_piece(context));
        if !matches!(piece, Some(Ok(_))) || self.is_end_stream() {
            self.finish();
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        let content = self.slot.content();
        content
            .as_ref()
            .is_some_and(|content| content.rest.is_empty() && content.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let content = self.slot.content();
        let Some(content) = content.as_ref() else {
            return SizeHint::default();
        };
        let rest = content.rest.len() as u64;
        let inner = content.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::body;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_large_answer_is_handed_over_in_pieces_and_whole() {
        let answers = Answers::new(Traffic::new(), true);
        let sent = Bytes::from(vec![7; 3 * PIECE + 5]);
        let mut paced = answers.begin().pace(body::full(sent.clone()));
        assert_eq!(paced.size_hint().exact(), Some(sent.len() as u64));
        let mut received = Vec::new();
        while !paced.is_end_stream() {
            assert!(answers.idle_since().is_none());
            let piece = paced.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE);
            received.extend_from_slice(&piece);
        }
        assert_eq!(received, sent);
        assert!(answers.idle_since().is_some());
        assert!(answers.paced().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_is_dropped_and_a_quiet_one_is_not() {
        let answers = Answers::new(Traffic::new(), true);
        let held = Arc::new(());
        let large = body::guarded(body::full(vec![0; 4 * PIECE]), held.clone());
        let mut unread = answers.begin().pace(large);
        let (_sender, quiet) = body::channel(1);
        let mut quiet = answers.begin().pace(quiet);
        unread.frame().await.unwrap().unwrap();
        let waiting = tokio::time::timeout(LIMIT + Duration::from_secs(1), quiet.frame());
        assert!(waiting.await.is_err());
        assert_eq!(answers.sweep(LIMIT, LIMIT * 60), 1);
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(unread.frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_paused_has_a_limit_of_its_own() {
        let answers = Answers::new(Traffic::new(), true);
        let (mut sender, stream) = body::channel(4);
        let mut stream = answers.begin().pace(stream);
        sender.send_data(Bytes::from("event")).await.unwrap();
        stream.frame().await.unwrap().unwrap();
        assert_eq!(answers.streams(), 1);
        tokio::time::advance(LIMIT * 2).await;
        assert_eq!(answers.sweep(LIMIT, LIMIT * 60), 0);
        tokio::time::advance(LIMIT * 60).await;
        assert_eq!(answers.sweep(LIMIT, LIMIT * 60), 1);
        drop(stream);
        assert_eq!(answers.streams(), 0);
    }

    #[tokio::test]
    async fn over_http_1_a_body_gives_no_more_than_the_connection_can_write() {
        let traffic = Traffic::new();
        let answers = Answers::new(traffic.clone(), false);
        let mut paced = answers.begin().pace(body::full(vec![0; 8 * PIECE]));
        paced.frame().await.unwrap().unwrap();
        assert!(futures::poll!(paced.frame()).is_pending());
        traffic.on_flush(true);
        assert!(futures::poll!(paced.frame()).is_pending());
        let mut taken = PIECE;
        while !paced.is_end_stream() {
            let (frame, ()) = tokio::join!(paced.frame(), async { traffic.on_flush(false) });
            taken += frame.unwrap().unwrap().into_data().unwrap().len();
        }
        assert_eq!(taken, 8 * PIECE);
    }
}
