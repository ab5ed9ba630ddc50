//! The bounded buffer between a store and one watcher.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::error::StoreError;
use crate::sync::lock;
use crate::types::{Event, Revision, WatchResponse};

/// Batches on their way to one watcher: many at a time are put in by the hub, one by one they are
/// taken out by the stream.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    space: Notify,
    max_events: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<WatchResponse>,
    events: usize,
    bytes: usize,
    /// Why nothing comes after `items`.
    end: Option<StoreError>,
    /// The reader is gone.
    abandoned: bool,
    /// The reader asked for progress while the watch was still catching up.
    progress_wanted: bool,
    waker: Option<Waker>,
}

impl State {
    fn push(&mut self, item: WatchResponse) {
        self.events += item.events.len();
        self.bytes += bytes_of(&item.events);
        self.items.push_back(item);
        self.wake();
    }

    fn pop(&mut self) -> Option<WatchResponse> {
        let item = self.items.pop_front()?;
        self.events -= item.events.len();
        self.bytes -= bytes_of(&item.events);
        Some(item)
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The room that events take, about.
pub(super) fn bytes_of(events: &[Event]) -> usize {
    let of = |event: &Event| {
        let previous = event.previous.as_ref();
        event.kv.key.len() + event.kv.value.len() + previous.map_or(0, |kv| kv.value.len())
    };
    events.iter().map(of).sum()
}

impl Queue {
    pub(super) fn new(max_events: usize, max_bytes: usize) -> Self {
        Queue {
            state: Mutex::default(),
            space: Notify::new(),
            max_events,
            max_bytes,
        }
    }

    /// Puts `item` in if there is room, or if it is the only one. Says whether it did.
    pub(super) fn offer(&self, item: WatchResponse) -> bool {
        let mut state = lock(&self.state);
        let events = state.events + item.events.len();
        let bytes = state.bytes + bytes_of(&item.events);
        let fits = events <= self.max_events && bytes <= self.max_bytes;
        if fits || state.items.is_empty() {
            state.push(item);
            return true;
        }
        false
    }

    /// Puts `item` in once the queue is less than half full. Says whether anybody still reads.
    pub(super) async fn push(&self, item: WatchResponse) -> bool {
        loop {
            let freed = self.space.notified();
            {
                let mut state = lock(&self.state);
                if state.abandoned {
                    return false;
                }
                if state.events <= self.max_events / 2 && state.bytes <= self.max_bytes / 2 {
                    state.push(item);
                    return true;
                }
            }
            freed.await;
        }
    }

    /// Says that the watch has come to `revision`; not twice in a row.
    pub(super) fn progress(&self, revision: Revision) {
        let mut state = lock(&self.state);
        state.progress_wanted = false;
        match state.items.back_mut() {
            Some(last) => last.revision = last.revision.max(revision),
            None => state.push(WatchResponse {
                revision,
                events: Vec::new(),
            }),
        }
    }

    /// Remembers that progress was asked for, for when the watch has caught up.
    pub(super) fn want_progress(&self) {
        lock(&self.state).progress_wanted = true;
    }

    pub(super) fn wants_progress(&self) -> bool {
        lock(&self.state).progress_wanted
    }

    /// Nothing comes after what is in it now but this error.
    pub(super) fn finish(&self, error: StoreError) {
        let mut state = lock(&self.state);
        state.end.get_or_insert(error);
        state.wake();
    }

    /// Nobody reads it any more.
    pub(super) fn abandon(&self) {
        let mut state = lock(&self.state);
        state.abandoned = true;
        state.items.clear();
        state.events = 0;
        state.bytes = 0;
        self.space.notify_waiters();
    }

    /// Whether nobody reads it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        lock(&self.state).abandoned
    }

    pub(super) fn poll_next(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<WatchResponse, StoreError>>> {
        let mut state = lock(&self.state);
        if let Some(item) = state.pop() {
            self.space.notify_waiters();
            return Poll::Ready(Some(Ok(item)));
        }
        if let Some(error) = state.end.clone() {
            return Poll::Ready(Some(Err(error)));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
