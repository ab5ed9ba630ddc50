//! The identity Leases as they are known, and which servers follow from them.
//!
//! Pure; the time is an argument, twice: what is written in Leases is others' clocks, what is waited for is ours.
//!
//! Invariant: a server whose Lease was seen to be renewed is believed to be there until the Lease goes, runs out or says
//! goodbye, whatever the clocks say. What is remembered is bounded; where there are more Leases, those of servers that
//! have answered lately stay, and of the others those that were renewed last. A Lease that two servers have goes when neither writes it any more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::uri::Authority;
use peerage_proxy::IdentityLease;
use peerage_proxy::record::registered::Registered;
use tokio::time::Instant;

use super::super::moves::{ANEW, Moves};
use super::super::proven::normal;
use super::super::{Found, LONGEST_ID};

/// A Lease that was not renewed for so long when it is first seen is a dead server's; it is renewed every ten seconds.
const OLD: Duration = Duration::from_secs(60);

/// All labelled Leases of `kube-system` that count; more are no control plane.
pub(super) const MOST: usize = 2000;

/// As many as control planes have; of more, changes that come together are told together.
const USUAL: usize = 200;

/// All Leases.
#[derive(Default)]
pub(super) struct Known {
    leases: BTreeMap<Arc<str>, Seen>,
    moves: Moves,
    /// Leases whose fault was told.
    told: HashSet<Arc<str>>,
    /// Whether there were more since they were last all read.
    overflowed: bool,
    /// Where servers have answered lately.
    proven: HashSet<String>,
}

struct Seen {
    registered: Registered,
    /// Whether its holder has been alive since we look, or was just before.
    alive: bool,
    /// When it was last renewed, by our clock; the first sight for one that never was.
    renewed: Instant,
    /// Since when it is no more, while the other of two servers may write it anew.
    gone: Option<Instant>,
}

/// What follows from the Leases.
#[derive(Default)]
pub(super) struct Told {
    pub(super) servers: Vec<Found>,
    /// Leases that say of no server where it is.
    pub(super) skipped: usize,
    /// Those among them that were not told of yet, and why.
    pub(super) faults: Vec<(String, &'static str)>,
}

impl Known {
    /// Servers have answered here lately.
    pub(super) fn prefer(&mut self, proven: HashSet<String>) {
        self.proven = proven;
    }

    /// Whether there is no Lease any more.
    pub(super) fn are_all_gone(&self) -> bool {
        self.leases.values().all(|seen| seen.gone.is_some())
    }

    /// Whether there are no more than control planes have.
    pub(super) fn are_few(&self) -> bool {
        self.leases.len() <= USUAL
    }

    /// These are all Leases, or the first of `more`, in the order of their names.
    pub(super) fn replace(
        &mut self,
        leases: Vec<Registered>,
        more: bool,
        wall: SystemTime,
        now: Instant,
    ) {
        let names: HashSet<_> = leases.iter().map(|lease| lease.id.clone()).collect();
        let known: Vec<_> = self.leases.keys().cloned().collect();
        // Of those that come later nothing was said.
        let last = leases.iter().map(|lease| &lease.id).max().filter(|_| more);
        let is_missing = |name: &&Arc<str>| {
            !names.contains(*name) && (!more || last.is_some_and(|last| *name < last))
        };
        for name in known.iter().filter(is_missing) {
            self.remove(name, now);
        }
        self.overflowed = more;
        for lease in leases {
            self.put(lease, wall, now);
        }
    }

    /// Whether there are more than count.
    pub(super) fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// This Lease is as it is here, if there is room for it.
    pub(super) fn put(&mut self, registered: Registered, wall: SystemTime, now: Instant) {
        let before = self.leases.get(&registered.id);
        if before.is_none() && self.leases.len() >= MOST {
            self.overflowed = true;
            if !self.make_room(is_recent(&registered.lease, wall)) {
                return;
            }
        }
        let before = self.leases.get(&registered.id);
        let renewed =
            before.map(|it| it.registered.lease.renew_time != registered.lease.renew_time);
        let seen = Seen {
            alive: match (before, renewed) {
                (Some(before), Some(false)) => before.alive,
                (Some(_), _) => true,
                (None, _) => is_recent(&registered.lease, wall),
            },
            renewed: match (before, renewed) {
                (Some(before), Some(false)) => before.renewed,
                _ => now,
            },
            gone: None,
            registered,
        };
        self.leases.insert(seen.registered.id.clone(), seen);
    }

    /// Forgets the Lease that counts least, for one whose holder is `alive` or is not.
    fn make_room(&mut self, alive: bool) -> bool {
        let may_go = |seen: &Seen| {
            let address = seen.registered.address.as_ref();
            !address.is_some_and(|address| self.proven.contains(&normal(address)))
        };
        let others = self.leases.iter().filter(|(_, seen)| may_go(seen));
        let least = others.min_by_key(|(_, seen)| (seen.alive, seen.renewed));
        let least = least.filter(|(_, seen)| alive || !seen.alive);
        let least = least.map(|(id, _)| id.clone());
        least.is_some_and(|id| self.leases.remove(&id).is_some())
    }

    /// The Lease of this name is no more.
    pub(super) fn remove(&mut self, name: &str, now: Instant) {
        if !self.moves.are_two(name, now) {
            self.leases.remove(name);
        } else if let Some(seen) = self.leases.get_mut(name) {
            seen.gone.get_or_insert(now);
        }
    }

    /// The servers that the Leases are of.
    pub(super) fn servers(&mut self, wall: SystemTime, now: Instant) -> Told {
        let mut told = Told::default();
        let expected = |gone: Instant| now.saturating_duration_since(gone) < ANEW;
        self.leases.retain(|_, seen| seen.gone.is_none_or(expected));
        self.moves.keep(|id| self.leases.contains_key(id));
        self.told.retain(|id| self.leases.contains_key(id));
        let renewed = self.renewed_last();
        for (id, seen) in &self.leases {
            if id.is_empty() || has_run_out(&seen.registered.lease, wall) {
                continue;
            }
            let address = match seen.registered.address.clone() {
                Some(address) if id.len() <= LONGEST_ID => address,
                address => {
                    told.skipped += 1;
                    if self.told.insert(id.clone()) {
                        let why = address.map_or(NO_ADDRESS, |_| TOO_LONG);
                        told.faults.push((id.to_string(), why));
                    }
                    continue;
                }
            };
            let last = renewed.get(&address);
            if last.is_some_and(|last| seen.is_outlived_by(last)) {
                continue;
            }
            let found = Found {
                id: Some(id.clone()),
                zone: None,
                live: seen.alive && seen.registered.lease.hold.is_none(),
                lease: Some(seen.registered.lease.clone()),
                address,
            };
            told.servers.extend(self.moves.servers(found, now));
        }
        told
    }

    /// Of each address the one of its Leases that was renewed last.
    fn renewed_last(&self) -> HashMap<Authority, Last> {
        let mut last: HashMap<Authority, Last> = HashMap::new();
        for (id, seen) in self.leases.iter().filter(|(_, seen)| seen.alive) {
            let Some(address) = seen.registered.address.clone() else {
                continue;
            };
            let this = || Last {
                id: id.clone(),
                renewed: seen.renewed,
            };
            let known = last.entry(address).or_insert_with(this);
            if known.renewed < seen.renewed {
                *known = this();
            }
        }
        last
    }
}

struct Last {
    id: Arc<str>,
    renewed: Instant,
}

impl Seen {
    /// Whether another Lease of the same address goes on being renewed while this one does not: the server has another
    /// name now, or another server has its address.
    fn is_outlived_by(&self, last: &Last) -> bool {
        let later = last.renewed.saturating_duration_since(self.renewed);
        last.id != self.registered.id && (!self.alive || later > OLD)
    }
}

const TOO_LONG: &str = "its name is longer than any name (253 bytes)";

const NO_ADDRESS: &str = "the Lease has no peer-advertise-address: kube-apiserver writes it with the feature gate \
                          UnknownVersionInteroperabilityProxy; name the server with --peer or --peers-file instead";

fn is_recent(lease: &IdentityLease, wall: SystemTime) -> bool {
    let age = lease
        .renew_time
        .map(|at| wall.duration_since(at).unwrap_or_default());
    age.is_some_and(|age| age <= OLD)
}

/// Whether its time is over. One without a time is as good as one that is.
fn has_run_out(lease: &IdentityLease, wall: SystemTime) -> bool {
    let end = lease.renew_time.zip(lease.duration);
    end.and_then(|(renewed, duration)| renewed.checked_add(duration))
        .is_none_or(|end| end < wall)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct World {
        known: Known,
        start: Instant,
        wall: SystemTime,
    }

    impl World {
        fn new() -> World {
            World {
                known: Known::default(),
                start: Instant::now(),
                wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000),
            }
        }

        fn at(&self, second: u64) -> (SystemTime, Instant) {
            let after = Duration::from_secs(second);
            (self.wall + after, self.start + after)
        }

        /// At a second, a Lease that was renewed at another one.
        fn put(&mut self, second: u64, id: &str, address: &str, renewed: i64) {
            let (wall, now) = self.at(second);
            let lease = lease(self.wall, id, address, renewed);
            self.known.put(lease, wall, now);
        }

        fn shown(&mut self, second: u64) -> Vec<String> {
            let (wall, now) = self.at(second);
            let told = self.known.servers(wall, now);
            let show = |it: &Found| {
                let live = if it.live { "live" } else { "gone" };
                format!("{} {} {live}", it.record_id(), it.address)
            };
            told.servers.iter().map(show).collect()
        }
    }

    fn lease(wall: SystemTime, id: &str, address: &str, renewed: i64) -> Registered {
        let by = Duration::from_secs(renewed.unsigned_abs());
        let renewed = if renewed < 0 { wall - by } else { wall + by };
        Registered {
            id: id.into(),
            address: address.parse().ok(),
            lease: IdentityLease {
                holder: format!("{id}_1").into(),
                renew_time: Some(renewed),
                duration: Some(Duration::from_secs(3600)),
                hold: None,
            },
        }
    }

    #[test]
    fn a_lease_that_was_old_when_first_seen_is_a_dead_servers_until_it_is_renewed() {
        let mut world = World::new();
        world.put(0, "a", "10.0.0.1:1", -10);
        world.put(0, "b", "10.0.0.2:1", -300);
        assert_eq!(world.shown(0), ["a 10.0.0.1:1 live", "b 10.0.0.2:1 gone"]);
        // Its clock is five minutes behind, but it is renewed.
        world.put(10, "b", "10.0.0.2:1", -290);
        assert_eq!(world.shown(10), ["a 10.0.0.1:1 live", "b 10.0.0.2:1 live"]);
        // Nothing is written for a while: both may be there all the same.
        assert_eq!(world.shown(900).len(), 2);
        assert!(world.shown(900).iter().all(|it| it.ends_with("live")));
        assert_eq!(world.shown(3400), ["a 10.0.0.1:1 live"], "its hour is over");
    }

    #[test]
    fn a_lease_seen_again_is_judged_by_what_was_seen_before() {
        let mut world = World::new();
        world.put(0, "a", "10.0.0.1:1", 0);
        let (wall, now) = world.at(300);
        world.known.replace(
            vec![lease(world.wall, "a", "10.0.0.1:1", 0)],
            false,
            wall,
            now,
        );
        assert_eq!(world.shown(300), ["a 10.0.0.1:1 live"]);
        world.known.replace(Vec::new(), false, wall, now);
        assert!(world.shown(300).is_empty());
    }

    #[test]
    fn there_is_room_for_so_many_leases_and_for_changes_of_those() {
        let mut world = World::new();
        let (wall, now) = world.at(0);
        let all = |many: usize| {
            (0..many)
                .map(|n| lease(wall, &format!("a{n}"), "", 0))
                .collect()
        };
        let known = &mut world.known;
        known.replace(all(MOST), false, wall, now);
        known.put(lease(wall, "a0", "", 1), wall, now);
        assert!(!known.has_overflowed());
        known.put(lease(wall, "b", "", 0), wall, now);
        assert!(known.has_overflowed());
        assert_eq!(known.leases.len(), MOST);
        known.put(lease(wall, "a0", "", 2), wall, now);
        known.remove("a1", now);
        assert!(known.has_overflowed(), "who is missing is not known");
        for (many, more) in [(MOST + 1, false), (MOST, true)] {
            known.replace(all(many), more, wall, now);
            assert!(known.has_overflowed());
            known.replace(all(MOST), false, wall, now);
            assert!(!known.has_overflowed());
        }
        known.remove("a0", now);
        known.put(lease(wall, "b", "", 0), wall, now);
        assert!(!known.has_overflowed());
    }

    #[test]
    fn leases_of_servers_that_answer_are_not_crowded_out_and_one_that_is_renewed_finds_room() {
        let mut world = World::new();
        let (wall, now) = world.at(0);
        world.put(0, "z", "10.0.0.1:1", 0);
        world.known.prefer(HashSet::from(["10.0.0.1 1".to_owned()]));
        let many = |more: usize| -> Vec<_> {
            let forged = |n: usize| {
                let address = format!("127.{}.{}.1:1", n / 250, n % 250);
                lease(wall, &format!("a{n:05}"), &address, 0)
            };
            (0..more).map(forged).collect()
        };
        world.known.replace(many(MOST), true, wall, now);
        let shown = world.shown(0);
        assert!(
            shown.contains(&"z 10.0.0.1:1 live".to_owned()),
            "those that come later were not listed"
        );
        assert_eq!(shown.len(), MOST);
        world.put(10, "zz", "10.0.0.2:1", 10);
        assert!(world.shown(10).contains(&"zz 10.0.0.2:1 live".to_owned()));
        // A dead server's takes no place from one that is renewed.
        world.put(10, "zzz", "10.0.0.3:1", -300);
        let shown = world.shown(10);
        assert_eq!(shown.len(), MOST);
        assert!(!shown.iter().any(|it| it.starts_with("zzz ")));
        world.known.replace(many(3), false, wall, now);
        assert_eq!(world.shown(10).len(), 3);
    }

    #[test]
    fn a_lease_whose_name_is_too_long_is_told() {
        let mut world = World::new();
        world.put(0, &"x".repeat(LONGEST_ID + 1), "10.0.0.1:1", 0);
        let (wall, now) = world.at(0);
        let told = world.known.servers(wall, now);
        assert_eq!((told.servers.len(), told.skipped), (0, 1));
        assert_eq!(told.faults[0].1, TOO_LONG);
    }

    #[test]
    fn a_server_that_left_in_good_order_is_remembered_and_not_asked() {
        let mut world = World::new();
        world.put(0, "a", "10.0.0.1:1", 0);
        let (wall, now) = world.at(10);
        let mut left = lease(world.wall, "a", "10.0.0.1:1", 10);
        left.lease.hold = Some(Duration::from_secs(600));
        world.known.put(left, wall, now);
        assert_eq!(world.shown(10), ["a 10.0.0.1:1 gone"]);
    }

    #[test]
    fn of_two_names_of_one_address_the_one_that_is_renewed_counts() {
        let mut world = World::new();
        world.put(0, "old", "10.0.0.1:1", 0);
        world.put(20, "young", "10.0.0.1:1", 20);
        assert_eq!(world.shown(20).len(), 2, "both may be renewed");
        world.put(90, "young", "10.0.0.1:1", 90);
        assert_eq!(world.shown(90), ["young 10.0.0.1:1 live"]);
    }

    #[test]
    fn a_lease_without_an_address_is_told_once() {
        let mut world = World::new();
        world.put(0, "a", "", 0);
        let (wall, now) = world.at(0);
        let told = world.known.servers(wall, now);
        assert_eq!((told.skipped, told.faults.len()), (1, 1));
        let told = world.known.servers(wall, now);
        assert_eq!((told.skipped, told.faults.len()), (1, 0));
    }

    #[test]
    fn two_servers_of_one_host_name_are_both_found() {
        let mut world = World::new();
        for (second, address) in [(0, "10.0.0.1:1"), (5, "10.0.0.2:1"), (10, "10.0.0.1:1")] {
            world.put(second, "a", address, second as i64);
            world.shown(second);
        }
        let both = ["a 10.0.0.1:1 live", "a 10.0.0.2:1 live"];
        assert_eq!(world.shown(10), both);
        world.put(11, "a", "10.0.0.2:1", 11);
        assert_eq!(world.shown(11), both, "in one order, whoever was the last");

        // One leaves and takes the Lease with it; the other writes it anew.
        world.known.remove("a", world.at(11).1);
        assert_eq!(world.shown(11), both);
        world.put(20, "a", "10.0.0.2:1", 20);
        assert_eq!(world.shown(40).len(), 2, "who it was is not known");
        // And when both are gone, nobody does.
        world.known.remove("a", world.at(41).1);
        assert_eq!(world.shown(50).len(), 2);
        assert!(world.shown(70).is_empty());
    }
}
