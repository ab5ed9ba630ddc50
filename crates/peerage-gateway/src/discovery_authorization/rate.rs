//! How many questions nobody's credentials may cost.
//!
//! Requests without credentials and credentials that no server has let in lately are counted apart, so that neither
//! holds up the other. Of each kind most questions are for whoever comes first; the rest is kept for client addresses
//! that ask seldom. An address that asks more often than its share has none of that until it is quieter, so a flood,
//! whether it is let through or not, leaves room for everybody else. Whoever was let in passes by for an hour.
//!
//! Addresses are counted by a salted hash in a table of fixed size: two that meet there share one share. Clients that
//! come through one address (a balancer that hides theirs) are one client here.
//!
//! Invariants: fixed size; nothing waits; all together never get more than the two rates of a kind.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use peerage_proxy::recent::Recent;
use tokio::time::Instant;

use super::credential::{Credential, Kind};

/// Questions without credentials: a server refuses them or answers them to all alike. 10 a second, bursts of 20.
const ANONYMOUS: Limits = Limits {
    open: Rate::new(8.0, 16.0),
    kept: Rate::new(2.0, 4.0),
    share: Rate::new(1.0, 4.0),
};

/// Questions with credentials that nobody has let in yet: 50 a second, bursts of 200. The clients of a large cluster
/// that all come anew, also through one address, are through in less than a minute.
const UNKNOWN: Limits = Limits {
    open: Rate::new(40.0, 160.0),
    kept: Rate::new(10.0, 40.0),
    share: Rate::new(5.0, 20.0),
};

/// How long credentials that were let in pass by the buckets.
const GOOD_FOR: Duration = Duration::from_secs(3600);

/// Credentials that are remembered to have been let in.
const GOOD: usize = 8192;

/// Shares of client addresses; 24 bytes each.
const SHARES: usize = 4096;

#[derive(Clone, Copy)]
struct Rate {
    per_second: f64,
    burst: f64,
}

impl Rate {
    const fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst }
    }
}

/// What requests of one kind may cost.
#[derive(Clone, Copy)]
struct Limits {
    /// For whoever comes first.
    open: Rate,
    /// For addresses that are within their share.
    kept: Rate,
    /// How often an address may ask to be within its share.
    share: Rate,
}

/// The buckets and who passes by them.
pub(super) struct Rates {
    anonymous: Mutex<Fair>,
    unknown: Mutex<Fair>,
    /// Who was let in.
    good: Recent,
    salt: RandomState,
}

impl Rates {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            anonymous: Mutex::new(Fair::new(ANONYMOUS, now)),
            unknown: Mutex::new(Fair::new(UNKNOWN, now)),
            good: Recent::new(GOOD, GOOD_FOR, now),
            salt: RandomState::new(),
        }
    }

    /// Whether a question of these credentials, which came from that address, may be put now.
    pub(super) fn admit(
        &self,
        credential: &Credential,
        from: Option<IpAddr>,
        now: Instant,
    ) -> bool {
        let kind = match credential.kind {
            Kind::Anonymous => &self.anonymous,
            _ if self.good.has(key(credential), now) => return true,
            _ => &self.unknown,
        };
        let source = self.salt.hash_one(from.map(network));
        let mut fair = kind.lock().unwrap_or_else(PoisonError::into_inner);
        fair.admit(source, now)
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

/// What one client has: of IPv6 addresses it may choose the last 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// The buckets of one kind.
struct Fair {
    limits: Limits,
    open: Bucket,
    kept: Bucket,
    /// By hash of the address.
    shares: Box<[Bucket]>,
}

impl Fair {
    fn new(limits: Limits, now: Instant) -> Self {
        let share = || Bucket::full(limits.share, now);
        Self {
            open: Bucket::full(limits.open, now),
            kept: Bucket::full(limits.kept, now),
            shares: std::iter::repeat_with(share).take(SHARES).collect(),
            limits,
        }
    }

    fn admit(&mut self, source: u64, now: Instant) -> bool {
        // The remainder is smaller than a length, so it fits.
        let share = &mut self.shares[(source % SHARES as u64) as usize];
        // Every request counts, also one that is refused: who floods is not within its share, however little it gets.
        let within = share.owe(self.limits.share, now);
        self.open.take(self.limits.open, now) || (within && self.kept.take(self.limits.kept, now))
    }
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self {
            left: rate.burst,
            at: now,
        }
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * rate.per_second).min(rate.burst);
        self.at = self.at.max(now);
    }

    /// Takes one if it is there.
    fn take(&mut self, rate: Rate, now: Instant) -> bool {
        self.fill(rate, now);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }

    /// Takes one whether it is there or not, up to a debt of one burst; whether it was there.
    fn owe(&mut self, rate: Rate, now: Instant) -> bool {
        self.fill(rate, now);
        let enough = self.left >= 1.0;
        self.left = (self.left - 1.0).max(-rate.burst);
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

    fn host(n: u8) -> Option<IpAddr> {
        Some([10, 0, 0, n].into())
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
            admitted += u64::from(rates.admit(&stranger, host(2), now));
            assert!(rates.admit(&known, host(2), now));
        }
        assert!((550..=560).contains(&admitted), "{admitted}");
        let anonymous = credential(3, Kind::Anonymous);
        assert!(
            rates.admit(&anonymous, host(2), start),
            "it has buckets of its own"
        );
        let later = start + GOOD_FOR;
        let mut flooded = 0;
        while rates.admit(&credential(2, Kind::Unknown), host(2), later) {
            flooded += 1;
        }
        assert_eq!(flooded, 160);
        assert!(
            !rates.admit(&known, host(2), later),
            "after an hour it is a stranger again"
        );
    }

    /// What the addresses get in ten seconds, of `asked` questions a second each.
    fn shares(kind: Kind, asked: &[(u8, u64)]) -> Vec<u64> {
        let start = Instant::now();
        let rates = Rates::new(start);
        let mut got = vec![0; asked.len()];
        for millisecond in 0..10_000 {
            let now = start + Duration::from_millis(millisecond);
            for (got, (from, per_second)) in got.iter_mut().zip(asked) {
                if millisecond % (1000 / per_second) == 0 {
                    let stranger = credential(*from, kind);
                    *got += u64::from(rates.admit(&stranger, host(*from), now));
                }
            }
        }
        got
    }

    #[test]
    fn addresses_do_not_starve_each_other() {
        for (kind, asked, calm, most) in [
            (Kind::Unknown, &[(1, 1000), (2, 2)][..], 20, 700),
            (
                Kind::Unknown,
                &[(1, 1000), (3, 500), (4, 500), (2, 4)],
                40,
                700,
            ),
            (Kind::Anonymous, &[(1, 1000), (3, 1000), (2, 1)], 10, 120),
        ] {
            let got = shares(kind, asked);
            assert_eq!(got.last(), Some(&calm), "{asked:?}: {got:?}");
            assert!(got.iter().sum::<u64>() <= most, "{asked:?}: {got:?}");
        }
        let calm: Vec<_> = (1..=5).map(|from| (from, 5)).collect();
        assert_eq!(shares(Kind::Unknown, &calm), [50; 5]);
    }

    #[test]
    fn a_client_is_one_client_whatever_its_address_looks_like() {
        for (one, other, same) in [
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("fd00:0:0:1::1", "fd00:0:0:1:ffff::2", true),
            ("fd00:0:0:1::1", "fd00:0:0:2::1", false),
        ] {
            let networks = [one, other].map(|it| it.parse().map(network));
            assert_eq!(networks[0] == networks[1], same, "{one} {other}");
        }
    }
}
