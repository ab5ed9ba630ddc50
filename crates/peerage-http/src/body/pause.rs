//! A body that breaks off when its sender pauses for too long.
//!
//! Invariant: only the sender's pauses count. While nobody reads, or what was sent has not been taken, time does not
//! run out.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep, sleep};

use super::BoxError;
use crate::Body;

/// The sender of a body paused for longer than allowed.
#[derive(Debug, thiserror::Error)]
#[error("the body paused for more than {} s", pause.as_secs_f32())]
pub struct Stalled {
    /// The longest pause allowed.
    pub pause: Duration,
}

/// The body, which ends with [`Stalled`] when its sender says nothing for longer than `pause` to one who reads;
/// `stalled` is called then. A body that is empty from the start is left alone.
pub fn bounded<F: FnOnce() + Send + Unpin + 'static>(
    body: Body,
    pause: Duration,
    stalled: F,
) -> Body {
    if http_body::Body::is_end_stream(&body) {
        return body;
    }
    Bounded {
        body,
        pause,
        alarm: None,
        waits: false,
        stalled: Some(stalled),
    }
    .boxed_unsync()
}

struct Bounded<F> {
    body: Body,
    pause: Duration,
    /// Counts while `waits`; none until the reader first had to wait, which for most answers is never.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Whether the reader has been told that nothing is there yet.
    waits: bool,
    /// None once the body has broken off.
    stalled: Option<F>,
}

impl<F: FnOnce() + Send + Unpin> http_body::Body for Bounded<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.stalled.is_none() {
            return Poll::Ready(None);
        }
        // What came in the meantime counts, however late it is taken.
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.waits = false;
            return Poll::Ready(frame);
        }
        let Bounded {
            pause,
            alarm,
            waits,
            ..
        } = &mut *self;
        let alarm = alarm.get_or_insert_with(|| Box::pin(sleep(*pause)));
        if !std::mem::replace(waits, true) {
            alarm.as_mut().reset(Instant::now() + *pause);
        }
        if alarm.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        if let Some(stalled) = self.stalled.take() {
            stalled();
        }
        let pause = self.pause;
        Poll::Ready(Some(Err(Stalled { pause }.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.stalled.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::body::channel;

    const PAUSE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_says_nothing_for_too_long_breaks_its_body_off_once() {
        let (mut sender, body) = channel(4);
        let stalls = Arc::new(AtomicUsize::new(0));
        let counted = stalls.clone();
        let mut body = bounded(body, PAUSE, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        sender.send_data(Bytes::from("half")).await.unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(error.is::<Stalled>(), "{error}");
        assert!(body.frame().await.is_none());
        assert_eq!(stalls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_goes_on_in_time_is_read_to_its_end_however_long_that_takes() {
        let (mut sender, body) = channel(1);
        let writer = tokio::spawn(async move {
            for _ in 0..20 {
                sleep(PAUSE - Duration::from_secs(1)).await;
                sender.send_data(Bytes::from("x")).await.unwrap();
            }
        });
        let body = bounded(body, PAUSE, || panic!("it did not stall"));
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 20);
        writer.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_counts_however_late_it_is_read() {
        let (mut sender, body) = channel(4);
        let mut body = bounded(body, PAUSE, || panic!("it did not stall"));
        // The reader learns that nothing is there, and then has other things to do.
        let soon = tokio::time::timeout(Duration::from_secs(1), body.frame());
        assert!(soon.await.is_err());
        sender.send_data(Bytes::from("x")).await.unwrap();
        drop(sender);
        sleep(PAUSE * 3).await;
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "x"
        );
        sleep(PAUSE * 3).await;
        assert!(body.frame().await.is_none());
    }
}
