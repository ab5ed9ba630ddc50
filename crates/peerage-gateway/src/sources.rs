//! Where the servers behind come from: flags, a file, DNS names, the identity Leases of a cluster, etcd.
//!
//! Each source is a task that publishes the list it last read well; the combiner folds all of them into the one stream
//! of records that the proxy follows. A source says where a server is supposed to be and judges nothing: whether one
//! answers there, and shows the certificate it must, is found out by the proxy before anything is sent.
//!
//! | module | reads |
//! |---|---|
//! | `file` | a YAML or JSON list, whenever it changes |
//! | `dns` | every address of a name |
//! | `leases` | identity Leases in `kube-system`, through a server behind |
//! | `etcd` | the endpoint keys that kube-apiservers keep for each other |
//! | `combine` | what all of them say, as one list |
//! | `proven` | where servers have answered lately |
//!
//! Invariants: a source that cannot be read takes nothing away, its last list stays in force and ages visibly; a bad
//! entry costs that entry alone; addresses that lead nowhere, however many, take no place from a server that answers;
//! every wait is bounded, every failure is followed by a pause.

mod combine;
mod dns;
mod etcd;
mod file;
mod kinds;
mod leases;
mod moves;
mod proven;
mod publish;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::Authority;
use peerage_auth::identity_headers::Family;
use peerage_core::User;
use peerage_etcd::EtcdOptions;
use peerage_http::ClientTls;
use peerage_http::metrics::Registry;
use peerage_http::reload::Reload;
use peerage_proxy::{IdentityLease, PeerProxy, PeerRecord};
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use dns::DnsName;
pub use file::{EntryError, listed, server_address};
pub use kinds::{Finding, FindingKind, SourceName};

use combine::{Choice, Combined, combine};
use proven::Proven;
use publish::{Publisher, State, Troubles};

/// How long a start waits for what every source says first.
const FIRST: Duration = Duration::from_secs(5);
/// Where more addresses are named than can be asked, how long each has to show that a server is there.
const TURN: Duration = Duration::from_secs(10);
/// No server's ID is longer: it is a name of Kubernetes.
const LONGEST_ID: usize = 253;

/// The sources of one gateway.
pub struct SourceOptions {
    /// Servers that are named outright.
    pub fixed: Vec<Found>,
    /// A list of servers in a file.
    pub file: Option<PathBuf>,
    /// Names each of whose addresses is a server.
    pub names: Vec<DnsName>,
    /// Whether and how identity Leases are read.
    pub leases: Option<LeaseOptions>,
    /// Whether and how endpoint keys are read.
    pub etcd: Option<EtcdSource>,
}

/// How identity Leases are read.
pub struct LeaseOptions {
    /// Connections to the servers that are asked.
    pub tls: ClientTls,
    /// As whom; none for whoever the connection's certificate says we are.
    pub user: Option<LeaseUser>,
}

/// Whom a front proxy says that it speaks for when it reads Leases.
#[derive(Clone, Debug)]
pub struct LeaseUser {
    /// The user.
    pub user: User,
    /// In which headers servers are told.
    pub family: Family,
}

/// How endpoint keys are read.
pub struct EtcdSource {
    /// Where.
    pub options: EtcdOptions,
    /// What all keys of the cluster begin with: kube-apiserver's `--etcd-prefix`.
    pub prefix: String,
}

/// What a source says of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its server ID, where the source knows it.
    pub id: Option<Arc<str>>,
    /// Where it is.
    pub address: Authority,
    /// The failure domain that it is in.
    pub zone: Option<Arc<str>>,
    /// Whether it is supposed to answer there now.
    pub live: bool,
    /// Its identity Lease.
    pub lease: Option<IdentityLease>,
}

impl Found {
    /// A server at this address, of which no more is known.
    #[must_use]
    pub fn at(address: Authority) -> Found {
        Found {
            id: None,
            address,
            zone: None,
            live: true,
            lease: None,
        }
    }

    /// What the server is called if this is the first source that names it.
    #[must_use]
    pub fn record_id(&self) -> Arc<str> {
        match &self.id {
            Some(id) => id.clone(),
            None => self.address.as_str().into(),
        }
    }
}

/// The sources at work. They end when this is dropped.
pub struct Sources {
    records: watch::Receiver<Arc<[PeerRecord]>>,
    states: Vec<(SourceName, watch::Receiver<State>)>,
    findings: watch::Receiver<Arc<[Finding]>>,
    troubles: Troubles,
    proven: Proven,
    reloads: Vec<Arc<dyn Reload>>,
    _tasks: DropGuard,
}

/// A source as `/debug/peers` shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DebugSource {
    /// Which one.
    pub name: SourceName,
    /// How many servers its list in force has.
    pub servers: usize,
    /// Entries that were passed over.
    pub skipped: usize,
    /// How old the list is: since when it has not been confirmed.
    pub age_seconds: Option<f64>,
    /// Why it cannot be read, while it cannot.
    pub error: Option<String>,
}

impl Sources {
    /// Starts the sources; returns when each has said something, or was waited for long enough.
    pub async fn start(options: SourceOptions) -> Sources {
        let stop = CancellationToken::new();
        let changed = Arc::new(Notify::new());
        let troubles = Troubles::default();
        let proven = Proven::default();
        let fixed: Arc<[Found]> = options.fixed.into();
        let first = combine([(SourceName::Flags, &*fixed)], &Choice::default());
        let (records, followed) = watch::channel(first.records);
        let (found, findings) = watch::channel(first.findings);
        let mut states = Vec::new();
        let mut publisher = |name: SourceName| {
            let (publisher, state) = Publisher::new(name, changed.clone(), troubles.clone());
            states.push((name, state));
            publisher
        };
        let mut reloads = Vec::new();
        // In the order in which they are believed.
        publisher(SourceName::Flags).found(fixed.to_vec(), 0);
        let spawn = Spawner(stop.clone());
        if let Some(path) = options.file {
            spawn.run(file::follow(path, publisher(SourceName::File)));
        }
        if let Some(etcd) = options.etcd {
            reloads.extend(etcd.options.reloads());
            let publisher = publisher(SourceName::Etcd).keeps_who_answers(proven.clone());
            spawn.run(etcd::follow(etcd, proven.clone(), publisher));
        }
        if let Some(leases) = options.leases {
            reloads.extend(leases.tls.reloads());
            let publisher = publisher(SourceName::Leases).keeps_who_answers(proven.clone());
            let source = leases::follow(leases, followed.clone(), proven.clone(), publisher);
            spawn.run(source);
        }
        if !options.names.is_empty() {
            spawn.run(dns::follow(options.names, publisher(SourceName::Dns)));
        }
        let combiner = Arc::new(Combiner {
            states: states.clone(),
            changed,
            published: Mutex::new(Published {
                to_proxy: records,
                to_people: found,
                choice: Choice::default(),
                next: None,
            }),
            troubles: troubles.clone(),
            proven: proven.clone(),
        });
        spawn.run(combiner.clone().run());
        let sources = Sources {
            records: followed,
            states,
            findings,
            troubles,
            proven,
            reloads,
            _tasks: stop.drop_guard(),
        };
        sources.first().await;
        // The list that the proxy starts with has in it what was said so far.
        combiner.publish();
        sources
    }

    /// The servers, whenever they change.
    #[must_use]
    pub fn records(&self) -> watch::Receiver<Arc<[PeerRecord]>> {
        self.records.clone()
    }

    /// From now on this proxy, which asks the servers, says which of them answer.
    pub fn judge_by(&self, proxy: &PeerProxy) {
        let proxy = proxy.clone();
        self.proven.judge_by(move || proxy.serving());
    }

    /// Each source and how it does.
    #[must_use]
    pub fn debug(&self) -> Vec<DebugSource> {
        let now = Instant::now();
        let describe =
            |(name, state): &(SourceName, _)| describe(*name, &watch::Receiver::borrow(state), now);
        self.states.iter().map(describe).collect()
    }

    /// What sources say and what cannot be right.
    #[must_use]
    pub fn findings(&self) -> Arc<[Finding]> {
        self.findings.borrow().clone()
    }

    /// Makes the sources' series visible.
    pub fn register_metrics(&self, registry: &Registry) {
        self.troubles.register(registry, self.states.clone());
    }

    /// Certificate files that sources follow.
    #[must_use]
    pub fn reloads(&self) -> Vec<Arc<dyn Reload>> {
        self.reloads.clone()
    }

    async fn first(&self) {
        let deadline = Instant::now() + FIRST;
        for (name, state) in &self.states {
            let mut state = state.clone();
            let said = state.wait_for(|state| state.heard.is_some() || state.trouble.is_some());
            if timeout_at(deadline, said).await.is_err() {
                tracing::warn!(
                    source = name.as_str(),
                    "a source of servers has not answered yet; starting without it"
                );
            }
        }
    }
}

fn describe(name: SourceName, state: &State, now: Instant) -> DebugSource {
    DebugSource {
        name,
        servers: state.servers.len(),
        skipped: state.skipped,
        age_seconds: state.heard.map(|at| (now - at).as_secs_f64()),
        error: state.trouble.clone(),
    }
}

struct Spawner(CancellationToken);

impl Spawner {
    fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.0.clone();
        tokio::spawn(async move {
            tokio::select! { () = task => {}, () = stop.cancelled() => {} }
        });
    }
}

/// Folds what the sources say into one list, whenever one says something new.
struct Combiner {
    states: Vec<(SourceName, watch::Receiver<State>)>,
    changed: Arc<Notify>,
    /// Locked while a list is made, so that the last one that is published is the newest.
    published: Mutex<Published>,
    troubles: Troubles,
    proven: Proven,
}

struct Published {
    to_proxy: watch::Sender<Arc<[PeerRecord]>>,
    to_people: watch::Sender<Arc<[Finding]>>,
    choice: Choice,
    /// Where the next turn begins, if not all have a place.
    next: Option<u64>,
}

impl Combiner {
    async fn run(self: Arc<Self>) {
        let mut turns = tokio::time::interval_at(Instant::now() + TURN, TURN);
        loop {
            self.publish();
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.turn(&mut turns) => {}
            }
        }
    }

    /// Returns when it is others' turn.
    async fn turn(&self, turns: &mut tokio::time::Interval) {
        loop {
            turns.tick().await;
            // Also to remember who answers now.
            let proven = self.proven.lately(Instant::now());
            let published = self.published.lock();
            let mut published = published.unwrap_or_else(PoisonError::into_inner);
            published.choice.proven = proven;
            if let Some(next) = published.next {
                published.choice.from = next;
                return;
            }
        }
    }

    fn publish(&self) {
        let proven = self.proven.lately(Instant::now());
        let published = self.published.lock();
        let mut published = published.unwrap_or_else(PoisonError::into_inner);
        let lists: Vec<_> = self
            .states
            .iter()
            .map(|(name, state)| (*name, state.borrow().servers.clone()))
            .collect();
        published.choice.proven = proven;
        let lists = lists.iter().map(|(name, list)| (*name, &**list));
        let combined = combine(lists, &published.choice);
        published.next = combined.next;
        published.tell(combined, &self.troubles);
    }
}

impl Published {
    fn tell(&self, combined: Combined, troubles: &Troubles) {
        let Combined {
            records, findings, ..
        } = combined;
        let before = self.to_people.borrow().clone();
        let was_told = |it: &Finding| match it.kind.is_count() {
            true => before.iter().any(|old| old.kind == it.kind),
            false => before.contains(it),
        };
        for finding in findings.iter().filter(|it| !was_told(it)) {
            troubles.found(finding);
        }
        self.to_people.send_replace(findings);
        self.to_proxy.send_if_modified(|current| {
            let changed = **current != *records;
            *current = records;
            changed
        });
    }
}

#[cfg(test)]
mod tests;
