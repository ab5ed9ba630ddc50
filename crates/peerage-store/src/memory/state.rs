//! What a store in memory holds: each key's versions, each revision's events, each lease's keys.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::StoreError;
use crate::hub::{Commit, Page};
use crate::lease::Leases;
use crate::txn::{Engine, check_revision};
use crate::types::{
    Event, EventKind, KeyRange, KeyValue, LeaseId, RangeRequest, RangeResponse, Revision,
};

/// The most events in a page of history.
const PAGE_EVENTS: usize = 1000;

#[derive(Debug)]
pub(super) struct State {
    revision: Revision,
    compact_revision: Revision,
    keys: BTreeMap<Bytes, Versions>,
    /// The revisions that are kept, from the compacted one on.
    log: VecDeque<Arc<Commit>>,
    attached: HashMap<LeaseId, BTreeSet<Bytes>>,
    bytes: u64,
}

impl Default for State {
    fn default() -> Self {
        State {
            revision: 1,
            compact_revision: 0,
            keys: BTreeMap::new(),
            log: VecDeque::new(),
            attached: HashMap::new(),
            bytes: 0,
        }
    }
}

/// A key's versions, oldest first; `None` is a deletion.
#[derive(Debug, Default)]
struct Versions(VecDeque<(Revision, Option<KeyValue>)>);

impl Versions {
    /// The key as it was at `revision`; 0 is now.
    fn at(&self, revision: Revision) -> Option<&KeyValue> {
        let mut newest_first = self.0.iter().rev();
        let found = newest_first.find(|(written, _)| revision == 0 || *written <= revision);
        found.and_then(|(_, kv)| kv.as_ref())
    }
}

fn size(kv: &KeyValue) -> u64 {
    (kv.key.len() + kv.value.len()) as u64
}

impl State {
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn compact_revision(&self) -> Revision {
        self.compact_revision
    }

    /// Keys and values, those of kept versions too.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn keys_of(&self, lease: LeaseId) -> Vec<Bytes> {
        let keys = self.attached.get(&lease);
        keys.into_iter().flatten().cloned().collect()
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
        check_revision(request.revision, self.revision, self.compact_revision)?;
        let mut response = RangeResponse {
            revision: self.revision,
            kvs: Vec::new(),
            more: false,
            count: 0,
        };
        for kv in self.select(&request.keys, request.revision) {
            response.count += 1;
            if request.count_only {
                continue;
            }
            if request.limit > 0 && response.kvs.len() >= request.limit {
                response.more = true;
                continue;
            }
            let mut kv = kv.clone();
            if request.keys_only {
                kv.value = Bytes::new();
            }
            response.kvs.push(kv);
        }
        Ok(response)
    }

    fn select<'s>(
        &'s self,
        keys: &'s KeyRange,
        revision: Revision,
    ) -> Box<dyn Iterator<Item = &'s KeyValue> + 's> {
        if let Some(key) = keys.single() {
            let versions = self.keys.get(key);
            return Box::new(
                versions
                    .and_then(|versions| versions.at(revision))
                    .into_iter(),
            );
        }
        if keys.is_empty() {
            return Box::new(std::iter::empty());
        }
        let end = keys
            .end()
            .map_or(Bound::Unbounded, |end| Bound::Excluded(&end[..]));
        let range = self
            .keys
            .range::<[u8], _>((Bound::Included(&keys.start()[..]), end));
        Box::new(range.filter_map(move |(_, versions)| versions.at(revision)))
    }

    fn apply(&mut self, event: &Event) {
        let key = &event.kv.key;
        if let Some(previous) = event.previous.as_ref().filter(|kv| kv.lease != 0) {
            self.detach(previous.lease, key);
        }
        let kv = (event.kind == EventKind::Put).then(|| event.kv.clone());
        if event.kv.lease != 0 {
            let keys = self.attached.entry(event.kv.lease).or_default();
            keys.insert(key.clone());
        }
        self.bytes += kv.as_ref().map_or(0, size);
        let versions = self.keys.entry(key.clone()).or_default();
        versions.0.push_back((event.kv.mod_revision, kv));
    }

    fn detach(&mut self, lease: LeaseId, key: &Bytes) {
        if let Some(keys) = self.attached.get_mut(&lease) {
            keys.remove(key);
            if keys.is_empty() {
                self.attached.remove(&lease);
            }
        }
    }

    pub(super) fn commit(&mut self, commit: Arc<Commit>) {
        self.revision = commit.revision;
        self.log.push_back(commit);
    }

    /// Forgets what was superseded before or at `revision`, unless that was done already. The events
    /// of `revision` itself are kept, so that it can be watched from.
    pub(super) fn compact(&mut self, revision: Revision) {
        if revision <= self.compact_revision {
            return;
        }
        while let Some(commit) = self.log.front().filter(|c| c.revision <= revision).cloned() {
            for event in &commit.events {
                self.forget_before(event, revision);
            }
            if commit.revision == revision {
                break;
            }
            self.log.pop_front();
        }
        self.compact_revision = revision;
    }

    fn forget_before(&mut self, event: &Event, compacted: Revision) {
        let written = event.kv.mod_revision;
        let Some(versions) = self.keys.get_mut(&event.kv.key) else {
            return;
        };
        let gone = event.kind == EventKind::Delete && written < compacted;
        while let Some((revision, kv)) = versions.0.front() {
            if *revision < written || (gone && *revision == written) {
                self.bytes -= kv.as_ref().map_or(0, size);
                versions.0.pop_front();
            } else {
                break;
            }
        }
        if versions.0.is_empty() {
            self.keys.remove(&event.kv.key);
        }
    }

    /// See [`crate::hub::History`].
    pub(super) fn page(
        &self,
        keys: &KeyRange,
        from: Revision,
        to: Revision,
    ) -> Result<Page, StoreError> {
        if from < self.compact_revision {
            return Err(StoreError::Compacted {
                compact_revision: self.compact_revision,
            });
        }
        let mut page = Page {
            events: Vec::new(),
            through: to,
        };
        let first = self.log.partition_point(|commit| commit.revision < from);
        for commit in self.log.range(first..).take_while(|c| c.revision <= to) {
            let events = commit.events.iter();
            page.events
                .extend(events.filter(|e| keys.contains(&e.kv.key)).cloned());
            if page.events.len() >= PAGE_EVENTS {
                page.through = commit.revision;
                break;
            }
        }
        Ok(page)
    }
}

/// The state as a transaction sees and changes it.
pub(super) struct View<'s> {
    pub(super) state: &'s mut State,
    pub(super) leases: &'s Leases,
}

impl Engine for View<'_> {
    fn revision(&self) -> Revision {
        self.state.revision
    }

    fn compact_revision(&self) -> Revision {
        self.state.compact_revision
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        let versions = self.state.keys.get(key);
        Ok(versions.and_then(|versions| versions.at(0)).cloned())
    }

    fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
        self.state.range(request)
    }

    fn lease_is_alive(&mut self, id: LeaseId) -> bool {
        self.leases.is_alive(id)
    }

    fn apply(&mut self, event: &Event, _index: usize) -> Result<(), StoreError> {
        self.state.apply(event);
        Ok(())
    }
}
