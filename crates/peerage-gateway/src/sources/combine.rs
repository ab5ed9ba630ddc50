//! What all sources say, as one list of records.
//!
//! Pure. Sources come in the order in which they are believed. A server that several of them name is one record: they
//! are the same when they are at one address, or have one ID. What a person wrote (flags, file) keeps its name and its
//! address whatever the cluster says.
//!
//! Invariants: no two records have one address or one ID; there are never more records than the proxy takes. Where more
//! are named, those on the command line come first, then those where a server has answered lately, then those in the
//! file; what is left of the places goes to all others in turns, so that a new server is found however many addresses
//! lead nowhere.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use http::uri::Authority;
use peerage_core::shown::counted;
use peerage_proxy::{MAX_PEERS, PeerRecord};

use super::proven::normal;
use super::{Finding, FindingKind, Found, SourceName};

/// Findings that are told; of more, how many.
const MOST_FINDINGS: usize = 50;

/// One list, and what is wrong with it.
pub(super) struct Combined {
    pub(super) records: Arc<[PeerRecord]>,
    pub(super) findings: Arc<[Finding]>,
    /// Where the next turn begins, if not all have a place.
    pub(super) next: Option<u64>,
}

/// Who gets a place when not all do.
#[derive(Default)]
pub(super) struct Choice {
    /// Where a server has answered lately.
    pub(super) proven: HashSet<String>,
    /// Where the turn of those begins who have to take turns.
    pub(super) from: u64,
    /// In which order they do: nobody who names addresses can tell.
    pub(super) order: RandomState,
}

/// Folds the lists of all sources.
pub(super) fn combine<'a>(
    sources: impl IntoIterator<Item = (SourceName, &'a [Found])>,
    choice: &Choice,
) -> Combined {
    let mut folded = Folded::default();
    for (source, servers) in sources {
        for found in servers {
            folded.take(source, found);
        }
    }
    let Folded {
        mut entries,
        mut findings,
        ..
    } = folded;
    if let Some(more) = findings
        .len()
        .checked_sub(MOST_FINDINGS)
        .filter(|it| *it > 0)
    {
        findings.truncate(MOST_FINDINGS);
        findings.push(Finding {
            kind: FindingKind::More,
            servers: Vec::new(),
            message: format!("and {more} more such contradictions"),
        });
    }
    let named = entries.len();
    let next = (named > MAX_PEERS).then(|| choice.choose(&mut entries));
    if next.is_some() {
        findings.push(Finding {
            kind: FindingKind::TooMany,
            servers: Vec::new(),
            message: format!(
                "{} are named and no more than {MAX_PEERS} are asked: those on the command line, those that have answered \
                 lately, those in the file, and of the others some at a time, in turns; some source lists what is no \
                 control plane",
                counted(named, "server")
            ),
        });
    }
    Combined {
        records: entries.into_iter().map(|entry| entry.record).collect(),
        findings: findings.into(),
        next,
    }
}

impl Choice {
    /// Leaves as many entries as there are places; returns where the next turn begins.
    fn choose(&self, entries: &mut Vec<Entry>) -> u64 {
        let (mut places, mut next) = (MAX_PEERS, self.from);
        let mut keeps = vec![false; entries.len()];
        for rank in Rank::ALL {
            let of_rank = |at: &usize| self.rank(&entries[*at]) == rank;
            let mut those: Vec<usize> = (0..entries.len()).filter(of_rank).collect();
            if those.len() > places && places > 0 && rank >= Rank::Written {
                let turn = |at: &usize| self.order.hash_one(&entries[*at].address);
                those.sort_by_cached_key(turn);
                let begin = those.partition_point(|at| turn(at) < self.from);
                those.rotate_left(begin);
                next = those.get(places).map_or(self.from, turn);
            }
            for at in those.iter().take(places) {
                keeps[*at] = true;
            }
            places = places.saturating_sub(those.len());
        }
        let mut keeps = keeps.into_iter();
        entries.retain(|_| keeps.next().unwrap_or(false));
        next
    }

    fn rank(&self, entry: &Entry) -> Rank {
        match entry.source {
            SourceName::Flags => Rank::Typed,
            _ if self.proven.contains(&entry.address) => Rank::Proven,
            SourceName::File => Rank::Written,
            SourceName::Etcd | SourceName::Leases | SourceName::Dns => Rank::Found,
        }
    }
}

/// Whose turn it is for the places that there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Typed,
    Proven,
    /// From here on those who have no place take turns.
    Written,
    Found,
}

impl Rank {
    const ALL: [Rank; 4] = [Rank::Typed, Rank::Proven, Rank::Written, Rank::Found];
}

#[derive(Default)]
struct Folded {
    entries: Vec<Entry>,
    by_address: HashMap<String, usize>,
    /// By the server ID that a source gave.
    by_id: HashMap<Arc<str>, usize>,
    /// What records are called, which is an ID or, for a server without one, its address as it was written.
    names: HashSet<Arc<str>>,
    findings: Vec<Finding>,
}

struct Entry {
    record: PeerRecord,
    /// In one spelling.
    address: String,
    source: SourceName,
    /// The server ID, if a source gave one.
    id: Option<Arc<str>>,
}

impl Folded {
    fn take(&mut self, source: SourceName, found: &Found) {
        let address = normal(&found.address);
        if let Some(&at) = self.by_address.get(&address) {
            return self.meet_at_address(at, found);
        }
        let known = found.id.as_ref().and_then(|id| self.by_id.get(id).copied());
        match known {
            Some(at) if self.entries[at].source == source => {
                let id = self.doubled(at, found);
                self.add(source, found, id, address);
            }
            // The source that is believed more says where it is.
            Some(at) => self.entries[at].enrich(found),
            None => self.add(source, found, found.record_id(), address),
        }
    }

    fn add(&mut self, source: SourceName, found: &Found, id: Arc<str>, address: String) {
        let at = self.entries.len();
        let id = self.name(id, &found.address);
        self.by_address.insert(address.clone(), at);
        if let Some(id) = &found.id {
            self.by_id.entry(id.clone()).or_insert(at);
        }
        self.entries.push(Entry {
            record: PeerRecord {
                id,
                address: Some(found.address.clone()),
                identity_lease: found.lease.clone(),
                endpoint_live: found.live,
                zone: found.zone.clone(),
            },
            address,
            source,
            id: found.id.clone(),
        });
    }

    /// A name that no other record has: somebody's ID may be what another server without one is called.
    fn name(&mut self, wanted: Arc<str>, address: &Authority) -> Arc<str> {
        let mut name = wanted.clone();
        let mut attempt = 1;
        while !self.names.insert(name.clone()) {
            name = match attempt {
                1 => format!("{wanted}@{address}").into(),
                _ => format!("{wanted}@{address}@{attempt}").into(),
            };
            attempt += 1;
        }
        name
    }

    /// Another word on the server at an address.
    fn meet_at_address(&mut self, at: usize, found: &Found) {
        let entry = &mut self.entries[at];
        let other = match (&entry.id, &found.id) {
            (Some(old), Some(new)) if old != new => Some((old.clone(), new.clone())),
            _ => None,
        };
        if let Some((old, new)) = other {
            self.findings.push(Finding {
                kind: FindingKind::OneAddressTwoIds,
                servers: vec![old.to_string(), new.to_string()],
                message: format!(
                    "{} is said to be the address of {old} and of {new}: one of them is gone and the address changed \
                     hands, or one server has registered twice; it is asked as {old}",
                    found.address
                ),
            });
            return;
        }
        entry.enrich(found);
        if let Some(id) = &found.id {
            self.by_id.entry(id.clone()).or_insert(at);
        }
    }

    /// A name for the second server of an ID.
    fn doubled(&mut self, at: usize, found: &Found) -> Arc<str> {
        let id = found.record_id();
        let first = &self.entries[at].record;
        let first_address = first.address.as_ref().map_or("", |it| it.as_str());
        self.findings.push(Finding {
            kind: FindingKind::OneIdTwoAddresses,
            servers: vec![first_address.to_owned(), found.address.to_string()],
            message: format!(
                "two servers have the ID {id}, at {first_address} and at {}: most likely they have one host name, and \
                 each overwrites what the other registers; both are asked, but give one of them another host name",
                found.address
            ),
        });
        format!("{id}@{}", found.address).into()
    }
}

impl Entry {
    /// Takes over what was not known yet.
    fn enrich(&mut self, found: &Found) {
        let record = &mut self.record;
        record.endpoint_live |= found.live;
        if record.identity_lease.is_none() {
            record.identity_lease.clone_from(&found.lease);
        }
        if record.zone.is_none() {
            record.zone.clone_from(&found.zone);
        }
        if self.id.is_none() {
            self.id.clone_from(&found.id);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use SourceName::{Dns, Etcd, File, Flags, Leases};
    use proptest::prelude::*;

    fn at(address: &str) -> Found {
        Found::at(address.parse().unwrap())
    }

    fn named(id: &str, address: &str) -> Found {
        Found {
            id: Some(id.into()),
            ..at(address)
        }
    }

    fn shown(sources: &[(SourceName, Vec<Found>)]) -> (Vec<String>, Vec<&'static str>) {
        let lists = sources.iter().map(|(name, list)| (*name, &**list));
        let combined = combine(lists, &Choice::default());
        let show = |r: &PeerRecord| format!("{} {}", r.id, r.address.as_ref().unwrap());
        (
            combined.records.iter().map(show).collect(),
            combined
                .findings
                .iter()
                .map(|it| it.kind.as_str())
                .collect(),
        )
    }

    #[test]
    fn servers_are_told_apart_by_address_and_by_id() {
        type Case = (
            &'static str,
            Vec<(SourceName, Vec<Found>)>,
            &'static [&'static str],
            &'static [&'static str],
        );
        let cases: Vec<Case> = vec![
            (
                "one address in several spellings is one server, under its first name",
                vec![
                    (Flags, vec![at("10.0.0.1:6443"), at("A.example:6443")]),
                    (
                        Leases,
                        vec![
                            named("apiserver-a", "[::ffff:10.0.0.1]:6443"),
                            named("b", "a.EXAMPLE:6443"),
                        ],
                    ),
                ],
                &[
                    "10.0.0.1:6443 10.0.0.1:6443",
                    "A.example:6443 A.example:6443",
                ],
                &[],
            ),
            (
                "an id that was given with an address keeps that address",
                vec![
                    (Flags, vec![named("apiserver-a", "127.0.0.1:6444")]),
                    (Leases, vec![named("apiserver-a", "10.0.0.1:6443")]),
                ],
                &["apiserver-a 127.0.0.1:6444"],
                &[],
            ),
            (
                "two servers of one id in one source are both asked, and told",
                vec![(
                    Etcd,
                    vec![named("a", "10.0.0.1:1"), named("a", "10.0.0.2:1")],
                )],
                &["a 10.0.0.1:1", "a@10.0.0.2:1 10.0.0.2:1"],
                &["one_id_two_addresses"],
            ),
            (
                "one address under two ids is asked once, and told",
                vec![(
                    Leases,
                    vec![named("a", "10.0.0.1:1"), named("b", "10.0.0.1:1")],
                )],
                &["a 10.0.0.1:1"],
                &["one_address_two_ids"],
            ),
            (
                "an id that is written like the address of another server does not hide that one",
                vec![
                    (File, vec![named("10.0.0.1:6443", "b:1")]),
                    (Flags, vec![at("10.0.0.1:6443")]),
                ],
                &[
                    "10.0.0.1:6443 b:1",
                    "10.0.0.1:6443@10.0.0.1:6443 10.0.0.1:6443",
                ],
                &[],
            ),
            (
                "nor does one that comes after it",
                vec![
                    (Flags, vec![at("10.0.0.1:6443")]),
                    (File, vec![named("10.0.0.1:6443", "b:1")]),
                ],
                &["10.0.0.1:6443 10.0.0.1:6443", "10.0.0.1:6443@b:1 b:1"],
                &[],
            ),
            (
                "an id that a later source gives to a known address is known from then on",
                vec![
                    (Flags, vec![at("10.0.0.1:1")]),
                    (Etcd, vec![named("a", "10.0.0.1:1")]),
                    (Leases, vec![named("a", "10.0.0.9:1")]),
                ],
                &["10.0.0.1:1 10.0.0.1:1"],
                &[],
            ),
        ];
        for (what, sources, records, findings) in cases {
            let (is, found) = shown(&sources);
            assert_eq!(is, records, "{what}");
            assert_eq!(found, findings, "{what}");
        }
    }

    #[test]
    fn what_a_person_wrote_is_never_crowded_out() {
        let many: Vec<_> = (0..500)
            .map(|n| {
                named(
                    &format!("forged-{n}"),
                    &format!("10.1.{}.{}:1", n / 250, n % 250),
                )
            })
            .collect();
        let (records, findings) = shown(&[(Flags, vec![at("10.0.0.1:1")]), (Leases, many)]);
        assert_eq!(records.len(), MAX_PEERS);
        assert_eq!(records[0], "10.0.0.1:1 10.0.0.1:1");
        assert_eq!(findings, ["too_many"]);
    }

    #[test]
    fn servers_that_answer_are_not_crowded_out_and_new_ones_are_found_in_turns() {
        let mut keys: Vec<_> = (0..600)
            .map(|n| {
                named(
                    &format!("0{n:05}"),
                    &format!("127.5.{}.{}:1", n / 250, n % 250),
                )
            })
            .collect();
        keys.extend([named("a", "127.0.0.1:24001"), named("b", "127.0.0.1:24002")]);
        keys.push(named("new", "127.0.0.1:24003"));
        let mut choice = Choice {
            proven: ["127.0.0.1 24001", "127.0.0.1 24002"]
                .map(str::to_owned)
                .into(),
            ..Choice::default()
        };
        let mut seen = HashSet::new();
        let mut turns = 0;
        while !seen.contains("new") {
            let lists = [(Flags, &[][..]), (Etcd, &*keys)];
            let combined = combine(lists, &choice);
            let ids: Vec<&str> = combined.records.iter().map(|it| &*it.id).collect();
            assert_eq!(ids.len(), MAX_PEERS);
            assert!(ids.contains(&"a") && ids.contains(&"b"), "turn {turns}");
            seen.extend(ids.into_iter().map(str::to_owned));
            turns += 1;
            assert!(turns <= 5, "601 others take turns on 198 places");
            // Until the next turn everybody keeps the place.
            let again = combine(lists, &choice);
            assert_eq!(combined.records, again.records);
            choice.from = combined.next.unwrap();
        }
    }

    #[test]
    fn a_long_file_leaves_the_servers_that_answer_alone() {
        let file: Vec<_> = (0..20_000)
            .map(|n| at(&format!("127.{}.{}.1:1", n / 250, n % 250)))
            .collect();
        let choice = Choice {
            proven: HashSet::from(["10.0.0.2 1".to_owned()]),
            ..Choice::default()
        };
        let (flags, dns) = ([at("10.0.0.1:1")], [at("10.0.0.2:1"), at("10.0.0.3:1")]);
        let combined = combine([(Flags, &flags[..]), (File, &file), (Dns, &dns)], &choice);
        let ids: Vec<&str> = combined.records.iter().map(|it| &*it.id).collect();
        assert_eq!(ids.len(), MAX_PEERS);
        assert!(ids.contains(&"10.0.0.1:1") && ids.contains(&"10.0.0.2:1"));
        assert!(!ids.contains(&"10.0.0.3:1"), "the file comes first");
    }

    #[test]
    fn a_list_that_is_too_long_takes_turns_although_others_get_no_place() {
        let file: Vec<_> = (0..450)
            .map(|n| at(&format!("127.{}.{}.1:1", n / 250, n % 250)))
            .collect();
        let dns = [at("10.0.0.3:1")];
        let (mut choice, mut seen) = (Choice::default(), HashSet::new());
        for _ in 0..5 {
            let combined = combine([(File, &file[..]), (Dns, &dns)], &choice);
            seen.extend(combined.records.iter().map(|it| it.id.clone()));
            choice.from = combined.next.unwrap();
        }
        assert_eq!(seen.len(), file.len());
    }

    #[test]
    fn contradictions_are_told_as_far_as_anybody_reads_them() {
        let one_id: Vec<_> = (0..120)
            .map(|n| named("a", &format!("10.0.0.{n}:1")))
            .collect();
        let (_, findings) = shown(&[(Etcd, one_id)]);
        assert_eq!(findings.len(), MOST_FINDINGS + 1);
        assert_eq!(findings.last(), Some(&"more"));
    }

    #[test]
    fn a_later_source_adds_what_was_not_known() {
        let dead = Found {
            live: false,
            ..named("a", "10.0.0.1:1")
        };
        let zoned = Found {
            zone: Some("z".into()),
            ..at("10.0.0.1:1")
        };
        let lists = [(Leases, vec![dead]), (Dns, vec![zoned])];
        let combined = combine(
            lists.iter().map(|(name, list)| (*name, &**list)),
            &Choice::default(),
        );
        assert_eq!(combined.records[0].zone.as_deref(), Some("z"));
        assert!(combined.records[0].endpoint_live);
    }

    proptest! {
        #[test]
        fn no_two_records_have_one_address_or_one_id(
            lists in proptest::collection::vec(
                proptest::collection::vec((0u8..6, proptest::option::of(0u8..8)), 0..12), 1..4)
        ) {
            let lists: Vec<Vec<Found>> = lists
                .into_iter()
                .map(|list| {
                    let server = |(host, id): (u8, Option<u8>)| Found {
                        // IDs that are addresses, and such as are made here, are IDs too.
                        id: id.map(|id| match id {
                            0..3 => format!("id-{id}").into(),
                            3..6 => format!("10.0.0.{id}:6443").into(),
                            _ => format!("10.0.0.4:6443@10.0.0.{id}:6443").into(),
                        }),
                        ..at(&format!("10.0.0.{host}:6443"))
                    };
                    list.into_iter().map(server).collect()
                })
                .collect();
            let names = [Flags, Etcd, Leases, Dns];
            let combined = combine(names.into_iter().zip(lists.iter().map(|list| &**list)), &Choice::default());
            let mut ids: Vec<_> = combined.records.iter().map(|r| r.id.clone()).collect();
            let mut addresses: Vec<_> =
                combined.records.iter().map(|r| r.address.clone().unwrap().to_string()).collect();
            let count = combined.records.len();
            ids.sort();
            ids.dedup();
            addresses.sort();
            addresses.dedup();
            prop_assert_eq!((ids.len(), addresses.len()), (count, count));
        }
    }
}
