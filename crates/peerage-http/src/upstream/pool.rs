//! The connections to one server.
//!
//! HTTP/2 connections carry requests side by side, up to what the server allows; when all are full another one
//! is opened, and those that are idle for long are closed. HTTP/1.1 connections carry one request at a time and
//! wait to be used again. Which of the two it is, the TLS handshake says.
//!
//! A connection on which nothing was heard since a request was sent is *suspect*: it gets no new requests while
//! another can be had, long before the ping finds out whether it is dead.
//!
//! Invariants: never more than `max_connections` connections, tried ones included, nor more than `max_waiting`
//! requests waiting; no lock is held while waiting; a request that gives up leaves no trace.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connect::{self, Failure, Http1, Http2, Opened};
use super::{UpstreamOptions, UpstreamStats};
use crate::io::Traffic;

/// After a failed attempt to open one more connection beside living ones, the next waits this long.
const RETRY_GROWTH: Duration = Duration::from_secs(1);

pub(super) struct Pool {
    options: Arc<UpstreamOptions>,
    state: Mutex<State>,
    /// Rings once for each place that becomes free, and for all when there is news of another kind.
    freed: Notify,
}

#[derive(Default)]
struct State {
    next_id: u64,
    http2: Vec<Shared>,
    http1: Vec<Idle>,
    /// Connections that exist or are being opened.
    open: usize,
    opening: usize,
    waiting: usize,
    /// HTTP/1.1 connections whose request is over and that are not ready for the next yet.
    returning: usize,
    /// Whether the server spoke HTTP/2 the last time.
    speaks_http2: Option<bool>,
    failures: u64,
    failure: Option<Arc<Failure>>,
    failed_at: Option<Instant>,
    closed: bool,
}

/// An HTTP/2 connection.
struct Shared {
    sender: Http2,
    vitals: Arc<Vitals>,
}

/// An HTTP/1.1 connection that carries no request.
struct Idle {
    sender: Http1,
    vitals: Arc<Vitals>,
}

/// What is known of a connection.
pub(super) struct Vitals {
    id: u64,
    generation: u64,
    traffic: Arc<Traffic>,
    /// Requests on it.
    requests: AtomicUsize,
    /// Requests that the server allows.
    allowed: AtomicUsize,
    retired: AtomicBool,
    used: AtomicBool,
    idle_since: Mutex<Instant>,
}

/// A place for one request on a connection.
pub(super) struct Lease {
    pub(super) sender: Sender,
    pub(super) place: Place,
    /// Whether the connection has carried requests before, and so may have been closed unnoticed.
    pub(super) reused: bool,
}

pub(super) enum Sender {
    Http1(Http1),
    Http2(Http2),
}

/// Keeps a place taken until it is dropped, when the answer has been read or given up.
pub(super) struct Place {
    pool: Arc<Pool>,
    vitals: Arc<Vitals>,
    /// The connection to give back, if it is HTTP/1.1.
    back: Option<Http1>,
}

/// Why there is no place.
pub(super) enum NoPlace {
    Saturated,
    Failed(Arc<Failure>),
}

impl Vitals {
    fn new(id: u64, generation: u64, traffic: Arc<Traffic>) -> Self {
        Self {
            id,
            generation,
            traffic,
            requests: AtomicUsize::new(0),
            allowed: AtomicUsize::new(1),
            retired: AtomicBool::new(false),
            used: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
        }
    }

    fn is_suspect(&self, limit: Duration) -> bool {
        let silent =
            |since| u128::from(self.traffic.now().saturating_sub(since)) > limit.as_millis();
        self.traffic.unanswered().is_some_and(silent)
    }

    fn idle_for(&self) -> Duration {
        if self.requests.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        self.idle_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .elapsed()
    }

    fn take(&self) -> bool {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.traffic.expect_answer();
        self.used.swap(true, Ordering::Relaxed)
    }

    /// No new requests on this connection.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }
}

impl Pool {
    pub(super) fn new(options: Arc<UpstreamOptions>) -> Arc<Self> {
        Arc::new(Self {
            options,
            state: Mutex::default(),
            freed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every connection end with its last request.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let (http1, http2) = (
            std::mem::take(&mut state.http1),
            std::mem::take(&mut state.http2),
        );
        drop(state);
        drop((http1, http2));
    }

    /// The number that the next connection will have: connections from here on are not opened yet.
    pub(super) fn next_id(&self) -> u64 {
        self.state().next_id
    }

    pub(super) fn stats(&self) -> UpstreamStats {
        let state = self.state();
        let suspect = |c: &&Shared| c.vitals.is_suspect(self.options.suspect_after);
        UpstreamStats {
            connections: state.open - state.opening,
            opening: state.opening,
            waiting: state.waiting,
            streams: state
                .http2
                .iter()
                .map(|c| c.vitals.requests.load(Ordering::Relaxed))
                .sum(),
            suspect: state.http2.iter().filter(suspect).count(),
        }
    }

    /// A place on a connection of at least this number, opening one when there is none.
    pub(super) async fn place(self: &Arc<Self>, from_id: u64) -> Result<Lease, NoPlace> {
        let mut waiting = None;
        let mut seen = None;
        let deadline = Instant::now() + self.options.queue_timeout;
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(lease) = self.take(&mut state, from_id) {
                    return Ok(lease);
                }
                let seen = *seen.get_or_insert(state.failures);
                if state.failures > seen
                    && !self.has_hope(&state)
                    && let Some(failure) = &state.failure
                {
                    return Err(NoPlace::Failed(failure.clone()));
                }
                if waiting.is_none() {
                    if state.waiting >= self.options.max_waiting {
                        return Err(NoPlace::Saturated);
                    }
                    state.waiting += 1;
                    waiting = Some(Waiting(self));
                }
                let need = state.waiting;
                self.grow(&mut state, need);
            }
            // Waiting in slices: a connection may turn suspect, or be due to be tried again, without a ring.
            let slice = deadline.min(Instant::now() + RETRY_GROWTH);
            if tokio::time::timeout_at(slice, freed).await.is_err() && Instant::now() >= deadline {
                return Err(NoPlace::Saturated);
            }
        }
    }

    /// Takes the first place there is. Connections are filled in the order they were opened, so that those
    /// that are not needed any more fall idle.
    fn take(self: &Arc<Self>, state: &mut State, from_id: u64) -> Option<Lease> {
        let generation = self.options.tls.generation();
        let usable = |vitals: &Vitals| {
            vitals.id >= from_id
                && vitals.generation == generation
                && !vitals.retired.load(Ordering::Relaxed)
        };
        while let Some(at) = state.http1.iter().rposition(|c| usable(&c.vitals)) {
            let idle = state.http1.remove(at);
            if !idle.sender.is_closed() {
                let reused = idle.vitals.take();
                let place = Place {
                    pool: self.clone(),
                    vitals: idle.vitals,
                    back: None,
                };
                return Some(Lease {
                    sender: Sender::Http1(idle.sender),
                    place,
                    reused,
                });
            }
        }
        let cap = self.options.max_streams_per_connection;
        let has_room = |c: &&Shared| {
            let room = c.vitals.allowed.load(Ordering::Relaxed).min(cap);
            usable(&c.vitals)
                && !c.sender.is_closed()
                && c.vitals.requests.load(Ordering::Acquire) < room
        };
        let limit = self.options.suspect_after;
        let healthy = state
            .http2
            .iter()
            .filter(has_room)
            .find(|c| !c.vitals.is_suspect(limit));
        let full = state.open >= self.options.max_connections;
        let found = healthy.or_else(|| state.http2.iter().filter(has_room).find(|_| full))?;
        let reused = found.vitals.take();
        let place = Place {
            pool: self.clone(),
            vitals: found.vitals.clone(),
            back: None,
        };
        Some(Lease {
            sender: Sender::Http2(found.sender.clone()),
            place,
            reused,
        })
    }

    /// Whether a place may become free although a connection could not be opened.
    fn has_hope(&self, state: &State) -> bool {
        let limit = self.options.suspect_after;
        let busy_http1 =
            state.open - state.opening - state.http2.len().min(state.open - state.opening);
        state
            .http2
            .iter()
            .any(|c| !c.sender.is_closed() && !c.vitals.is_suspect(limit))
            || busy_http1 > 0
    }

    /// Opens as many connections as this number of waiting requests needs, not counting those that are about
    /// to come back.
    fn grow(self: &Arc<Self>, state: &mut State, need: usize) {
        let recently = |at: Instant| at.elapsed() < RETRY_GROWTH;
        if state.failed_at.is_some_and(recently) && self.has_hope(state) {
            return;
        }
        let wanted = match state.speaks_http2 {
            None => need.min(1),
            Some(true) => need.div_ceil(self.options.max_streams_per_connection.max(1)),
            Some(false) => need.saturating_sub(state.returning),
        };
        while state.opening < wanted && state.open < self.options.max_connections {
            state.opening += 1;
            state.open += 1;
            let pool = self.clone();
            let attempt = Attempt {
                pool: self.clone(),
                done: false,
            };
            tokio::spawn(async move { pool.open(attempt).await });
        }
    }

    async fn open(self: Arc<Self>, mut attempt: Attempt) {
        let traffic = Traffic::new();
        let generation = self.options.tls.generation();
        let opened = connect::open(&self.options, &traffic, false).await;
        attempt.done = true;
        match opened {
            Ok(opened) => self.add(opened, generation, traffic),
            Err(failure) => self.fail(failure),
        }
    }

    fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.opening -= 1;
        state.open -= 1;
        state.failures += 1;
        state.failure = Some(Arc::new(failure));
        state.failed_at = Some(Instant::now());
        drop(state);
        self.freed.notify_waiters();
    }

    fn add(self: &Arc<Self>, opened: Opened, generation: u64, traffic: Arc<Traffic>) {
        let mut state = self.state();
        state.opening -= 1;
        state.failed_at = None;
        if state.closed {
            state.open -= 1;
            return;
        }
        let vitals = Arc::new(Vitals::new(state.next_id, generation, traffic));
        state.next_id += 1;
        let places = match opened {
            Opened::Http1(sender, connection) => {
                state.speaks_http2 = Some(false);
                state.http1.push(Idle {
                    sender,
                    vitals: vitals.clone(),
                });
                let pool = self.clone();
                tokio::spawn(async move {
                    let connection = pin!(connection);
                    pool.drive(connection, &vitals).await;
                });
                1
            }
            Opened::Http2(sender, connection) => {
                state.speaks_http2 = Some(true);
                let allowed = connection.current_max_send_streams();
                vitals.allowed.store(allowed, Ordering::Relaxed);
                state.http2.push(Shared {
                    sender,
                    vitals: vitals.clone(),
                });
                let pool = self.clone();
                tokio::spawn(async move {
                    let mut connection = connection;
                    let known = vitals.clone();
                    let driven = pin!(poll_fn(|context| {
                        let polled = Pin::new(&mut connection).poll(context);
                        known
                            .allowed
                            .store(connection.current_max_send_streams(), Ordering::Relaxed);
                        polled
                    }));
                    pool.drive(driven, &vitals).await;
                });
                allowed.min(self.options.max_streams_per_connection)
            }
        };
        let places = places.min(state.waiting);
        let need = state.waiting - places;
        self.grow(&mut state, need);
        drop(state);
        for _ in 0..places {
            self.freed.notify_one();
        }
    }

    /// Runs a connection to its end, which comes when it has been idle for long or is not wanted any more.
    async fn drive(
        self: Arc<Self>,
        mut connection: Pin<&mut impl Future<Output = hyper::Result<()>>>,
        vitals: &Vitals,
    ) {
        let mut ticks =
            tokio::time::interval((self.options.idle_timeout / 4).max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(address = self.options.address, %error, "upstream connection ended");
                    }
                    break;
                }
                _ = ticks.tick() => self.let_go_if_idle(vitals),
            }
        }
        self.forget(vitals.id);
        self.state().open -= 1;
        self.freed.notify_waiters();
    }

    fn let_go_if_idle(&self, vitals: &Vitals) {
        let stale = vitals.retired.load(Ordering::Relaxed)
            || vitals.generation != self.options.tls.generation();
        let idle = vitals.idle_for();
        if idle > self.options.idle_timeout
            || (stale && vitals.requests.load(Ordering::Acquire) == 0)
        {
            self.forget(vitals.id);
        }
    }

    /// Drops the pool's hold on a connection; it ends with its last request.
    fn forget(&self, id: u64) {
        let mut state = self.state();
        state.http2.retain(|c| c.vitals.id != id);
        state.http1.retain(|c| c.vitals.id != id);
    }

    fn give_back(self: Arc<Self>, mut sender: Http1, vitals: Arc<Vitals>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        self.state().returning += 1;
        runtime.spawn(async move {
            // Ready once the rest of both bodies is through; an error when the connection cannot be used again.
            let ready = tokio::time::timeout(GIVE_BACK, sender.ready()).await;
            let mut state = self.state();
            state.returning -= 1;
            if matches!(ready, Ok(Ok(()))) && !state.closed {
                state.http1.push(Idle { sender, vitals });
            }
            drop(state);
            self.freed.notify_one();
        });
    }
}

/// How long an HTTP/1.1 connection may need to be ready for its next request.
const GIVE_BACK: Duration = Duration::from_secs(5);

impl Place {
    /// Nothing more will be sent over this place's connection, by anyone.
    pub(super) fn retire(&self) {
        self.vitals.retire();
    }

    /// Gives the connection back when the place is dropped.
    pub(super) fn keep(&mut self, sender: Http1) {
        self.back = Some(sender);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self
            .vitals
            .idle_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.vitals.requests.fetch_sub(1, Ordering::AcqRel);
        match self.back.take() {
            Some(sender) => self.pool.clone().give_back(sender, self.vitals.clone()),
            None => self.pool.freed.notify_one(),
        }
    }
}

/// Counts a request as waiting.
struct Waiting<'p>(&'p Arc<Pool>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// Takes back the count of an attempt whose task was ended from outside.
struct Attempt {
    pool: Arc<Pool>,
    done: bool,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.pool.state();
            state.opening -= 1;
            state.open -= 1;
        }
    }
}
