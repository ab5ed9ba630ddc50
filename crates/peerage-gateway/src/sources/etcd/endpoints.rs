//! What the keys say: endpoints, which of them are remembered from read to read, and what a key says that is none.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use peerage_proxy::record::registered;
use peerage_store::KeyValue;
use tokio::time::Instant;

use super::parts::Part;
use crate::sources::moves::{ANEW, Moves};
use crate::sources::proven::normal;
use crate::sources::publish::Publisher;
use crate::sources::{Found, LONGEST_ID};

/// What is remembered from read to read.
#[derive(Default)]
pub(super) struct Endpoints {
    /// What is registered, by key: in the part that was read last, and elsewhere of servers that have answered lately.
    pub(super) known: BTreeMap<Bytes, Found>,
    moves: Moves,
    /// What was registered when the keys were last read.
    registered: Vec<Found>,
    /// Of IDs that two servers have: what one of them took down, and when.
    gone: HashMap<Arc<str>, (Found, Instant)>,
    /// Keys whose fault was told.
    told: HashSet<Bytes>,
}

impl Endpoints {
    /// Notes where servers were between two reads.
    pub(super) fn pass(&mut self, written: &[KeyValue], now: Instant) {
        for found in written.iter().filter_map(|kv| endpoint(kv).ok()) {
            if let Some(id) = found.id.filter(|id| self.moves.knows(id)) {
                self.moves.note(&id, &found.address, now);
            }
        }
    }

    pub(super) fn take(
        &mut self,
        part: &Part,
        proven: &HashSet<String>,
        publisher: &mut Publisher,
        now: Instant,
    ) -> (Vec<Found>, usize) {
        let has_answered = |found: &Found| proven.contains(&normal(&found.address));
        self.known
            .retain(|key, found| !part.covers(key) && has_answered(found));
        let too_large = "its value is larger than any endpoint";
        let mut bad: Vec<_> = part.oversize.iter().map(|key| (key, too_large)).collect();
        for kv in &part.kvs {
            match endpoint(kv) {
                Ok(found) => drop(self.known.insert(kv.key.clone(), found)),
                Err(why) => bad.push((&kv.key, why)),
            }
        }
        let still: HashSet<&Bytes> = bad.iter().map(|(key, _)| *key).collect();
        self.told.retain(|key| still.contains(key));
        for (key, why) in &bad {
            if self.told.insert((*key).clone()) {
                publisher.skipped(&String::from_utf8_lossy(key), why);
            }
        }
        let skipped = bad.len();
        let servers = self.known.values().cloned().collect();
        (self.tell(servers, now), skipped)
    }

    /// The servers that follow from what is registered now and was before.
    pub(super) fn tell(&mut self, mut servers: Vec<Found>, now: Instant) -> Vec<Found> {
        self.miss(&servers, now);
        self.registered.clone_from(&servers);
        servers.extend(self.gone.values().map(|(found, _)| found.clone()));
        let ids: HashSet<Arc<str>> = servers.iter().filter_map(|it| it.id.clone()).collect();
        self.moves.keep(|id| ids.contains(id));
        let servers = servers.into_iter();
        servers
            .flat_map(|found| self.moves.servers(found, now))
            .collect()
    }

    /// Notes what is registered no more although another server may be there that has the same ID.
    pub(super) fn miss(&mut self, servers: &[Found], now: Instant) {
        let there: HashSet<&Arc<str>> = servers.iter().filter_map(|it| it.id.as_ref()).collect();
        let is_there = |id: &Arc<str>| there.contains(id);
        for found in std::mem::take(&mut self.registered) {
            if let Some(id) = found.id.clone()
                && !is_there(&id)
                && self.moves.are_two(&id, now)
            {
                self.gone.insert(id, (found, now));
            }
        }
        self.gone
            .retain(|id, (_, since)| !is_there(id) && now.saturating_duration_since(*since) < ANEW);
    }
}

pub(super) fn endpoint(kv: &KeyValue) -> Result<Found, &'static str> {
    let (id, address) =
        registered::read_endpoint(&kv.value).ok_or("it is no endpoint of a kube-apiserver")?;
    if id.is_empty() {
        return Err("it names no server");
    }
    if id.len() > LONGEST_ID {
        return Err("its server ID is longer than any name (253 bytes)");
    }
    let address = address.ok_or("it has no address with a port")?;
    Ok(Found {
        id: Some(id),
        ..Found::at(address)
    })
}
