//! The store in a file under the suite, and what only a file can show.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use peerage_store::sqlite::{SqliteOptions, SqliteStore};
use peerage_store::testing::conformance::Fixture;
use peerage_store::{
    KeyRange, OpenError, RangeRequest, Store, StoreError, StoreExt, WatchRequest, WriteError,
};

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    Fixture {
        guard: Box::new(folder),
        ..Fixture::new(store)
    }
}

peerage_store::conformance!(fixture);

async fn open(folder: &Path) -> SqliteStore {
    open_with(folder, SqliteOptions::default()).await
}

async fn open_with(folder: &Path, options: SqliteOptions) -> SqliteStore {
    SqliteStore::open(folder.join("store.db"), options)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_was_written_is_there_again_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let lease = store
        .lease_grant(Duration::from_secs(60), None)
        .await
        .unwrap();
    let kept = store.create("/a", "1", lease.id).await.unwrap();
    store.create("/b", "1", 0).await.unwrap();
    store.delete("/b", None).await.unwrap();
    store.compact(3).await.unwrap();
    drop(store);
    let store = open(folder.path()).await;
    assert_eq!(store.get("/a").await.unwrap(), Some(kept));
    let status = store.status().await.unwrap();
    assert_eq!((status.revision, status.compact_revision), (4, 3));
    assert_eq!(store.leases().await.unwrap(), [lease.id]);
    let left = store.lease_time_to_live(lease.id, true).await.unwrap();
    assert_eq!(
        (left.granted.as_secs(), &left.keys[..]),
        (60, &["/a".into()][..])
    );
    let mut watch = store
        .watch(WatchRequest::new(KeyRange::all(), 4))
        .await
        .unwrap();
    let batch = watch.next().await.unwrap().unwrap();
    assert_eq!((batch.revision, batch.events.len()), (4, 1));
    assert_eq!(store.lease_revoke(lease.id).await.unwrap(), 5);
}

#[tokio::test]
async fn a_second_opening_is_refused_with_the_holder_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let link = folder.path().join("other-name.db");
    std::os::unix::fs::symlink(folder.path().join("store.db"), &link).unwrap();
    let error = SqliteStore::open(&link, SqliteOptions::default())
        .await
        .unwrap_err();
    let OpenError::InUse { pid, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*pid, Some(std::process::id()));
    let message = error.to_string();
    assert!(message.contains("`peerage store`"), "{message}");
    assert!(
        message.contains(&std::process::id().to_string()),
        "{message}"
    );
    drop(store);
    SqliteStore::open(&link, SqliteOptions::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_of_something_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(
        &text,
        "these are my notes, and they are no database\n".repeat(100),
    )
    .unwrap();
    let before = std::fs::read(&text).unwrap();
    let error = SqliteStore::open(&text, SqliteOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read(&text).unwrap(), before);

    let other = folder.path().join("other.db");
    let connection = rusqlite::Connection::open(&other).unwrap();
    connection.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(connection);
    let error = SqliteStore::open(&other, SqliteOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
}

#[tokio::test]
async fn a_file_of_a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).await);
    let file = folder.path().join("store.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let error = SqliteStore::open(&file, SqliteOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::TooNew {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn only_its_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.create("/secret", "1", 0).await.unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?}", entry.path());
    }
}

#[tokio::test]
async fn a_backup_is_a_whole_store_of_the_moment_it_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    for i in 0..100 {
        store
            .put(format!("/{i}"), vec![b'x'; 2000], 0)
            .await
            .unwrap();
    }
    let copy = folder.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    store.put("/later", "1", 0).await.unwrap();
    let again = store.backup(&copy).await.unwrap_err();
    assert!(matches!(again, StoreError::Invalid { .. }), "{again}");
    let copy = SqliteStore::open(&copy, SqliteOptions::default())
        .await
        .unwrap();
    let listing = copy.list(KeyRange::all()).await.unwrap();
    assert_eq!((listing.revision, listing.kvs.len()), (101, 100));
    copy.put("/own", "1", 0).await.unwrap();
}

#[tokio::test]
async fn a_full_store_refuses_puts_keeps_what_it_has_and_recovers_by_deleting() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = SqliteOptions::default();
    options.max_page_count = Some(200);
    let store = open_with(folder.path(), options.clone()).await;
    let value = vec![b'x'; 20_000];
    let mut written = 0;
    let full = loop {
        match store
            .create(format!("/{written:04}"), value.clone(), 0)
            .await
        {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, WriteError::Store(StoreError::NoSpace));
    assert!(written > 10, "{written}");
    let both = futures::future::join_all((0..8).map(|i| {
        let (store, value) = (store.clone(), value.clone());
        async move { store.put(format!("/more/{i}"), value, 0).await }
    }));
    assert!(
        both.await
            .into_iter()
            .all(|result| result == Err(StoreError::NoSpace))
    );
    let listing = store.list(KeyRange::all()).await.unwrap();
    assert_eq!(
        (listing.kvs.len(), listing.revision),
        (written, written as i64 + 1)
    );
    drop(store);

    let store = open_with(folder.path(), options).await;
    assert_eq!(
        store.list(KeyRange::all()).await.unwrap().kvs.len(),
        written
    );
    for i in 0..written / 2 {
        store.delete(format!("/{i:04}"), None).await.unwrap();
    }
    let revision = store.current_revision().await.unwrap();
    store.compact(revision).await.unwrap();
    // The steps of compaction go on between these writes, until there is room.
    let mut tries = 0;
    while store.put("/again", value.clone(), 0).await.is_err() {
        tries += 1;
        assert!(tries < 1000, "compaction freed nothing");
    }
}

#[tokio::test]
async fn history_is_bounded_by_count_without_anybody_asking() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = SqliteOptions::default();
    options.keep_revisions = 100;
    let store = open_with(folder.path(), options).await;
    for i in 0..1000 {
        store.put("/a", format!("{i}"), 0).await.unwrap();
    }
    let status = store.status().await.unwrap();
    assert!(status.compact_revision >= 1001 - 107, "{status:?}");
    let old = store
        .range(RangeRequest::new(KeyRange::all()).at(800))
        .await
        .unwrap_err();
    assert!(matches!(old, StoreError::Compacted { .. }), "{old}");
    drop(store);
    let file = folder.path().join("store.db");
    let connection = rusqlite::Connection::open(file).unwrap();
    let count = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let events = count("SELECT count(*) FROM event");
    assert!(events < 500, "{events} events are kept");
}

#[tokio::test]
async fn history_is_bounded_by_time_without_anybody_asking() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = SqliteOptions::default();
    options.keep_for = Duration::from_millis(20);
    let store = open_with(folder.path(), options).await;
    for i in 0..10 {
        store.put("/a", format!("{i}"), 0).await.unwrap();
    }
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    while store.status().await.unwrap().compact_revision < 11 {
        ticks.tick().await;
    }
    assert_eq!(store.get("/a").await.unwrap().unwrap().version, 10);
}
