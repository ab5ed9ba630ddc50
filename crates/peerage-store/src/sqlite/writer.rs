//! The one thread that writes.
//!
//! It takes all jobs that wait, up to a bound, runs them in order within one transaction of
//! SQLite's, commits, tells the watchers, and only then answers. A job that is refused changes nothing
//! and the others go on. If the database itself fails, nothing of the group is done; when it is for
//! want of space, each job is tried alone, so that those that free space can.
//!
//! Between jobs, and along with them, it removes what compaction made superfluous, a little at a time.

mod job;
mod tx;

use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::SqliteOptions;
use super::engine;
use super::guard::Guard;
use super::schema;
use crate::error::StoreError;
use crate::hub::{Commit, Hub};
use crate::lease::Leases;
use crate::types::{Lease, LeaseId, Revision, TxnResponse};
pub(super) use job::Job;
use tx::Tx;

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
                self.refuse(group, &error);
            }
        }
    }

    fn refuse(&self, group: Vec<Job>, error: &StoreError) {
        for job in group {
            job.refuse(error.clone(), &self.leases);
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
            Err(error) => self.refuse(group, &error),
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
            (job, Outcome::Refused(error)) => job.refuse(error, &self.leases),
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
            (job, _) => {
                let error = StoreError::unavailable("the writer mixed up its answers");
                job.refuse(error, &self.leases);
            }
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
