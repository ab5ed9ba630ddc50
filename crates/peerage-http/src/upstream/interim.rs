//! Interim answers (1xx) of a server over HTTP/1.1, which are absorbed: so many of them, and no flood.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::Request;

/// Interim answers to one request that are absorbed. Servers send one or two.
const MOST: usize = 64;

/// Counts the interim answers to a request.
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
