//! Many at a time, and one that does not keep up.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Fixture;
use super::watching::next;
use crate::error::StoreError;
use crate::ext::StoreExt;
use crate::store::Store;
use crate::testing::seed;
use crate::types::{
    DeleteOp, Event, EventKind, KeyRange, KeyValue, Op, Revision, Txn, WatchRequest,
};
use crate::watch::WatchStream;

const WRITERS: u64 = 10;
const WATCHERS: usize = 10;
const WRITES: usize = 40;

/// A transaction that changes one to three of twenty keys.
fn any_txn(rng: &mut StdRng, tag: &str) -> Txn {
    let mut ops = Vec::new();
    let first: u32 = rng.random_range(0..20);
    for i in 0..rng.random_range(1..=3) {
        let key = format!("/c/{:02}", (first + i) % 20);
        if rng.random_bool(0.7) {
            ops.push(Op::put(key, format!("{tag}-{i}"), 0));
        } else {
            ops.push(Op::Delete(DeleteOp {
                keys: KeyRange::key(key),
                previous: false,
            }));
        }
    }
    Txn::of(ops)
}

async fn write(store: Arc<dyn Store>, seed: u64, writer: u64) -> Vec<(Revision, Txn)> {
    let mut rng = StdRng::seed_from_u64(seed.wrapping_add(writer));
    let mut done = Vec::new();
    for i in 0..WRITES {
        let txn = any_txn(&mut rng, &format!("{writer}-{i}"));
        let response = store.txn(txn.clone()).await.unwrap();
        done.push((response.revision, txn));
    }
    done
}

/// Every event up to the end mark.
async fn observe(mut watch: WatchStream) -> Vec<Event> {
    let mut seen: Vec<Event> = Vec::new();
    while seen.last().is_none_or(|event| event.kv.key != "/c/end") {
        let batch = next(&mut watch).await.expect("a watch ended").unwrap();
        seen.extend(batch.events);
    }
    seen
}

/// One order: the same for every watcher, without gaps, with every acknowledged write in its place, and
/// ending in what the store holds.
pub async fn ten_writers_and_ten_watchers_agree_on_one_order(fixture: Fixture) {
    let store = fixture.store.clone();
    let seed = seed();
    let request = WatchRequest::new(KeyRange::prefix("/c/"), 2).previous();
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS / 2 {
        let watch = store.watch(request.clone()).await.unwrap();
        watchers.push(tokio::spawn(observe(watch)));
    }
    let writers = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), seed, writer)));
    let writers: Vec<_> = writers.collect();
    for _ in watchers.len()..WATCHERS {
        let watch = store.watch(request.clone()).await.unwrap();
        watchers.push(tokio::spawn(observe(watch)));
    }
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.unwrap());
    }
    let end = store.create("/c/end", "", 0).await.unwrap();
    let mut seen: Option<Vec<Event>> = None;
    for watcher in watchers {
        let events = watcher.await.unwrap();
        assert_eq!(*seen.get_or_insert_with(|| events.clone()), events);
    }
    let seen = seen.unwrap();
    check_no_gap(&seen, 2, end.mod_revision);
    check_acknowledged(&seen, &written);
    let listing = store.list(KeyRange::prefix("/c/")).await.unwrap();
    assert_eq!(replay(&seen).into_values().collect::<Vec<_>>(), listing.kvs);
}

fn check_no_gap(events: &[Event], first: Revision, last: Revision) {
    let mut revisions: Vec<_> = events.iter().map(|event| event.kv.mod_revision).collect();
    assert!(revisions.is_sorted());
    revisions.dedup();
    assert_eq!(revisions, (first..=last).collect::<Vec<_>>());
}

/// Each write that was acknowledged at a revision is what happened at that revision.
fn check_acknowledged(events: &[Event], written: &[(Revision, Txn)]) {
    for (revision, txn) in written {
        let puts = txn.success.iter().filter_map(|op| match op {
            Op::Put(put) => Some((&put.key, &put.value)),
            Op::Delete(_) | Op::Range(_) => None,
        });
        let puts: Vec<_> = puts.collect();
        let of_revision = events
            .iter()
            .filter(|event| event.kv.mod_revision == *revision);
        let happened: Vec<_> = of_revision
            .filter(|event| event.kind == EventKind::Put)
            .map(|event| (&event.kv.key, &event.kv.value))
            .collect();
        // A transaction that only deleted what was not there happened at no revision of its own.
        assert!(
            puts.is_empty() || puts == happened,
            "revision {revision}: {txn:?}"
        );
    }
}

/// What is there after all events; each must fit what was there before it.
fn replay(events: &[Event]) -> BTreeMap<Bytes, KeyValue> {
    let mut state = BTreeMap::new();
    for event in events {
        let before = match event.kind {
            EventKind::Put => state.insert(event.kv.key.clone(), event.kv.clone()),
            EventKind::Delete => state.remove(&event.kv.key),
        };
        assert_eq!(event.previous, before, "{event:?}");
        let (version, created) = before.map_or((0, event.kv.mod_revision), |kv| {
            (kv.version, kv.create_revision)
        });
        if event.kind == EventKind::Put {
            assert_eq!(
                (event.kv.version, event.kv.create_revision),
                (version + 1, created)
            );
        }
    }
    state
}

/// More than the default bounds hold.
const BATCHES: i64 = 80;
const BATCH: usize = 128;

/// A store does not wait for a watcher nor keep everything for it; the watcher knows where to go on.
pub async fn a_watcher_that_does_not_read_costs_little_and_misses_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    let keys = KeyRange::prefix("/s/");
    let mut watch = store
        .watch(WatchRequest::new(keys.clone(), 0))
        .await
        .unwrap();
    for batch in 0..BATCHES {
        let ops = (0..BATCH).map(|i| Op::put(format!("/s/{i:03}"), format!("{batch}"), 0));
        store.txn(Txn::of(ops)).await.unwrap();
    }
    let mut cut_off = 0;
    let mut expected: Revision = 2;
    while expected < BATCHES + 2 {
        match next(&mut watch).await {
            Some(Ok(batch)) => {
                for events in batch
                    .events
                    .chunk_by(|a, b| a.kv.mod_revision == b.kv.mod_revision)
                {
                    assert_eq!((events[0].kv.mod_revision, events.len()), (expected, BATCH));
                    expected += 1;
                }
            }
            Some(Err(StoreError::CutOff { resume_revision })) => {
                assert_eq!(resume_revision, expected);
                assert_eq!(next(&mut watch).await, None);
                let again = WatchRequest::new(keys.clone(), resume_revision);
                watch = store.watch(again).await.unwrap();
                cut_off += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(cut_off > 0, fixture.cuts_off);
}
