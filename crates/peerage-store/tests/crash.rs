//! The store in a file, killed a hundred times in the middle of writes.
//!
//! The test runs itself as a child process that writes without pause and says what was acknowledged. It
//! kills the child after some words, opens the file, and looks: nothing acknowledged may be
//! missing, nothing may be half there, and the history must have no gap. What was under way may be there
//! or not.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use futures::StreamExt;
use peerage_store::sqlite::{SqliteOptions, SqliteStore};
use peerage_store::{Compare, KeyRange, Op, Revision, Store, StoreExt, Txn, WatchRequest};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const FILE: &str = "PEERAGE_CRASH_FILE";
const KILLS: usize = 100;
const WRITERS: usize = 4;

fn options() -> SqliteOptions {
    let mut options = SqliteOptions::default();
    // Small, so that compaction is on its way when the kill comes.
    options.keep_revisions = 64;
    options
}

/// Not a test: the child's part, which runs only when the parent says where.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_until_it_is_killed() {
    let Ok(file) = std::env::var(FILE) else {
        return;
    };
    let store = SqliteStore::open(file, options()).await.unwrap();
    let writers = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer)));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

fn key(writer: usize, half: &str) -> String {
    format!("/crash/{writer}/{half}")
}

/// Writes both halves of a pair, in one transaction, with the next number.
async fn write(store: SqliteStore, writer: usize) {
    let before = store.get(key(writer, "left")).await.unwrap();
    let mut number = before.as_ref().map_or(0, |kv| number_of(&kv.value));
    let mut expected = before.map_or(0, |kv| kv.mod_revision);
    loop {
        number += 1;
        // Large enough that a page is not enough for it, in every other one.
        let size = if number % 2 == 0 { 8 } else { 9000 };
        let value = format!("{number:0size$}");
        let txn = Txn::new()
            .when([Compare::mod_revision(key(writer, "left"), expected)])
            .then([
                Op::put(key(writer, "left"), value.clone(), 0),
                Op::delete(key(writer, "gone")),
                Op::put(key(writer, "right"), value, 0),
            ]);
        let response = store.txn(txn).await.unwrap();
        assert!(response.succeeded);
        expected = response.revision;
        println!("ack {writer} {number} {expected}");
        if number % 3 == 0 {
            store.put(key(writer, "gone"), "", 0).await.unwrap();
        }
    }
}

fn number_of(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// What the child said was done: of each writer the last number and its revision.
type Acknowledged = BTreeMap<usize, (u64, Revision)>;

/// Runs the child until it has acknowledged `words` writes, kills it, and hears it out.
fn run_and_kill(file: &Path, words: usize, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "child_that_writes_until_it_is_killed",
            "--nocapture",
        ])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut heard = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8(line.unwrap()).unwrap();
        // The harness's own words, and a last line that was cut short, are nothing.
        let Some((writer, number, revision)) = parse(&line) else {
            continue;
        };
        acknowledged.insert(writer, (number, revision));
        heard += 1;
        if heard == words {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success());
    assert!(heard >= words, "the child ended by itself");
}

fn parse(line: &str) -> Option<(usize, u64, Revision)> {
    let (_, rest) = line.split_once("ack ")?;
    let mut words = rest.split(' ');
    let parsed = (
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
    );
    Some(parsed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_hundred_kills_nothing_acknowledged_is_lost_and_nothing_is_half_there() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let mut acknowledged = Acknowledged::new();
    let mut reached = 1;
    for _ in 0..KILLS {
        run_and_kill(&file, rng.random_range(1..40), &mut acknowledged);
        let store = SqliteStore::open(&file, options()).await.unwrap();
        reached = check(&store, &mut acknowledged, reached).await;
    }
    let connection = rusqlite::Connection::open(&file).unwrap();
    let verdict: String = connection
        .pragma_query_value(None, "integrity_check", |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

/// Looks at a store that was killed. Returns its revision; what was found counts as acknowledged from now on.
async fn check(store: &SqliteStore, acknowledged: &mut Acknowledged, before: Revision) -> Revision {
    let status = store.status().await.unwrap();
    assert!(status.revision >= before);
    for (&writer, last) in acknowledged.iter_mut() {
        let (number, revision) = *last;
        let left = store.get(key(writer, "left")).await.unwrap().unwrap();
        let right = store.get(key(writer, "right")).await.unwrap().unwrap();
        assert_eq!(
            (&left.value, left.mod_revision),
            (&right.value, right.mod_revision)
        );
        let found = number_of(&left.value);
        // A cut-off line may hide one acknowledgement, and one more write may have been under way.
        assert!(
            (number..=number + 2).contains(&found),
            "{writer}: {number} became {found}"
        );
        assert!(left.mod_revision >= revision && status.revision >= revision);
        *last = (found, left.mod_revision);
    }
    if status.revision > status.compact_revision.max(1) {
        check_history(store, status.compact_revision.max(1) + 1, status.revision).await;
    }
    status.revision
}

/// Every kept revision has its events, and each that wrote one half wrote the other.
async fn check_history(store: &SqliteStore, first: Revision, last: Revision) {
    let request = WatchRequest::new(KeyRange::all(), first).previous();
    let mut watch = store.watch(request).await.unwrap();
    let mut expected = first;
    while expected <= last {
        let batch = watch.next().await.unwrap().unwrap();
        for events in batch
            .events
            .chunk_by(|a, b| a.kv.mod_revision == b.kv.mod_revision)
        {
            assert_eq!(events[0].kv.mod_revision, expected);
            let half = |half: &[u8]| events.iter().filter(|e| e.kv.key.ends_with(half)).count();
            assert_eq!(half(b"left"), half(b"right"), "{events:?}");
            let first_ever = |event: &peerage_store::Event| event.kv.version <= 1;
            assert!(
                events.iter().all(|e| e.previous.is_some() || first_ever(e)),
                "{events:?}"
            );
            expected += 1;
        }
    }
}
