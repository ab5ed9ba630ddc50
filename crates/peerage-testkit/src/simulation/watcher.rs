//! A client that lists, watches from there, and writes down each event it is told.
//!
//! When a watch ends it goes on at another server from the last revision it knows; only when it is told that this is
//! too old (410) it lists anew, which begins a new segment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::fleet::{Fleet, Target};
use super::history::{Change, Truth};
use super::{Kind, NEWEST_ONLY, Shared};
use crate::wire::{Outgoing, WireError};

/// How long it waits before it tries again, or looks whether it is done.
const PAUSE: Duration = Duration::from_millis(50);

/// The client.
pub struct Watcher {
    kind: Kind,
    fleet: Arc<Fleet>,
    shared: Arc<Shared>,
    random: StdRng,
    seen: Seen,
}

/// What it was told.
#[derive(Debug)]
pub struct Seen {
    kind: Kind,
    /// A list and what came after it, again and again.
    pub segments: Vec<Segment>,
}

/// A list and the events after it.
#[derive(Debug)]
pub struct Segment {
    /// The revision of the list.
    pub start: i64,
    /// Names and revisions of the objects that were listed.
    pub listed: Vec<(String, i64)>,
    /// What came then.
    pub changes: Vec<Change>,
}

impl Segment {
    fn last(&self) -> i64 {
        self.changes
            .last()
            .map_or(self.start, |change| change.revision)
    }
}

impl Seen {
    /// How many events.
    pub fn events(&self) -> usize {
        self.segments.iter().map(|s| s.changes.len()).sum()
    }

    /// Panics unless it is what the store has.
    pub fn check(&self, truth: &Truth) {
        let kind = self.kind;
        for (number, segment) in self.segments.iter().enumerate() {
            assert_eq!(
                segment.listed,
                truth.objects(kind, segment.start),
                "the list of {} at {}",
                kind.kind,
                segment.start
            );
            let until = match number + 1 == self.segments.len() {
                true => truth.last(kind),
                false => segment.last(),
            };
            let real = truth.between(kind, segment.start, until);
            let seen = segment.changes.iter();
            let wrong = seen.zip(&real).find(|(seen, real)| seen != real);
            assert!(wrong.is_none(), "{}: seen and real {wrong:?}", kind.kind);
            assert_eq!(
                segment.changes.len(),
                real.len(),
                "{}: as many events",
                kind.kind
            );
        }
    }
}

/// How a watch ended.
enum End {
    /// In order, or with its server.
    Closed,
    /// What it asked for is too old.
    TooOld,
}

impl Watcher {
    /// A watcher of a kind.
    pub fn new(kind: Kind, fleet: Arc<Fleet>, shared: Arc<Shared>, seed: u64) -> Self {
        let segments = Vec::new();
        Self {
            kind,
            fleet,
            shared,
            random: StdRng::seed_from_u64(seed),
            seen: Seen { kind, segments },
        }
    }

    /// Watches until everything is over.
    pub async fn run(mut self) -> Seen {
        while self.kind == NEWEST_ONLY && !self.shared.newest_known.load(Ordering::Relaxed) {
            sleep(PAUSE).await;
        }
        let mut list = true;
        while !self.is_done() {
            if list {
                list = !self.list().await;
            } else if let End::TooOld = self.watch().await {
                list = true;
            }
        }
        self.seen
    }

    /// Begins a segment; false when the server cannot be asked now.
    async fn list(&mut self) -> bool {
        let target = self.fleet.pick(&mut self.random);
        let request = Outgoing::new("GET", self.kind.collection);
        let answer = match target.client.send(&request).await {
            Ok(answer) => answer,
            Err(error) => return self.excuse(&target, &error).await,
        };
        if self.told_to_wait(answer.status()).await {
            return false;
        }
        assert_eq!(answer.status(), 200, "a list: {}", answer.in_words());
        let list = answer.json();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let mut listed: Vec<_> = items.iter().map(name_and_revision).collect();
        listed.sort();
        self.seen.segments.push(Segment {
            start: list["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap(),
            listed,
            changes: Vec::new(),
        });
        true
    }

    /// Watches from the last revision known.
    async fn watch(&mut self) -> End {
        let target = self.fleet.pick(&mut self.random);
        let segment = self.seen.segments.last_mut().unwrap();
        let seconds = self.random.random_range(2..8);
        let bookmarks = self.random.random_bool(0.5);
        let request = Outgoing::new(
            "GET",
            &format!(
                "{}?watch=1&resourceVersion={}&timeoutSeconds={seconds}&allowWatchBookmarks={bookmarks}",
                self.kind.collection,
                segment.last()
            ),
        );
        let (head, body) = match target.client.open(&request).await {
            Ok(opened) => opened,
            Err(error) => {
                self.excuse(&target, &error).await;
                return End::Closed;
            }
        };
        if self.told_to_wait(head.status).await {
            return End::Closed;
        }
        if head.status == 410 {
            return End::TooOld;
        }
        assert_eq!(head.status, 200, "a watch of {}", self.kind.collection);
        let mut lines = body.lines();
        while !self.is_done() {
            match timeout(PAUSE, lines.recv()).await {
                Err(_) => {}
                Ok(Some(Ok(line))) => {
                    // A line that was cut off with its server is not an event.
                    let Ok(event) = serde_json::from_slice::<Value>(&line) else {
                        let text = String::from_utf8_lossy(&line).into_owned();
                        self.excuse_the_end_of_a_watch(&target, &WireError::NotHttp(text));
                        return End::Closed;
                    };
                    if let Some(end) = self.note(&event) {
                        return end;
                    }
                }
                Ok(None) => return End::Closed,
                Ok(Some(Err(error))) => {
                    self.excuse_the_end_of_a_watch(&target, &error);
                    return End::Closed;
                }
            }
        }
        End::Closed
    }

    /// Whether everything that will ever happen has been told.
    fn is_done(&self) -> bool {
        let reached = self.seen.segments.last().map(Segment::last);
        let truth = self.shared.truth.get().map(|truth| truth.last(self.kind));
        truth.is_some_and(|last| reached.is_some_and(|reached| reached >= last))
    }

    fn note(&mut self, event: &Value) -> Option<End> {
        let what = match event["type"].as_str().unwrap_or_default() {
            "ADDED" => "ADDED",
            "MODIFIED" => "MODIFIED",
            "DELETED" => "DELETED",
            "BOOKMARK" => return None,
            _ if event["object"]["code"] == 410 => return Some(End::TooOld),
            _ if matches!(event["object"]["code"].as_u64(), Some(429 | 503 | 504)) => {
                return Some(End::Closed);
            }
            _ => panic!("{}: {event}", self.kind.kind),
        };
        let (name, revision) = name_and_revision(&event["object"]);
        let segment = self.seen.segments.last_mut().unwrap();
        segment.changes.push(Change {
            revision,
            what,
            name,
        });
        None
    }

    async fn told_to_wait(&self, status: u16) -> bool {
        let wait = matches!(status, 429 | 503 | 504);
        if wait {
            self.shared.told_to_wait.fetch_add(1, Ordering::Relaxed);
            sleep(PAUSE).await;
        }
        wait
    }

    /// A request that was not answered has to have a reason.
    async fn excuse(&self, target: &Target, error: &WireError) -> bool {
        assert!(
            self.fleet.was_disturbed(target),
            "no answer of a healthy server: {error}"
        );
        self.shared.lost.fetch_add(1, Ordering::Relaxed);
        sleep(PAUSE).await;
        false
    }

    /// A watch may also end because the peer that it came from was killed.
    fn excuse_the_end_of_a_watch(&self, target: &Target, error: &WireError) {
        let excused = self.kind == NEWEST_ONLY || self.fleet.was_disturbed(target);
        assert!(excused, "a healthy server broke a watch off: {error}");
    }
}

fn name_and_revision(object: &Value) -> (String, i64) {
    let metadata = &object["metadata"];
    let revision = metadata["resourceVersion"]
        .as_str()
        .and_then(|r| r.parse().ok());
    let name = metadata["name"].as_str().map(str::to_owned);
    match (name, revision) {
        (Some(name), Some(revision)) => (name, revision),
        _ => panic!("an object without name or revision: {object}"),
    }
}
