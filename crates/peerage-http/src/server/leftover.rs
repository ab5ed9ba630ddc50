//! What a service did not read of a request's body is read before the answer, within bounds.
//!
//! An HTTP/1.1 connection whose request was not read to its end has to be closed, and a system that closes a
//! socket with bytes still coming resets it: the client may lose the answer that it was sent, such as the 403
//! that made the body uninteresting. Go's server reads on for the same reason.
//!
//! A client that waits for `100 Continue` has not sent anything, so nothing is read from it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http::header::EXPECT;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::{Body, BoxError, Request};

/// Most that is read of a body nobody wants (Go: 256 KiB).
const MOST: usize = 256 << 10;
/// Longest that the answer waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

type Slot = Arc<Mutex<Option<Body>>>;

/// Where the rest of a body will be found when its reader has dropped it.
pub(super) struct Leftover(Option<Slot>);

/// A body that leaves its rest behind.
struct Kept {
    body: Option<Body>,
    slot: Slot,
}

impl Leftover {
    /// Watches over the body of a request.
    pub(super) fn of(request: Request) -> (Request, Self) {
        let old = request.version() < Version::HTTP_2;
        if !old || request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
            return (request, Self(None));
        }
        let slot = Slot::default();
        let kept = slot.clone();
        let request = request.map(|body| {
            let body = Some(body);
            Kept { body, slot: kept }.boxed_unsync()
        });
        (request, Self(Some(slot)))
    }

    /// Reads what is left, if the reader has already gone.
    pub(super) async fn discard(self) {
        let Some(mut body) = self.0.and_then(|slot| take(&slot)) else {
            return;
        };
        let all = async {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, Bytes::len);
                if read > MOST {
                    return;
                }
            }
        };
        // However it ends, the answer goes out now.
        let _ = tokio::time::timeout(PATIENCE, all).await;
    }
}

fn take(slot: &Slot) -> Option<Body> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl http_body::Body for Kept {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = rest;
    }
}
