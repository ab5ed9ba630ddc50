//! How well a peer does: its breaker, its latency, and how much it has in hand.
//!
//! Requests and the poller report here; the forwarder orders its candidates by it. It leaves to `record` whether
//! a peer is registered and to the view whether it serves an API. `now` is an argument.
//!
//! Invariants: a closed breaker opens after [`FAILURES_TO_OPEN`] failures in a row, of which those of one connection are
//! one, and closes only by a success of what was begun after the last of them (the poller's `/readyz` is the half-open
//! probe, so no client's request is spent on finding out); nothing here waits or allocates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// One lost connection is an accident, two in a row are a dead server.
pub(crate) const FAILURES_TO_OPEN: u32 = 2;

/// Weight of a new latency sample, as a shift: one eighth.
const EWMA_SHIFT: u32 = 3;

/// Peers whose latencies differ by less than about this share the load.
const NEAR_MICROS: u64 = 16_384;

/// The running judgement of one peer.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failures: AtomicU32,
    /// All failures that there ever were.
    ever: AtomicU64,
    /// The number of the connection that was counted last; 0 is no connection's.
    last_lost: AtomicU64,
    opened: Notify,
    not_ready: AtomicBool,
    latency_micros: AtomicU64,
    in_flight: AtomicUsize,
}

/// A moment: what begins then tells nothing of failures that come later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(u64);

/// What the candidates are ordered by; smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    open: bool,
    not_ready: bool,
    failing: bool,
    cost: u64,
}

impl Rank {
    /// Whether a request may be spent on this peer.
    pub(crate) fn usable(&self) -> bool {
        !self.open
    }

    /// What sets servers apart before anything else does; smaller is better.
    pub(crate) fn tier(&self) -> (bool, bool) {
        (self.not_ready, self.failing)
    }
}

impl Health {
    /// To be had when a request or poll begins.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.ever.load(Ordering::Relaxed))
    }

    /// A request or a poll that was begun at this moment reached the peer and got an answer in this time. Returns whether
    /// that closed the breaker: a server that stops answers what it has in hand and takes nothing more.
    pub(crate) fn succeeded(&self, begun: Mark, took: Duration) -> bool {
        let is_news = self.ever.load(Ordering::Relaxed) == begun.0;
        let closed = is_news && self.failures.swap(0, Ordering::Relaxed) >= FAILURES_TO_OPEN;
        let sample = u64::try_from(took.as_micros()).unwrap_or(u64::MAX >> EWMA_SHIFT);
        let _ = self
            .latency_micros
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                Some(if old == 0 {
                    sample
                } else {
                    old - (old >> EWMA_SHIFT) + (sample >> EWMA_SHIFT)
                })
            });
        closed
    }

    /// A request or a poll did not get an answer. Returns whether this one opened the breaker.
    ///
    /// A connection counts once, however many requests end with it: one that is lost says nothing of the others.
    pub(crate) fn failed(&self, connection: Option<u64>) -> bool {
        if let Some(number) = connection
            && self.last_lost.swap(number, Ordering::Relaxed) == number
        {
            return false;
        }
        self.ever.fetch_add(1, Ordering::Relaxed);
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        // Never wraps: four thousand million failures would take centuries at any rate that back-off allows.
        let opens = before + 1 == FAILURES_TO_OPEN;
        if opens {
            self.opened.notify_waiters();
        }
        opens
    }

    /// Returns when the breaker is open: whoever waits for an answer of this peer may stop waiting.
    pub(crate) async fn opened(&self) {
        loop {
            let opened = self.opened.notified();
            if self.is_open() {
                return;
            }
            opened.await;
        }
    }

    /// What `/readyz` said.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.not_ready.store(!ready, Ordering::Relaxed);
    }

    /// Whether `/readyz` was good when last asked.
    pub(crate) fn is_ready(&self) -> bool {
        !self.not_ready.load(Ordering::Relaxed)
    }

    /// Whether requests are held back from this peer.
    pub(crate) fn is_open(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_TO_OPEN
    }

    /// Failures since the last success.
    pub(crate) fn consecutive_failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The smoothed time to an answer.
    pub(crate) fn latency(&self) -> Duration {
        Duration::from_micros(self.latency_micros.load(Ordering::Relaxed))
    }

    /// Requests that have been sent and are not over.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Where this peer stands among the candidates now.
    pub(crate) fn rank(&self) -> Rank {
        let load = self.in_flight() as u64 + 1;
        Rank {
            open: self.is_open(),
            not_ready: !self.is_ready(),
            failing: self.consecutive_failures() > 0,
            cost: (self.latency_micros.load(Ordering::Relaxed) / NEAR_MICROS + 1)
                .saturating_mul(load),
        }
    }

    /// Counts a request until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }
}

/// One request in the hands of a peer; over when dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Health>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(actions: impl Fn(&Health)) -> Rank {
        let health = Health::default();
        actions(&health);
        health.rank()
    }

    #[test]
    fn two_failures_in_a_row_open_the_breaker_and_one_success_closes_it() {
        let health = Health::default();
        assert!(!health.failed(None));
        health.succeeded(health.mark(), Duration::from_millis(1));
        assert!(!health.failed(None));
        assert!(!health.is_open());
        assert!(health.failed(None));
        assert!(health.is_open() && !health.rank().usable());
        assert!(!health.failed(None), "it opens once");
        health.succeeded(health.mark(), Duration::from_millis(1));
        assert!(health.rank().usable());
    }

    #[test]
    fn a_lost_connection_counts_once_however_many_requests_were_on_it() {
        let health = Health::default();
        for _ in 0..9 {
            assert!(!health.failed(Some(1)));
        }
        health.succeeded(health.mark(), Duration::from_millis(1));
        assert!(!health.failed(Some(1)), "the last of them");
        assert!(!health.failed(Some(2)));
        assert!(health.failed(Some(3)));
    }

    #[test]
    fn an_answer_to_what_was_begun_before_a_failure_says_nothing_new() {
        let health = Health::default();
        let before = health.mark();
        health.failed(Some(1));
        assert!(!health.succeeded(before, Duration::from_millis(1)));
        assert!(health.failed(Some(2)), "two in a row");
        assert!(!health.succeeded(before, Duration::from_millis(1)));
        assert!(health.is_open());
        assert!(health.succeeded(health.mark(), Duration::from_millis(1)));
        assert!(!health.is_open());
    }

    #[tokio::test]
    async fn whoever_waits_for_a_peer_learns_that_its_breaker_opened() {
        let health = Health::default();
        let (waited, ()) = tokio::join!(
            tokio::time::timeout(Duration::from_secs(60), health.opened()),
            async {
                health.failed(None);
                health.failed(None);
            }
        );
        assert!(waited.is_ok());
    }

    #[test]
    fn candidates_are_ordered_by_breaker_then_readiness_then_failures_then_cost() {
        let fast = after(|h| {
            h.succeeded(h.mark(), Duration::from_millis(1));
        });
        let slow = after(|h| {
            h.succeeded(h.mark(), Duration::from_millis(300));
        });
        let failing = after(|h| {
            h.failed(None);
        });
        let red = after(|h| h.set_ready(false));
        let open = after(|h| {
            h.failed(None);
            h.failed(None);
        });
        let mut ranks = [open, red, failing, slow, fast];
        ranks.sort();
        assert_eq!(ranks, [fast, slow, failing, red, open]);
    }

    #[test]
    fn peers_that_are_about_equally_near_rank_the_same() {
        let near = after(|h| {
            h.succeeded(h.mark(), Duration::from_millis(2));
        });
        let nearly = after(|h| {
            h.succeeded(h.mark(), Duration::from_millis(9));
        });
        assert_eq!(near, nearly);
    }

    #[test]
    fn a_busy_peer_costs_more_than_an_idle_one() {
        let busy = Arc::new(Health::default());
        let idle = Arc::new(Health::default());
        let one = busy.begin();
        assert!(idle.rank() < busy.rank());
        drop(one);
        assert_eq!(idle.rank(), busy.rank());
    }

    #[test]
    fn latency_follows_the_samples_slowly() {
        let health = Health::default();
        health.succeeded(health.mark(), Duration::from_millis(8));
        health.succeeded(health.mark(), Duration::from_millis(16));
        assert_eq!(health.latency(), Duration::from_millis(9));
        health.succeeded(health.mark(), Duration::MAX);
        assert!(health.latency() > Duration::from_secs(1));
    }
}
