//! An answer that has begun: its head, and of a short body what came first.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Version;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::pool::Place;
use crate::{BoxError, Response, body};

/// A body of at most so many bytes is short. Larger ones are worth more than one write anyway.
const SHORT: u64 = 64 << 10;

/// Whether the answer announces a body, and that it is short. What streams (a watch, a log) announces no length.
pub(super) fn is_short(response: &http::Response<Incoming>) -> bool {
    let length = response.body().size_hint().exact();
    length.is_some_and(|length| (1..=SHORT).contains(&length))
}

/// The head of an answer, perhaps with the first frame of its body.
pub(super) struct Begun {
    response: http::Response<Incoming>,
    first: Option<Frame<Bytes>>,
}

impl Begun {
    /// Waits for the first frame if asked to.
    pub(super) async fn of(
        mut response: http::Response<Incoming>,
        waits: bool,
    ) -> Result<Self, hyper::Error> {
        let first = match waits {
            true => response.body_mut().frame().await.transpose()?,
            false => None,
        };
        Ok(Self { response, first })
    }

    /// The answer, whose place on the connection is free again when its body has been read or dropped.
    pub(super) fn receive(self, place: Place) -> Response {
        let (mut head, incoming) = self.response.into_parts();
        head.version = Version::HTTP_11;
        // With a coding the length counts for nothing (RFC 9112, 6.3), and would cut the body off for whoever believes it.
        if head.headers.contains_key(TRANSFER_ENCODING) {
            head.headers.remove(CONTENT_LENGTH);
        }
        let body = match self.first.map(Frame::into_data) {
            None => body::guarded(body::boxed(incoming), place),
            Some(Ok(whole)) if incoming.is_end_stream() => body::full(whole),
            Some(first) => {
                let first = Some(first.map_or_else(|trailers| trailers, Frame::data));
                body::guarded(WithFirst { first, incoming }.boxed_unsync(), place)
            }
        };
        Response::from_parts(head, body)
    }
}

/// A body whose first frame has been taken.
struct WithFirst {
    first: Option<Frame<Bytes>>,
    incoming: Incoming,
}

impl http_body::Body for WithFirst {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut self.incoming)
                .poll_frame(context)
                .map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(Frame::data_ref);
        let first = first.map_or(0, |data| data.len() as u64);
        let rest = self.incoming.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + first);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + first);
        }
        hint
    }
}
