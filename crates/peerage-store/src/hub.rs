//! From one writer to many watchers, without polling.
//!
//! A store tells its [`Hub`] of each commit, in order; the hub gives each watcher what it asked for,
//! through a bounded queue. A watcher that starts in the past first reads the store's history, page by page
//! and only as fast as it is read, and joins the others when what is left is among the most recent
//! commits, which the hub keeps for that. A watcher whose queue is full when a commit comes is cut
//! off: the store never waits for a watcher.
//!
//! The hub's lock is never held while history is read.

mod catch_up;
mod queue;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::sync::lock;
use crate::types::{Event, EventKind, KeyRange, Revision, WatchRequest, WatchResponse};
use crate::watch::{ProgressRequester, WatchStream};
use catch_up::CatchUp;
use queue::{Queue, bytes_of};

/// The bounds of watching.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchLimits {
    /// The most watchers at a time.
    pub max_watchers: usize,
    /// The most events that wait for one watcher.
    pub buffer_events: usize,
    /// The most bytes that wait for one watcher; a single batch may be larger.
    pub buffer_bytes: usize,
    /// How often a watcher that asked for it is told how far it has come.
    pub progress_interval: Duration,
}

impl Default for WatchLimits {
    fn default() -> Self {
        WatchLimits {
            max_watchers: 20_000,
            buffer_events: 8192,
            buffer_bytes: 64 * 1024 * 1024,
            // kube-apiservers are told to configure etcd with five seconds.
            progress_interval: Duration::from_secs(5),
        }
    }
}

/// One revision and its events, each with its previous value.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) revision: Revision,
    pub(crate) events: Vec<Event>,
}

/// Events of the past: all of `keys` from some revision through `through`.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) events: Vec<Event>,
    pub(crate) through: Revision,
}

/// Where a hub's store keeps its past.
#[async_trait]
pub(crate) trait History: Send + Sync {
    /// The events of `keys` from `from` on, through `to` or less: at least one whole revision, and
    /// no more than fits in memory.
    async fn page(&self, keys: &KeyRange, from: Revision, to: Revision)
    -> Result<Page, StoreError>;
}

/// How many events of how many bytes the hub remembers; also bounded by half a watcher's buffer.
const RECENT_EVENTS: usize = 1024;
const RECENT_BYTES: usize = 8 * 1024 * 1024;

/// Who watches a store, and what it did last.
#[derive(Debug)]
pub(crate) struct Hub {
    limits: WatchLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    revision: Revision,
    recent: VecDeque<Arc<Commit>>,
    recent_events: usize,
    recent_bytes: usize,
    /// The revision before the oldest of `recent`.
    recent_after: Revision,
    /// Watchers that have caught up.
    live: HashMap<u64, Watcher>,
    /// All watchers, those that still catch up too.
    watchers: usize,
    next_id: u64,
    ticking: bool,
    closed: Option<StoreError>,
}

#[derive(Debug)]
struct Watcher {
    request: WatchRequest,
    /// The first revision it wants.
    next: Revision,
    queue: Arc<Queue>,
    /// Nothing was sent since the last tick.
    quiet: bool,
}

impl Hub {
    pub(crate) fn new(revision: Revision, limits: WatchLimits) -> Arc<Self> {
        Arc::new(Hub {
            limits,
            state: Mutex::new(State {
                revision,
                recent: VecDeque::new(),
                recent_events: 0,
                recent_bytes: 0,
                recent_after: revision,
                live: HashMap::new(),
                watchers: 0,
                next_id: 0,
                ticking: false,
                closed: None,
            }),
        })
    }

    /// The last revision that everybody was told of.
    pub(crate) fn revision(&self) -> Revision {
        lock(&self.state).revision
    }

    /// Tells everybody of a commit. Must be called in the order of revisions.
    pub(crate) fn publish(&self, commit: Arc<Commit>) {
        let mut state = lock(&self.state);
        state.revision = commit.revision;
        state.live.retain(|_, watcher| watcher.deliver(&commit));
        state.remember(commit, &self.limits);
    }

    /// Forgets what came before `revision`: nobody can start there any more.
    pub(crate) fn compacted(&self, revision: Revision) {
        let mut state = lock(&self.state);
        while state
            .recent
            .front()
            .is_some_and(|commit| commit.revision < revision)
        {
            state.forget_oldest();
        }
        state.recent_after = state.recent_after.max(revision - 1);
    }

    /// Ends every watch.
    pub(crate) fn close(&self, error: StoreError) {
        let mut state = lock(&self.state);
        for (_, watcher) in state.live.drain() {
            watcher.queue.finish(error.clone());
        }
        state.closed = Some(error);
    }

    /// Begins a watch; `history` is where its past is read if it starts there.
    pub(crate) fn watch(
        self: &Arc<Self>,
        request: WatchRequest,
        history: Arc<dyn History>,
    ) -> Result<WatchStream, StoreError> {
        let queue = Arc::new(Queue::new(
            self.limits.buffer_events,
            self.limits.buffer_bytes,
        ));
        let (id, start) = self.enter(&request)?;
        let reader = Reader {
            hub: Arc::downgrade(self),
            id,
            queue: queue.clone(),
        };
        if request.progress {
            self.start_ticking();
        }
        if !self.join(id, &request, start, &queue) {
            let catch_up = CatchUp {
                hub: Arc::downgrade(self),
                id,
                request,
                queue,
                history,
            };
            tokio::spawn(catch_up.run(start));
        }
        let requester = reader.progress_requester();
        let items = futures::stream::poll_fn(move |cx| reader.queue.poll_next(cx));
        Ok(WatchStream::new(start, items, requester))
    }

    fn enter(&self, request: &WatchRequest) -> Result<(u64, Revision), StoreError> {
        let mut state = lock(&self.state);
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        if state.watchers >= self.limits.max_watchers {
            return Err(StoreError::Exhausted {
                what: "watchers",
                limit: self.limits.max_watchers,
            });
        }
        state.watchers += 1;
        state.next_id += 1;
        let start = match request.start {
            0 => state.revision + 1,
            start => start,
        };
        Ok((state.next_id, start))
    }

    /// Makes a watcher one of the live ones if all that it lacks from `next` on is still remembered.
    fn join(&self, id: u64, request: &WatchRequest, next: Revision, queue: &Arc<Queue>) -> bool {
        let mut state = lock(&self.state);
        if let Some(error) = &state.closed {
            queue.finish(error.clone());
            return true;
        }
        if next <= state.recent_after {
            return false;
        }
        // Its reader leaves by this lock after it abandons the queue: seen here or removed there.
        if queue.is_abandoned() {
            return true;
        }
        let mut watcher = Watcher {
            request: request.clone(),
            next,
            queue: queue.clone(),
            quiet: true,
        };
        if !state.recent.iter().all(|commit| watcher.deliver(commit)) {
            return true;
        }
        if queue.wants_progress() {
            queue.progress(state.revision);
        }
        state.live.insert(id, watcher);
        true
    }

    fn leave(&self, id: u64) {
        let mut state = lock(&self.state);
        state.live.remove(&id);
        state.watchers -= 1;
    }

    fn request_progress(&self, id: u64, queue: &Queue) {
        let mut state = lock(&self.state);
        let revision = state.revision;
        match state.live.get_mut(&id) {
            Some(watcher) => watcher.queue.progress(revision),
            None => queue.want_progress(),
        }
    }

    fn tick(&self) {
        let mut state = lock(&self.state);
        let revision = state.revision;
        for watcher in state.live.values_mut().filter(|w| w.request.progress) {
            if std::mem::replace(&mut watcher.quiet, true) {
                watcher.queue.progress(revision);
            }
        }
    }

    fn start_ticking(self: &Arc<Self>) {
        if std::mem::replace(&mut lock(&self.state).ticking, true) {
            return;
        }
        let (hub, interval) = (Arc::downgrade(self), self.limits.progress_interval);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(hub) = hub.upgrade() else { break };
                hub.tick();
            }
        });
    }
}

impl State {
    fn remember(&mut self, commit: Arc<Commit>, limits: &WatchLimits) {
        self.recent_events += commit.events.len();
        self.recent_bytes += bytes_of(&commit.events);
        self.recent.push_back(commit);
        let max_events = RECENT_EVENTS.min(limits.buffer_events / 2);
        let max_bytes = RECENT_BYTES.min(limits.buffer_bytes / 2);
        while self.recent_events > max_events || self.recent_bytes > max_bytes {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.recent.pop_front() {
            self.recent_events -= oldest.events.len();
            self.recent_bytes -= bytes_of(&oldest.events);
            self.recent_after = oldest.revision;
        }
    }
}

impl Watcher {
    /// Gives it what it asked for of a commit. False if it was cut off.
    fn deliver(&mut self, commit: &Commit) -> bool {
        if commit.revision < self.next {
            return true;
        }
        let events = select(&self.request, &commit.events);
        if events.is_empty() {
            return true;
        }
        self.quiet = false;
        let revision = commit.revision;
        if self.queue.offer(WatchResponse { revision, events }) {
            return true;
        }
        self.queue.finish(StoreError::CutOff {
            resume_revision: revision,
        });
        false
    }
}

/// What `request` asks for of `events`.
fn select(request: &WatchRequest, events: &[Event]) -> Vec<Event> {
    let wanted = |event: &&Event| {
        let unwanted = match event.kind {
            EventKind::Put => request.no_put,
            EventKind::Delete => request.no_delete,
        };
        !unwanted && request.keys.contains(&event.kv.key)
    };
    let shown = |event: &Event| Event {
        kind: event.kind,
        kv: event.kv.clone(),
        previous: event.previous.clone().filter(|_| request.previous),
    };
    events.iter().filter(wanted).map(shown).collect()
}

/// The stream's end of a queue. The watcher is forgotten when it is dropped.
struct Reader {
    hub: Weak<Hub>,
    id: u64,
    queue: Arc<Queue>,
}

impl Reader {
    fn progress_requester(&self) -> ProgressRequester {
        let (hub, id, queue) = (self.hub.clone(), self.id, Arc::downgrade(&self.queue));
        ProgressRequester::new(move || {
            if let (Some(hub), Some(queue)) = (hub.upgrade(), queue.upgrade()) {
                hub.request_progress(id, &queue);
            }
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.queue.abandon();
        if let Some(hub) = self.hub.upgrade() {
            hub.leave(self.id);
        }
    }
}
