//! What a registry tells about each other server, and what follows from it at a given moment.
//!
//! A registry (the identity Leases and endpoint keys of a store, a static list, a DNS name) publishes
//! [`PeerRecord`]s; it says what is written there and judges nothing. [`Standing`] is the judgement: a pure
//! function of the record, of what this server remembers of that peer, and of `now`. Whether the peer answers
//! is not decided here but by its poller and its breaker (`health`).
//!
//! Invariants: a standing changes by time alone only at the moment that [`Standing::until`] names; a peer
//! without an endpoint key is never a candidate; a peer is never remembered for longer than the hold time.
//!
//! Differs: kube-apiserver's peer discovery looks at the existence of the identity Lease only, so a crashed
//! server stays listed for an hour or two and one that left cleanly is forgotten at once.

pub mod registered;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::uri::Authority;

/// What the registry holds about one other server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRecord {
    /// The server ID, which is also the name of its identity Lease.
    pub id: Arc<str>,
    /// Where the server says that peers reach it.
    pub address: Option<Authority>,
    /// Its identity Lease, while there is one.
    pub identity_lease: Option<IdentityLease>,
    /// Whether its endpoint key, which lives for seconds, is there.
    pub endpoint_live: bool,
    /// The failure domain that it is in, where the registry says so.
    pub zone: Option<Arc<str>>,
}

/// The part of an identity Lease that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityLease {
    /// `spec.holderIdentity`: the server ID and a part that is new with each process.
    pub holder: Arc<str>,
    /// `spec.renewTime`.
    pub renew_time: Option<SystemTime>,
    /// `spec.leaseDurationSeconds`.
    pub duration: Option<Duration>,
    /// Set when the holder left cleanly: for how long from `renew_time` it asks to be remembered.
    pub hold: Option<Duration>,
}

/// What a peer is at one moment, as far as its record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has an endpoint key: requests may go there.
    Live,
    /// It has an identity but no endpoint key yet, and we wait for it until then.
    Starting {
        /// When we stop waiting.
        until: SystemTime,
    },
    /// Its endpoint key has gone and it did not say goodbye.
    Crashed {
        /// The end of the hold time.
        until: SystemTime,
    },
    /// It stopped in good order and is expected back.
    Left {
        /// The end of the hold time.
        until: SystemTime,
    },
    /// It is not, or no longer, to be remembered.
    Gone,
}

impl Standing {
    /// The word that metrics and the debug page use.
    pub fn word(&self) -> &'static str {
        match self {
            Standing::Live => "live",
            Standing::Starting { .. } => "starting",
            Standing::Crashed { .. } => "crashed",
            Standing::Left { .. } => "left",
            Standing::Gone => "gone",
        }
    }

    /// When this standing ends by time alone, if it does.
    pub fn until(&self) -> Option<SystemTime> {
        match *self {
            Standing::Starting { until }
            | Standing::Crashed { until }
            | Standing::Left { until } => Some(until),
            Standing::Live | Standing::Gone => None,
        }
    }
}

/// How long a peer that does not serve is remembered.
#[derive(Clone, Copy, Debug)]
pub struct HoldTimes {
    /// A peer that was there and is not any more.
    pub hold: Duration,
    /// A peer with an identity but without an endpoint key that we have never seen live.
    pub start_wait: Duration,
}

/// What this server has seen of one peer, apart from its documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    first_seen: Option<SystemTime>,
    was_live: bool,
    live_ended: Option<SystemTime>,
    left_until: Option<SystemTime>,
}

impl Memory {
    /// Takes in what the registry says now (`None`: it has no record any more) and judges it.
    pub(crate) fn observe(
        &mut self,
        record: Option<&PeerRecord>,
        times: HoldTimes,
        now: SystemTime,
    ) -> Standing {
        self.first_seen.get_or_insert(now);
        if record.is_some_and(|r| r.endpoint_live && r.address.is_some()) {
            self.was_live = true;
            self.live_ended = None;
            self.left_until = None;
            return Standing::Live;
        }
        if self.was_live {
            self.live_ended.get_or_insert(now);
        }
        let lease = record.and_then(|r| r.identity_lease.as_ref());
        self.note_farewell(lease, times, now);
        let standing = self.absent(lease, times, now);
        match standing.until() {
            Some(until) if until <= now => Standing::Gone,
            _ => standing,
        }
    }

    /// Remembers a farewell even after the registry has dropped the record.
    fn note_farewell(&mut self, lease: Option<&IdentityLease>, times: HoldTimes, now: SystemTime) {
        let farewell = lease.and_then(|l| Some((l.renew_time?, l.hold?)));
        if let Some((renewed, hold)) = farewell {
            // A peer asks to be remembered; how long at most is ours to say, whatever its clock says.
            let until = later(renewed.min(now), hold.min(times.hold));
            self.left_until = Some(self.left_until.map_or(until, |before| before.min(until)));
        }
    }

    fn absent(&self, lease: Option<&IdentityLease>, times: HoldTimes, now: SystemTime) -> Standing {
        if let Some(until) = self.left_until {
            return Standing::Left { until };
        }
        if let Some(ended) = self.live_ended {
            let until = later(ended, times.hold);
            // A Lease that went together with the endpoint key is kube-apiserver's way to stop cleanly.
            return if lease.is_none() {
                Standing::Left { until }
            } else {
                Standing::Crashed { until }
            };
        }
        let (Some(lease), Some(first)) = (lease, self.first_seen) else {
            return Standing::Gone;
        };
        match lease.renew_time {
            // Not renewed for several rounds (ten seconds each): it died before we looked.
            Some(renewed) if later(renewed, STALE_AFTER) < now => Standing::Crashed {
                until: later(renewed, times.hold),
            },
            _ => Standing::Starting {
                until: later(first, times.start_wait),
            },
        }
    }
}

/// An identity Lease is renewed every ten seconds; after three missed rounds its holder is not starting but gone.
const STALE_AFTER: Duration = Duration::from_secs(35);

/// `at + by`, or `at` where the clock cannot express it (a registry may hold any number).
fn later(at: SystemTime, by: Duration) -> SystemTime {
    at.checked_add(by).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TIMES: HoldTimes = HoldTimes {
        hold: Duration::from_secs(600),
        start_wait: Duration::from_secs(30),
    };

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn lease(renewed: u64, hold: Option<u64>) -> IdentityLease {
        IdentityLease {
            holder: "a_1".into(),
            renew_time: Some(at(renewed)),
            duration: Some(Duration::from_secs(3600)),
            hold: hold.map(Duration::from_secs),
        }
    }

    fn record(lease: Option<IdentityLease>, live: bool) -> PeerRecord {
        PeerRecord {
            id: "a".into(),
            address: live.then(|| Authority::from_static("127.0.0.1:1")),
            identity_lease: lease,
            endpoint_live: live,
            zone: None,
        }
    }

    #[test]
    fn a_peer_with_an_endpoint_key_is_live_whatever_its_lease_says() {
        let mut memory = Memory::default();
        let old = record(Some(lease(0, Some(1))), true);
        assert_eq!(
            memory.observe(Some(&old), TIMES, at(90_000)),
            Standing::Live
        );
        assert_eq!(
            memory.observe(Some(&record(None, true)), TIMES, at(90_001)),
            Standing::Live
        );
    }

    #[test]
    fn a_lease_without_an_endpoint_key_is_a_starting_peer_for_a_while() {
        let mut memory = Memory::default();
        let starting = record(Some(lease(100, None)), false);
        assert_eq!(
            memory.observe(Some(&starting), TIMES, at(100)),
            Standing::Starting { until: at(130) }
        );
        let renewed = record(Some(lease(129, None)), false);
        assert_eq!(
            memory.observe(Some(&renewed), TIMES, at(131)),
            Standing::Gone
        );
    }

    #[test]
    fn a_peer_that_died_before_we_looked_is_held_from_its_last_renewal() {
        let mut memory = Memory::default();
        let dead = record(Some(lease(0, None)), false);
        assert_eq!(
            memory.observe(Some(&dead), TIMES, at(100)),
            Standing::Crashed { until: at(600) }
        );
        assert_eq!(memory.observe(Some(&dead), TIMES, at(600)), Standing::Gone);
    }

    #[test]
    fn a_peer_whose_key_runs_out_has_crashed_and_is_held_from_then() {
        let mut memory = Memory::default();
        memory.observe(Some(&record(Some(lease(0, None)), true)), TIMES, at(0));
        let gone = record(Some(lease(10, None)), false);
        let held = Standing::Crashed { until: at(620) };
        assert_eq!(memory.observe(Some(&gone), TIMES, at(20)), held);
        assert_eq!(memory.observe(Some(&gone), TIMES, at(619)), held);
        assert_eq!(memory.observe(Some(&gone), TIMES, at(620)), Standing::Gone);
    }

    #[test]
    fn a_peer_that_leaves_cleanly_is_held_as_long_as_its_shortened_lease_says() {
        let mut memory = Memory::default();
        memory.observe(Some(&record(Some(lease(0, None)), true)), TIMES, at(0));
        let left = record(Some(lease(50, Some(300))), false);
        let held = Standing::Left { until: at(350) };
        assert_eq!(memory.observe(Some(&left), TIMES, at(50)), held);
        assert_eq!(memory.observe(None, TIMES, at(60)), held);
        assert_eq!(memory.observe(None, TIMES, at(350)), Standing::Gone);
    }

    #[test]
    fn a_peer_cannot_ask_to_be_remembered_for_longer_than_the_hold_time() {
        let mut memory = Memory::default();
        let left = record(Some(lease(0, Some(u64::MAX))), false);
        assert_eq!(
            memory.observe(Some(&left), TIMES, at(0)),
            Standing::Left { until: at(600) }
        );
    }

    #[test]
    fn a_record_that_vanishes_is_held_like_a_clean_stop() {
        let mut memory = Memory::default();
        memory.observe(Some(&record(Some(lease(0, None)), true)), TIMES, at(0));
        assert_eq!(
            memory.observe(None, TIMES, at(5)),
            Standing::Left { until: at(605) }
        );
        let back = record(Some(lease(9, None)), false);
        assert_eq!(
            memory.observe(Some(&back), TIMES, at(9)),
            Standing::Crashed { until: at(605) },
            "back, but not serving yet: still held"
        );
    }

    #[test]
    fn a_record_with_nothing_in_it_is_nobody() {
        let mut memory = Memory::default();
        assert_eq!(
            memory.observe(Some(&record(None, false)), TIMES, at(0)),
            Standing::Gone
        );
        let mut no_address = record(Some(lease(0, None)), true);
        no_address.address = None;
        assert_ne!(
            Memory::default().observe(Some(&no_address), TIMES, at(0)),
            Standing::Live
        );
    }

    mod properties {
        use super::*;
        use proptest::prelude::*;

        prop_compose! {
            fn any_record()(
                live in any::<bool>(),
                address in any::<bool>(),
                with_lease in any::<bool>(),
                renewed in 0..5000u64,
                hold in proptest::option::of(0..100_000u64),
            ) -> PeerRecord {
                let mut record = record(with_lease.then(|| lease(renewed, hold)), live);
                record.address = address.then(|| Authority::from_static("127.0.0.1:1"));
                record
            }
        }

        proptest! {
            #[test]
            fn a_peer_is_live_exactly_with_a_key_and_an_address_and_is_never_remembered_for_too_long(
                steps in proptest::collection::vec((proptest::option::of(any_record()), 0..300u64), 1..40)
            ) {
                let mut memory = Memory::default();
                let mut now = 0;
                let (mut last_seen, mut was_live) = (0, false);
                for (record, pause) in steps {
                    now += pause;
                    let standing = memory.observe(record.as_ref(), TIMES, at(now));
                    let live = record.as_ref().is_some_and(|r| r.endpoint_live && r.address.is_some());
                    prop_assert_eq!(standing == Standing::Live, live);
                    if record.is_some() || was_live {
                        last_seen = now;
                    }
                    was_live = live;
                    if let Some(until) = standing.until() {
                        prop_assert!(until > at(now));
                        prop_assert!(until <= at(last_seen) + TIMES.hold.max(TIMES.start_wait));
                    }
                }
            }
        }
    }
}
