//! The trait that every store implements.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::types::{
    Lease, LeaseId, LeaseStatus, RangeRequest, RangeResponse, Revision, StoreStatus, Txn,
    TxnResponse, WatchRequest,
};
use crate::watch::WatchStream;

/// Revisioned keys and bytes with watch and leases. The semantics are those of etcd's v3 API.
///
/// The store as a whole is at one *revision*, a number that starts at 1 and grows by one with every
/// transaction that changes something. A key remembers the revision that created it, the one that
/// changed it last and how often it was written since it was created; a key that is deleted and
/// written again starts anew. Older revisions can be read, and watched from, until they are
/// compacted.
///
/// Reads and writes are linearizable: an answer reflects everything that was acknowledged before the
/// request was made, by this client or any other.
///
/// A future that is dropped may or may not have done its write.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads one key or a range of keys, in the order of their bytes.
    ///
    /// With `revision` 0 it reads the current revision, else that one: [`StoreError::Compacted`] if
    /// it is older than the oldest one kept, [`StoreError::FutureRevision`] if it is not there yet.
    /// The answer's `revision` is always the store's current one as of the same moment, `count` is
    /// the number of keys in the range whatever the limit, and `more` says that `limit` left some
    /// out. A key that does not exist is an empty answer, not an error.
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError>;

    /// The one way to change anything: if every compare holds then the success operations, else the
    /// failure operations, as one atomic step.
    ///
    /// All changes carry the same new revision. Operations run in order and see the effect of those
    /// before them; a range among them at revision 0 too. A transaction may not write one key twice
    /// ([`StoreError::DuplicateKey`]), whether by two puts or by a put and a delete that covers it;
    /// deletes may overlap. Deleting what does not exist changes nothing. A put of the value that a
    /// key already has is a change like any other. A put attached to a lease that does not exist is
    /// [`StoreError::LeaseNotFound`]. An error means that nothing was changed, except for
    /// [`StoreError::Unavailable`], after which it is not known.
    async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError>;

    /// Watches one key or a range from a revision on (that one included), or, with `start` 0, from
    /// the next change on.
    ///
    /// The stream yields batches of events in the order of revisions; a revision's events are never
    /// split. It ends only with an error as its last item: [`StoreError::Compacted`] if what comes
    /// next was compacted, [`StoreError::CutOff`] if its reader was so slow that its buffer was
    /// full, [`StoreError::Unavailable`] if the store ended. A batch without events is a *progress
    /// notification*: every event up to and including its revision has been delivered.
    ///
    /// A `start` later than the current revision waits for it. With `previous` each event carries
    /// the key's value before it, where there was one that is not compacted.
    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, StoreError>;

    /// Forgets what was superseded before or at `revision`. Afterwards `revision` is the oldest one
    /// that can be read and watched from.
    ///
    /// [`StoreError::Compacted`] if that, or more, was compacted already,
    /// [`StoreError::FutureRevision`] if it is not there yet.
    async fn compact(&self, revision: Revision) -> Result<(), StoreError>;

    /// Makes a lease that runs out after `ttl` unless it is kept alive. The store chooses its number
    /// when none is given; [`StoreError::LeaseExists`] if that one is taken.
    async fn lease_grant(&self, ttl: Duration, id: Option<LeaseId>) -> Result<Lease, StoreError>;

    /// Starts a lease's time to live anew. [`StoreError::LeaseNotFound`] if it has run out.
    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Lease, StoreError>;

    /// Ends a lease now and deletes its keys, all in one revision, which is what also happens when a
    /// lease runs out. Returns the store's revision afterwards.
    async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, StoreError>;

    /// How long a lease still has, and, with `keys`, which keys are attached to it.
    async fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<LeaseStatus, StoreError>;

    /// The numbers of all leases, in order.
    async fn leases(&self) -> Result<Vec<LeaseId>, StoreError>;

    /// The store's revision and size.
    async fn status(&self) -> Result<StoreStatus, StoreError>;

    /// Why the store does not answer at present, where that is known: for who did not wait for the error.
    fn trouble(&self) -> Option<String> {
        None
    }
}
