//! The connections to one server.
//!
//! HTTP/2 connections carry requests side by side, up to what the server allows; when all are full another one
//! is opened, and those that are idle for long are closed. HTTP/1.1 connections carry one request at a time and
//! wait to be used again. Which of the two it is, the TLS handshake says.
//!
//! A connection on which nothing was heard since a request was sent is *suspect*: it gets no new requests while
//! another can be had, long before the ping finds out whether it is dead.
//!
//! A connection that takes no more requests, because the server is closing it (GOAWAY) or its certificates are replaced,
//! lives as long as what is on it. As many of these are kept as there may be others; beyond that the one that has been
//! closing the longest ends, and with it what is on it, which by then is most likely a watch. So a server that sends
//! GOAWAY all the time does not keep new requests out.
//!
//! A request can have a connection *alone* until its answer begins. One that was turned away again and again gets a new
//! one in this way, where nobody else can have it turned away; and where requests are to be expected that make a server
//! close the connection (`alone_until_answered`), each of them does.
//!
//! Invariants: never more than `max_connections` connections, tried ones included, nor more than as many again that are
//! closing, nor more than `max_waiting` requests waiting; no lock is held while waiting; a request that gives up leaves no
//! trace.

mod open;
mod place;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::UpstreamOptions;
#[cfg(any(test, feature = "testing"))]
use super::UpstreamStats;
use super::connect::{Failure, Http1, Http2, Tasks};
use open::Attempt;
use place::Vitals;

pub(super) use place::{Lease, Place, Sender};

/// After a failed attempt to open one more connection beside living ones, the next waits this long.
const RETRY_GROWTH: Duration = Duration::from_secs(1);

/// Numbers connections, and attempts at one that failed, in the order in which that became known; over all pools, so that
/// no two have the same.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The certificate that the server showed last.
pub(super) type Shown = Arc<Mutex<Option<CertificateDer<'static>>>>;

pub(super) struct Pool {
    options: Arc<UpstreamOptions>,
    shown: Shown,
    state: Mutex<State>,
    /// Rings once for each place that becomes free, and for all when there is news of another kind.
    freed: Notify,
    /// Rings once for each connection that is opened for who waits for a new one.
    opened: Notify,
    /// Rings when the server ends a connection.
    ended: Notify,
}

#[derive(Default)]
struct State {
    http2: Vec<Shared>,
    http1: Vec<Idle>,
    /// Connections that exist or are being opened, but for those that are closing.
    open: usize,
    opening: usize,
    /// In the order in which that began.
    closing: VecDeque<Closing>,
    waiting: usize,
    /// How many of these wait for a connection that nobody has used.
    waiting_for_new: usize,
    /// HTTP/1.1 connections whose request is over and that are not ready for the next yet.
    returning: usize,
    /// Whether the server spoke HTTP/2 the last time.
    speaks_http2: Option<bool>,
    failures: u64,
    /// The last one, and its number.
    failure: Option<(u64, Arc<Failure>)>,
    failed_at: Option<Instant>,
    closed: bool,
}

/// An HTTP/2 connection.
struct Shared {
    sender: Http2,
    vitals: Arc<Vitals>,
}

/// An HTTP/2 connection that gets no more requests.
struct Closing {
    id: u64,
    tasks: Tasks,
}

/// What kind of place is wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    /// On a connection of at least this number.
    pub(super) from_id: u64,
    /// On one that nobody has used, and alone.
    pub(super) new: bool,
}

/// An HTTP/1.1 connection that carries no request.
struct Idle {
    sender: Http1,
    vitals: Arc<Vitals>,
}

/// Why there is no place.
pub(super) enum NoPlace {
    Saturated,
    Failed(u64, Arc<Failure>),
}

impl Pool {
    pub(super) fn new(options: Arc<UpstreamOptions>, shown: Shown) -> Arc<Self> {
        Arc::new(Self {
            options,
            shown,
            state: Mutex::default(),
            freed: Notify::new(),
            opened: Notify::new(),
            ended: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every connection end with its last request.
    pub(super) fn shut(&self) {
        let mut state = self.state();
        state.closed = true;
        let (http1, http2) = (
            std::mem::take(&mut state.http1),
            std::mem::take(&mut state.http2),
        );
        drop(state);
        drop((http1, http2));
    }

    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let shown = self.shown.lock();
        shown.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_certificate(&self, certificate: Option<CertificateDer<'static>>) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    pub(super) fn listen(&self) {
        for connection in &self.state().http2 {
            connection.vitals.listen();
        }
    }

    pub(super) fn is_heard(&self) -> bool {
        self.state().http2.iter().any(|it| it.vitals.is_heard())
    }

    /// There is room for more than one request, or for one if each is alone.
    fn ring(&self) {
        match self.options.alone_until_answered {
            true => self.freed.notify_one(),
            false => self.freed.notify_waiters(),
        }
    }

    /// Returns when the server ends a connection, at once if it did since the last time.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Shared with other pools to the same server.
    pub(super) fn shown(&self) -> &Shown {
        &self.shown
    }

    /// The number that the next connection will have: connections from here on are not opened yet.
    pub(super) fn next_id() -> u64 {
        NEXT_ID.load(Ordering::Relaxed)
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn stats(&self) -> UpstreamStats {
        let state = self.state();
        let suspect = |c: &&Shared| c.vitals.is_suspect(self.options.suspect_after);
        UpstreamStats {
            connections: state.open - state.opening,
            opening: state.opening,
            closing: state.closing.len(),
            waiting: state.waiting,
            streams: state.http2.iter().map(|c| c.vitals.requests()).sum(),
            suspect: state.http2.iter().filter(suspect).count(),
        }
    }

    /// A place of this kind, on a connection that is opened for it when there is none.
    pub(super) async fn place(self: &Arc<Self>, wanted: Wanted) -> Result<Lease, NoPlace> {
        let mut waiting = None;
        let mut seen = None;
        let deadline = Instant::now() + self.options.queue_timeout;
        loop {
            let rings = if wanted.new {
                &self.opened
            } else {
                &self.freed
            };
            let mut freed = pin!(rings.notified());
            freed.as_mut().enable();
            let attempts = {
                let mut state = self.state();
                if let Some(lease) = self.take(&mut state, wanted) {
                    return Ok(lease);
                }
                let seen = *seen.get_or_insert(state.failures);
                if state.failures > seen
                    && !self.has_hope(&state)
                    && let Some((number, failure)) = &state.failure
                {
                    return Err(NoPlace::Failed(*number, failure.clone()));
                }
                if waiting.is_none() {
                    if state.waiting >= self.options.max_waiting {
                        return Err(NoPlace::Saturated);
                    }
                    waiting = Some(Waiting::begin(self, &mut state, wanted));
                }
                let need = state.waiting;
                self.grow(&mut state, need)
            };
            attempts.into_iter().for_each(Attempt::start);
            // Waiting in slices: a connection may turn suspect, or be due to be tried again, without a ring.
            let slice = deadline.min(Instant::now() + RETRY_GROWTH);
            if tokio::time::timeout_at(slice, freed).await.is_err() && Instant::now() >= deadline {
                return Err(NoPlace::Saturated);
            }
        }
    }

    /// Takes the first place there is. Connections are filled in the order they were opened, so that those
    /// that are not needed any more fall idle.
    fn take(self: &Arc<Self>, state: &mut State, wanted: Wanted) -> Option<Lease> {
        let generation = self.options.tls.generation();
        let full = state.open >= self.options.max_connections;
        let alone = wanted.new || self.options.alone_until_answered;
        // When no more can be opened and all are busy, any one is as good.
        let only_new = wanted.new && (!full || self.make_room(state));
        let only_used = !wanted.new && !full && state.waiting_for_new > 0;
        let usable = |vitals: &Vitals| {
            vitals.id >= wanted.from_id
                && vitals.is_usable(generation)
                && if vitals.is_used() {
                    !only_new
                } else {
                    !only_used
                }
        };
        while let Some(at) = state.http1.iter().rposition(|c| usable(&c.vitals)) {
            let idle = state.http1.remove(at);
            if !idle.sender.is_closed() {
                let sender = Sender::Http1(idle.sender);
                return Some(Lease::take(self, sender, idle.vitals, alone));
            }
        }
        let cap = self.options.max_streams_per_connection;
        let has_room =
            |c: &&Shared| usable(&c.vitals) && !c.sender.is_closed() && c.vitals.has_room(cap);
        let limit = self.options.suspect_after;
        let mut with_room = state.http2.iter().filter(has_room);
        let healthy = with_room.clone().find(|c| !c.vitals.is_suspect(limit));
        let found = healthy.or_else(|| with_room.next().filter(|_| full))?;
        Some(Lease::take(
            self,
            Sender::Http2(found.sender.clone()),
            found.vitals.clone(),
            alone,
        ))
    }

    /// Lets go of a connection that carries nothing, for a new one in its place, unless enough are on their way out.
    /// Returns whether there will be room.
    fn make_room(&self, state: &mut State) -> bool {
        let leaving = (state.open - state.opening).saturating_sub(state.http2.len());
        if state.speaks_http2 == Some(true) && leaving >= state.waiting_for_new.max(1) {
            return true;
        }
        let idle = |c: &Shared| c.vitals.is_used() && c.vitals.requests() == 0;
        let idle = state.http2.iter().position(idle);
        idle.map(|at| state.http2.remove(at)).is_some()
    }

    /// Whether a place may become free although a connection could not be opened.
    fn has_hope(&self, state: &State) -> bool {
        if state.speaks_http2 == Some(false) {
            return state.open > state.opening;
        }
        let generation = self.options.tls.generation();
        let limit = self.options.suspect_after;
        state.http2.iter().any(|c| {
            c.vitals.is_usable(generation)
                && c.vitals.allows_any()
                && !c.sender.is_closed()
                && !c.vitals.is_suspect(limit)
        })
    }

    /// Counts as many connections as being opened as this number of waiting requests needs, not counting those that
    /// are about to come back. They are to be started once the state is not locked any more: a runtime that shuts
    /// down drops a task in the moment in which it is spawned, and with it what locks the state again.
    #[must_use]
    fn grow(self: &Arc<Self>, state: &mut State, need: usize) -> Vec<Attempt> {
        let recently = |at: Instant| at.elapsed() < RETRY_GROWTH;
        if state.failed_at.is_some_and(recently) && self.has_hope(state) {
            return Vec::new();
        }
        let wanted = match state.speaks_http2 {
            None => need.min(1),
            Some(true) if self.options.alone_until_answered => need,
            Some(true) => {
                let new = state.waiting_for_new.min(need);
                new + (need - new).div_ceil(self.options.max_streams_per_connection.max(1))
            }
            Some(false) => need.saturating_sub(state.returning),
        };
        let mut attempts = Vec::new();
        while state.opening < wanted && state.open < self.options.max_connections {
            attempts.push(Attempt::begin(self, state));
        }
        attempts
    }
}

/// Counts a request as waiting.
struct Waiting<'p> {
    pool: &'p Arc<Pool>,
    for_new: usize,
}

impl<'p> Waiting<'p> {
    fn begin(pool: &'p Arc<Pool>, state: &mut State, wanted: Wanted) -> Self {
        let for_new = usize::from(wanted.new);
        state.waiting += 1;
        state.waiting_for_new += for_new;
        Self { pool, for_new }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.waiting -= 1;
        state.waiting_for_new -= self.for_new;
        let held_back = self.for_new > 0 && state.waiting_for_new == 0;
        drop(state);
        if held_back {
            self.pool.ring();
        }
    }
}
