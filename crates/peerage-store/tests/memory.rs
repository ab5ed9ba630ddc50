//! The store in memory under the suite, and what only it, or only small bounds, can show.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use peerage_store::memory::{MemoryOptions, MemoryStore};
use peerage_store::testing::conformance::{self, Fixture};
use peerage_store::testing::{FaultPlan, FaultyStore};
use peerage_store::{
    KeyRange, RangeRequest, Store, StoreError, StoreExt, WatchRequest, WatchResponse, WriteError,
};

async fn fixture() -> Fixture {
    Fixture::new(MemoryStore::new())
}

peerage_store::conformance!(fixture);

fn small() -> MemoryOptions {
    let mut options = MemoryOptions::default();
    options.watch.buffer_events = 8;
    options
}

#[tokio::test]
async fn a_store_whose_answers_get_lost_is_linearizable_all_the_same() {
    let plan = FaultPlan {
        seed: rand::random(),
        latency: Duration::ZERO,
        jitter: Duration::from_millis(1),
        fail_before: 0.05,
        fail_after: 0.1,
        cut_off_after: None,
    };
    println!("{plan:?}");
    let store = FaultyStore::new(Arc::new(MemoryStore::new()), plan);
    conformance::every_answer_fits_one_order_that_respects_real_time(Fixture::new(store)).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_answers_late() {
    let plan = FaultPlan::slow(Duration::from_millis(50));
    let store = FaultyStore::new(Arc::new(MemoryStore::new()), plan);
    let before = tokio::time::Instant::now();
    store.create("/a", "1", 0).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_millis(50));
}

#[tokio::test]
async fn a_faulty_watch_is_cut_off_after_so_many_batches() {
    let mut plan = FaultPlan::slow(Duration::ZERO);
    plan.cut_off_after = Some(2);
    let store = FaultyStore::new(Arc::new(MemoryStore::new()), plan);
    let mut watch = store
        .watch(WatchRequest::new(KeyRange::all(), 0))
        .await
        .unwrap();
    for i in 0..3 {
        store.put("/a", format!("{i}"), 0).await.unwrap();
        if i < 2 {
            assert_eq!(watch.next().await.unwrap().unwrap().revision, i + 2);
        }
    }
    let resume_revision = 4;
    assert_eq!(
        watch.next().await,
        Some(Err(StoreError::CutOff { resume_revision }))
    );
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_watcher_with_a_full_buffer_is_cut_off_and_told_where_to_go_on() {
    let store = MemoryStore::with_options(small());
    let mut watch = store
        .watch(WatchRequest::new(KeyRange::all(), 0))
        .await
        .unwrap();
    for i in 0..20 {
        store.put("/a", format!("{i}"), 0).await.unwrap();
    }
    for revision in 2..10 {
        assert_eq!(watch.next().await.unwrap().unwrap().revision, revision);
    }
    let cut_off = StoreError::CutOff {
        resume_revision: 10,
    };
    assert_eq!(watch.next().await, Some(Err(cut_off)));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_watcher_of_the_past_reads_it_at_its_own_pace() {
    let store = MemoryStore::with_options(small());
    for i in 0..5000 {
        store.put("/a", format!("{i}"), 0).await.unwrap();
    }
    let mut watch = store
        .watch(WatchRequest::new(KeyRange::all(), 2))
        .await
        .unwrap();
    let mut seen = 0;
    while seen < 5000 {
        seen += watch.next().await.unwrap().unwrap().events.len();
    }
    assert_eq!(seen, 5000);
}

#[tokio::test]
async fn a_watcher_of_the_past_that_compaction_overtakes_is_told_so() {
    let store = MemoryStore::with_options(small());
    for i in 0..5000 {
        store.put("/a", format!("{i}"), 0).await.unwrap();
    }
    let mut watch = store
        .watch(WatchRequest::new(KeyRange::all(), 2))
        .await
        .unwrap();
    let first = watch.next().await.unwrap().unwrap();
    assert!(first.events.len() < 5000);
    store.compact(5000).await.unwrap();
    let end = loop {
        match watch.next().await.unwrap() {
            Ok(batch) => assert!(batch.revision < 5000),
            Err(error) => break error,
        }
    };
    let compact_revision = 5000;
    assert_eq!(end, StoreError::Compacted { compact_revision });
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watcher_that_asked_for_it_hears_how_far_it_has_come() {
    let store = MemoryStore::new();
    let request = WatchRequest::new(KeyRange::key("/a"), 0);
    let mut told = store.watch(request.clone().progress()).await.unwrap();
    let mut not_told = store.watch(request).await.unwrap();
    store.put("/b", "1", 0).await.unwrap();
    let progress = WatchResponse {
        revision: 2,
        events: Vec::new(),
    };
    assert_eq!(told.next().await, Some(Ok(progress)));
    let silence = tokio::time::timeout(Duration::from_secs(60), not_told.next()).await;
    assert!(silence.is_err());
}

#[tokio::test]
async fn a_watch_ends_with_its_store() {
    let store = MemoryStore::new();
    let mut watch = store
        .watch(WatchRequest::new(KeyRange::all(), 0))
        .await
        .unwrap();
    drop(store);
    let end = watch.next().await.unwrap().unwrap_err();
    assert!(matches!(end, StoreError::Unavailable { .. }), "{end}");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn watchers_are_counted_until_they_are_dropped() {
    let mut options = MemoryOptions::default();
    options.watch.max_watchers = 2;
    let store = MemoryStore::with_options(options);
    let watch = || store.watch(WatchRequest::new(KeyRange::all(), 0));
    let _first = watch().await.unwrap();
    let second = watch().await.unwrap();
    let error = watch().await.unwrap_err();
    assert!(
        matches!(error, StoreError::Exhausted { limit: 2, .. }),
        "{error}"
    );
    drop(second);
    watch().await.unwrap();
}

#[tokio::test]
async fn history_is_bounded_by_count_without_anybody_asking() {
    let mut options = MemoryOptions::default();
    options.keep_revisions = 10;
    let store = MemoryStore::with_options(options);
    for i in 0..100 {
        store.put("/a", format!("{i:03}"), 0).await.unwrap();
    }
    let status = store.status().await.unwrap();
    assert_eq!((status.revision, status.compact_revision), (101, 91));
    assert_eq!(status.size, 11 * 5);
    let all = RangeRequest::new(KeyRange::all());
    assert_eq!(
        store.range(all.clone().at(91)).await.unwrap().kvs[0].value,
        "089"
    );
    let error = store.range(all.at(90)).await.unwrap_err();
    let compact_revision = 91;
    assert_eq!(error, StoreError::Compacted { compact_revision });
}

#[tokio::test]
async fn a_full_store_refuses_puts_and_recovers_by_deleting() {
    let mut options = MemoryOptions::default();
    options.max_bytes = 100;
    let store = MemoryStore::with_options(options);
    store.create("/a", vec![0; 90], 0).await.unwrap();
    let full = store.create("/b", vec![0; 90], 0).await.unwrap_err();
    assert_eq!(full, WriteError::Store(StoreError::NoSpace));
    store.delete("/a", None).await.unwrap();
    store.put("/c", "", 0).await.unwrap();
    store.compact(4).await.unwrap();
    store.create("/b", vec![0; 90], 0).await.unwrap();
}
