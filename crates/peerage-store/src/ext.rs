//! What most callers want of a store, in one call each: get, list, create, update, delete.
//!
//! Here a conflict is an error, and it carries what the key is now, read in the same transaction: the
//! caller can decide and try again without another read.

use bytes::Bytes;

use crate::error::StoreError;
use crate::store::Store;
use crate::types::{
    Compare, DeleteOp, KeyRange, KeyValue, LeaseId, Op, OpResponse, PutOp, RangeRequest, Revision,
    Txn, TxnResponse,
};

/// Why a key was not created, updated or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The key is not as it was expected to be: it exists and should not, it does not exist and
    /// should, or it was written since.
    #[error("the key is not as it was expected to be at revision {revision}")]
    Conflict {
        /// What it is, if it exists.
        current: Option<Box<KeyValue>>,
        /// The store's revision at which it is so.
        revision: Revision,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All keys of a range as of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The revision that they were read at. Watch from the one after it.
    pub revision: Revision,
    /// The keys, in order.
    pub kvs: Vec<KeyValue>,
}

/// How many keys a listing reads at a time.
const PAGE: usize = 1000;

/// Provided on every store, `dyn Store` too.
pub trait StoreExt: Store {
    /// The key, if it exists.
    fn get(
        &self,
        key: impl Into<Bytes> + Send,
    ) -> impl Future<Output = Result<Option<KeyValue>, StoreError>> + Send;

    /// All of `keys` as of one revision, read page by page. Begins anew, a few times, if a compaction
    /// overtakes it.
    fn list(&self, keys: KeyRange) -> impl Future<Output = Result<Listing, StoreError>> + Send;

    /// Writes a key that must not exist, attached to `lease` (0 for none). Returns it as written.
    fn create(
        &self,
        key: impl Into<Bytes> + Send,
        value: impl Into<Bytes> + Send,
        lease: LeaseId,
    ) -> impl Future<Output = Result<KeyValue, WriteError>> + Send;

    /// Writes a key whose last change must be `expected`, attached to `lease` (0 for none). Returns it
    /// as written.
    fn update(
        &self,
        key: impl Into<Bytes> + Send,
        value: impl Into<Bytes> + Send,
        expected: Revision,
        lease: LeaseId,
    ) -> impl Future<Output = Result<KeyValue, WriteError>> + Send;

    /// Writes a key, whatever was there, attached to `lease` (0 for none). Returns it as written.
    fn put(
        &self,
        key: impl Into<Bytes> + Send,
        value: impl Into<Bytes> + Send,
        lease: LeaseId,
    ) -> impl Future<Output = Result<KeyValue, StoreError>> + Send;

    /// Deletes a key that must exist and, if `expected` is given, whose last change it must be.
    /// Returns what it was, and the revision that deleted it.
    fn delete(
        &self,
        key: impl Into<Bytes> + Send,
        expected: Option<Revision>,
    ) -> impl Future<Output = Result<(KeyValue, Revision), WriteError>> + Send;

    /// The store's revision.
    fn current_revision(&self) -> impl Future<Output = Result<Revision, StoreError>> + Send;
}

impl<S: Store + ?Sized> StoreExt for S {
    async fn get(&self, key: impl Into<Bytes> + Send) -> Result<Option<KeyValue>, StoreError> {
        let range = RangeRequest::new(KeyRange::key(key));
        Ok(self.range(range).await?.kvs.pop())
    }

    async fn list(&self, keys: KeyRange) -> Result<Listing, StoreError> {
        let mut tries = 3;
        loop {
            match list_once(self, &keys).await {
                Err(StoreError::Compacted { .. }) if tries > 1 => tries -= 1,
                other => return other,
            }
        }
    }

    async fn create(
        &self,
        key: impl Into<Bytes> + Send,
        value: impl Into<Bytes> + Send,
        lease: LeaseId,
    ) -> Result<KeyValue, WriteError> {
        self.update(key, value, 0, lease).await
    }

    async fn update(
        &self,
        key: impl Into<Bytes> + Send,
        value: impl Into<Bytes> + Send,
        expected: Revision,
        lease: LeaseId,
    ) -> Result<KeyValue, WriteError> {
        let put = put_op(key.into(), value.into(), lease);
        let compare = Compare::mod_revision(put.key.clone(), expected);
        let txn = Txn::new()
            .when([compare])
            .then([Op::Put(put.clone())])
            .otherwise([Op::get(put.key.clone())]);
        let response = self.txn(txn).await?;
        match conflict(&response) {
            Some(conflict) => Err(conflict),
            None => Ok(written(put, &response)),
        }
    }

    async fn put(
        &self,
        key: impl Into<Bytes> + Send,
        value: impl Into<Bytes> + Send,
        lease: LeaseId,
    ) -> Result<KeyValue, StoreError> {
        let put = put_op(key.into(), value.into(), lease);
        let response = self.txn(Txn::of([Op::Put(put.clone())])).await?;
        Ok(written(put, &response))
    }

    async fn delete(
        &self,
        key: impl Into<Bytes> + Send,
        expected: Option<Revision>,
    ) -> Result<(KeyValue, Revision), WriteError> {
        let key = key.into();
        let delete = Op::Delete(DeleteOp {
            keys: KeyRange::key(key.clone()),
            previous: true,
        });
        let compares = expected.map(|revision| Compare::mod_revision(key.clone(), revision));
        let txn = Txn::new()
            .when(compares)
            .then([delete])
            .otherwise([Op::get(key)]);
        let response = self.txn(txn).await?;
        if let Some(conflict) = conflict(&response) {
            return Err(conflict);
        }
        let revision = response.revision;
        match response.responses.into_iter().next() {
            Some(OpResponse::Delete(mut delete)) if !delete.previous.is_empty() => {
                Ok((delete.previous.swap_remove(0), revision))
            }
            _ => Err(WriteError::Conflict {
                current: None,
                revision,
            }),
        }
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.status().await?.revision)
    }
}

async fn list_once<S: Store + ?Sized>(store: &S, keys: &KeyRange) -> Result<Listing, StoreError> {
    let mut request = RangeRequest::new(keys.clone()).limit(PAGE);
    let first = store.range(request.clone()).await?;
    let revision = first.revision;
    let (mut kvs, mut more) = (first.kvs, first.more);
    while let Some(last) = kvs.last().filter(|_| more) {
        request = request.at(revision);
        request.keys = after(&last.key, keys);
        let page = store.range(request.clone()).await?;
        kvs.extend(page.kvs);
        more = page.more;
    }
    Ok(Listing { revision, kvs })
}

/// What of `keys` comes after `key`.
fn after(key: &Bytes, keys: &KeyRange) -> KeyRange {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    match keys.end() {
        Some(end) => KeyRange::between(next, end.clone()),
        None => KeyRange::from(next),
    }
}

fn put_op(key: Bytes, value: Bytes, lease: LeaseId) -> PutOp {
    PutOp {
        key,
        value,
        lease,
        previous: true,
        ..PutOp::default()
    }
}

fn conflict(response: &TxnResponse) -> Option<WriteError> {
    if response.succeeded {
        return None;
    }
    let current = match response.responses.first() {
        Some(OpResponse::Range(range)) => range.kvs.first().cloned().map(Box::new),
        _ => None,
    };
    Some(WriteError::Conflict {
        current,
        revision: response.revision,
    })
}

/// The key as a put has left it.
fn written(put: PutOp, response: &TxnResponse) -> KeyValue {
    let previous = match response.responses.first() {
        Some(OpResponse::Put(put)) => put.previous.as_ref(),
        _ => None,
    };
    KeyValue {
        key: put.key,
        value: put.value,
        create_revision: previous.map_or(response.revision, |kv| kv.create_revision),
        mod_revision: response.revision,
        version: previous.map_or(0, |kv| kv.version) + 1,
        lease: put.lease,
    }
}
