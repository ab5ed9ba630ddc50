//! Keys, revisions, ranges, transactions, compaction.

use bytes::Bytes;

use super::Fixture;
use crate::error::StoreError;
use crate::ext::{StoreExt, WriteError};
use crate::types::{
    Compare, CompareResult, CompareTarget, KeyRange, KeyValue, Op, OpResponse, PutOp, RangeRequest,
    Txn,
};

fn keys(kvs: &[KeyValue]) -> Vec<&str> {
    kvs.iter()
        .map(|kv| std::str::from_utf8(&kv.key).unwrap())
        .collect()
}

/// Revisions begin at 1 and a first write makes 2.
pub async fn a_new_key_has_its_revision_everywhere_and_version_one(fixture: Fixture) {
    let store = &*fixture.store;
    let before = store.current_revision().await.unwrap();
    assert_eq!(before, 1);
    let written = store.create("/a", "1", 0).await.unwrap();
    let expected = KeyValue {
        key: Bytes::from("/a"),
        value: Bytes::from("1"),
        create_revision: 2,
        mod_revision: 2,
        version: 1,
        lease: 0,
    };
    assert_eq!(written, expected);
    assert_eq!(store.get("/a").await.unwrap(), Some(expected));
    assert_eq!(store.get("/b").await.unwrap(), None);
    assert_eq!(store.current_revision().await.unwrap(), 2);
}

/// What a key remembers.
pub async fn a_key_counts_its_versions_and_starts_anew_after_a_deletion(fixture: Fixture) {
    let store = &*fixture.store;
    let first = store.create("/a", "1", 0).await.unwrap();
    let second = store
        .update("/a", "2", first.mod_revision, 0)
        .await
        .unwrap();
    assert_eq!(
        (second.create_revision, second.mod_revision, second.version),
        (2, 3, 2)
    );
    let third = store.put("/a", "2", 0).await.unwrap();
    assert_eq!(
        (third.create_revision, third.mod_revision, third.version),
        (2, 4, 3)
    );
    let (gone, revision) = store.delete("/a", Some(4)).await.unwrap();
    assert_eq!((gone, revision), (third, 5));
    let anew = store.create("/a", "", 0).await.unwrap();
    assert_eq!(
        (anew.create_revision, anew.mod_revision, anew.version),
        (6, 6, 1)
    );
    assert_eq!(store.get("/a").await.unwrap(), Some(anew));
}

/// A conflict saves its reader a read.
pub async fn create_update_and_delete_conflicts_carry_the_current_key(fixture: Fixture) {
    let store = &*fixture.store;
    let kv = store.create("/a", "1", 0).await.unwrap();
    let conflict = |current: Option<&KeyValue>| WriteError::Conflict {
        current: current.cloned().map(Box::new),
        revision: 2,
    };
    let there = conflict(Some(&kv));
    let gone = conflict(None);
    assert_eq!(store.create("/a", "2", 0).await.unwrap_err(), there);
    assert_eq!(store.update("/a", "2", 1, 0).await.unwrap_err(), there);
    assert_eq!(store.delete("/a", Some(7)).await.unwrap_err(), there);
    assert_eq!(store.update("/b", "2", 1, 0).await.unwrap_err(), gone);
    assert_eq!(store.delete("/b", Some(1)).await.unwrap_err(), gone);
    assert_eq!(store.delete("/b", None).await.unwrap_err(), gone);
    assert_eq!(store.current_revision().await.unwrap(), 2);
}

/// Everything about reading.
pub async fn ranges_are_ordered_limited_counted_and_read_old_revisions(fixture: Fixture) {
    let store = &*fixture.store;
    for key in ["/b/2", "/a/1", "/b/1", "/b0", "/b/3", "/c"] {
        store.put(key, "v", 0).await.unwrap();
    }
    store.delete("/b/2", None).await.unwrap();
    store.put("/b/1", "w", 0).await.unwrap();
    let b = RangeRequest::new(KeyRange::prefix("/b/"));

    let all = store.range(b.clone()).await.unwrap();
    assert_eq!(
        (keys(&all.kvs), all.more, all.count, all.revision),
        (vec!["/b/1", "/b/3"], false, 2, 9)
    );
    let first = store.range(b.clone().limit(1)).await.unwrap();
    assert_eq!(
        (keys(&first.kvs), first.more, first.count),
        (vec!["/b/1"], true, 2)
    );
    let exact = store.range(b.clone().limit(2)).await.unwrap();
    assert_eq!((exact.kvs.len(), exact.more), (2, false));

    let old = store.range(b.clone().at(7)).await.unwrap();
    assert_eq!(
        (keys(&old.kvs), old.count, old.revision),
        (vec!["/b/1", "/b/2", "/b/3"], 3, 9)
    );
    assert_eq!(old.kvs[0].value, "v");
    let older = store.range(b.clone().at(4).limit(1)).await.unwrap();
    assert_eq!(
        (keys(&older.kvs), older.count, older.more),
        (vec!["/b/1"], 2, true)
    );
    let before = store.range(b.clone().at(1)).await.unwrap();
    assert_eq!((before.kvs.len(), before.count), (0, 0));

    let names = store.range(b.clone().keys_only()).await.unwrap();
    assert_eq!(names.kvs[0].value, "");
    assert_eq!((names.kvs[0].mod_revision, names.kvs[0].version), (9, 2));
    let count = store.range(b.clone().count_only()).await.unwrap();
    assert_eq!((count.kvs.len(), count.count, count.more), (0, 2, false));

    let tail = store
        .range(RangeRequest::new(KeyRange::from("/b0")))
        .await
        .unwrap();
    assert_eq!(keys(&tail.kvs), ["/b0", "/c"]);
    let everything = store
        .range(RangeRequest::new(KeyRange::all()))
        .await
        .unwrap();
    assert_eq!(keys(&everything.kvs), ["/a/1", "/b/1", "/b/3", "/b0", "/c"]);
    let nothing = store
        .range(RangeRequest::new(KeyRange::between("/z", "/a")))
        .await
        .unwrap();
    assert_eq!((nothing.kvs.len(), nothing.count), (0, 0));
    let future = store.range(b.at(10)).await.unwrap_err();
    assert_eq!(future, StoreError::FutureRevision { current: 9 });
}

/// A listing is a snapshot, however many pages it takes.
pub async fn listing_reads_every_page_at_one_revision(fixture: Fixture) {
    let store = &*fixture.store;
    for chunk in (0..2304).collect::<Vec<_>>().chunks(128) {
        let put = |i: &i32| Op::put(format!("/l/{i:05}"), format!("{i}"), 0);
        store.txn(Txn::of(chunk.iter().map(put))).await.unwrap();
    }
    let listing = store.list(KeyRange::prefix("/l/")).await.unwrap();
    assert_eq!(listing.kvs.len(), 2304);
    assert_eq!(listing.revision, 19);
    assert!(listing.kvs.is_sorted_by(|a, b| a.key < b.key));
}

/// Every kind of compare, on what is there and on what is not.
pub async fn compares_decide_between_success_and_failure(fixture: Fixture) {
    use CompareResult::{Equal, Greater, Less, NotEqual};
    use CompareTarget::{CreateRevision, Lease, ModRevision, Value, Version};
    let store = &*fixture.store;
    store.create("/a", "m", 0).await.unwrap();
    store.put("/a", "m", 0).await.unwrap();
    store.create("/b", "n", 0).await.unwrap();
    let value = |text: &'static str| Value(Bytes::from(text));
    let key = |key: &'static str| KeyRange::key(key);
    let cases = [
        (key("/a"), Equal, Version(2), true),
        (key("/a"), Equal, Version(1), false),
        (key("/a"), Equal, CreateRevision(2), true),
        (key("/a"), Less, CreateRevision(2), false),
        (key("/a"), Greater, ModRevision(2), true),
        (key("/a"), NotEqual, ModRevision(3), false),
        (key("/a"), Equal, Lease(0), true),
        (key("/a"), Equal, value("m"), true),
        (key("/a"), Greater, value("l"), true),
        (key("/a"), Less, value("m"), false),
        (key("/none"), Equal, Version(0), true),
        (key("/none"), Equal, CreateRevision(0), true),
        (key("/none"), Greater, ModRevision(0), false),
        (key("/none"), NotEqual, value("x"), false),
        (key("/none"), Equal, value(""), false),
        (KeyRange::prefix("/"), Greater, Version(0), true),
        (KeyRange::prefix("/"), Greater, Version(1), false),
        (KeyRange::prefix("/none"), Equal, Version(0), true),
    ];
    for (keys, result, target, expected) in cases {
        let compare = Compare {
            keys,
            result,
            target,
        };
        let txn = Txn::new()
            .when([compare.clone()])
            .otherwise([Op::get("/b")]);
        let response = store.txn(txn).await.unwrap();
        assert_eq!(response.succeeded, expected, "{compare:?}");
        assert_eq!(
            response.responses.len(),
            usize::from(!expected),
            "{compare:?}"
        );
    }
    let mixed = Txn::new().when([Compare::absent("/none"), Compare::absent("/a")]);
    assert!(!store.txn(mixed).await.unwrap().succeeded);
}

/// Order, visibility and the one revision of a transaction.
pub async fn a_transaction_is_one_revision_and_sees_its_own_writes(fixture: Fixture) {
    let store = &*fixture.store;
    store.put("/t/old", "0", 0).await.unwrap();
    let count = || Op::Range(RangeRequest::new(KeyRange::prefix("/t/")));
    let put = |previous| PutOp {
        key: Bytes::from("/t/a"),
        value: Bytes::from("1"),
        previous,
        ..PutOp::default()
    };
    let ops = [
        count(),
        Op::Put(put(true)),
        count(),
        Op::delete_range(KeyRange::key("/t/old")),
        Op::delete_range(KeyRange::prefix("/t/o")),
        count(),
        Op::put("/u", "2", 0),
        // The revision before it, by its number, is what it was.
        Op::Range(RangeRequest::new(KeyRange::prefix("/t/")).at(2)),
    ];
    let response = store.txn(Txn::of(ops)).await.unwrap();
    assert_eq!((response.revision, response.succeeded), (3, true));
    let counts = response.responses.iter().map(|response| match response {
        OpResponse::Range(range) => range.count,
        OpResponse::Delete(delete) => delete.deleted,
        OpResponse::Put(put) => u64::from(put.previous.is_some()),
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 0, 2, 1, 0, 1, 0, 1]);
    for key in ["/t/a", "/u"] {
        assert_eq!(
            store.get(key).await.unwrap().unwrap().mod_revision,
            3,
            "{key}"
        );
    }
    let keep = PutOp {
        keep_value: true,
        value: Bytes::new(),
        ..put(true)
    };
    let response = store.txn(Txn::of([Op::Put(keep)])).await.unwrap();
    let Some(OpResponse::Put(put)) = response.responses.first() else {
        panic!("{response:?}");
    };
    assert_eq!(put.previous.as_ref().unwrap().mod_revision, 3);
    let kept = store.get("/t/a").await.unwrap().unwrap();
    assert_eq!((&kept.value[..], kept.version), (&b"1"[..], 2));
}

/// Only changes move the store on.
pub async fn a_transaction_that_changes_nothing_makes_no_revision(fixture: Fixture) {
    let store = &*fixture.store;
    store.put("/a", "1", 0).await.unwrap();
    for txn in [
        Txn::new(),
        Txn::of([Op::get("/a")]),
        Txn::of([
            Op::delete("/none"),
            Op::delete_range(KeyRange::prefix("/none/")),
        ]),
        Txn::new()
            .when([Compare::absent("/a")])
            .then([Op::put("/a", "2", 0)]),
    ] {
        assert_eq!(store.txn(txn.clone()).await.unwrap().revision, 2, "{txn:?}");
    }
    assert_eq!(store.put("/a", "1", 0).await.unwrap().mod_revision, 3);
}

/// Errors are definite.
pub async fn what_cannot_be_done_is_refused_and_changes_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    store.put("/a", "1", 0).await.unwrap();
    let put = |key: &'static str| Op::put(key, "x", 0);
    let keep = Op::Put(PutOp {
        key: Bytes::from("/none"),
        keep_value: true,
        ..PutOp::default()
    });
    let duplicate = StoreError::DuplicateKey;
    let cases = [
        (vec![put("/x"), put("/x")], duplicate.clone()),
        (vec![put("/x"), Op::delete("/x")], duplicate.clone()),
        (
            vec![Op::delete_range(KeyRange::prefix("/")), put("/x")],
            duplicate,
        ),
        (vec![put("/x"), put("")], StoreError::EmptyKey),
        (vec![put("/x"), Op::delete("")], StoreError::EmptyKey),
        (
            vec![put("/x"), Op::put("/y", "", 77)],
            StoreError::LeaseNotFound { id: 77 },
        ),
        (vec![put("/x"), keep], StoreError::KeyNotFound),
        (
            vec![
                put("/x"),
                Op::Range(RangeRequest::new(KeyRange::key("/a")).at(9)),
            ],
            StoreError::FutureRevision { current: 2 },
        ),
    ];
    for (ops, expected) in cases {
        assert_eq!(
            store.txn(Txn::of(ops.clone())).await.unwrap_err(),
            expected,
            "{ops:?}"
        );
    }
    let large = vec![0; 3 * 512 * 1024 + 1];
    let error = store.put("/large", large, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error:?}");
    let many = (0..129).map(|i| Op::put(format!("/{i}"), "", 0));
    let error = store.txn(Txn::of(many)).await.unwrap_err();
    assert!(matches!(error, StoreError::TooManyOps { .. }), "{error:?}");
    assert_eq!(store.current_revision().await.unwrap(), 2);
    assert_eq!(store.list(KeyRange::all()).await.unwrap().kvs.len(), 1);
}

/// Compaction is about the past only.
pub async fn compaction_forgets_the_past_and_keeps_the_present(fixture: Fixture) {
    let store = &*fixture.store;
    store.put("/a", "1", 0).await.unwrap(); // 2
    store.put("/b", "1", 0).await.unwrap(); // 3
    store.put("/a", "2", 0).await.unwrap(); // 4
    store.delete("/b", None).await.unwrap(); // 5
    store.put("/a", "3", 0).await.unwrap(); // 6
    let at = |revision| store.range(RangeRequest::new(KeyRange::all()).at(revision));
    store.compact(4).await.unwrap();
    let compacted = |compact_revision| StoreError::Compacted { compact_revision };
    assert_eq!(at(3).await.unwrap_err(), compacted(4));
    assert_eq!(store.compact(4).await.unwrap_err(), compacted(4));
    assert_eq!(store.compact(2).await.unwrap_err(), compacted(4));
    assert_eq!(
        store.compact(7).await.unwrap_err(),
        StoreError::FutureRevision { current: 6 }
    );
    let old = at(4).await.unwrap();
    assert_eq!(keys(&old.kvs), ["/a", "/b"]);
    assert_eq!(old.kvs[0].value, "2");
    store.compact(6).await.unwrap();
    let now = at(6).await.unwrap();
    assert_eq!(
        (keys(&now.kvs), &now.kvs[0].value[..]),
        (vec!["/a"], &b"3"[..])
    );
    assert_eq!((now.kvs[0].create_revision, now.kvs[0].version), (2, 3));
    let error = store
        .txn(Txn::of([Op::Range(
            RangeRequest::new(KeyRange::all()).at(5),
        )]))
        .await;
    assert_eq!(error.unwrap_err(), compacted(6));
    assert_eq!(store.put("/b", "2", 0).await.unwrap().version, 1);
}
