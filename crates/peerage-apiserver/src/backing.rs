//! The store as this server uses it: every call has a deadline and is counted, and one probe tells whether the store
//! is there.
//!
//! A store that hangs must not make requests hang: a call that takes too long fails as unavailable, which handlers
//! answer with 503 and `Retry-After`. What the values mean and when to try again is the callers' business.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peerage_http::metrics::Registry;
use peerage_store::{
    KeyRange, Lease, LeaseId, LeaseStatus, RangeRequest, RangeResponse, Revision, Store,
    StoreError, StoreStatus, Txn, TxnResponse, WatchRequest, WatchStream,
};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::health::Health;

/// Longest time that one call may take, unless requests as a whole have less.
const CALL: Duration = Duration::from_secs(10);
/// How often the store is looked at, and how long it may take to answer: with two failed looks in a row it counts as
/// away, so `/readyz` is red within eight seconds.
const PROBE: Duration = Duration::from_secs(2);
const PROBE_DEADLINE: Duration = Duration::from_secs(2);
const PROBE_FAILURES: u32 = 2;
/// How often a server that waits for its store says so.
const PROGRESS: Duration = Duration::from_secs(3);
/// Bounds of call durations, seconds.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    operation: &'static str,
}

/// What is counted of the store.
#[derive(Debug, Clone)]
struct Counts {
    requests: Family<Call, Counter>,
    errors: Family<Call, Counter>,
    durations: Family<Call, Histogram, fn() -> Histogram>,
    available: Gauge,
}

impl Counts {
    fn new(registry: &Registry) -> Self {
        let counts = Self {
            requests: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            available: Gauge::default(),
        };
        registry.register(
            "etcd_requests_total",
            "[ALPHA] Etcd request counts for each operation.",
            counts.requests.clone(),
        );
        registry.register(
            "etcd_request_errors_total",
            "[ALPHA] Etcd failed request counts for each operation.",
            counts.errors.clone(),
        );
        registry.register(
            "etcd_request_duration_seconds",
            "[ALPHA] Etcd request latency in seconds for each operation.",
            counts.durations.clone(),
        );
        registry.register(
            "peerage_store_available",
            "Whether the store answers",
            counts.available.clone(),
        );
        counts
    }
}

/// A store with deadlines.
pub(crate) struct Backing {
    inner: Arc<dyn Store>,
    /// The key that is looked at to see whether the store is there: kube-apiserver's, below the prefix that this
    /// server may read.
    probed: String,
    limit: Duration,
    counts: Counts,
}

impl Backing {
    /// All keys begin with `key_prefix`; `request_timeout` is what a client's request may take as a whole.
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        key_prefix: &str,
        request_timeout: Duration,
        registry: &Registry,
    ) -> Self {
        Self {
            inner,
            probed: format!("{key_prefix}/health"),
            // What is left is for saying so.
            limit: CALL.min(request_timeout.mul_f64(0.75)),
            counts: Counts::new(registry),
        }
    }

    /// Longest time that one call may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Keeps the health check true to whether the store answers, until `stop`.
    pub(crate) async fn probe(self: Arc<Self>, health: Arc<Health>, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            match self.look().await {
                Ok(()) => {
                    if failures >= PROBE_FAILURES {
                        info!("the store answers again");
                    }
                    failures = 0;
                }
                Err(error) => {
                    failures += 1;
                    if failures == PROBE_FAILURES {
                        warn!(%error, "the store does not answer; not ready until it does");
                    }
                }
            }
            if failures == 0 || failures >= PROBE_FAILURES {
                health.store.set(failures == 0);
                self.counts.available.set(i64::from(failures == 0));
            }
            tokio::select! { () = tokio::time::sleep(PROBE) => {}, () = stop.cancelled() => return }
        }
    }

    /// Says from time to time what the start waits for, until `there`.
    pub(crate) async fn await_with_progress<T>(&self, there: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let mut there = std::pin::pin!(there);
        loop {
            tokio::select! {
                done = &mut there => return done,
                () = tokio::time::sleep(PROGRESS) => {}
            }
            let since = started.elapsed().as_secs();
            match self.look().await {
                Ok(()) => info!(seconds = since, "still reading the store"),
                Err(error) => warn!(%error, seconds = since, "waiting for the store"),
            }
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        let range = RangeRequest::new(KeyRange::key(self.probed.clone()));
        match tokio::time::timeout(PROBE_DEADLINE, self.inner.range(range)).await {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(self.late("range", PROBE_DEADLINE)),
        }
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let result = match tokio::time::timeout(self.limit, call).await {
            Ok(result) => result,
            Err(_) => Err(self.late(operation, self.limit)),
        };
        let labels = Call { operation };
        let took = started.elapsed().as_secs_f64();
        self.counts.requests.get_or_create(&labels).inc();
        self.counts.durations.get_or_create(&labels).observe(took);
        if result.is_err() {
            self.counts.errors.get_or_create(&labels).inc();
        }
        result
    }

    /// It took too long; the reason is what the store's client met meanwhile, if it met anything.
    fn late(&self, operation: &str, limit: Duration) -> StoreError {
        let reason = format!("it did not answer a {operation} within {limit:?}");
        StoreError::Unavailable {
            reason: match self.inner.trouble() {
                Some(trouble) => format!("{reason}: {trouble}"),
                None => reason,
            },
        }
    }
}

#[async_trait]
impl Store for Backing {
    fn trouble(&self) -> Option<String> {
        self.inner.trouble()
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.call("range", self.inner.range(request)).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        self.call("txn", self.inner.txn(txn)).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, StoreError> {
        self.call("watch", self.inner.watch(request)).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.call("compact", self.inner.compact(revision)).await
    }

    async fn lease_grant(&self, ttl: Duration, id: Option<LeaseId>) -> Result<Lease, StoreError> {
        self.call("lease_grant", self.inner.lease_grant(ttl, id))
            .await
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Lease, StoreError> {
        self.call("lease_keep_alive", self.inner.lease_keep_alive(id))
            .await
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, StoreError> {
        self.call("lease_revoke", self.inner.lease_revoke(id)).await
    }

    async fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<LeaseStatus, StoreError> {
        let answer = self.inner.lease_time_to_live(id, keys);
        self.call("lease_time_to_live", answer).await
    }

    async fn leases(&self) -> Result<Vec<LeaseId>, StoreError> {
        self.call("leases", self.inner.leases()).await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        self.call("status", self.inner.status()).await
    }
}
