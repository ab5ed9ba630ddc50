//! When a peer is asked next.
//!
//! Pure: `now` and the jitter are arguments. A peer that answers is asked once per interval; one that does not is
//! asked again soon and then less often, but never less often than the cap and never given up.
//!
//! Differs: kube-apiserver's peer discovery asks on Lease events only, retries twenty times with a back-off that
//! reaches a quarter of an hour, and then forgets the peer until its Lease changes.

use std::time::Duration;

use tokio::time::Instant;

/// The rhythm of a poller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    /// Between two good rounds.
    pub(crate) interval: Duration,
    /// After the first failure; doubles with each further one.
    pub(crate) retry: Duration,
    /// The longest wait after failures.
    pub(crate) retry_cap: Duration,
}

/// When the next round is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    rhythm: Rhythm,
    failures: u32,
    due: Instant,
    /// Before then nobody's hurry counts.
    earliest: Instant,
    /// Whether the next round was brought forward because a connection ended, and whether the last one was.
    early: bool,
    was_early: bool,
}

/// However often somebody asks for a round, the peer has this long between two.
const LEAST: Duration = Duration::from_millis(50);

impl Schedule {
    /// A schedule whose first round is due at once.
    pub(crate) fn new(rhythm: Rhythm, now: Instant) -> Schedule {
        Schedule {
            rhythm,
            failures: 0,
            due: now,
            earliest: now,
            early: false,
            was_early: false,
        }
    }

    /// When the next round is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Makes the next round due as soon as may be, and forgets the back-off (the registry told us something new, or somebody wants to know).
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.failures = 0;
        self.due = self.due.min(now.max(self.earliest));
    }

    /// Makes the next round due now because a request wondered, unless rounds fail: then the back-off says when.
    pub(crate) fn recheck(&mut self, now: Instant) {
        if self.failures == 0 {
            self.due = self.due.min(now.max(self.earliest));
        }
    }

    /// Makes the next round due now because the peer ended a connection, as one does that stops: what answers there next
    /// may be another version. Only every other round: some ends each connection that is idle for a while.
    pub(crate) fn connection_ended(&mut self, now: Instant) {
        if !self.was_early {
            self.early = self.failures == 0;
            self.recheck(now);
        }
    }

    /// Makes the next round due as soon as after a failure: the peer is starting, or its APIs change, and it is soon done
    /// with that.
    pub(crate) fn soon(&mut self, now: Instant) {
        self.due = self.due.min(now + self.rhythm.retry);
    }

    /// Plans the next round. `jitter` is from 0 to 1 and spreads rounds over a tenth of the wait either way.
    pub(crate) fn finished(&mut self, good: bool, now: Instant, jitter: f64) {
        self.failures = if good {
            0
        } else {
            self.failures.saturating_add(1)
        };
        let wait = match self.failures.checked_sub(1) {
            None => self.rhythm.interval,
            Some(n) => self
                .rhythm
                .retry
                .saturating_mul(1 << n.min(16))
                .min(self.rhythm.retry_cap),
        };
        self.was_early = std::mem::take(&mut self.early);
        self.earliest = now + LEAST;
        self.due = now + wait.mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RHYTHM: Rhythm = Rhythm {
        interval: Duration::from_secs(5),
        retry: Duration::from_millis(500),
        retry_cap: Duration::from_secs(4),
    };

    #[test]
    fn failures_double_the_wait_up_to_the_cap_and_success_resets_it() {
        let now = Instant::now();
        let mut schedule = Schedule::new(RHYTHM, now);
        assert_eq!(schedule.due(), now);
        let waits: Vec<u128> = [false, false, false, false, false, true, false]
            .into_iter()
            .map(|good| {
                schedule.finished(good, now, 0.5);
                (schedule.due() - now).as_millis()
            })
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 4000, 5000, 500]);
    }

    #[test]
    fn who_is_soon_done_with_a_change_is_asked_as_soon_as_who_failed_once() {
        let now = Instant::now();
        let mut schedule = Schedule::new(RHYTHM, now);
        for _ in 0..9 {
            schedule.finished(true, now, 0.5);
            schedule.soon(now);
            assert_eq!(schedule.due() - now, RHYTHM.retry);
        }
        schedule.finished(true, now, 0.5);
        assert_eq!(schedule.due() - now, RHYTHM.interval);
    }

    #[test]
    fn a_hurried_round_is_due_after_a_breath_and_starts_the_back_off_anew() {
        let now = Instant::now();
        let mut schedule = Schedule::new(RHYTHM, now);
        for _ in 0..9 {
            schedule.finished(false, now, 0.0);
        }
        schedule.hurry(now);
        schedule.hurry(now);
        assert_eq!(schedule.due(), now + LEAST);
        schedule.finished(false, now, 0.5);
        assert_eq!(schedule.due() - now, RHYTHM.retry);
    }

    #[test]
    fn a_request_that_wonders_brings_the_next_round_forward_but_not_while_rounds_fail() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut schedule = Schedule::new(RHYTHM, now);
        schedule.finished(true, now, 0.5);
        schedule.recheck(later);
        assert_eq!(schedule.due(), later);
        for _ in 0..4 {
            schedule.finished(false, now, 0.5);
            let due = schedule.due();
            schedule.recheck(now);
            assert_eq!(schedule.due(), due);
        }
        assert_eq!(schedule.due(), now + RHYTHM.retry_cap);
    }

    #[test]
    fn a_peer_that_ends_every_connection_is_asked_at_most_twice_as_often() {
        let now = Instant::now();
        let mut schedule = Schedule::new(RHYTHM, now);
        let waits: Vec<Duration> = (0..5)
            .map(|_| {
                schedule.finished(true, now, 0.5);
                schedule.connection_ended(now);
                schedule.due() - now
            })
            .collect();
        let (early, usual) = (LEAST, RHYTHM.interval);
        assert_eq!(waits, [early, usual, early, usual, early]);
        // The round before that was not brought forward.
        schedule.finished(true, now, 0.5);
        schedule.finished(false, now, 0.5);
        schedule.connection_ended(now);
        assert_eq!(schedule.due() - now, RHYTHM.retry, "not while rounds fail");
    }

    proptest! {
        #[test]
        fn a_peer_is_never_given_up_and_never_asked_without_a_pause(
            rounds in proptest::collection::vec((any::<bool>(), 0.0..1.0f64), 1..200)
        ) {
            let now = Instant::now();
            let mut schedule = Schedule::new(RHYTHM, now);
            for (good, jitter) in rounds {
                schedule.finished(good, now, jitter);
                let wait = schedule.due() - now;
                prop_assert!(wait >= RHYTHM.retry.mul_f64(0.89));
                prop_assert!(wait <= RHYTHM.interval.mul_f64(1.11));
            }
        }
    }
}
