//! Revisioned keys and bytes with watch and leases.
//!
//! This crate holds the [`Store`] trait, whose semantics are etcd's v3 API, two implementations
//! ([`memory::MemoryStore`], [`sqlite::SqliteStore`]), the [`StoreExt`] methods that most callers
//! want, and, for tests, one conformance suite and one faulty store. A third implementation, the
//! client of an etcd server, is in `peerage-etcd`.
//!
//! What the bytes mean is the caller's business; the network is `peerage-etcd`'s.
//!
//! Invariants that every implementation keeps:
//!
//! * Revisions are numbered from 1 without gaps. Revision 1 is the empty store; every transaction
//!   that changes at least one key makes exactly one new revision, and one that changes nothing
//!   makes none.
//! * What was acknowledged is visible to every later read, and, in a durable store, survives the
//!   end of the process.
//! * A watch delivers each revision's events once, in order, without gaps, whole revisions at a
//!   time, or ends with an error that says from where to go on.
//! * Every buffer is bounded: values, transactions, watch queues, history, requests in line.

mod error;
mod ext;
mod hub;
mod lease;
pub mod memory;
pub mod sqlite;
mod store;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod txn;
mod types;
mod watch;

pub use error::{OpenError, StoreError};
pub use ext::{Listing, StoreExt, WriteError};
pub use hub::WatchLimits;
pub use store::Store;
pub use types::{
    Compare, CompareResult, CompareTarget, DeleteOp, DeleteResponse, Event, EventKind, KeyRange,
    KeyValue, Lease, LeaseId, LeaseStatus, Limits, Op, OpResponse, PutOp, PutResponse,
    RangeRequest, RangeResponse, Revision, StoreStatus, Txn, TxnResponse, WatchRequest,
    WatchResponse,
};
pub use watch::{ProgressRequester, WatchStream};
