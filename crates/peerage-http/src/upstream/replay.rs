//! A request body that can be sent a second time while little of it has been read.
//!
//! The frames of the first [`KEPT`] bytes are kept (not copied) until the answer begins, so that a request that
//! a server turned away unseen can go over another connection. Trailers that a Go server resets the request for are
//! left out, which RFC 9110 (6.5.1) leaves to whoever passes them on. Invariant: at most one reader at a time gets
//! frames; one that was replaced gets an error.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::{Body, BoxError, body};

/// More than nearly every API object; what is larger is sent once.
const KEPT: usize = 256 << 10;

/// The sender's hold on a body that readers come and go for.
pub(super) enum Replay {
    Empty,
    Body(Arc<Mutex<State>>),
}

pub(super) struct State {
    body: Body,
    kept: VecDeque<Bytes>,
    kept_bytes: usize,
    /// How many of those have been read.
    next: usize,
    /// Whether everything read so far is in `kept`.
    whole: bool,
    reader: u64,
    ended: bool,
    /// Whether it ended with an error.
    broke: bool,
    /// Whether it will not be read from its start again, so that what has been read is let go of.
    committed: bool,
}

/// The body was given to another reader.
#[derive(Debug, thiserror::Error)]
#[error("the request is being sent again")]
struct Replaced;

impl Replay {
    pub(super) fn new(body: Body) -> Self {
        if body.is_end_stream() {
            return Replay::Empty;
        }
        let state = State {
            body,
            kept: VecDeque::new(),
            kept_bytes: 0,
            next: 0,
            whole: true,
            reader: 0,
            ended: false,
            broke: false,
            committed: false,
        };
        Replay::Body(Arc::new(Mutex::new(state)))
    }

    /// The body from its start, for a new reader; none if its start is gone.
    pub(super) fn read(&self) -> Option<Body> {
        let Replay::Body(shared) = self else {
            return Some(body::empty());
        };
        let mut state = lock(shared);
        if !state.whole {
            return None;
        }
        state.reader += 1;
        state.next = 0;
        let reader = Reader {
            number: state.reader,
            shared: shared.clone(),
        };
        Some(reader.boxed_unsync())
    }

    /// Whether the body broke off before its end.
    pub(super) fn broke(&self) -> bool {
        match self {
            Replay::Empty => false,
            Replay::Body(shared) => lock(shared).broke,
        }
    }

    /// Lets go of what has been read, now and from now on: the body will not be needed again.
    pub(super) fn commit(&self) {
        if let Replay::Body(shared) = self {
            let mut state = lock(shared);
            state.forget();
            state.committed = true;
            let read = state.next;
            state.kept.drain(..read);
            state.next = 0;
        }
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn forget(&mut self) {
        self.whole = false;
        self.kept_bytes = 0;
    }

    /// The next of what was kept.
    fn reread(&mut self) -> Option<Bytes> {
        if self.committed {
            return self.kept.pop_front();
        }
        let data = self.kept.get(self.next).cloned()?;
        self.next += 1;
        Some(data)
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        if !self.whole {
            return;
        }
        match frame.data_ref() {
            Some(data) if self.kept_bytes + data.len() <= KEPT => {
                self.kept_bytes += data.len();
                self.kept.push_back(data.clone());
                self.next = self.kept.len();
            }
            _ => {
                self.forget();
                self.kept = VecDeque::new();
                self.next = 0;
            }
        }
    }
}

/// The frame without the trailers that servers refuse; none if nothing is left of it.
fn fit(frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
    match frame.into_trailers() {
        Err(frame) => Some(frame),
        Ok(mut trailers) => {
            drop_refused(&mut trailers);
            (!trailers.is_empty()).then(|| Frame::trailers(trailers))
        }
    }
}

/// What belongs into a head (RFC 9110, 6.5.1), by Go's list: its HTTP/2 server resets a request that ends with one.
/// `Upgrade` is our own library's: it sends none and says nothing, so that the request would wait for its end.
const REFUSED: [&str; 22] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "realm",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

fn drop_refused(trailers: &mut HeaderMap) {
    for name in REFUSED {
        trailers.remove(name);
    }
    let conditions = trailers.keys().filter(|it| it.as_str().starts_with("if-"));
    let conditions: Vec<_> = conditions.cloned().collect();
    for name in conditions {
        trailers.remove(name);
    }
}

struct Reader {
    shared: Arc<Mutex<State>>,
    number: u64,
}

impl http_body::Body for Reader {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut state = lock(&this.shared);
        if state.reader != this.number {
            return Poll::Ready(Some(Err(Replaced.into())));
        }
        if let Some(data) = state.reread() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut state.body).poll_frame(context));
        let frame = frame.and_then(|frame| frame.map(fit).transpose());
        match &frame {
            None => state.ended = true,
            Some(Err(_)) => {
                state.ended = true;
                state.broke = true;
                state.forget();
            }
            Some(Ok(frame)) => state.keep(frame),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let state = lock(&self.shared);
        // One that was replaced ends with an error.
        state.reader == self.number
            && state.next >= state.kept.len()
            && (state.ended || state.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let state = lock(&self.shared);
        let kept: usize = state.kept.iter().skip(state.next).map(Bytes::len).sum();
        let inner = state.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + kept as u64);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + kept as u64);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::body::collect;
    use std::time::Duration;

    const PAUSE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_body_read_in_part_is_read_again_from_its_start() {
        let (mut sender, body) = body::channel(4);
        for part in ["ab", "cd", "ef"] {
            sender.send_data(Bytes::from(part)).await.unwrap();
        }
        drop(sender);
        let replay = Replay::new(body);
        let mut first = replay.read().unwrap();
        assert_eq!(
            first.frame().await.unwrap().unwrap().into_data().unwrap(),
            "ab"
        );
        let second = replay.read().unwrap();
        assert!(first.frame().await.unwrap().is_err());
        assert_eq!(collect(second, 10, PAUSE).await.unwrap(), "abcdef");
        assert_eq!(
            collect(replay.read().unwrap(), 10, PAUSE).await.unwrap(),
            "abcdef"
        );
    }

    #[tokio::test]
    async fn a_large_or_committed_body_is_read_once() {
        let large = Replay::new(body::full(vec![1; KEPT + 1]));
        let read = collect(large.read().unwrap(), KEPT + 1, PAUSE)
            .await
            .unwrap();
        assert_eq!(read.len(), KEPT + 1);
        assert!(large.read().is_none());
        let committed = Replay::new(body::full("abc"));
        let reader = committed.read().unwrap();
        committed.commit();
        assert_eq!(collect(reader, 10, PAUSE).await.unwrap(), "abc");
        assert!(committed.read().is_none());
    }

    #[tokio::test]
    async fn what_was_read_of_a_committed_body_is_let_go_of() {
        let (mut sender, body) = body::channel(4);
        let parts = ["ab", "cd", "ef"].map(|it| Bytes::copy_from_slice(it.as_bytes()));
        for part in &parts {
            sender.send_data(part.clone()).await.unwrap();
        }
        drop(sender);
        let replay = Replay::new(body);
        let mut first = replay.read().unwrap();
        for _ in 0..2 {
            first.frame().await.unwrap().unwrap();
        }
        let mut second = replay.read().unwrap();
        second.frame().await.unwrap().unwrap();
        let Replay::Body(state) = &replay else {
            panic!("it has a body");
        };
        assert_eq!(lock(state).kept.len(), 2);
        replay.commit();
        assert_eq!(lock(state).kept, [parts[1].clone()], "still to be read");
        assert_eq!(collect(second, 10, PAUSE).await.unwrap(), "cdef");
        assert!(lock(state).kept.is_empty());
    }

    #[tokio::test]
    async fn trailers_that_servers_refuse_are_left_out() {
        let fitted = |lines: &[(&'static str, &'static str)]| {
            let mut trailers = HeaderMap::new();
            for (name, value) in lines {
                trailers.insert(*name, value.parse().unwrap());
            }
            let fitted = fit(Frame::trailers(trailers));
            fitted.map(|it| it.into_trailers().unwrap())
        };
        let refused = [("content-length", "1"), ("if-match", "a"), ("upgrade", "b")];
        assert!(fitted(&refused).is_none());
        let mixed = [("connection", "close"), ("x-checksum", "7")];
        let left = fitted(&mixed).unwrap();
        assert_eq!(
            (left.len(), &left["x-checksum"]),
            (1, &"7".parse().unwrap())
        );
        let data = fit(Frame::data(Bytes::from_static(b"a"))).unwrap();
        assert_eq!(data.into_data().unwrap(), "a");
    }

    #[tokio::test]
    async fn an_exact_length_stays_exact() {
        let replay = Replay::new(body::full("abc"));
        let mut reader = replay.read().unwrap();
        assert_eq!(reader.size_hint().exact(), Some(3));
        reader.frame().await.unwrap().unwrap();
        assert!(reader.is_end_stream());
        assert_eq!(replay.read().unwrap().size_hint().exact(), Some(3));
    }
}
