//! What all sources say, as one list of records.
//!
//! Pure. Sources come in the order in which they are believed. A server that several of them name is one record: they
//! are the same when they are at one address, or have one ID. What a person wrote (flags, file) keeps its name and its
//! address whatever the cluster says.
//!
//! Invariants: no two records have one address or one ID; there are never more records than the proxy takes, and those
//! that are left out are the least believed.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use http::uri::Authority;
use peerage_core::shown::counted;
use peerage_proxy::{MAX_PEERS, PeerRecord};

use super::{Finding, Found};

/// One list, and what is wrong with it.
pub(super) struct Combined {
    pub(super) records: Arc<[PeerRecord]>,
    pub(super) findings: Arc<[Finding]>,
}

/// Folds the lists of all sources.
pub(super) fn combine<'a>(
    sources: impl IntoIterator<Item = (&'static str, &'a [Found])>,
) -> Combined {
    let mut folded = Folded::default();
    for (source, servers) in sources {
        for found in servers {
            folded.take(source, found);
        }
    }
    let mut entries = folded.entries;
    if entries.len() > MAX_PEERS {
        let left_out: Vec<_> = entries.drain(MAX_PEERS..).map(|it| it.record.id).collect();
        folded.findings.push(Finding {
            kind: "too_many",
            servers: left_out.iter().take(10).map(ToString::to_string).collect(),
            message: format!(
                "left out, because there are more than {MAX_PEERS}: {}; some source lists what is no control plane",
                counted(left_out.len(), "server")
            ),
        });
    }
    Combined {
        records: entries.into_iter().map(|entry| entry.record).collect(),
        findings: folded.findings.into(),
    }
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
    source: &'static str,
    /// The server ID, if a source gave one.
    id: Option<Arc<str>>,
}

impl Folded {
    fn take(&mut self, source: &'static str, found: &Found) {
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

    fn add(&mut self, source: &'static str, found: &Found, id: Arc<str>, address: String) {
        let at = self.entries.len();
        let id = self.name(id, &found.address);
        self.by_address.insert(address, at);
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
                kind: "one_address_two_ids",
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
            kind: "one_id_two_addresses",
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

/// One spelling for one address.
fn normal(address: &Authority) -> String {
    let host = address.host().trim_matches(['[', ']']);
    let port = address.port_u16().unwrap_or(443);
    match host.parse::<IpAddr>() {
        Ok(ip) => format!("{} {port}", ip.to_canonical()),
        Err(_) => format!("{} {port}", host.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
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

    fn shown(sources: &[(&'static str, Vec<Found>)]) -> (Vec<String>, Vec<&'static str>) {
        let lists = sources.iter().map(|(name, list)| (*name, &**list));
        let combined = combine(lists);
        let show = |r: &PeerRecord| format!("{} {}", r.id, r.address.as_ref().unwrap());
        (
            combined.records.iter().map(show).collect(),
            combined.findings.iter().map(|it| it.kind).collect(),
        )
    }

    #[test]
    fn servers_are_told_apart_by_address_and_by_id() {
        type Case = (
            &'static str,
            Vec<(&'static str, Vec<Found>)>,
            &'static [&'static str],
            &'static [&'static str],
        );
        let cases: Vec<Case> = vec![
            (
                "one address in several spellings is one server, under its first name",
                vec![
                    ("flags", vec![at("10.0.0.1:6443"), at("A.example:6443")]),
                    (
                        "leases",
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
                    ("flags", vec![named("apiserver-a", "127.0.0.1:6444")]),
                    ("leases", vec![named("apiserver-a", "10.0.0.1:6443")]),
                ],
                &["apiserver-a 127.0.0.1:6444"],
                &[],
            ),
            (
                "two servers of one id in one source are both asked, and told",
                vec![(
                    "etcd",
                    vec![named("a", "10.0.0.1:1"), named("a", "10.0.0.2:1")],
                )],
                &["a 10.0.0.1:1", "a@10.0.0.2:1 10.0.0.2:1"],
                &["one_id_two_addresses"],
            ),
            (
                "one address under two ids is asked once, and told",
                vec![(
                    "leases",
                    vec![named("a", "10.0.0.1:1"), named("b", "10.0.0.1:1")],
                )],
                &["a 10.0.0.1:1"],
                &["one_address_two_ids"],
            ),
            (
                "an id that is written like the address of another server does not hide that one",
                vec![
                    ("file", vec![named("10.0.0.1:6443", "b:1")]),
                    ("flags", vec![at("10.0.0.1:6443")]),
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
                    ("flags", vec![at("10.0.0.1:6443")]),
                    ("file", vec![named("10.0.0.1:6443", "b:1")]),
                ],
                &["10.0.0.1:6443 10.0.0.1:6443", "10.0.0.1:6443@b:1 b:1"],
                &[],
            ),
            (
                "an id that a later source gives to a known address is known from then on",
                vec![
                    ("flags", vec![at("10.0.0.1:1")]),
                    ("etcd", vec![named("a", "10.0.0.1:1")]),
                    ("leases", vec![named("a", "10.0.0.9:1")]),
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
        let (records, findings) = shown(&[("flags", vec![at("10.0.0.1:1")]), ("leases", many)]);
        assert_eq!(records.len(), MAX_PEERS);
        assert_eq!(records[0], "10.0.0.1:1 10.0.0.1:1");
        assert_eq!(findings, ["too_many"]);
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
        let lists = [("leases", vec![dead]), ("dns", vec![zoned])];
        let combined = combine(lists.iter().map(|(name, list)| (*name, &**list)));
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
            let names = ["flags", "etcd", "leases", "dns"];
            let combined = combine(names.into_iter().zip(lists.iter().map(|list| &**list)));
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
