//! One group of jobs within one transaction of SQLite's.

use std::time::Duration;

use rusqlite::Connection;

use super::{Job, Outcome, Position};
use crate::error::StoreError;
use crate::hub::Commit;
use crate::lease::Leases;
use crate::sqlite::SqliteOptions;
use crate::sqlite::change;
use crate::sqlite::engine::{Snapshot, first_id};
use crate::txn::{self, Engine};
use crate::types::{Event, KeyValue, LeaseId, RangeRequest, RangeResponse, Revision};

/// A group on its way.
pub(super) struct Tx<'w> {
    pub(super) connection: &'w Connection,
    pub(super) options: &'w SqliteOptions,
    pub(super) leases: &'w Leases,
    pub(super) at: Position,
    pub(super) commits: Vec<Commit>,
}

impl Tx<'_> {
    /// Runs all jobs. An error is the database's; what a job was refused for is its outcome.
    pub(super) fn run(&mut self, group: &[Job]) -> Result<Vec<Outcome>, StoreError> {
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
        change::set(self.connection, "compact_revision", revision)?;
        self.at.compact_revision = revision;
        Ok(Outcome::Compacted)
    }

    /// Compacts when there are too many revisions; not for every single one too many.
    pub(super) fn compact_by_count(&mut self) -> Result<(), StoreError> {
        let keep = i64::try_from(self.options.keep_revisions).unwrap_or(i64::MAX);
        let oldest = self.at.revision.saturating_sub(keep);
        let slack = keep / 16;
        if oldest > 0 && oldest - self.at.compact_revision > slack {
            self.compact(oldest)?;
        }
        Ok(())
    }

    pub(super) fn purge(&mut self, limit: usize) -> Result<(), StoreError> {
        let target = self.at.compact_revision;
        if self.at.purged_for >= target {
            return Ok(());
        }
        let reached = change::purge(self.connection, self.at.purged, target, limit)?;
        if reached.is_none() {
            self.at.purged_for = target;
        }
        // The events of `target` itself are looked at again by the next compaction.
        self.at.purged = reached.unwrap_or(first_id(target) - 1);
        change::set(self.connection, "purged", self.at.purged)
    }

    fn grant(&mut self, ttl: Duration, id: Option<LeaseId>) -> Result<Outcome, StoreError> {
        let lease = self
            .leases
            .prepare(ttl, id, self.options.limits.max_leases)?;
        let millis = i64::try_from(lease.ttl.as_millis()).unwrap_or(i64::MAX);
        if !change::insert_lease(self.connection, lease.id, millis)? {
            return Err(StoreError::LeaseExists { id: lease.id });
        }
        Ok(Outcome::Granted(lease))
    }

    fn revoke(&mut self, id: LeaseId) -> Result<Outcome, StoreError> {
        // From here on no job of this group can attach a key to it.
        self.leases.end(id)?;
        let keys = self.snapshot().keys_of(id)?;
        let events = txn::delete_keys(self, &keys)?;
        change::delete_lease(self.connection, id)?;
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
        change::apply(self.connection, event, index)
    }
}
