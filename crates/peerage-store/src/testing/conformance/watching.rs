//! Watches, one at a time.

use std::time::Duration;

use futures::StreamExt;

use super::Fixture;
use crate::error::StoreError;
use crate::ext::StoreExt;
use crate::types::{Event, EventKind, KeyRange, Op, Revision, Txn, WatchRequest};
use crate::watch::WatchStream;

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// The next item of a watch.
pub(super) async fn next(
    watch: &mut WatchStream,
) -> Option<Result<crate::types::WatchResponse, StoreError>> {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("a watch said nothing")
}

/// Reads `count` events, in whole batches.
pub(super) async fn take(watch: &mut WatchStream, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let batch = next(watch).await.expect("the watch ended").unwrap();
        let last = batch.events.last().map_or(0, |event| event.kv.mod_revision);
        assert!(batch.revision >= last, "{batch:?}");
        events.extend(batch.events);
    }
    events
}

type Short = (Revision, EventKind, String, String);

fn short(events: &[Event]) -> Vec<Short> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let short = |e: &Event| {
        (
            e.kv.mod_revision,
            e.kind,
            text(&e.kv.key),
            text(&e.kv.value),
        )
    };
    events.iter().map(short).collect()
}

fn put(revision: Revision, key: &str, value: &str) -> Short {
    (revision, EventKind::Put, key.to_owned(), value.to_owned())
}

fn delete(revision: Revision, key: &str) -> Short {
    (revision, EventKind::Delete, key.to_owned(), String::new())
}

/// A small history that ends with revision 6.
async fn write_history(fixture: &Fixture) -> Vec<Short> {
    let store = &*fixture.store;
    store.put("/w/a", "1", 0).await.unwrap();
    store.put("/w/b", "1", 0).await.unwrap();
    store.put("/other", "1", 0).await.unwrap();
    let both = [
        Op::put("/w/a", "2", 0),
        Op::delete("/w/b"),
        Op::put("/other", "2", 0),
    ];
    store.txn(Txn::of(both)).await.unwrap();
    store.delete("/w/a", None).await.unwrap();
    vec![
        put(2, "/w/a", "1"),
        put(3, "/w/b", "1"),
        put(5, "/w/a", "2"),
        delete(5, "/w/b"),
        delete(6, "/w/a"),
    ]
}

/// Past and present in one sequence.
pub async fn a_watch_from_any_kept_revision_sees_every_event_once(fixture: Fixture) {
    let store = &*fixture.store;
    let mut expected = write_history(&fixture).await;
    let mut watches = Vec::new();
    for start in 1..=8 {
        let request = WatchRequest::new(KeyRange::prefix("/w/"), start);
        let watch = store.watch(request).await.unwrap();
        assert_eq!(watch.start_revision(), start);
        watches.push((start, watch));
    }
    store.put("/w/c", "1", 0).await.unwrap();
    store.put("/w/c", "2", 0).await.unwrap();
    expected.extend([put(7, "/w/c", "1"), put(8, "/w/c", "2")]);
    for (start, mut watch) in watches {
        let expected: Vec<_> = expected.iter().filter(|e| e.0 >= start).cloned().collect();
        let seen = take(&mut watch, expected.len()).await;
        assert_eq!(short(&seen), expected, "from {start}");
    }
}

/// "Now" is when the call returns at the latest.
pub async fn a_watch_from_now_sees_only_what_comes(fixture: Fixture) {
    let store = &*fixture.store;
    write_history(&fixture).await;
    let mut one = store
        .watch(WatchRequest::new(KeyRange::key("/w/a"), 0))
        .await
        .unwrap();
    assert_eq!(one.start_revision(), 7);
    store.put("/w/ab", "1", 0).await.unwrap();
    store.put("/w/a", "1", 0).await.unwrap();
    assert_eq!(short(&take(&mut one, 1).await), [put(8, "/w/a", "1")]);
}

/// What a watch shows can be chosen.
pub async fn a_watch_shows_previous_values_and_filters_kinds(fixture: Fixture) {
    let store = &*fixture.store;
    write_history(&fixture).await;
    let request = WatchRequest::new(KeyRange::prefix("/w/"), 2);
    let mut previous = store.watch(request.clone().previous()).await.unwrap();
    let seen: Vec<_> = take(&mut previous, 5).await;
    let before: Vec<_> = seen
        .iter()
        .map(|e| {
            e.previous
                .as_ref()
                .map(|kv| (kv.mod_revision, &kv.value[..]))
        })
        .collect();
    assert_eq!(
        before,
        [
            None,
            None,
            Some((2, &b"1"[..])),
            Some((3, b"1")),
            Some((5, b"2"))
        ]
    );

    let only = |no_put, no_delete| WatchRequest {
        no_put,
        no_delete,
        ..request.clone()
    };
    let mut deletes = store.watch(only(true, false)).await.unwrap();
    assert_eq!(
        short(&take(&mut deletes, 2).await),
        [delete(5, "/w/b"), delete(6, "/w/a")]
    );
    let mut puts = store.watch(only(false, true)).await.unwrap();
    let seen = take(&mut puts, 3).await;
    assert!(
        seen.iter()
            .all(|e| e.kind == EventKind::Put && e.previous.is_none())
    );
}

/// The one error that a list and a new watch are the answer to.
pub async fn a_watch_from_a_compacted_revision_ends_with_that_error(fixture: Fixture) {
    let store = &*fixture.store;
    let expected = write_history(&fixture).await;
    store.compact(5).await.unwrap();
    let request = |start| WatchRequest::new(KeyRange::prefix("/w/"), start).previous();
    let mut old = store.watch(request(4)).await.unwrap();
    let error = Some(Err(StoreError::Compacted {
        compact_revision: 5,
    }));
    assert_eq!(next(&mut old).await, error);
    assert_eq!(next(&mut old).await, None);
    let mut kept = store.watch(request(5)).await.unwrap();
    assert_eq!(short(&take(&mut kept, 3).await), expected[2..]);
}

/// Progress covers what was written before it was asked for.
pub async fn progress_is_told_when_asked_for(fixture: Fixture) {
    let store = &*fixture.store;
    let mut watch = store
        .watch(WatchRequest::new(KeyRange::prefix("/w/"), 1))
        .await
        .unwrap();
    write_history(&fixture).await;
    store.put("/other", "3", 0).await.unwrap();
    let mut events = 0;
    loop {
        watch.request_progress();
        let batch = next(&mut watch).await.unwrap().unwrap();
        events += batch.events.len();
        if batch.revision >= 7 {
            break;
        }
    }
    assert_eq!(events, 5);
}
