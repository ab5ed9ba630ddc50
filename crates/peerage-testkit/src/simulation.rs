//! Servers and their store disturbed under load: several servers on one store, replaced one at a time by a newer version
//! and killed at random ([`run`]), or whatever happens to the store alone ([`run_on`]), while clients use every verb and
//! watch.
//!
//! | module | what it does |
//! |---|---|
//! | [`fleet`] | the servers: started, replaced, killed; which are up |
//! | [`writer`] | a client that knows what it has written, and what it must therefore find |
//! | [`watcher`] | a client that writes down each event it is told |
//! | [`history`] | the events as the store has them |
//!
//! What is held: an object that was written is found, with what was written last, by every server and only once; an
//! object that exists, and an API that some server has, are never answered 404; each watch tells exactly the store's
//! events, in order. A server that was killed may fail the requests it had; everything else may at most be told to
//! come again (429, 503, 504).

pub mod fleet;
pub mod history;
pub mod watcher;
pub mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use fleet::Fleet;
use history::{History, Truth};
use watcher::{Seen, Watcher};
use writer::{Model, Writer};

use crate::seed;

/// The namespace that clients write to.
pub const NAMESPACE: &str = "upgrade";
/// How many requests have to be answered between two disturbances, at most how long that may take.
const REQUESTS_BETWEEN: u64 = 60;
const LONGEST_BETWEEN: Duration = Duration::from_secs(4);
/// Longest time for watches to catch up at the end.
const CATCH_UP: Duration = Duration::from_secs(30);

/// A kind that clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// `apiVersion`.
    pub api_version: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// The path of the collection.
    pub collection: &'static str,
    /// The prefix of its keys in the store.
    pub keys: &'static str,
    /// More members of an object.
    pub rest: &'static str,
}

/// A kind that every version serves.
pub const EVERYWHERE: Kind = Kind {
    api_version: "v1",
    kind: "ConfigMap",
    collection: "/api/v1/namespaces/upgrade/configmaps",
    keys: "/registry/configmaps/upgrade/",
    rest: r#"{"data": {"a": "b"}}"#,
};

/// A kind that only the newest version serves.
pub const NEWEST_ONLY: Kind = Kind {
    api_version: "storagemigration.k8s.io/v1",
    kind: "StorageVersionMigration",
    collection: "/apis/storagemigration.k8s.io/v1/storageversionmigrations",
    keys: "/registry/storageversionmigrations/",
    rest: r#"{"spec": {"resource": {"group": "apps", "resource": "deployments"}}}"#,
};

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The executable of the servers.
    pub executable: PathBuf,
    /// The store's URL, or several of one store with commas between them.
    pub store: String,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How many servers.
    pub servers: usize,
    /// The version before.
    pub from: String,
    /// The version after.
    pub to: String,
    /// Servers killed beside those that are replaced, one before each replacement.
    pub kills: usize,
}

/// What happened, for the test's log.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Requests that were answered as they should be.
    pub requests: u64,
    /// Requests that were told to come again.
    pub told_to_wait: u64,
    /// Requests that a killed server took with it.
    pub lost_with_a_server: u64,
    /// Writes of which nobody knows whether they happened.
    pub uncertain: u64,
    /// Events that each watch told.
    pub events: Vec<usize>,
    /// How often watches had to list anew.
    pub relists: usize,
}

/// What clients share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Whether every server knows that the newest kind exists.
    pub newest_known: AtomicBool,
    /// Whether writers should end.
    pub over: AtomicBool,
    /// All that ever happened, when writers have ended; watchers end when they have been told of it.
    pub truth: OnceLock<Truth>,
    noted: AtomicI64,
    answered: AtomicU64,
    told_to_wait: AtomicU64,
    lost: AtomicU64,
    uncertain: AtomicU64,
}

impl Shared {
    /// How many requests were answered as they should be.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// How many requests were told to come again.
    pub fn told_to_wait(&self) -> u64 {
        self.told_to_wait.load(Ordering::Relaxed)
    }

    /// Up to which revision what happened is noted. Who compacts the store waits for that, or nobody would know any more
    /// what clients have to be told of.
    pub fn noted(&self) -> i64 {
        self.noted.load(Ordering::Relaxed)
    }

    fn note_revision(&self, revision: i64) {
        self.noted.store(revision, Ordering::Relaxed);
    }

    /// What became of requests.
    fn report(&self) -> Report {
        Report {
            requests: self.answered(),
            told_to_wait: self.told_to_wait(),
            lost_with_a_server: self.lost.load(Ordering::Relaxed),
            uncertain: self.uncertain.load(Ordering::Relaxed),
            ..Report::default()
        }
    }
}

/// Runs a rolling upgrade; panics with the seed and what is wrong.
pub async fn run(plan: Plan) -> Report {
    let upgraded = plan.clone();
    run_while(plan, async |fleet, shared, random| {
        upgrade(fleet, shared, &upgraded, random).await;
    })
    .await
}

/// Runs the clients on servers of the older version for as long as they are disturbed; panics with the seed and what is
/// wrong.
async fn run_while(plan: Plan, disturb: impl AsyncFnOnce(&Fleet, &Shared, &mut StdRng)) -> Report {
    let seed = plan.seed;
    eprintln!(
        "seed {seed}: {} servers, {} to {}",
        plan.servers, plan.from, plan.to
    );
    let mut random = StdRng::seed_from_u64(seed);
    let fleet = Arc::new(Fleet::start(&plan).await);
    fleet.make_namespace(NAMESPACE).await;
    let shared = Arc::new(Shared::default());
    let history = History::follow(&plan.store, shared.clone()).await;
    let clients = Clients::start(&fleet, &shared, &mut random);
    disturb(&fleet, &shared, &mut random).await;
    let report = clients.finish(seed, &fleet, &shared, &history).await;
    fleet.stop().await;
    eprintln!("{report:?}");
    report
}

/// All clients of a run.
struct Clients {
    writers: Vec<JoinHandle<Model>>,
    watchers: Vec<JoinHandle<Seen>>,
}

impl Clients {
    fn start(fleet: &Arc<Fleet>, shared: &Arc<Shared>, random: &mut StdRng) -> Self {
        let mut writers = Vec::new();
        for (number, kind) in [EVERYWHERE, NEWEST_ONLY, EVERYWHERE, NEWEST_ONLY]
            .into_iter()
            .enumerate()
        {
            let writer = Writer::new(number, kind, fleet.clone(), shared.clone(), random.random());
            writers.push(tokio::spawn(writer.run()));
        }
        let mut watchers = Vec::new();
        for kind in [EVERYWHERE, EVERYWHERE, NEWEST_ONLY] {
            let watcher = Watcher::new(kind, fleet.clone(), shared.clone(), random.random());
            watchers.push(tokio::spawn(watcher.run()));
        }
        Self { writers, watchers }
    }

    /// Lets the writers end, then the watchers when they have been told of everything; what they saw is what the store
    /// has, and what every server has.
    async fn finish(self, seed: u64, fleet: &Fleet, shared: &Shared, history: &History) -> Report {
        shared.over.store(true, Ordering::Relaxed);
        let mut models = Vec::new();
        for writer in self.writers {
            models.push(finished(writer, seed).await);
        }
        let truth = history.settled(CATCH_UP).await;
        shared.truth.set(truth.clone()).unwrap();
        let mut report = shared.report();
        for watcher in self.watchers {
            let seen = finished(watcher, seed).await;
            seen.check(&truth);
            report.events.push(seen.events());
            report.relists += seen.segments.len().saturating_sub(1);
        }
        for model in &models {
            model.check_at_the_end(fleet).await;
        }
        report
    }
}

/// Runs the clients on two servers of the newest version for as long as their store is disturbed; panics with the seed and
/// what is wrong.
pub async fn run_on(
    store: &str,
    executable: &Path,
    disturb: impl AsyncFnOnce(&Shared, &mut StdRng),
) -> Report {
    const NEWEST: &str = "1.37";
    let plan = Plan {
        executable: executable.to_owned(),
        store: store.to_owned(),
        seed: seed(),
        servers: 2,
        from: NEWEST.to_owned(),
        to: NEWEST.to_owned(),
        kills: 0,
    };
    let report = run_while(plan, async |_, shared, random| {
        shared.newest_known.store(true, Ordering::Relaxed);
        disturb(shared, random).await;
    })
    .await;
    assert!(report.events.iter().all(|events| *events > 0), "{report:?}");
    report
}

/// Replaces every server, one at a time, and kills others at random; the first new one is killed at once.
async fn upgrade(fleet: &Fleet, shared: &Shared, plan: &Plan, random: &mut StdRng) {
    traffic(shared).await;
    for slot in 0..plan.servers {
        if slot < plan.kills {
            let victim = random.random_range(0..plan.servers);
            fleet.kill(victim).await;
            traffic(shared).await;
            fleet.restart(victim).await;
            traffic(shared).await;
        }
        fleet.replace(slot, &plan.to, random.random_bool(0.5)).await;
        if slot == 0 {
            fleet.wait_until_all_know_the_newest().await;
            shared.newest_known.store(true, Ordering::Relaxed);
            traffic(shared).await;
            // The only one that has the newest kind: the others must say "later", and not "never".
            fleet.kill(slot).await;
            traffic(shared).await;
            fleet.restart(slot).await;
        }
        traffic(shared).await;
    }
}

/// Waits until clients had some requests answered, or for a while when nothing answers.
pub async fn traffic(shared: &Shared) {
    let before = shared.answered.load(Ordering::Relaxed);
    let end = Instant::now() + LONGEST_BETWEEN;
    while shared.answered.load(Ordering::Relaxed) < before + REQUESTS_BETWEEN
        && Instant::now() < end
    {
        sleep(Duration::from_millis(20)).await;
    }
}

async fn finished<T>(task: JoinHandle<T>, seed: u64) -> T {
    let waited = tokio::time::timeout(CATCH_UP, task).await;
    let joined = waited.unwrap_or_else(|_| panic!("seed {seed}: a client does not end"));
    joined.unwrap_or_else(|e| panic!("seed {seed}: {e}"))
}
