//! Leases and when they run out.
//!
//! The table of leases is in memory; a durable store writes down which leases exist and starts each
//! anew when it is opened, as etcd does when its leader changes: a lease may live longer than it
//! was granted, never shorter.
//!
//! A lease that runs out is first marked, so that nobody keeps it alive or attaches a key to it any
//! more, and then revoked by its store like any other.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::sync::lock;
use crate::types::{Lease, LeaseId, LeaseStatus};

/// About 285 years, as etcd's: nothing overflows on the way there.
const MAX_TTL: Duration = Duration::from_secs(9_000_000_000);
const MIN_TTL: Duration = Duration::from_millis(1);

/// The leases of a store.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    table: Mutex<HashMap<LeaseId, Entry>>,
    /// The first deadline may be another one now.
    changed: Notify,
}

#[derive(Debug)]
struct Entry {
    ttl: Duration,
    deadline: Instant,
    ended: bool,
}

impl Leases {
    /// Checks a grant before anything is done, and chooses a number if none is given.
    pub(crate) fn prepare(
        &self,
        ttl: Duration,
        id: Option<LeaseId>,
        limit: usize,
    ) -> Result<Lease, StoreError> {
        if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
            return Err(StoreError::LeaseTtl {
                limit_seconds: MAX_TTL.as_secs(),
            });
        }
        let table = lock(&self.table);
        if table.len() >= limit {
            return Err(StoreError::Exhausted {
                what: "leases",
                limit,
            });
        }
        let id = match id.filter(|&id| id != 0) {
            Some(id) if table.contains_key(&id) => return Err(StoreError::LeaseExists { id }),
            Some(id) => id,
            None => loop {
                let id = rand::random_range(1..=LeaseId::MAX);
                if !table.contains_key(&id) {
                    break id;
                }
            },
        };
        Ok(Lease { id, ttl })
    }

    /// Starts a lease's life.
    pub(crate) fn insert(&self, lease: Lease) {
        let entry = Entry {
            ttl: lease.ttl,
            deadline: Instant::now() + lease.ttl,
            ended: false,
        };
        lock(&self.table).insert(lease.id, entry);
        self.changed.notify_one();
    }

    /// Forgets a lease.
    pub(crate) fn remove(&self, id: LeaseId) {
        lock(&self.table).remove(&id);
    }

    /// Marks a lease that is about to be revoked. If that fails it is tried again like that of one
    /// which ran out.
    pub(crate) fn end(&self, id: LeaseId) -> Result<(), StoreError> {
        let mut table = lock(&self.table);
        let entry = table.get_mut(&id).ok_or(StoreError::LeaseNotFound { id })?;
        entry.ended = true;
        Ok(())
    }

    /// Has marked leases tried again, after a revocation failed.
    pub(crate) fn retry(&self) {
        self.changed.notify_one();
    }

    /// Whether keys may be attached to it.
    pub(crate) fn is_alive(&self, id: LeaseId) -> bool {
        lock(&self.table).get(&id).is_some_and(|entry| !entry.ended)
    }

    pub(crate) fn keep_alive(&self, id: LeaseId) -> Result<Lease, StoreError> {
        let mut table = lock(&self.table);
        let entry = table.get_mut(&id).filter(|entry| !entry.ended);
        let entry = entry.ok_or(StoreError::LeaseNotFound { id })?;
        entry.deadline = Instant::now() + entry.ttl;
        Ok(Lease { id, ttl: entry.ttl })
    }

    /// What is known of a lease, but for its keys.
    pub(crate) fn status(&self, id: LeaseId) -> Result<LeaseStatus, StoreError> {
        let table = lock(&self.table);
        let entry = table.get(&id).filter(|entry| !entry.ended);
        let entry = entry.ok_or(StoreError::LeaseNotFound { id })?;
        Ok(LeaseStatus {
            id,
            granted: entry.ttl,
            remaining: entry.deadline.saturating_duration_since(Instant::now()),
            keys: Vec::new(),
        })
    }

    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        let table = lock(&self.table);
        let mut ids: Vec<_> = table
            .iter()
            .filter(|(_, e)| !e.ended)
            .map(|(&id, _)| id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Waits until leases have run out and returns them, marked. Every call returns all that are
    /// marked and still there, so one that could not be revoked is tried again.
    pub(crate) async fn ended(&self) -> Vec<LeaseId> {
        loop {
            let (ended, next) = self.end_due(Instant::now());
            if !ended.is_empty() {
                return ended;
            }
            let changed = self.changed.notified();
            match next {
                Some(deadline) => tokio::select! {
                    () = tokio::time::sleep_until(deadline) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    fn end_due(&self, now: Instant) -> (Vec<LeaseId>, Option<Instant>) {
        let mut table = lock(&self.table);
        let mut ended = Vec::new();
        let mut next: Option<Instant> = None;
        for (&id, entry) in table.iter_mut() {
            entry.ended |= entry.deadline <= now;
            if entry.ended {
                ended.push(id);
            } else {
                next = Some(next.map_or(entry.deadline, |next| next.min(entry.deadline)));
            }
        }
        ended.sort_unstable();
        (ended, next)
    }
}

/// How long a lease that ran out waits for the next try to revoke it after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Revokes each lease that runs out, by `revoke`, for ever. `revoke` says whether it could.
pub(crate) async fn expire<F: Future<Output = bool>>(
    leases: &Leases,
    revoke: impl Fn(LeaseId) -> F,
) {
    loop {
        for id in leases.ended().await {
            if !revoke(id).await {
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
