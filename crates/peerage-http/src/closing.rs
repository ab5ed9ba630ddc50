//! Watches that end when the server closes: between two events and with a proper end, wherever they come from, so
//! that their clients go on elsewhere from the last event and do not take it for an error.
//!
//! Where an event ends depends on the form of the watch (`closing/framing.rs`).

mod framing;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{Body, BoxError, Response};
use framing::Framing;

/// The answer, ending after the event that is under way when `closing` is cancelled.
#[must_use]
pub fn end_with(response: Response, closing: CancellationToken) -> Response {
    if response.status() != StatusCode::OK {
        return response;
    }
    let framing = Framing::of(response.headers());
    response.map(|inner| {
        let closing = Box::pin(closing.cancelled_owned());
        Closing {
            inner,
            closing,
            framing,
        }
        .boxed_unsync()
    })
}

struct Closing {
    inner: Body,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    framing: Framing,
}

impl http_body::Body for Closing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.framing.is_between() && self.closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref()) {
            self.framing.take(data);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::{StreamExt as _, stream};

    fn watch(parts: &'static [&'static str], closing: &CancellationToken) -> Body {
        let parts =
            stream::iter(parts).map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes()))));
        let body = http_body_util::StreamBody::new(parts.chain(stream::pending()));
        end_with(Response::new(body.boxed_unsync()), closing.clone()).into_body()
    }

    #[tokio::test]
    async fn a_watch_ends_after_the_event_that_is_under_way() {
        let closing = CancellationToken::new();
        let mut body = watch(&["{\"a\":1}\n", "{\"b\"", ":2}\n", "{\"c\":3}\n"], &closing);
        for _ in 0..2 {
            body.frame().await.unwrap().unwrap();
        }
        closing.cancel();
        let rest = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&*rest, b":2}\n");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn an_idle_watch_ends_at_once() {
        let closing = CancellationToken::new();
        let mut body = watch(&[], &closing);
        let next = tokio::spawn(async move { body.frame().await.is_none() });
        tokio::task::yield_now().await;
        closing.cancel();
        assert!(next.await.unwrap());
    }
}
