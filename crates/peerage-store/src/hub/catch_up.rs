//! A watcher that begins in the past and reads history until it can join the others.

use std::sync::{Arc, Weak};

use super::queue::Queue;
use super::{History, Hub, select};
use crate::error::StoreError;
use crate::types::{Revision, WatchRequest, WatchResponse};

/// A watcher that is not live yet.
pub(super) struct CatchUp {
    pub(super) hub: Weak<Hub>,
    pub(super) id: u64,
    pub(super) request: WatchRequest,
    pub(super) queue: Arc<Queue>,
    pub(super) history: Arc<dyn History>,
}

impl CatchUp {
    pub(super) async fn run(self, mut next: Revision) {
        loop {
            let Some(to) = self.join(next) else { return };
            let page = match self.history.page(&self.request.keys, next, to).await {
                Ok(page) => page,
                Err(error) => return self.queue.finish(error),
            };
            next = page.through + 1;
            let events = select(&self.request, &page.events);
            let revision = page.through;
            if !events.is_empty() && !self.queue.push(WatchResponse { revision, events }).await {
                return;
            }
        }
    }

    /// Joins the live watchers, or says up to which revision there is history to read first.
    fn join(&self, next: Revision) -> Option<Revision> {
        let Some(hub) = self.hub.upgrade() else {
            self.queue
                .finish(StoreError::unavailable("the store is closed"));
            return None;
        };
        if hub.join(self.id, &self.request, next, &self.queue) {
            return None;
        }
        Some(hub.revision())
    }
}
