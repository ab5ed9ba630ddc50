//! The one thread that writes.
//!
//! It takes all jobs that wait, up to a bound, runs them in order within one transaction of
//! SQLite's, commits, tells the watchers, and only then answers. A job that is refused changes nothing
//! and the others go on. If the database itself fails, nothing of the group is done; when it is for
//! want of space, each job is tried alone, so that those that free space can.
//!
//! Between jobs, and along with them, it removes what compaction made superfluous, a little at a time.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::SqliteOptions;
use super::engine::{self, Snapshot, first_id};
use super::guard::Guard;
use super::schema;
use crate::error::StoreError;
use crate::hub::{Commit, Hub};
use crate::lease::Leases;
use crate::txn::{self, Engine, op_size};
use crate::types::{
    Event, KeyValue, Lease, LeaseId, Op, RangeRequest, RangeResponse, Revision, Txn, TxnResponse,
};

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Something to write.
#[derive(Debug)]
pub(super) enum Job {
    /// A transaction that was checked.
    Txn { txn: Txn, reply: Reply<TxnResponse> },
    /// Compaction up to a revision.
    Compact {
        revision: Revision,
        reply: Reply<()>,
    },
    /// A new lease.
    Grant {
        ttl: Duration,
        id: Option<LeaseId>,
        reply: Reply<Lease>,
    },
    /// The end of a lease.
    Revoke { id: LeaseId, reply: Reply<Revision> },
}

impl Job {
    fn size(&self) -> usize {
        match self {
            Job::Txn { txn, .. } => txn.success.iter().chain(&txn.failure).map(op_size).sum(),
            Job::Compact { .. } | Job::Grant { .. } | Job::Revoke { .. } => 0,
        }
    }

    /// Whether a full store should do it all the same, because it frees space.
    fn frees_space(&self) -> bool {
        match self {
            Job::Txn { txn, .. } => {
                let mut ops = txn.success.iter().chain(&txn.failure);
                !ops.any(|op| matches!(op, Op::Put(_)))
            }
            Job::Compact { .. } | Job::Revoke { .. } => true,
            Job::Grant { .. } => false,
        }
    }

    fn refuse(self, error: StoreError) {
        // Who does not wait for the answer does not miss it.
        match self {
            Job::Txn { reply, .. } => drop(reply.send(Err(error))),
            Job::Compact { reply, .. } => drop(reply.send(Err(error))),
            Job::Grant { reply, .. } => drop(reply.send(Err(error))),
            Job::Revoke { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

/// What a job did, to be told once it is committed.
enum Outcome {
    Txn(TxnResponse),
    Compacted,
    Granted(Lease),
    Revoked(LeaseId, Revision),
    Refused(StoreError),
}

/// The most jobs, and bytes of them, that share a commit.
const GROUP_JOBS: usize = 256;
const GROUP_BYTES: usize = 16 * 1024 * 1024;
/// How many events one step of compaction looks at.
const PURGE_STEP: usize = 256;
/// How many pages a full store may still use for what frees space.
const RESERVE_PAGES: u32 = 256;

/// What the file says now, as far as the writer must know.
#[derive(Debug, Clone, Copy)]
struct Position {
    revision: Revision,
    compact_revision: Revision,
    /// Events up to this number have been looked at by compaction.
    purged: i64,
    /// The compaction whose every event has been looked at.
    purged_for: Revision,
}

/// The writer. Whoever drops its queue ends it.
pub(super) struct Writer {
    connection: Connection,
    options: SqliteOptions,
    leases: Arc<Leases>,
    hub: Arc<Hub>,
    at: Position,
    _guard: Arc<Guard>,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        options: SqliteOptions,
        leases: Arc<Leases>,
        guard: Arc<Guard>,
    ) -> Result<Self, StoreError> {
        let at = Position {
            revision: engine::revision(&connection)?,
            compact_revision: engine::setting(&connection, "compact_revision")?,
            purged: engine::setting(&connection, "purged")?,
            purged_for: 0,
        };
        let hub = Hub::new(at.revision, options.watch.clone());
        Ok(Writer {
            connection,
            options,
            leases,
            hub,
            at,
            _guard: guard,
        })
    }

    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = self.next(&mut queue) {
            let mut size = first.size();
            let mut group = vec![first];
            while group.len() < GROUP_JOBS && size < GROUP_BYTES {
                let Ok(job) = queue.try_recv() else { break };
                size += job.size();
                group.push(job);
            }
            self.write(group);
        }
    }

    /// The next job; while there is none, compaction.
    fn next(&mut self, queue: &mut mpsc::Receiver<Job>) -> Option<Job> {
        loop {
            match queue.try_recv() {
                Ok(job) => return Some(job),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            if !self.must_purge() || !self.purge_alone() {
                return queue.blocking_recv();
            }
        }
    }

    fn write(&mut self, group: Vec<Job>) {
        match self.try_write(&group) {
            Ok(done) => self.tell(group, done),
            Err(StoreError::NoSpace) => {
                for job in group {
                    self.write_alone(job);
                }
            }
            Err(error) => {
                tracing::error!(%error, "the store cannot write");
                group.into_iter().for_each(|job| job.refuse(error.clone()));
            }
        }
    }

    fn write_alone(&mut self, job: Job) {
        let reserve = if job.frees_space() { RESERVE_PAGES } else { 0 };
        let group = vec![job];
        let limit = self.options.max_page_count;
        // A limit that cannot be set is the limit that was.
        let _ = schema::limit_pages(&self.connection, limit, reserve);
        match self.try_write(&group) {
            Ok(done) => self.tell(group, done),
            Err(error) => group.into_iter().for_each(|job| job.refuse(error.clone())),
        }
        let _ = schema::limit_pages(&self.connection, limit, 0);
    }

    /// Runs and commits a group. On an error nothing of it is done.
    fn try_write(&mut self, group: &[Job]) -> Result<Done, StoreError> {
        self.connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(schema::error)?;
        let mut tx = Tx {
            connection: &self.connection,
            options: &self.options,
            leases: &self.leases,
            at: self.at,
            commits: Vec::new(),
        };
        let done = tx.run(group).and_then(|outcomes| {
            tx.compact_by_count()?;
            let events: usize = tx.commits.iter().map(|commit| commit.events.len()).sum();
            tx.purge(PURGE_STEP.max(2 * events))?;
            self.connection
                .execute_batch("COMMIT")
                .map_err(schema::error)?;
            Ok(Done {
                outcomes,
                commits: tx.commits,
                at: tx.at,
            })
        });
        if done.is_err() {
            self.roll_back();
        }
        done
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "the store cannot take a failed write back");
        }
    }

    /// Tells the watchers of a group that is committed, then answers its jobs.
    fn tell(&mut self, group: Vec<Job>, done: Done) {
        let compacted = done.at.compact_revision > self.at.compact_revision;
        self.at = done.at;
        for commit in done.commits {
            self.hub.publish(Arc::new(commit));
        }
        if compacted {
            self.hub.compacted(self.at.compact_revision);
        }
        for (job, outcome) in group.into_iter().zip(done.outcomes) {
            self.answer(job, outcome);
        }
    }

    fn answer(&self, job: Job, outcome: Outcome) {
        match (job, outcome) {
            (job, Outcome::Refused(error)) => job.refuse(error),
            (Job::Txn { reply, .. }, Outcome::Txn(response)) => drop(reply.send(Ok(response))),
            (Job::Compact { reply, .. }, Outcome::Compacted) => drop(reply.send(Ok(()))),
            (Job::Grant { reply, .. }, Outcome::Granted(lease)) => {
                self.leases.insert(lease);
                drop(reply.send(Ok(lease)));
            }
            (Job::Revoke { reply, .. }, Outcome::Revoked(id, revision)) => {
                self.leases.remove(id);
                drop(reply.send(Ok(revision)));
            }
            (job, _) => job.refuse(StoreError::unavailable("the writer mixed up its answers")),
        }
    }

    fn must_purge(&self) -> bool {
        self.at.purged_for < self.at.compact_revision
    }

    /// One step of compaction with a commit of its own. Says whether it worked.
    fn purge_alone(&mut self) -> bool {
        let limit = self.options.max_page_count;
        let _ = schema::limit_pages(&self.connection, limit, RESERVE_PAGES);
        let done = self.try_write(&[]);
        let _ = schema::limit_pages(&self.connection, limit, 0);
        match done {
            Ok(done) => self.at = done.at,
            Err(error) => {
                tracing::warn!(%error, "the store cannot compact");
                return false;
            }
        }
        true
    }
}

/// A group that is committed.
struct Done {
    outcomes: Vec<Outcome>,
    commits: Vec<Commit>,
    at: Position,
}

/// A group on its way.
struct Tx<'w> {
    connection: &'w Connection,
    options: &'w SqliteOptions,
    leases: &'w Leases,
    at: Position,
    commits: Vec<Commit>,
}

impl Tx<'_> {
    /// Runs all jobs. An error is the database's; what a job was refused for is its outcome.
    fn run(&mut self, group: &[Job]) -> Result<Vec<Outcome>, StoreError> {
        let mut outcomes = Vec::with_capacity(group.len());
        for job in group {
            outcomes.push(match self.job(job) {
                Ok(outcome) => outcome,
                Err(error) if is_the_databases(&error) => return Err(error),
                Err(error) => Outcome::Refused(error),
            });
        }
        Ok(outcomes)
    }

    fn job(&mut self, job: &Job) -> Result<Outcome, StoreError> {
        match job {
            Job::Txn { txn, .. } => {
                let limits = &self.options.limits;
                let (response, events) = txn::run(self, txn, limits)?;
                self.commit(events);
                Ok(Outcome::Txn(response))
            }
            Job::Compact { revision, .. } => self.compact(*revision),
            Job::Grant { ttl, id, .. } => self.grant(*ttl, *id),
            Job::Revoke { id, .. } => self.revoke(*id),
        }
    }

    fn commit(&mut self, events: Vec<Event>) {
        if !events.is_empty() {
            self.at.revision += 1;
            let revision = self.at.revision;
            self.commits.push(Commit { revision, events });
        }
    }

    fn compact(&mut self, revision: Revision) -> Result<Outcome, StoreError> {
        if revision > self.at.revision {
            return Err(StoreError::FutureRevision {
                current: self.at.revision,
            });
        }
        if revision <= self.at.compact_revision {
            return Err(StoreError::Compacted {
                compact_revision: self.at.compact_revision,
            });
        }
        engine::set(self.connection, "compact_revision", revision)?;
        self.at.compact_revision = revision;
        Ok(Outcome::Compacted)
    }

    /// Compacts when there are too many revisions; not for every single one too many.
    fn compact_by_count(&mut self) -> Result<(), StoreError> {
        let keep = i64::try_from(self.options.keep_revisions).unwrap_or(i64::MAX);
        let oldest = self.at.revision.saturating_sub(keep);
        let slack = keep / 16;
        if oldest > 0 && oldest - self.at.compact_revision > slack {
            self.compact(oldest)?;
        }
        Ok(())
    }

    fn purge(&mut self, limit: usize) -> Result<(), StoreError> {
        let target = self.at.compact_revision;
        if self.at.purged_for >= target {
            return Ok(());
        }
        let reached = engine::purge(self.connection, self.at.purged, target, limit)?;
        if reached.is_none() {
            self.at.purged_for = target;
        }
        // The events of `target` itself are looked at again by the next compaction.
        self.at.purged = reached.unwrap_or(first_id(target) - 1);
        engine::set(self.connection, "purged", self.at.purged)
    }

    fn grant(&mut self, ttl: Duration, id: Option<LeaseId>) -> Result<Outcome, StoreError> {
        let lease = self
            .leases
            .prepare(ttl, id, self.options.limits.max_leases)?;
        let millis = i64::try_from(lease.ttl.as_millis()).unwrap_or(i64::MAX);
        if !engine::insert_lease(self.connection, lease.id, millis)? {
            return Err(StoreError::LeaseExists { id: lease.id });
        }
        Ok(Outcome::Granted(lease))
    }

    fn revoke(&mut self, id: LeaseId) -> Result<Outcome, StoreError> {
        // From here on no job of this group can attach a key to it.
        self.leases.end(id)?;
        let keys = self.snapshot().keys_of(id)?;
        let events = txn::delete_keys(self, &keys)?;
        engine::delete_lease(self.connection, id)?;
        self.commit(events);
        Ok(Outcome::Revoked(id, self.at.revision))
    }

    fn snapshot(&self) -> Snapshot<'_> {
        let Position {
            revision,
            compact_revision,
            ..
        } = self.at;
        Snapshot::within(self.connection, revision, compact_revision)
    }
}

/// Whether an error is one of the database as a whole and not of one job.
fn is_the_databases(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NoSpace | StoreError::Unavailable { .. } | StoreError::Corrupt { .. }
    )
}

impl Engine for Tx<'_> {
    fn revision(&self) -> Revision {
        self.at.revision
    }

    fn compact_revision(&self) -> Revision {
        self.at.compact_revision
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        self.snapshot().get(key)
    }

    fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
        self.snapshot().range(request)
    }

    fn lease_is_alive(&mut self, id: LeaseId) -> bool {
        self.leases.is_alive(id)
    }

    fn apply(&mut self, event: &Event, index: usize) -> Result<(), StoreError> {
        engine::apply(self.connection, event, index)
    }
}
