//! A store that is slow and fails, by a plan that a seed decides.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::error::StoreError;
use crate::store::Store;
use crate::sync::lock;
use crate::types::{
    Lease, LeaseId, LeaseStatus, RangeRequest, RangeResponse, Revision, StoreStatus, Txn,
    TxnResponse, WatchRequest,
};
use crate::watch::WatchStream;

/// What befalls one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: the store is asked, and its answer is returned.
    None,
    /// The call fails before the store is asked.
    Before,
    /// The store does what it is asked, and the call fails all the same.
    After,
}

/// How slow a store is and how often it fails.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    /// What decides the rest.
    pub seed: u64,
    /// How long every call waits before the store is asked.
    pub latency: Duration,
    /// Up to how much longer, evenly spread.
    pub jitter: Duration,
    /// The share of calls that fail before the store is asked.
    pub fail_before: f64,
    /// The share of calls that fail although the store did what it was asked.
    pub fail_after: f64,
    /// After how many batches each watch ends as if its reader had been too slow, if it does.
    pub cut_off_after: Option<usize>,
}

impl FaultPlan {
    /// A store that is slow but does not fail.
    pub fn slow(latency: Duration) -> Self {
        FaultPlan {
            seed: 0,
            latency,
            jitter: Duration::ZERO,
            fail_before: 0.0,
            fail_after: 0.0,
            cut_off_after: None,
        }
    }
}

/// A store around another one, with faults.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    state: Mutex<(FaultPlan, StdRng)>,
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyStore").finish_non_exhaustive()
    }
}

impl FaultyStore {
    /// `inner` with faults by `plan`.
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> Self {
        let rng = StdRng::seed_from_u64(plan.seed);
        FaultyStore {
            inner,
            state: Mutex::new((plan, rng)),
        }
    }

    /// Goes on by another plan.
    pub fn set_plan(&self, plan: FaultPlan) {
        let rng = StdRng::seed_from_u64(plan.seed);
        *lock(&self.state) = (plan, rng);
    }

    fn draw(&self) -> (Duration, Fault) {
        let (plan, rng) = &mut *lock(&self.state);
        let latency = plan.latency + plan.jitter.mul_f64(rng.random::<f64>());
        let dice: f64 = rng.random();
        let fault = if dice < plan.fail_before {
            Fault::Before
        } else if dice < plan.fail_before + plan.fail_after {
            Fault::After
        } else {
            Fault::None
        };
        (latency, fault)
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let (latency, fault) = self.draw();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let failed = || Err(StoreError::unavailable("a planned fault"));
        match fault {
            Fault::None => call.await,
            Fault::Before => failed(),
            Fault::After => {
                call.await?;
                failed()
            }
        }
    }
}

/// The first `limit` batches of a watch, and then the error of one whose reader was too slow.
fn cut_off(watch: WatchStream, limit: usize) -> WatchStream {
    let (start, progress) = (watch.start_revision(), watch.progress_requester());
    let state = (watch, limit, start);
    let items = stream::unfold(state, |(mut watch, left, resume_revision)| async move {
        if left == 0 {
            let error = StoreError::CutOff { resume_revision };
            return Some((Err(error), (watch, left, resume_revision)));
        }
        let item = watch.next().await?;
        let resume = item
            .as_ref()
            .map_or(resume_revision, |batch| batch.revision + 1);
        Some((item, (watch, left - 1, resume)))
    });
    WatchStream::new(start, items, progress)
}

#[async_trait]
impl Store for FaultyStore {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.call(self.inner.range(request)).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        self.call(self.inner.txn(txn)).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, StoreError> {
        let watch = self.call(self.inner.watch(request)).await?;
        let limit = lock(&self.state).0.cut_off_after;
        Ok(match limit {
            Some(limit) => cut_off(watch, limit),
            None => watch,
        })
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.call(self.inner.compact(revision)).await
    }

    async fn lease_grant(&self, ttl: Duration, id: Option<LeaseId>) -> Result<Lease, StoreError> {
        self.call(self.inner.lease_grant(ttl, id)).await
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Lease, StoreError> {
        self.call(self.inner.lease_keep_alive(id)).await
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, StoreError> {
        self.call(self.inner.lease_revoke(id)).await
    }

    async fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<LeaseStatus, StoreError> {
        self.call(self.inner.lease_time_to_live(id, keys)).await
    }

    async fn leases(&self) -> Result<Vec<LeaseId>, StoreError> {
        self.call(self.inner.leases()).await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        self.call(self.inner.status()).await
    }
}
