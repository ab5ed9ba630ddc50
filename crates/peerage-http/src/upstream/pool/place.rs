//! Places for requests on connections, and what is known of a connection.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::connect::{Http1, Http2};
use super::Pool;
use crate::io::Traffic;

/// What is known of a connection.
pub(in crate::upstream) struct Vitals {
    pub(super) id: u64,
    generation: u64,
    traffic: Arc<Traffic>,
    /// Requests on it.
    requests: AtomicUsize,
    /// Requests that the server allows.
    allowed: AtomicUsize,
    retired: AtomicBool,
    used: AtomicBool,
    /// Whether a request on it has it to itself.
    taken: AtomicBool,
    idle_since: Mutex<Instant>,
}

/// A place for one request on a connection.
pub(in crate::upstream) struct Lease {
    pub(in crate::upstream) sender: Sender,
    pub(in crate::upstream) place: Place,
    /// Whether the connection has carried requests before, and so may have been closed unnoticed.
    pub(in crate::upstream) reused: bool,
}

pub(in crate::upstream) enum Sender {
    Http1(Http1),
    Http2(Http2),
}

/// Keeps a place taken until it is dropped, when the answer has been read or given up.
pub(in crate::upstream) struct Place {
    pool: Arc<Pool>,
    vitals: Arc<Vitals>,
    /// Whether no other request comes on the connection before this one's answer has begun.
    alone: bool,
    /// The connection to give back, if it is HTTP/1.1.
    back: Option<Http1>,
}

impl Vitals {
    pub(super) fn new(id: u64, generation: u64, traffic: Arc<Traffic>) -> Self {
        Self {
            id,
            generation,
            traffic,
            requests: AtomicUsize::new(0),
            allowed: AtomicUsize::new(1),
            retired: AtomicBool::new(false),
            used: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
        }
    }

    /// How many requests are on it.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Notes how many requests the server allows.
    pub(super) fn allow(&self, requests: usize) {
        self.allowed.store(requests, Ordering::Relaxed);
    }

    /// Whether the server allows any request at all.
    pub(super) fn allows_any(&self) -> bool {
        self.allowed.load(Ordering::Relaxed) > 0
    }

    /// Whether it takes another request, if we want at most `cap` on it.
    pub(super) fn has_room(&self, cap: usize) -> bool {
        self.requests() < self.allowed.load(Ordering::Relaxed).min(cap)
            && !self.taken.load(Ordering::Acquire)
    }

    /// Whether it has ever carried a request.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Rings when its socket is let go of.
    pub(super) async fn gone(&self) {
        self.traffic.gone.notified().await;
    }

    /// Whether new requests may go over it at all, the certificates being of this generation now.
    pub(super) fn is_usable(&self, generation: u64) -> bool {
        self.generation == generation && !self.retired.load(Ordering::Relaxed)
    }

    /// Whether an expected answer is late.
    pub(super) fn is_suspect(&self, limit: Duration) -> bool {
        let silent =
            |since| u128::from(self.traffic.now().saturating_sub(since)) > limit.as_millis();
        self.traffic.unanswered().is_some_and(silent)
    }

    /// Forgets what was read.
    pub(super) fn listen(&self) {
        self.traffic.forget_read();
    }

    /// Whether anything was read since.
    pub(super) fn is_heard(&self) -> bool {
        self.traffic.read_since().is_some()
    }

    /// For how long there has been no request on it.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        (self.requests() == 0).then(|| self.idle_since().elapsed())
    }

    fn idle_since(&self) -> MutexGuard<'_, Instant> {
        self.idle_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Takes a place on a connection that has one; all of them, until its answer begins, if it is to be alone.
    pub(super) fn take(pool: &Arc<Pool>, sender: Sender, vitals: Arc<Vitals>, alone: bool) -> Self {
        if alone {
            vitals.taken.store(true, Ordering::Release);
        }
        vitals.requests.fetch_add(1, Ordering::AcqRel);
        vitals.traffic.expect_answer();
        let reused = vitals.used.swap(true, Ordering::Relaxed);
        let place = Place {
            pool: pool.clone(),
            vitals,
            alone,
            back: None,
        };
        Self {
            sender,
            place,
            reused,
        }
    }
}

impl Place {
    /// The number of its connection.
    pub(in crate::upstream) fn connection(&self) -> u64 {
        self.vitals.id
    }

    /// Nothing more will be sent over this place's connection, by anyone.
    pub(in crate::upstream) fn retire(&self) {
        self.vitals.retired.store(true, Ordering::Relaxed);
    }

    /// The answer has begun: others may use the connection beside it.
    pub(in crate::upstream) fn answered(&mut self) {
        if std::mem::take(&mut self.alone) {
            self.vitals.taken.store(false, Ordering::Release);
            self.pool.ring();
        }
    }

    /// Gives the connection back when the place is dropped.
    pub(in crate::upstream) fn keep(&mut self, sender: Http1) {
        self.back = Some(sender);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.vitals.idle_since() = Instant::now();
        self.vitals.requests.fetch_sub(1, Ordering::AcqRel);
        self.answered();
        match self.back.take() {
            Some(sender) => self.pool.clone().give_back(sender, self.vitals.clone()),
            None => self.pool.freed.notify_one(),
        }
    }
}
