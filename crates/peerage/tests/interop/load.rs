//! Clients that write and watch through a real kube-apiserver while something below it is disturbed, and know what they
//! have been promised.
//!
//! Each writer has objects of its own: after an acknowledged write every later read has to show it. A write of which
//! nobody knows whether it happened may show or not, and once a read has shown one of the two, that is how it stays. The
//! watcher has to be told of every acknowledged write, in the order of revisions, each once, and the last that it is told
//! of an object is what that holds, or that it was deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use peerage_testkit::kube::Apiserver;
use peerage_testkit::wire::{Answer, Client, Outgoing};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Where writers write.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 4;
/// Writes to an object before the next is made.
const WRITES_EACH: u32 = 6;
/// How long a client waits before it tries again.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the server may need to be useful again after a disturbance.
const PATIENCE: Duration = Duration::from_secs(60);

/// What clients share.
#[derive(Default)]
struct State {
    over: AtomicBool,
    acknowledged: AtomicUsize,
    uncertain: AtomicUsize,
}

/// Clients at work.
pub(crate) struct Load {
    state: Arc<State>,
    writers: Vec<JoinHandle<Promises>>,
    watcher: JoinHandle<Told>,
    client: Client,
}

/// What a writer was promised.
#[derive(Default)]
struct Promises {
    /// Objects and what they hold; a deleted one holds nothing.
    objects: BTreeMap<String, Option<String>>,
    /// Objects that have been there, however short.
    existed: BTreeSet<String>,
    /// The revisions of acknowledged creates and updates. An answer to a deletion names none.
    revisions: BTreeSet<i64>,
}

impl Promises {
    /// From now on this is what an object holds.
    fn holds(&mut self, name: &str, value: Option<String>) {
        if value.is_some() {
            self.existed.insert(name.to_owned());
        }
        self.objects.insert(name.to_owned(), value);
    }

    fn extend(&mut self, other: Promises) {
        self.objects.extend(other.objects);
        self.existed.extend(other.existed);
        self.revisions.extend(other.revisions);
    }
}

/// What a watch has told.
struct Told {
    /// The revision of the list before it, and of each event.
    revisions: Vec<i64>,
    /// Of each object, what its last event says: what it holds, or that it was deleted.
    objects: BTreeMap<String, Option<String>>,
}

/// What was written altogether.
pub(crate) struct Written {
    objects: BTreeMap<String, Option<String>>,
}

impl Load {
    /// Starts clients of a server.
    pub(crate) async fn start(server: &Apiserver) -> Self {
        let state = Arc::new(State::default());
        let client = server.client("admin");
        let (_, revision) = list(&client).await;
        let watcher = Watcher {
            client: client.clone(),
            told: Told {
                revisions: vec![revision],
                objects: BTreeMap::new(),
            },
        };
        let writers = (0..WRITERS).map(|number| {
            let writer = Writer {
                number,
                client: client.clone(),
                state: state.clone(),
                promises: Promises::default(),
            };
            tokio::spawn(writer.run())
        });
        Self {
            writers: writers.collect(),
            watcher: tokio::spawn(watcher.run()),
            state,
            client,
        }
    }

    /// Waits until so many more writes have been acknowledged.
    pub(crate) async fn acknowledged(&self, more: usize) {
        let count = || self.state.acknowledged.load(Ordering::Relaxed);
        let (before, end) = (count(), Instant::now() + PATIENCE);
        while count() < before + more {
            let failed = self.writers.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a writer found something wrong");
            assert!(Instant::now() < end, "no writes within {PATIENCE:?}");
            sleep(PAUSE).await;
        }
    }

    /// Ends all clients; panics unless the watcher was told of everything.
    pub(crate) async fn stop(self) -> Written {
        self.state.over.store(true, Ordering::Relaxed);
        let mut promises = Promises::default();
        for writer in self.writers {
            promises.extend(writer.await.unwrap());
        }
        // The last event that the watcher waits for.
        let last = json!({"metadata": {"name": "last"}});
        let last = Outgoing::new("POST", MAPS).json("application/json", &last);
        let answer = self.client.send(&last).await.unwrap();
        assert_eq!(answer.status(), 201, "{}", answer.in_words());
        let told = timeout(PATIENCE, self.watcher).await;
        let told = told.expect("the watch tells of the last write").unwrap();
        told.is_complete(&promises);
        let uncertain = self.state.uncertain.load(Ordering::Relaxed);
        eprintln!(
            "{} writes were acknowledged, {uncertain} uncertain, {} events told",
            promises.revisions.len(),
            told.revisions.len() - 1
        );
        Written {
            objects: promises.objects,
        }
    }
}

impl Told {
    /// Panics unless it is all that was promised, each once, and deletions too.
    fn is_complete(&self, promises: &Promises) {
        let revisions = &self.revisions;
        let ordered = revisions.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(ordered, "events are not in order: {revisions:?}");
        let told: BTreeSet<i64> = revisions.iter().copied().collect();
        let missed: Vec<_> = promises.revisions.difference(&told).collect();
        assert!(missed.is_empty(), "the watch did not tell of {missed:?}");
        for name in &promises.existed {
            let last = self.objects.get(name);
            assert_eq!(last, promises.objects.get(name), "the last told of {name}");
        }
    }
}

impl Written {
    /// Panics unless everything that was promised is there, and nothing else of the writers'.
    pub(crate) async fn is_all_there(&self, server: &Apiserver) {
        let (items, _) = list(&server.client("admin")).await;
        for (name, value) in &self.objects {
            assert_eq!(items.get(name), value.as_ref(), "{name}");
        }
        let strange: Vec<_> = items
            .keys()
            .filter(|name| name.starts_with("writer-") && !self.objects.contains_key(*name))
            .collect();
        assert!(strange.is_empty(), "{strange:?}");
    }
}

/// All maps with their values, and the list's revision.
async fn list(client: &Client) -> (BTreeMap<String, String>, i64) {
    let answer = client.send(&Outgoing::new("GET", MAPS)).await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.in_words());
    let list = answer.json();
    let items = list["items"].as_array().unwrap().iter();
    let items = items.map(|item| (name_of(item), value_of(item).unwrap_or_default()));
    (items.collect(), revision_of(&list))
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn value_of(object: &Value) -> Option<String> {
    object["data"]["value"].as_str().map(str::to_owned)
}

fn revision_of(object: &Value) -> i64 {
    let revision = object["metadata"]["resourceVersion"].as_str().unwrap();
    revision.parse().unwrap()
}

struct Writer {
    number: usize,
    client: Client,
    state: Arc<State>,
    promises: Promises,
}

impl Writer {
    async fn run(mut self) -> Promises {
        for object in 0.. {
            let name = format!("writer-{}-{object}", self.number);
            for write in 0..WRITES_EACH {
                if self.state.over.load(Ordering::Relaxed) {
                    return self.promises;
                }
                self.write(&name, write).await;
            }
            if object % 3 == 0 {
                self.delete(&name).await;
            }
        }
        self.promises
    }

    /// Creates or changes an object; afterwards it is known what it holds.
    async fn write(&mut self, name: &str, write: u32) {
        let value = format!("{write}");
        let object = json!({"metadata": {"name": name}, "data": {"value": value}});
        let known = self.promises.objects.get(name).cloned().flatten();
        let (request, status) = match known {
            None => {
                let create = Outgoing::new("POST", MAPS);
                (create.json("application/json", &object), 201)
            }
            Some(_) => {
                let patch = Outgoing::new("PATCH", &format!("{MAPS}/{name}"));
                (patch.json("application/merge-patch+json", &object), 200)
            }
        };
        match self.send(&request).await {
            Some(answer) => {
                assert_eq!(answer.status(), status, "{name}: {}", answer.in_words());
                self.promises.revisions.insert(revision_of(&answer.json()));
                self.promises.holds(name, Some(value));
                self.state.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            None => self.find_out(name, [known, Some(value)]).await,
        }
    }

    async fn delete(&mut self, name: &str) {
        let known = self.promises.objects.get(name).cloned().flatten();
        let request = Outgoing::new("DELETE", &format!("{MAPS}/{name}"));
        match self.send(&request).await {
            Some(answer) => {
                assert_eq!(answer.status(), if known.is_some() { 200 } else { 404 });
                self.promises.holds(name, None);
            }
            None => self.find_out(name, [known, None]).await,
        }
    }

    /// Reads an object that may hold one of two values.
    async fn find_out(&mut self, name: &str, allowed: [Option<String>; 2]) {
        self.state.uncertain.fetch_add(1, Ordering::Relaxed);
        let request = Outgoing::new("GET", &format!("{MAPS}/{name}"));
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = self.send(&request).await {
                let value = match answer.status() {
                    404 => None,
                    _ => value_of(&answer.json()),
                };
                assert!(
                    allowed.contains(&value),
                    "{name} is {value:?}, not of {allowed:?}"
                );
                self.promises.holds(name, value);
                return;
            }
            assert!(Instant::now() < end, "no answer within {PATIENCE:?}");
        }
    }

    /// An answer that says what is; none when the server cannot say.
    async fn send(&self, request: &Outgoing) -> Option<Answer> {
        match self.client.send(request).await {
            Ok(answer) if answer.status() < 500 && answer.status() != 429 => Some(answer),
            _ => {
                sleep(PAUSE).await;
                None
            }
        }
    }
}

struct Watcher {
    client: Client,
    told: Told,
}

impl Watcher {
    /// Watches, again and again from where the last watch ended, until it is told of the last write.
    async fn run(mut self) -> Told {
        loop {
            let since = self.told.revisions.last().unwrap();
            let target = format!("{MAPS}?watch=true&resourceVersion={since}");
            let opened = self.client.open(&Outgoing::new("GET", &target)).await;
            if let Ok((head, mut body)) = opened
                && head.status == 200
            {
                while let Ok(Some(line)) = body.line().await {
                    // A line is cut off where its connection was.
                    let Ok(event) = serde_json::from_slice::<Value>(&line) else {
                        break;
                    };
                    if event["type"] == "ERROR" {
                        let code = &event["object"]["code"];
                        assert_ne!(code, 410, "the watch has to begin again: {event}");
                        break;
                    }
                    self.hear(&event);
                    if name_of(&event["object"]) == "last" {
                        return self.told;
                    }
                }
            }
            sleep(PAUSE).await;
        }
    }

    fn hear(&mut self, event: &Value) {
        let object = &event["object"];
        let held = match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => Some(value_of(object).unwrap_or_default()),
            Some("DELETED") => None,
            _ => panic!("an event of no kind: {event}"),
        };
        self.told.revisions.push(revision_of(object));
        self.told.objects.insert(name_of(object), held);
    }
}
