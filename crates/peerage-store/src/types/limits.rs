//! How large a request may be.

use super::{RangeRequest, Txn};
use crate::error::StoreError;
use crate::txn;

/// The bounds of a request. Beyond them it is refused before anything is done.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// The largest key. Kubernetes' longest are well below a kilobyte.
    pub max_key_bytes: usize,
    /// The largest value: 1.5 MiB, which is what etcd takes.
    pub max_value_bytes: usize,
    /// The most bytes of keys and values that one transaction may carry.
    pub max_txn_bytes: usize,
    /// The most compares, success operations or failure operations of a transaction: 128, as etcd's.
    pub max_txn_ops: usize,
    /// The most keys that one transaction may delete.
    pub max_deleted_keys: usize,
    /// The most leases at a time.
    pub max_leases: usize,
}

impl Limits {
    /// Refuses a transaction that is wrong whatever the store's state.
    pub fn check_txn(&self, txn: &Txn) -> Result<(), StoreError> {
        txn::check(txn, self)
    }

    /// Refuses a range that is wrong whatever the store's state.
    pub fn check_range(&self, range: &RangeRequest) -> Result<(), StoreError> {
        txn::check_range(range, self)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_key_bytes: 64 * 1024,
            max_value_bytes: 3 * 512 * 1024,
            max_txn_bytes: 4 * 1024 * 1024,
            max_txn_ops: 128,
            max_deleted_keys: 1 << 18,
            max_leases: 100_000,
        }
    }
}
