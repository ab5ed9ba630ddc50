//! The store in memory and the one in a file, asked the same, answer the same.
#![allow(clippy::unwrap_used)]

use futures::StreamExt;
use peerage_store::memory::MemoryStore;
use peerage_store::sqlite::{SqliteOptions, SqliteStore};
use peerage_store::{
    Compare, CompareResult, CompareTarget, DeleteOp, Event, KeyRange, Op, PutOp, RangeRequest,
    Revision, Store, StoreError, Txn, WatchRequest,
};
use proptest::prelude::*;

/// Something to ask of both.
#[derive(Debug, Clone)]
enum Step {
    Txn(Txn),
    Range(RangeRequest),
    Compact(Revision),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few and short, with the bytes at which ranges and prefixes go wrong.
    proptest::collection::vec(
        prop_oneof![Just(0), Just(b'a'), Just(b'b'), Just(0xff)],
        1..3,
    )
}

fn keys() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        3 => key().prop_map(KeyRange::key),
        1 => key().prop_map(KeyRange::prefix),
        1 => key().prop_map(KeyRange::from),
        1 => (key(), key()).prop_map(|(from, to)| KeyRange::between(from, to)),
        1 => Just(KeyRange::all()),
    ]
}

fn range() -> impl Strategy<Value = RangeRequest> {
    let revision = prop_oneof![2 => Just(0), 3 => 0..40i64];
    (
        keys(),
        0..3usize,
        revision,
        any::<bool>(),
        prop::bool::weighted(0.2),
    )
        .prop_map(
            |(keys, limit, revision, keys_only, count_only)| RangeRequest {
                keys,
                limit,
                revision,
                keys_only,
                count_only,
            },
        )
}

fn put() -> impl Strategy<Value = Op> {
    (key(), 0..3u8, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
        |(key, value, previous, keep_value)| {
            Op::Put(PutOp {
                key: key.into(),
                value: if keep_value { Vec::new() } else { vec![value] }.into(),
                previous,
                keep_value,
                ..PutOp::default()
            })
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => put(),
        2 => (keys(), any::<bool>())
            .prop_map(|(keys, previous)| Op::Delete(DeleteOp { keys, previous })),
        1 => range().prop_map(Op::Range),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    use CompareResult::{Equal, Greater, Less, NotEqual};
    let target = prop_oneof![
        (0..3i64).prop_map(CompareTarget::Version),
        (0..30i64).prop_map(CompareTarget::CreateRevision),
        (0..30i64).prop_map(CompareTarget::ModRevision),
        (0..3u8).prop_map(|value| CompareTarget::Value(vec![value].into())),
    ];
    let result = prop_oneof![Just(Equal), Just(Greater), Just(Less), Just(NotEqual)];
    (keys(), result, target).prop_map(|(keys, result, target)| Compare {
        keys,
        result,
        target,
    })
}

fn txn() -> impl Strategy<Value = Txn> {
    let ops = || proptest::collection::vec(op(), 0..4);
    let compares = proptest::collection::vec(compare(), 0..2);
    (compares, ops(), ops()).prop_map(|(compares, success, failure)| Txn {
        compares,
        success,
        failure,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => txn().prop_map(Step::Txn),
        3 => range().prop_map(Step::Range),
        1 => (0..40i64).prop_map(Step::Compact),
    ]
}

/// What a store answers, in a form that can be compared.
async fn ask(store: &dyn Store, step: &Step) -> String {
    match step {
        Step::Txn(txn) => format!("{:?}", store.txn(txn.clone()).await),
        Step::Range(range) => format!("{:?}", store.range(range.clone()).await),
        Step::Compact(revision) => format!("{:?}", store.compact(*revision).await),
    }
}

/// Every event from `start` on. The first kept revision shows no previous values for sure.
async fn history(store: &dyn Store, start: Revision) -> Result<Vec<Event>, StoreError> {
    let status = store.status().await?;
    let request = WatchRequest::new(KeyRange::all(), start).previous();
    let mut watch = store.watch(request).await?;
    let mut events: Vec<Event> = Vec::new();
    let mut reached = 0;
    while reached < status.revision {
        watch.request_progress();
        let batch = watch.next().await.unwrap()?;
        reached = batch.revision;
        events.extend(batch.events);
    }
    for event in &mut events {
        if event.kv.mod_revision == status.compact_revision {
            event.previous = None;
        }
    }
    Ok(events)
}

async fn compare_stores(steps: Vec<Step>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let memory = MemoryStore::new();
    let mut sqlite = SqliteStore::open(&file, SqliteOptions::default())
        .await
        .unwrap();
    for (index, step) in steps.iter().enumerate() {
        assert_eq!(
            ask(&memory, step).await,
            ask(&sqlite, step).await,
            "{step:?}"
        );
        if index == steps.len() / 2 {
            drop(sqlite);
            sqlite = SqliteStore::open(&file, SqliteOptions::default())
                .await
                .unwrap();
        }
    }
    let status = memory.status().await.unwrap();
    for revision in status.compact_revision.max(1)..=status.revision {
        let all = Step::Range(RangeRequest::new(KeyRange::all()).at(revision));
        assert_eq!(ask(&memory, &all).await, ask(&sqlite, &all).await);
    }
    for start in 1..=status.revision {
        let (one, other) = (history(&memory, start).await, history(&sqlite, start).await);
        assert_eq!(one, other, "from {start}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn both_stores_answer_the_same_to_anything(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(compare_stores(steps));
    }
}
