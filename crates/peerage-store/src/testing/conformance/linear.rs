//! Linearizability, by revisions.
//!
//! Each answer says at which revision it holds. That is an order of all operations; the test checks that
//! it is a right one: every answer is what the key's history says at its revision, and no operation
//! that began after another one ended comes before it. The history itself is a watch's, from the beginning.
//!
//! Operations whose outcome is not known (a faulty store has such) may have happened, once, or not.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::Fixture;
use super::watching::next;
use crate::error::StoreError;
use crate::ext::StoreExt;
use crate::store::Store;
use crate::testing::seed;
use crate::types::{
    Compare, Event, EventKind, KeyRange, KeyValue, Op, OpResponse, RangeRequest, Revision, Txn,
    WatchRequest,
};

const CLIENTS: u64 = 6;
const OPERATIONS: usize = 60;
const KEYS: usize = 3;

/// What was asked, and what came of it.
#[derive(Debug)]
struct Record {
    key: Bytes,
    /// What the operation writes, if it writes: unlike anything that any other one writes.
    value: Option<Bytes>,
    /// The revision that the key had to have, if that mattered.
    expected: Option<Revision>,
    began: Instant,
    ended: Instant,
    /// Nothing if it is not known what came of it.
    outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    /// The revision that the answer holds at.
    revision: Revision,
    /// Whether it changed the key.
    wrote: bool,
    /// What it saw, if it did not write.
    saw: Option<KeyValue>,
}

/// Nobody can tell from the answers that the store is not one machine that does one thing at a time.
pub async fn every_answer_fits_one_order_that_respects_real_time(fixture: Fixture) {
    let seed = seed();
    let clients = (0..CLIENTS).map(|client| {
        let rng = StdRng::seed_from_u64(seed.wrapping_add(client));
        tokio::spawn(operate(fixture.store.clone(), rng, client))
    });
    let clients: Vec<_> = clients.collect();
    let mut records = Vec::new();
    for client in clients {
        records.extend(client.await.unwrap());
    }
    let history = history(&*fixture.store).await;
    for record in &records {
        check_answer(record, &history);
    }
    check_real_time(&records);
    check_writes_are_somebodys(&records, &history);
}

async fn operate(store: Arc<dyn Store>, mut rng: StdRng, client: u64) -> Vec<Record> {
    let mut known = [0; KEYS];
    let mut records = Vec::new();
    for i in 0..OPERATIONS {
        let index = rng.random_range(0..KEYS);
        let key = Bytes::from(format!("/h/{index}"));
        let value = Bytes::from(format!("{client}-{i}"));
        let record = match rng.random_range(0..10) {
            0..3 => read(&*store, key).await,
            3..7 => change(&*store, key.clone(), Some(value), Some(known[index])).await,
            7..9 => change(&*store, key.clone(), Some(value), None).await,
            _ => change(&*store, key, None, Some(known[index])).await,
        };
        if let Some(outcome) = &record.outcome {
            known[index] = match &outcome.saw {
                _ if outcome.wrote && record.value.is_some() => outcome.revision,
                Some(kv) => kv.mod_revision,
                None => 0,
            };
        }
        records.push(record);
    }
    records
}

async fn read(store: &dyn Store, key: Bytes) -> Record {
    let began = Instant::now();
    let answer = store
        .range(RangeRequest::new(KeyRange::key(key.clone())))
        .await;
    let outcome = answer.map(|mut range| Outcome {
        revision: range.revision,
        wrote: false,
        saw: range.kvs.pop(),
    });
    record(key, None, None, began, outcome)
}

/// Writes a value, or deletes the key, if it was last written at `expected`.
async fn change(
    store: &dyn Store,
    key: Bytes,
    value: Option<Bytes>,
    expected: Option<Revision>,
) -> Record {
    let op = match &value {
        Some(value) => Op::put(key.clone(), value.clone(), 0),
        None => Op::delete(key.clone()),
    };
    let compare = expected.map(|revision| Compare::mod_revision(key.clone(), revision));
    let txn = Txn::new()
        .when(compare)
        .then([op])
        .otherwise([Op::get(key.clone())]);
    let began = Instant::now();
    let answer = store.txn(txn).await;
    let outcome = answer.map(|mut response| {
        let revision = response.revision;
        let (wrote, saw) = match response.responses.pop() {
            Some(OpResponse::Range(mut range)) => (false, range.kvs.pop()),
            Some(OpResponse::Delete(delete)) => (delete.deleted > 0, None),
            Some(OpResponse::Put(_)) | None => (true, None),
        };
        Outcome {
            revision,
            wrote,
            saw,
        }
    });
    record(key, value, expected, began, outcome)
}

fn record(
    key: Bytes,
    value: Option<Bytes>,
    expected: Option<Revision>,
    began: Instant,
    outcome: Result<Outcome, StoreError>,
) -> Record {
    if let Err(error) = &outcome {
        assert!(error.may_have_written(), "{error}");
    }
    Record {
        key,
        value,
        expected,
        began,
        ended: Instant::now(),
        outcome: outcome.ok(),
    }
}

/// Every event since the beginning.
async fn history(store: &dyn Store) -> Vec<Event> {
    let until = loop {
        match store.put("/h/end", "", 0).await {
            Ok(end) => break end.mod_revision,
            Err(error) => assert!(error.may_have_written(), "{error}"),
        }
    };
    let request = WatchRequest::new(KeyRange::prefix("/h/"), 2);
    let mut watch = loop {
        match store.watch(request.clone()).await {
            Ok(watch) => break watch,
            Err(error) => assert!(error.may_have_written(), "{error}"),
        }
    };
    let mut events: Vec<Event> = Vec::new();
    while events
        .last()
        .is_none_or(|event| event.kv.mod_revision < until)
    {
        events.extend(next(&mut watch).await.unwrap().unwrap().events);
    }
    events
}

/// The key as it was at `revision`.
fn at<'h>(history: &'h [Event], key: &Bytes, revision: Revision) -> Option<&'h KeyValue> {
    let of_key = history.iter().filter(|event| event.kv.key == *key);
    let last = of_key
        .take_while(|event| event.kv.mod_revision <= revision)
        .last();
    last.filter(|event| event.kind == EventKind::Put)
        .map(|event| &event.kv)
}

fn check_answer(record: &Record, history: &[Event]) {
    let Some(outcome) = &record.outcome else {
        return;
    };
    let now = at(history, &record.key, outcome.revision);
    let before = at(history, &record.key, outcome.revision - 1);
    let revision = |kv: Option<&KeyValue>| kv.map_or(0, |kv| kv.mod_revision);
    if outcome.wrote {
        let written = now.map(|kv| &kv.value);
        assert_eq!(written, record.value.as_ref(), "{record:?}");
        if let Some(expected) = record.expected {
            assert_eq!(revision(before), expected, "{record:?}");
        }
        return;
    }
    let deleted_nothing = record.expected == Some(0) && record.value.is_none();
    if deleted_nothing && outcome.saw.is_none() {
        assert_eq!(now, None, "{record:?}");
        return;
    }
    assert_eq!(now, outcome.saw.as_ref(), "{record:?}");
    if let Some(expected) = record.expected {
        assert_ne!(revision(now), expected, "{record:?}");
    }
}

fn check_real_time(records: &[Record]) {
    let known = || {
        records
            .iter()
            .filter_map(|record| Some((record, record.outcome.as_ref()?)))
    };
    for (earlier, first) in known() {
        for (later, second) in known().filter(|(later, _)| earlier.ended < later.began) {
            let least = first.revision + Revision::from(second.wrote);
            assert!(second.revision >= least, "{earlier:?} then {later:?}");
        }
    }
}

/// Nothing is in the history that nobody wrote, and nothing twice.
fn check_writes_are_somebodys(records: &[Record], history: &[Event]) {
    let tried: HashSet<_> = records
        .iter()
        .filter_map(|record| record.value.as_ref())
        .collect();
    let mut seen = HashSet::new();
    for event in history
        .iter()
        .filter(|e| e.kind == EventKind::Put && e.kv.key != "/h/end")
    {
        assert!(tried.contains(&event.kv.value), "{event:?}");
        assert!(seen.insert(&event.kv.value), "{event:?} happened twice");
    }
}
