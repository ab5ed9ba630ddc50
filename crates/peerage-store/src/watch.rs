//! The stream that a watch is read from, whichever store it comes from.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;

use crate::error::StoreError;
use crate::types::{Revision, WatchResponse};

type Items = Pin<Box<dyn Stream<Item = Result<WatchResponse, StoreError>> + Send>>;

/// Batches of events, in order, and an error as the last item. Dropping it ends the watch.
pub struct WatchStream {
    start: Revision,
    items: Option<Items>,
    progress: ProgressRequester,
}

impl WatchStream {
    /// A stream whose first event can be one of revision `start`. It is cut after its first error.
    pub fn new(
        start: Revision,
        items: impl Stream<Item = Result<WatchResponse, StoreError>> + Send + 'static,
        progress: ProgressRequester,
    ) -> Self {
        WatchStream {
            start,
            items: Some(Box::pin(items)),
            progress,
        }
    }

    /// The first revision whose events it delivers: the one asked for, or, where that was "the next
    /// one", which one that is.
    pub fn start_revision(&self) -> Revision {
        self.start
    }

    /// Asks for a progress notification: a batch, with or without events, that says how far the
    /// watch has come as of some moment after this call. Several requests may get one answer.
    pub fn request_progress(&self) {
        self.progress.request();
    }

    /// The means to ask for progress while something else reads the stream.
    pub fn progress_requester(&self) -> ProgressRequester {
        self.progress.clone()
    }
}

impl Stream for WatchStream {
    type Item = Result<WatchResponse, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(items) = &mut self.items else {
            return Poll::Ready(None);
        };
        let item = futures::ready!(items.as_mut().poll_next(cx));
        if !matches!(item, Some(Ok(_))) {
            self.items = None;
        }
        Poll::Ready(item)
    }
}

impl fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchStream")
            .field("start", &self.start)
            .field("ended", &self.items.is_none())
            .finish_non_exhaustive()
    }
}

/// Asks a watch how far it has come. Cheap to clone; does nothing once the watch has ended.
#[derive(Clone)]
pub struct ProgressRequester(Arc<dyn Fn() + Send + Sync>);

impl ProgressRequester {
    /// One that calls `request`, which must not block.
    pub fn new(request: impl Fn() + Send + Sync + 'static) -> Self {
        ProgressRequester(Arc::new(request))
    }

    /// See [`WatchStream::request_progress`].
    pub fn request(&self) {
        (self.0)();
    }
}

impl fmt::Debug for ProgressRequester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressRequester")
    }
}
