//! A store in one file, by SQLite.
//!
//! One thread writes (`writer`): all transactions that wait are committed together, with one
//! `fsync`, before any of them is acknowledged; then the watchers are told, from memory. Reads use a few
//! connections of their own (`readers`) and see what was committed when they begin. Nothing polls.
//!
//! History is one table of events. What compaction makes superfluous is removed in small steps between
//! the writes (`engine`). One process at a time may hold the file (`guard`).
//!
//! Durability: WAL and `synchronous=FULL`, so what was acknowledged survives the process and, as far
//! as the disk keeps its promises, the machine.

mod change;
mod engine;
mod guard;
mod readers;
mod schema;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::error::{OpenError, StoreError};
use crate::hub::{History, Hub, Page, WatchLimits};
use crate::lease::{self, Leases};
use crate::store::Store;
use crate::txn;
use crate::types::{
    KeyRange, Lease, LeaseId, LeaseStatus, Limits, RangeRequest, RangeResponse, Revision,
    StoreStatus, Txn, TxnResponse, WatchRequest,
};
use crate::watch::WatchStream;
use readers::Readers;
use writer::{Job, Writer};

/// How much a [`SqliteStore`] keeps and takes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The bounds of a request.
    pub limits: Limits,
    /// The bounds of watching.
    pub watch: WatchLimits,
    /// How many revisions are kept at most.
    pub keep_revisions: u64,
    /// For how long revisions are kept, within that number.
    pub keep_for: Duration,
    /// The most pages of 4096 bytes that the file may have; then it is full. Deleting and compacting
    /// may go a little further.
    pub max_page_count: Option<u32>,
    /// How many reads are done at the same time.
    pub readers: usize,
    /// How many writes wait at most; more wait to be let in.
    pub queue: usize,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions {
            limits: Limits::default(),
            watch: WatchLimits::default(),
            keep_revisions: 200_000,
            // kube-apiservers compact every five minutes too.
            keep_for: Duration::from_secs(300),
            max_page_count: None,
            readers: 4,
            queue: 1024,
        }
    }
}

/// A store in one file. Clones are the same store; the file is released when the last one is gone.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: SqliteOptions,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<std::thread::JoinHandle<()>>,
    readers: Arc<Readers>,
    hub: Arc<Hub>,
    leases: Arc<Leases>,
    /// The tasks that look at the clock.
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl SqliteStore {
    /// Opens a store's file, and makes it if it does not exist. Must be called within a Tokio runtime.
    ///
    /// Leases begin anew, each with the time to live that it was granted.
    pub async fn open(
        path: impl AsRef<Path>,
        options: SqliteOptions,
    ) -> Result<SqliteStore, OpenError> {
        let path = path.as_ref().to_owned();
        let opened = tokio::task::spawn_blocking({
            let (path, options) = (path.clone(), options.clone());
            move || Opened::open(&path, &options)
        });
        let opened = opened.await.map_err(|panicked| OpenError::Database {
            path,
            reason: panicked.to_string(),
        })??;
        Ok(Self::start(opened, options))
    }

    fn start(opened: Opened, options: SqliteOptions) -> SqliteStore {
        let Opened {
            writer,
            readers,
            leases,
        } = opened;
        let hub = writer.hub().clone();
        let (jobs, queue) = mpsc::channel(options.queue.max(1));
        let thread = std::thread::Builder::new().name("peerage-store".to_owned());
        // Without a thread there is no store, and the only reason is that the machine is out of them:
        // the queue is dropped then, and every write says that the store is closed.
        let writer = thread.spawn(move || writer.run(queue)).ok();
        let inner = Arc::new_cyclic(|store: &Weak<Inner>| Inner {
            _tasks: [
                tokio::spawn(expire_leases(store.clone(), leases.clone())),
                tokio::spawn(compact_by_time(store.clone(), options.keep_for)),
            ]
            .map(AbortOnDropHandle::new),
            options,
            jobs: Some(jobs),
            writer,
            readers,
            hub,
            leases,
        });
        SqliteStore { inner }
    }

    /// Copies the store as of now to a new file, while it goes on being used. The copy is a store of its
    /// own, without free pages inside.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), StoreError> {
        let to: PathBuf = to.as_ref().to_owned();
        let copy = move |connection: &mut rusqlite::Connection| schema::copy(connection, &to);
        self.inner.readers.run(copy).await
    }
}

/// What opening a file yields, before anything runs.
struct Opened {
    writer: Writer,
    readers: Arc<Readers>,
    leases: Arc<Leases>,
}

impl Opened {
    fn open(path: &Path, options: &SqliteOptions) -> Result<Opened, OpenError> {
        let guard = Arc::new(guard::Guard::take(path)?);
        let connection = schema::open(guard.path(), options.max_page_count)?;
        let failed = |error: StoreError| OpenError::Database {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let leases = Arc::new(Leases::default());
        for lease in schema::leases(&connection).map_err(failed)? {
            leases.insert(lease);
        }
        let readers = Arc::new(Readers::new(guard.clone(), options.readers.max(1)));
        let writer = Writer::new(connection, options.clone(), leases.clone(), guard);
        Ok(Opened {
            writer: writer.map_err(failed)?,
            readers,
            leases,
        })
    }
}

impl Drop for Inner {
    /// Waits for the writer, so that the file can be opened again at once.
    fn drop(&mut self) {
        self.hub.close(closed());
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // It ended by a panic at worst; every caller was told.
            let _ = writer.join();
        }
    }
}

fn closed() -> StoreError {
    StoreError::unavailable("the store is closed")
}

impl Inner {
    /// Gives the writer a job and waits for its answer.
    async fn write<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        jobs.send(job(reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

/// Revokes each lease that runs out, while the store is there.
async fn expire_leases(store: Weak<Inner>, leases: Arc<Leases>) {
    let revoke = |id| {
        let store = store.clone();
        async move {
            let Some(store) = store.upgrade() else {
                return true;
            };
            let revoked = store.write(|reply| Job::Revoke { id, reply }).await;
            matches!(revoked, Ok(_) | Err(StoreError::LeaseNotFound { .. }))
        }
    };
    lease::expire(&leases, revoke).await;
}

/// Compacts what is older than `keep_for`, a tenth of that time at a go.
async fn compact_by_time(store: Weak<Inner>, keep_for: Duration) {
    const STEPS: usize = 10;
    let step = (keep_for / STEPS as u32).max(Duration::from_millis(1));
    let mut past = std::collections::VecDeque::with_capacity(STEPS + 1);
    loop {
        tokio::time::sleep(step).await;
        let Some(store) = store.upgrade() else { return };
        past.push_back(store.hub.revision());
        if past.len() <= STEPS {
            continue;
        }
        if let Some(revision) = past.pop_front() {
            // "Compacted already" is as good; anything else is tried again at the next step.
            let _ = store.write(|reply| Job::Compact { revision, reply }).await;
        }
    }
}

/// The history of a store that may be gone by now.
struct Past(Weak<Inner>);

#[async_trait]
impl History for Past {
    async fn page(
        &self,
        keys: &KeyRange,
        from: Revision,
        to: Revision,
    ) -> Result<Page, StoreError> {
        let readers = self.0.upgrade().ok_or_else(closed)?.readers.clone();
        let keys = keys.clone();
        let read = move |connection: &mut rusqlite::Connection| {
            engine::Snapshot::begin(connection)?.page(&keys, from, to)
        };
        readers.run(read).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        txn::check_range(&request, &self.inner.options.limits)?;
        let read = move |connection: &mut rusqlite::Connection| {
            engine::Snapshot::begin(connection)?.range(&request)
        };
        self.inner.readers.run(read).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        txn::check(&txn, &self.inner.options.limits)?;
        if !txn.is_read_only() {
            return self.inner.write(|reply| Job::Txn { txn, reply }).await;
        }
        let limits = self.inner.options.limits.clone();
        let read = move |connection: &mut rusqlite::Connection| {
            let mut snapshot = engine::Snapshot::begin(connection)?;
            let (response, _) = txn::run(&mut snapshot, &txn, &limits)?;
            Ok(response)
        };
        self.inner.readers.run(read).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, StoreError> {
        let past = Past(Arc::downgrade(&self.inner));
        self.inner.hub.watch(request, Arc::new(past))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.inner
            .write(|reply| Job::Compact { revision, reply })
            .await
    }

    async fn lease_grant(&self, ttl: Duration, id: Option<LeaseId>) -> Result<Lease, StoreError> {
        self.inner
            .write(|reply| Job::Grant { ttl, id, reply })
            .await
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Lease, StoreError> {
        self.inner.leases.keep_alive(id)
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, StoreError> {
        self.inner.write(|reply| Job::Revoke { id, reply }).await
    }

    async fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<LeaseStatus, StoreError> {
        let mut status = self.inner.leases.status(id)?;
        if keys {
            let read = move |connection: &mut rusqlite::Connection| {
                engine::Snapshot::begin(connection)?.keys_of(id)
            };
            status.keys = self.inner.readers.run(read).await?;
        }
        Ok(status)
    }

    async fn leases(&self) -> Result<Vec<LeaseId>, StoreError> {
        Ok(self.inner.leases.ids())
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let read =
            |connection: &mut rusqlite::Connection| engine::Snapshot::begin(connection)?.status();
        self.inner.readers.run(read).await
    }
}
