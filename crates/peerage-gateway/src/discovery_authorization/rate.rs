//! How many questions nobody's credentials may cost.
//!
//! Token buckets, one for requests without credentials and one for credentials that no server has let in lately, so
//! that neither holds up the other. Whoever was let in passes by them for an hour.
//!
//! Invariants: fixed size; nothing waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use peerage_proxy::recent::Recent;
use tokio::time::Instant;

use super::credential::{Credential, Kind};

/// Questions a second without credentials: a server refuses them or answers them to all alike.
const ANONYMOUS: Rate = Rate {
    per_second: 10.0,
    burst: 20.0,
};

/// Questions a second with credentials that nobody has let in yet. The clients of a large cluster that all come anew
/// are through in less than a minute.
const UNKNOWN: Rate = Rate {
    per_second: 50.0,
    burst: 200.0,
};

/// How long credentials that were let in pass by the buckets.
const GOOD_FOR: Duration = Duration::from_secs(3600);

/// Credentials that are remembered to have been let in.
const GOOD: usize = 8192;

#[derive(Clone, Copy)]
struct Rate {
    per_second: f64,
    burst: f64,
}

/// The buckets and who passes by them.
pub(super) struct Rates {
    anonymous: Mutex<Bucket>,
    unknown: Mutex<Bucket>,
    /// Who was let in.
    good: Recent,
}

impl Rates {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            anonymous: Mutex::new(Bucket::full(ANONYMOUS, now)),
            unknown: Mutex::new(Bucket::full(UNKNOWN, now)),
            good: Recent::new(GOOD, GOOD_FOR, now),
        }
    }

    /// Whether a question of these credentials may be put now.
    pub(super) fn admit(&self, credential: &Credential, now: Instant) -> bool {
        let bucket = match credential.kind {
            Kind::Anonymous => &self.anonymous,
            _ if self.good.has(key(credential), now) => return true,
            _ => &self.unknown,
        };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.take(now)
    }

    /// Remembers that they were let in.
    pub(super) fn let_in(&self, credential: &Credential, now: Instant) {
        self.good.note(key(credential), now);
    }
}

fn key(credential: &Credential) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = credential.hash;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

struct Bucket {
    rate: Rate,
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            left: rate.burst,
            at: now,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.rate.per_second).min(self.rate.burst);
        self.at = self.at.max(now);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(n: u8, kind: Kind) -> Credential {
        Credential {
            hash: [n; 32],
            kind,
        }
    }

    #[test]
    fn a_flood_gets_its_rate_and_touches_nobody_who_was_let_in() {
        let start = Instant::now();
        let rates = Rates::new(start);
        let known = credential(1, Kind::Unknown);
        rates.let_in(&known, start);
        let mut admitted = 0;
        for millisecond in 0..10_000 {
            let now = start + Duration::from_millis(millisecond);
            let stranger = credential(2, Kind::Unknown);
            admitted += u64::from(rates.admit(&stranger, now));
            assert!(rates.admit(&known, now));
        }
        assert!((690..=700).contains(&admitted), "{admitted}");
        let anonymous = credential(3, Kind::Anonymous);
        assert!(rates.admit(&anonymous, start), "it has a bucket of its own");
        let later = start + GOOD_FOR;
        let mut flooded = 0;
        while rates.admit(&credential(2, Kind::Unknown), later) {
            flooded += 1;
        }
        assert_eq!(flooded, 200);
        assert!(
            !rates.admit(&known, later),
            "after an hour it is a stranger again"
        );
    }
}
