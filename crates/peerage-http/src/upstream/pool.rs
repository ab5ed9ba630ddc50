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

mod open;
mod place;

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
use super::connect::{Failure, Http1, Http2};
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
    /// Rings when the server ends a connection.
    ended: Notify,
}

#[derive(Default)]
struct State {
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
            ended: Notify::new(),
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
            waiting: state.waiting,
            streams: state.http2.iter().map(|c| c.vitals.requests()).sum(),
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
            let attempts = {
                let mut state = self.state();
                if let Some(lease) = self.take(&mut state, from_id) {
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
                    state.waiting += 1;
                    waiting = Some(Waiting(self));
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
    fn take(self: &Arc<Self>, state: &mut State, from_id: u64) -> Option<Lease> {
        let generation = self.options.tls.generation();
        let usable = |vitals: &Vitals| vitals.id >= from_id && vitals.is_usable(generation);
        while let Some(at) = state.http1.iter().rposition(|c| usable(&c.vitals)) {
            let idle = state.http1.remove(at);
            if !idle.sender.is_closed() {
                return Some(Lease::take(self, Sender::Http1(idle.sender), idle.vitals));
            }
        }
        let cap = self.options.max_streams_per_connection;
        let has_room =
            |c: &&Shared| usable(&c.vitals) && !c.sender.is_closed() && c.vitals.has_room(cap);
        let limit = self.options.suspect_after;
        let mut with_room = state.http2.iter().filter(has_room);
        let healthy = with_room.clone().find(|c| !c.vitals.is_suspect(limit));
        let full = state.open >= self.options.max_connections;
        let found = healthy.or_else(|| with_room.next().filter(|_| full))?;
        Some(Lease::take(
            self,
            Sender::Http2(found.sender.clone()),
            found.vitals.clone(),
        ))
    }

    /// Whether a place may become free although a connection could not be opened.
    fn has_hope(&self, state: &State) -> bool {
        if state.speaks_http2 == Some(false) {
            return state.open > state.opening;
        }
        let generation = self.options.tls.generation();
        let limit = self.options.suspect_after;
        state.http2.iter().any(|c| {
            c.vitals.is_usable(generation) && !c.sender.is_closed() && !c.vitals.is_suspect(limit)
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
            Some(true) => need.div_ceil(self.options.max_streams_per_connection.max(1)),
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
struct Waiting<'p>(&'p Arc<Pool>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}
