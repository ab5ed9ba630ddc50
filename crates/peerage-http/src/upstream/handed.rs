//! Handing a request to a connection, and waiting for its answer.
//!
//! hyper passes requests to the task that runs a connection through a channel. One that is put there in the moment in
//! which the task ends is read by nobody, and comes back only when the last sender of the channel is gone: who keeps a
//! sender while waiting waits for nothing but himself. So over HTTP/2 the sender is let go of before the wait, and over
//! HTTP/1.1, where it is needed for the next request, once the connection has ended.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use super::connect::{Http1, Http2};
use crate::Request;

/// What comes back of a request.
type Told = Result<http::Response<Incoming>, TrySendError<Request>>;

/// Sends a request over an HTTP/2 connection and waits for the head of its answer.
pub(super) async fn over_http2(mut sender: Http2, request: Request) -> Told {
    let told = sender.try_send_request(request);
    drop(sender);
    told.await
}

/// The same over an HTTP/1.1 connection, whose sender comes with the answer unless the connection was seen to have ended.
pub(super) async fn over_http1(mut sender: Http1, request: Request) -> (Told, Option<Http1>) {
    let mut told = pin!(sender.try_send_request(request));
    tokio::select! {
        biased;
        told = told.as_mut() => return (told, Some(sender)),
        () = ended(&mut sender) => drop(sender),
    }
    (told.await, None)
}

/// Returns when the connection has ended. hyper says so before it closes the channel, so of a request that is left there
/// it is known at the first look; a connection that is ready for another request has answered this one.
async fn ended(sender: &mut Http1) {
    poll_fn(|context| match sender.poll_ready(context) {
        Poll::Ready(Err(_)) => Poll::Ready(()),
        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
    })
    .await;
}
