//! The events as the store has them, read over etcd's protocol beside all servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_store::{EventKind, KeyRange, Store, StoreExt, WatchRequest};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{EVERYWHERE, Kind, NEWEST_ONLY, Shared};

/// What became of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision, which is the object's `resourceVersion` afterwards.
    pub revision: i64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub what: &'static str,
    /// The object's name.
    pub name: String,
}

/// What became of the objects of all kinds that clients use.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    changes: Vec<(Kind, Change)>,
}

impl Truth {
    /// The changes of a kind after a revision, up to and with another one.
    pub fn between(&self, kind: Kind, after: i64, until: i64) -> Vec<Change> {
        let changes = self
            .changes
            .iter()
            .filter(|(k, c)| *k == kind && c.revision > after && c.revision <= until);
        changes.map(|(_, change)| change.clone()).collect()
    }

    /// The names and revisions of the objects of a kind as of a revision.
    pub fn objects(&self, kind: Kind, at: i64) -> Vec<(String, i64)> {
        let mut objects = std::collections::BTreeMap::new();
        for change in self.between(kind, 0, at) {
            match change.what {
                "DELETED" => objects.remove(&change.name),
                _ => objects.insert(change.name, change.revision),
            };
        }
        objects.into_iter().collect()
    }

    /// The last revision of a kind.
    pub fn last(&self, kind: Kind) -> i64 {
        let of_kind = self.changes.iter().filter(|(k, _)| *k == kind);
        of_kind
            .map(|(_, change)| change.revision)
            .max()
            .unwrap_or(0)
    }
}

/// Follows the store.
pub struct History {
    store: EtcdStore,
    truth: Arc<Mutex<Truth>>,
    shared: Arc<Shared>,
    follower: JoinHandle<()>,
}

/// A key that no server knows, written to see how far the watch is.
const MARK: &str = "/registry/peerage-testkit/mark";

impl History {
    /// From now on, telling whoever compacts the store how far it is.
    pub(super) async fn follow(url: &str, shared: Arc<Shared>) -> Self {
        let store = EtcdStore::connect(EtcdOptions::new(url.split(',')))
            .await
            .unwrap();
        let truth = Arc::new(Mutex::new(Truth::default()));
        let start = store.current_revision().await.unwrap() + 1;
        let request = WatchRequest::new(KeyRange::prefix("/registry/"), start);
        let mut stream = store.watch(request).await.unwrap();
        let (noted, told) = (truth.clone(), shared.clone());
        let follower = tokio::spawn(async move {
            while let Some(batch) = stream.next().await {
                for event in batch.expect("the store's own watch").events {
                    note(&noted, &event);
                    told.note_revision(event.kv.mod_revision);
                }
            }
        });
        Self {
            store,
            truth,
            shared,
            follower,
        }
    }

    /// Everything that has happened by now.
    pub async fn settled(&self, patience: Duration) -> Truth {
        let end = Instant::now() + patience;
        let last = self.store.put(MARK, "", 0).await.unwrap().mod_revision;
        while self.shared.noted() < last {
            assert!(!self.follower.is_finished(), "the store's own watch ended");
            assert!(Instant::now() < end, "the store's own watch is behind");
            sleep(Duration::from_millis(20)).await;
        }
        self.truth.lock().unwrap().clone()
    }
}

fn note(truth: &Mutex<Truth>, event: &peerage_store::Event) {
    let key = String::from_utf8_lossy(&event.kv.key);
    for kind in [EVERYWHERE, NEWEST_ONLY] {
        let Some(name) = key.strip_prefix(kind.keys) else {
            continue;
        };
        let what = match event.kind {
            EventKind::Delete => "DELETED",
            EventKind::Put if event.kv.create_revision == event.kv.mod_revision => "ADDED",
            EventKind::Put => "MODIFIED",
        };
        let change = Change {
            revision: event.kv.mod_revision,
            what,
            name: name.to_owned(),
        };
        truth.lock().unwrap().changes.push((kind, change));
    }
}
