//! Ranges, transactions and watches as they are asked for, and the answers to the first two.

use bytes::Bytes;

use super::{KeyRange, KeyValue, LeaseId, Revision};

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRequest {
    /// Which keys.
    pub keys: KeyRange,
    /// At most so many; 0 for all.
    pub limit: usize,
    /// At which revision; 0 for the current one.
    pub revision: Revision,
    /// Leave the values out.
    pub keys_only: bool,
    /// Leave the keys out too and only count them.
    pub count_only: bool,
}

impl RangeRequest {
    /// All of `keys` at the current revision.
    pub fn new(keys: KeyRange) -> Self {
        RangeRequest {
            keys,
            limit: 0,
            revision: 0,
            keys_only: false,
            count_only: false,
        }
    }

    /// At most `limit` keys; 0 for all.
    pub fn limit(self, limit: usize) -> Self {
        RangeRequest { limit, ..self }
    }

    /// At this revision; 0 for the current one.
    pub fn at(self, revision: Revision) -> Self {
        RangeRequest { revision, ..self }
    }

    /// Without values.
    pub fn keys_only(self) -> Self {
        RangeRequest {
            keys_only: true,
            ..self
        }
    }

    /// Only how many there are.
    pub fn count_only(self) -> Self {
        RangeRequest {
            count_only: true,
            ..self
        }
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeResponse {
    /// The store's current revision, whichever one was read.
    pub revision: Revision,
    /// The keys, in order.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit left some out.
    pub more: bool,
    /// How many keys there are in the range, whatever the limit.
    pub count: u64,
}

/// A transaction: if all compares hold then `success`, else `failure`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// What must hold; nothing always holds.
    pub compares: Vec<Compare>,
    /// What to do if it does.
    pub success: Vec<Op>,
    /// What to do if it does not.
    pub failure: Vec<Op>,
}

impl Txn {
    /// A transaction that does `ops` in any case.
    pub fn of(ops: impl IntoIterator<Item = Op>) -> Self {
        Txn::new().then(ops)
    }

    /// An empty transaction.
    pub fn new() -> Self {
        Txn::default()
    }

    /// Adds compares.
    pub fn when(mut self, compares: impl IntoIterator<Item = Compare>) -> Self {
        self.compares.extend(compares);
        self
    }

    /// Adds operations for when all compares hold.
    pub fn then(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        self.success.extend(ops);
        self
    }

    /// Adds operations for when one does not.
    pub fn otherwise(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        self.failure.extend(ops);
        self
    }

    /// Whether it can change anything.
    pub fn is_read_only(&self) -> bool {
        let mut ops = self.success.iter().chain(&self.failure);
        ops.all(|op| matches!(op, Op::Range(_)))
    }
}

/// A condition on one key, or on each key of a range.
///
/// Of a key that does not exist all numbers are 0, and no compare of its value holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// Which keys.
    pub keys: KeyRange,
    /// How the key's own is to compare to `target`.
    pub result: CompareResult,
    /// What is compared, and with what.
    pub target: CompareTarget,
}

impl Compare {
    /// The key does not exist.
    pub fn absent(key: impl Into<Bytes>) -> Self {
        Compare::mod_revision(key, 0)
    }

    /// The key was written last by this revision.
    pub fn mod_revision(key: impl Into<Bytes>, revision: Revision) -> Self {
        Compare {
            keys: KeyRange::key(key),
            result: CompareResult::Equal,
            target: CompareTarget::ModRevision(revision),
        }
    }
}

/// How a key's own value is to compare to the one given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompareResult {
    /// It is the same.
    Equal,
    /// It is greater.
    Greater,
    /// It is less.
    Less,
    /// It is another.
    NotEqual,
}

/// What of a key is compared, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompareTarget {
    /// How often it was written.
    Version(i64),
    /// The revision that created it.
    CreateRevision(Revision),
    /// The revision that wrote it last.
    ModRevision(Revision),
    /// Its value.
    Value(Bytes),
    /// Its lease.
    Lease(LeaseId),
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Write a key.
    Put(PutOp),
    /// Delete keys.
    Delete(DeleteOp),
    /// Read keys.
    Range(RangeRequest),
}

impl Op {
    /// Writes `value` under `key`, attached to `lease` (0 for none).
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        Op::Put(PutOp {
            key: key.into(),
            value: value.into(),
            lease,
            ..PutOp::default()
        })
    }

    /// Deletes one key.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Op::delete_range(KeyRange::key(key))
    }

    /// Deletes all keys of a range.
    pub fn delete_range(keys: KeyRange) -> Self {
        Op::Delete(DeleteOp {
            keys,
            previous: false,
        })
    }

    /// Reads one key.
    pub fn get(key: impl Into<Bytes>) -> Self {
        Op::Range(RangeRequest::new(KeyRange::key(key)))
    }
}

/// A write of one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutOp {
    /// The key.
    pub key: Bytes,
    /// Its new value.
    pub value: Bytes,
    /// The lease it is attached to from now on, 0 for none.
    pub lease: LeaseId,
    /// Return what was there before.
    pub previous: bool,
    /// Keep the value that it has; [`crate::StoreError::KeyNotFound`] if it does not exist.
    pub keep_value: bool,
    /// Keep the lease that it has; [`crate::StoreError::KeyNotFound`] if it does not exist.
    pub keep_lease: bool,
}

/// A deletion of one key or of all in a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteOp {
    /// Which keys.
    pub keys: KeyRange,
    /// Return what was there before.
    pub previous: bool,
}

/// What a transaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxnResponse {
    /// The store's revision afterwards: the one of the changes, if there were any.
    pub revision: Revision,
    /// Whether all compares held.
    pub succeeded: bool,
    /// One answer per operation that was run, in order.
    pub responses: Vec<OpResponse>,
}

/// What an operation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResponse {
    /// It wrote.
    Put(PutResponse),
    /// It deleted.
    Delete(DeleteResponse),
    /// It read.
    Range(RangeResponse),
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutResponse {
    /// What was there before, if it was asked for.
    pub previous: Option<KeyValue>,
}

/// What a deletion did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteResponse {
    /// How many keys it deleted.
    pub deleted: u64,
    /// What they were, if it was asked for.
    pub previous: Vec<KeyValue>,
}

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRequest {
    /// Which keys.
    pub keys: KeyRange,
    /// The first revision to deliver; 0 for the next one.
    pub start: Revision,
    /// With the value before each change.
    pub previous: bool,
    /// Leave writes out.
    pub no_put: bool,
    /// Leave deletions out.
    pub no_delete: bool,
    /// Say from time to time how far the watch has come when there is nothing else to say.
    pub progress: bool,
}

impl WatchRequest {
    /// Everything that happens to `keys` from the revision `start` on; 0 for the next one.
    pub fn new(keys: KeyRange, start: Revision) -> Self {
        WatchRequest {
            keys,
            start,
            previous: false,
            no_put: false,
            no_delete: false,
            progress: false,
        }
    }

    /// With the value before each change.
    pub fn previous(self) -> Self {
        WatchRequest {
            previous: true,
            ..self
        }
    }

    /// With progress notifications from time to time.
    pub fn progress(self) -> Self {
        WatchRequest {
            progress: true,
            ..self
        }
    }
}
