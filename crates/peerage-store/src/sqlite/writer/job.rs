//! What the writer is asked to do.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::lease::Leases;
use crate::txn::op_size;
use crate::types::{Lease, LeaseId, Op, Revision, Txn, TxnResponse};

pub(in crate::sqlite) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Something to write.
#[derive(Debug)]
pub(in crate::sqlite) enum Job {
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
    pub(super) fn size(&self) -> usize {
        match self {
            Job::Txn { txn, .. } => txn.success.iter().chain(&txn.failure).map(op_size).sum(),
            Job::Compact { .. } | Job::Grant { .. } | Job::Revoke { .. } => 0,
        }
    }

    /// Whether a full store should do it all the same, because it frees space.
    pub(super) fn frees_space(&self) -> bool {
        match self {
            Job::Txn { txn, .. } => {
                let mut ops = txn.success.iter().chain(&txn.failure);
                !ops.any(|op| matches!(op, Op::Put(_)))
            }
            Job::Compact { .. } | Job::Revoke { .. } => true,
            Job::Grant { .. } => false,
        }
    }

    pub(super) fn refuse(self, error: StoreError, leases: &Leases) {
        // Who does not wait for the answer does not miss it.
        match self {
            Job::Txn { reply, .. } => drop(reply.send(Err(error))),
            Job::Compact { reply, .. } => drop(reply.send(Err(error))),
            Job::Grant { reply, .. } => drop(reply.send(Err(error))),
            Job::Revoke { reply, .. } => {
                // If the lease is there it is marked, and somebody has to finish what was begun.
                leases.retry();
                drop(reply.send(Err(error)));
            }
        }
    }
}
