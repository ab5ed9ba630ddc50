//! A store in memory, for tests and for servers that need to remember nothing.
//!
//! Every key has its versions back to the last compaction, and every revision its events. The store
//! compacts itself as it is written to: it keeps so many revisions and no more. It is gone when it is
//! dropped.
//!
//! One lock orders everything; nothing is awaited under it.

mod state;

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::task::AbortOnDropHandle;

use crate::error::StoreError;
use crate::hub::{Commit, History, Hub, Page, WatchLimits};
use crate::lease::{self, Leases};
use crate::store::Store;
use crate::sync::lock;
use crate::txn;
use crate::types::{
    Event, KeyRange, Lease, LeaseId, LeaseStatus, Limits, Op, RangeRequest, RangeResponse,
    Revision, StoreStatus, Txn, TxnResponse, WatchRequest,
};
use crate::watch::WatchStream;
use state::{State, View};

/// How much a [`MemoryStore`] keeps and takes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// The bounds of a request.
    pub limits: Limits,
    /// The bounds of watching.
    pub watch: WatchLimits,
    /// How many revisions are kept.
    pub keep_revisions: u64,
    /// The most bytes of keys and values, their kept versions included; then it is full.
    pub max_bytes: u64,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions {
            limits: Limits::default(),
            watch: WatchLimits::default(),
            keep_revisions: 20_000,
            max_bytes: 4 << 30,
        }
    }
}

/// A store in memory. Clones are the same store.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: MemoryOptions,
    state: Mutex<State>,
    hub: Arc<Hub>,
    leases: Arc<Leases>,
    /// Revokes leases that run out; started with the first lease.
    expiry: OnceLock<AbortOnDropHandle<()>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::with_options(MemoryOptions::default())
    }

    /// An empty store with other bounds.
    pub fn with_options(options: MemoryOptions) -> Self {
        let state = State::default();
        let hub = Hub::new(state.revision(), options.watch.clone());
        MemoryStore {
            inner: Arc::new(Inner {
                options,
                state: Mutex::new(state),
                hub,
                leases: Arc::default(),
                expiry: OnceLock::new(),
            }),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hub
            .close(StoreError::unavailable("the store is closed"));
    }
}

impl Inner {
    /// Makes events, which are in the state already, a revision that everybody sees.
    fn commit(&self, state: &mut State, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let revision = state.revision() + 1;
        let commit = Arc::new(Commit { revision, events });
        state.commit(commit.clone());
        self.hub.publish(commit);
        let kept = i64::try_from(self.options.keep_revisions).unwrap_or(i64::MAX);
        self.compact(state, revision.saturating_sub(kept));
    }

    fn compact(&self, state: &mut State, revision: Revision) {
        if revision > state.compact_revision() {
            state.compact(revision);
            self.hub.compacted(revision);
        }
    }

    fn revoke(&self, id: LeaseId) -> Result<Revision, StoreError> {
        let mut state = lock(&self.state);
        self.leases.end(id)?;
        let keys = state.keys_of(id);
        let events = txn::delete_keys(&mut self.view(&mut state), &keys)?;
        self.commit(&mut state, events);
        self.leases.remove(id);
        Ok(state.revision())
    }

    fn view<'s>(&'s self, state: &'s mut State) -> View<'s> {
        View {
            state,
            leases: &self.leases,
        }
    }

    /// Whether what `txn` puts fits in.
    fn has_room_for(&self, state: &State, txn: &Txn) -> bool {
        let put = |op: &Op| match op {
            Op::Put(put) => (put.key.len() + put.value.len()) as u64,
            Op::Delete(_) | Op::Range(_) => 0,
        };
        let size = |ops: &[Op]| ops.iter().map(put).sum::<u64>();
        let most = size(&txn.success).max(size(&txn.failure));
        most == 0 || state.bytes() + most <= self.options.max_bytes
    }
}

/// The history of a store that may be gone by now.
struct Past(Weak<Inner>);

#[async_trait]
impl History for Past {
    async fn page(
        &self,
        keys: &KeyRange,
        from: Revision,
        to: Revision,
    ) -> Result<Page, StoreError> {
        let closed = || StoreError::unavailable("the store is closed");
        let inner = self.0.upgrade().ok_or_else(closed)?;
        lock(&inner.state).page(keys, from, to)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        txn::check_range(&request, &self.inner.options.limits)?;
        lock(&self.inner.state).range(&request)
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        let inner = &*self.inner;
        txn::check(&txn, &inner.options.limits)?;
        let mut state = lock(&inner.state);
        if !inner.has_room_for(&state, &txn) {
            return Err(StoreError::NoSpace);
        }
        let mut view = inner.view(&mut state);
        let (response, events) = txn::run(&mut view, &txn, &inner.options.limits)?;
        inner.commit(&mut state, events);
        Ok(response)
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, StoreError> {
        let past = Past(Arc::downgrade(&self.inner));
        self.inner.hub.watch(request, Arc::new(past))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let mut state = lock(&self.inner.state);
        if revision > state.revision() {
            return Err(StoreError::FutureRevision {
                current: state.revision(),
            });
        }
        if revision <= state.compact_revision() {
            return Err(StoreError::Compacted {
                compact_revision: state.compact_revision(),
            });
        }
        self.inner.compact(&mut state, revision);
        Ok(())
    }

    async fn lease_grant(&self, ttl: Duration, id: Option<LeaseId>) -> Result<Lease, StoreError> {
        let inner = &self.inner;
        let lease = {
            // The state's lock makes "no such lease yet" and "here it is" one step.
            let _state = lock(&inner.state);
            let lease = inner
                .leases
                .prepare(ttl, id, inner.options.limits.max_leases)?;
            inner.leases.insert(lease);
            lease
        };
        inner.expiry.get_or_init(|| {
            let (leases, store) = (inner.leases.clone(), Arc::downgrade(inner));
            let revoke = move |id| {
                let done = store.upgrade().is_none_or(|store| store.revoke(id).is_ok());
                std::future::ready(done)
            };
            let task = async move { lease::expire(&leases, revoke).await };
            AbortOnDropHandle::new(tokio::spawn(task))
        });
        Ok(lease)
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Lease, StoreError> {
        self.inner.leases.keep_alive(id)
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, StoreError> {
        self.inner.revoke(id)
    }

    async fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<LeaseStatus, StoreError> {
        let mut status = self.inner.leases.status(id)?;
        if keys {
            status.keys = lock(&self.inner.state).keys_of(id);
        }
        Ok(status)
    }

    async fn leases(&self) -> Result<Vec<LeaseId>, StoreError> {
        Ok(self.inner.leases.ids())
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let state = lock(&self.inner.state);
        Ok(StoreStatus {
            revision: state.revision(),
            compact_revision: state.compact_revision(),
            size: state.bytes(),
            size_in_use: state.bytes(),
            version: concat!("peerage-memory-", env!("CARGO_PKG_VERSION")).to_owned(),
        })
    }
}
