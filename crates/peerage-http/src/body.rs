//! Making, limiting and reading bodies.
//!
//! A body is a stream of frames that nobody holds as a whole unless it asks to with [`collect`], which always
//! takes a limit and a longest pause. What a body contains is the callers' business.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, StreamBody, channel::Channel};

use crate::Body;

mod pause;

pub use pause::{Stalled, bounded};

/// Any error that ends a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The sending half of a [`channel`] body. Dropping it ends the body; [`abort`](Self::abort) breaks it.
pub type Sender = http_body_util::channel::Sender<Bytes, BoxError>;

/// Why a body could not be read as a whole.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// More than the limit was sent or announced.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The limit that was passed.
        limit: usize,
    },
    /// The sender paused for longer than allowed.
    #[error("the body paused for more than {} s", pause.as_secs_f32())]
    Stalled {
        /// The longest pause allowed.
        pause: Duration,
    },
    /// The body broke off.
    #[error("the body broke off")]
    Broken(#[source] BoxError),
}

/// A body of exactly these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body of no bytes.
#[must_use]
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body of no bytes, of which that is known only when it is read.
pub(crate) fn ends_apart() -> Body {
    let none = futures::stream::empty::<Result<Frame<Bytes>, BoxError>>();
    StreamBody::new(none).boxed_unsync()
}

/// A body that is written while it is read; at most `frames` frames wait for the reader.
#[must_use]
pub fn channel(frames: usize) -> (Sender, Body) {
    let (sender, body) = Channel::new(frames.max(1));
    (sender, Fused(Some(body)).boxed_unsync())
}

/// Any body as [`Body`].
pub fn boxed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// The body, with `guard` dropped when its end or its breaking off has been read, or when it is dropped. A body
/// that is empty from the start is not kept for it.
pub fn guarded<G: Send + Unpin + 'static>(body: Body, guard: G) -> Body {
    if http_body::Body::is_end_stream(&body) {
        return body;
    }
    Guarded {
        body,
        guard: Some(guard),
    }
    .boxed_unsync()
}

/// Reads a whole body of at most `limit` bytes, none of whose pauses is longer than `pause`.
///
/// # Errors
/// [`CollectError`], by what went wrong. An announced length over the limit is refused without reading.
pub async fn collect(mut body: Body, limit: usize, pause: Duration) -> Result<Bytes, CollectError> {
    let too_large = || CollectError::TooLarge { limit };
    if http_body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout(pause, body.frame()).await {
            Err(_) => return Err(CollectError::Stalled { pause }),
            Ok(None) => break,
            Ok(Some(frame)) => frame.map_err(CollectError::Broken)?,
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if first.len() + rest.len() + data.len() > limit {
            return Err(too_large());
        }
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

/// A channel that may be polled after its end, which the channel itself answers with a panic.
struct Fused(Option<Channel<Bytes, BoxError>>);

impl http_body::Body for Fused {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(channel) = self.0.as_mut() else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(channel).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.0 = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

struct Guarded<G> {
    body: Body,
    guard: Option<G>,
}

impl<G: Send + Unpin> http_body::Body for Guarded<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.guard = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAUSE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_body_in_frames_is_collected_whole() {
        let (mut sender, body) = channel(4);
        for part in ["ab", "", "cd", "e"] {
            sender.send_data(Bytes::from(part)).await.unwrap();
        }
        drop(sender);
        assert_eq!(collect(body, 5, PAUSE).await.unwrap(), "abcde");
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_announced_or_not() {
        let announced = collect(full("abcdef"), 5, PAUSE).await;
        assert!(matches!(
            announced,
            Err(CollectError::TooLarge { limit: 5 })
        ));
        let (mut sender, body) = channel(4);
        sender.send_data(Bytes::from("abc")).await.unwrap();
        sender.send_data(Bytes::from("def")).await.unwrap();
        let streamed = collect(body, 5, PAUSE).await;
        assert!(matches!(streamed, Err(CollectError::TooLarge { limit: 5 })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_pauses_too_long_is_given_up() {
        let (_sender, body) = channel(1);
        let stalled = collect(body, 5, PAUSE).await;
        assert!(matches!(stalled, Err(CollectError::Stalled { .. })));
    }

    #[tokio::test]
    async fn an_aborted_body_is_broken() {
        let (sender, body) = channel(1);
        sender.abort("gone".into());
        let broken = collect(body, 5, PAUSE).await;
        assert!(matches!(broken, Err(CollectError::Broken(_))));
    }

    #[tokio::test]
    async fn a_channel_stays_at_its_end() {
        let (sender, mut body) = channel(1);
        drop(sender);
        assert!(body.frame().await.is_none());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_guard_goes_when_the_end_has_been_read() {
        let guard = std::sync::Arc::new(());
        let mut body = guarded(full("a"), guard.clone());
        body.frame().await.unwrap().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&guard), 2);
        assert!(body.frame().await.is_none());
        assert_eq!(std::sync::Arc::strong_count(&guard), 1);
    }
}
