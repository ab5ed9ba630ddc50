//! What is asked of a store and what it answers: plain data.

mod keys;
mod limits;
mod request;

pub use keys::{KeyRange, KeyValue};
pub use limits::Limits;
pub use request::{
    Compare, CompareResult, CompareTarget, DeleteOp, DeleteResponse, Op, OpResponse, PutOp,
    PutResponse, RangeRequest, RangeResponse, Txn, TxnResponse, WatchRequest,
};

use std::time::Duration;

use bytes::Bytes;

/// A state of the store as a whole; 0 where one is asked for means "the current one".
pub type Revision = i64;

/// The number of a lease; 0 means none.
pub type LeaseId = i64;

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What was done.
    pub kind: EventKind,
    /// The key after the change. Of a deleted key there is only its name and, as `mod_revision`, the
    /// revision that deleted it.
    pub kv: KeyValue,
    /// The key before the change, if it was asked for, existed, and was not compacted.
    pub previous: Option<KeyValue>,
}

/// What was done to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It was written: created when its version is 1.
    Put,
    /// It was deleted.
    Delete,
}

/// Events of one or more whole revisions, or, without any, a progress notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchResponse {
    /// Every event of the watched keys up to and including this revision has been delivered with
    /// this response.
    pub revision: Revision,
    /// The events, in order.
    pub events: Vec<Event>,
}

impl WatchResponse {
    /// Whether it only says how far the watch has come.
    pub fn is_progress(&self) -> bool {
        self.events.is_empty()
    }
}

/// A lease as granted or kept alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its number.
    pub id: LeaseId,
    /// How long it lives from now.
    pub ttl: Duration,
}

/// What there is to know about a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// Its number.
    pub id: LeaseId,
    /// What it was granted with.
    pub granted: Duration,
    /// How long it still has.
    pub remaining: Duration,
    /// The keys attached to it, if they were asked for.
    pub keys: Vec<Bytes>,
}

/// What there is to know about a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatus {
    /// Its current revision.
    pub revision: Revision,
    /// The oldest revision that can be read; 0 before the first compaction, or if it is not known.
    pub compact_revision: Revision,
    /// The room it takes, in bytes.
    pub size: u64,
    /// The room it would take without what is free inside, in bytes.
    pub size_in_use: u64,
    /// What kind of store it is and of which version, for people.
    pub version: String,
}
