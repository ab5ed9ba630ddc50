//! A store that some other process keeps: an etcd cluster, or a store that is served.
//!
//! Requests go to one endpoint as long as it answers, then to the next. What only reads is sent again when
//! an endpoint fails; what writes only if it certainly was not sent, so a write that failed on the way
//! is [`StoreError::Unavailable`] and its caller has to look. Watches go on by themselves, on whichever
//! endpoint answers, from the revision after the last one they delivered: without gaps, without
//! repeats. They therefore never end with [`StoreError::CutOff`]: a server that cuts one off is asked
//! again.
//!
//! Nothing is buffered here but what the connection's own windows hold.

mod connection;
mod user;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peerage_http::ClientTls;
use peerage_http::reload::Reload;
use peerage_store::{
    KeyRange, Lease, LeaseId, LeaseStatus, Limits, Op, RangeRequest, RangeResponse, Revision,
    Store, StoreError, StoreStatus, Txn, TxnResponse, WatchRequest, WatchStream,
};
use tonic::Status;

use crate::convert;
use crate::messages as etcd;
use crate::status::{PERMISSION_DENIED, from_status};
use connection::{Connections, Retry};
pub use user::EtcdUser;

/// Where a store is and how to reach it.
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// Its servers: `https://host:port`, `http://host:port`, or `host:port`, which is the first with TLS
    /// and the second without.
    pub endpoints: Vec<String>,
    /// Which servers to believe, and which certificate to show; [`ClientTls::plain`] for none. The name
    /// in it is not used.
    pub tls: ClientTls,
    /// The name that servers' certificates must have, where that is not the endpoint's host.
    pub server_name: Option<String>,
    /// The name and password to give, where the cluster asks for them.
    pub user: Option<EtcdUser>,
    /// How long connecting to one endpoint may take.
    pub connect_timeout: Duration,
    /// How long a request may take, all tries together.
    pub request_timeout: Duration,
    /// The bounds of a request, checked before it is sent.
    pub limits: Limits,
    /// The largest answer that is taken, and the largest batch of a watch; what is larger is
    /// [`StoreError::AnswerTooLarge`]. As etcd's own client has it unless said otherwise.
    pub max_answer: usize,
}

impl std::fmt::Debug for EtcdOptions {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("server_name", &self.server_name)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl EtcdOptions {
    /// These endpoints, without TLS or user.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        EtcdOptions {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: ClientTls::plain(),
            server_name: None,
            user: None,
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(30),
            limits: Limits::default(),
            max_answer: i32::MAX as usize,
        }
    }

    /// Files that are to be looked at again and again: certificates and the password.
    pub fn reloads(&self) -> Vec<Arc<dyn Reload>> {
        let mut reloads = self.tls.reloads();
        reloads.extend(self.user.iter().flat_map(EtcdUser::reloads));
        reloads
    }
}

/// Why there is no connection to a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There are no endpoints.
    #[error("no endpoint of the store is given")]
    NoEndpoints,
    /// An endpoint cannot be understood.
    #[error("{endpoint:?} is not an endpoint: {reason}; write https://host:port")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store does not let this client in.
    #[error("the store at {endpoints} does not let this client in (name, password, certificate)")]
    Denied {
        /// All endpoints.
        endpoints: String,
        /// What it said.
        source: StoreError,
    },
    /// No endpoint answers.
    #[error("none of the store's endpoints ({endpoints}) answers")]
    Unreachable {
        /// All of them.
        endpoints: String,
        /// What the last one said.
        source: StoreError,
    },
}

/// A store that some other process keeps. Clones share their connections.
#[derive(Debug, Clone)]
pub struct EtcdStore {
    connections: Arc<Connections>,
    limits: Arc<Limits>,
}

impl EtcdStore {
    /// Connects, and makes sure that a server answers.
    pub async fn connect(options: EtcdOptions) -> Result<EtcdStore, ConnectError> {
        let endpoints = options.endpoints.join(", ");
        let store = Self::lazy(options)?;
        match store.current().await {
            Ok(_) => Ok(store),
            // Let in, but not to that key: it may well be to others.
            Err(StoreError::Denied { reason }) if reason.contains(PERMISSION_DENIED) => Ok(store),
            Err(source @ StoreError::Denied { .. }) => {
                Err(ConnectError::Denied { endpoints, source })
            }
            Err(source) => Err(ConnectError::Unreachable { endpoints, source }),
        }
    }

    /// Connects when there is something to send. Must be called within a Tokio runtime.
    pub fn lazy(options: EtcdOptions) -> Result<EtcdStore, ConnectError> {
        Ok(EtcdStore {
            limits: Arc::new(options.limits.clone()),
            connections: Arc::new(Connections::new(options)?),
        })
    }

    async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        retry: Retry,
        lease: LeaseId,
    ) -> Result<A, StoreError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let failed = |status: Status| from_status(&status, lease);
        self.connections
            .unary(path, request, retry)
            .await
            .map_err(failed)
    }

    /// The current revision, as a read would see it.
    async fn current(&self) -> Result<Revision, StoreError> {
        let request = RangeRequest::new(KeyRange::key("\0")).count_only();
        let request = convert::range_to(request);
        let path = "/etcdserverpb.KV/Range";
        let response: etcd::RangeResponse = self.call(path, request, Retry::Always, 0).await?;
        Ok(convert::revision_of(response.header.as_ref()))
    }

    /// Adds to an error what etcd does not say in it.
    async fn explain(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::FutureRevision { current: 0 } => match self.current().await {
                Ok(current) => StoreError::FutureRevision { current },
                Err(_) => error,
            },
            StoreError::Compacted {
                compact_revision: 0,
            } => match watch::compact_revision(&self.connections).await {
                Some(compact_revision) => StoreError::Compacted { compact_revision },
                None => error,
            },
            error => error,
        }
    }
}

/// The lease that an operation fails for, if it is for a lease.
fn lease_of(txn: &Txn) -> LeaseId {
    let mut leases = txn.success.iter().chain(&txn.failure).map(|op| match op {
        Op::Put(put) => put.lease,
        Op::Delete(_) | Op::Range(_) => 0,
    });
    leases.find(|&lease| lease != 0).unwrap_or(0)
}

#[async_trait]
impl Store for EtcdStore {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.limits.check_range(&request)?;
        if request.keys.is_empty() {
            // etcd has no way to ask for it, but its revisions are checked all the same.
            let key = KeyRange::key("\0");
            let response = self
                .range(
                    RangeRequest {
                        keys: key,
                        ..request
                    }
                    .count_only(),
                )
                .await?;
            return Ok(RangeResponse {
                count: 0,
                ..response
            });
        }
        let path = "/etcdserverpb.KV/Range";
        let request = convert::range_to(request);
        match self.call(path, request, Retry::Always, 0).await {
            Ok(response) => Ok(convert::range_response_from(response)),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        self.limits.check_txn(&txn)?;
        let retry = match txn.is_read_only() {
            true => Retry::Always,
            false => Retry::IfNotSent,
        };
        let lease = lease_of(&txn);
        let request = convert::txn_to(txn);
        match self
            .call("/etcdserverpb.KV/Txn", request, retry, lease)
            .await
        {
            Ok(response) => convert::txn_response_from(response),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, StoreError> {
        watch::open(self.connections.clone(), request).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let request = etcd::CompactionRequest {
            revision,
            physical: false,
        };
        let path = "/etcdserverpb.KV/Compact";
        let compacted = self.call(path, request, Retry::IfNotSent, 0).await;
        match compacted {
            Ok(etcd::CompactionResponse { .. }) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn lease_grant(&self, ttl: Duration, id: Option<LeaseId>) -> Result<Lease, StoreError> {
        let id = id.unwrap_or(0);
        let request = etcd::LeaseGrantRequest {
            ttl: convert::seconds_to(ttl),
            id,
        };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let response = self.call(path, request, Retry::IfNotSent, id).await?;
        let etcd::LeaseGrantResponse { id, ttl, error, .. } = response;
        if !error.is_empty() {
            return Err(convert::invalid(error));
        }
        let ttl = convert::seconds_from(ttl);
        Ok(Lease { id, ttl })
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Lease, StoreError> {
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let request = etcd::LeaseKeepAliveRequest { id };
        let response = self.connections.first_of_stream(path, request).await;
        let response = response.map_err(|status| from_status(&status, id))?;
        let etcd::LeaseKeepAliveResponse { ttl, .. } = response;
        if ttl <= 0 {
            return Err(StoreError::LeaseNotFound { id });
        }
        let ttl = convert::seconds_from(ttl);
        Ok(Lease { id, ttl })
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, StoreError> {
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let request = etcd::LeaseRevokeRequest { id };
        let response = self.call(path, request, Retry::IfNotSent, id).await?;
        let etcd::LeaseRevokeResponse { header } = response;
        Ok(convert::revision_of(header.as_ref()))
    }

    async fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<LeaseStatus, StoreError> {
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let request = etcd::LeaseTimeToLiveRequest { id, keys };
        let response = self.call(path, request, Retry::Always, id).await?;
        let etcd::LeaseTimeToLiveResponse {
            ttl,
            granted_ttl,
            keys,
            ..
        } = response;
        if ttl < 0 {
            return Err(StoreError::LeaseNotFound { id });
        }
        Ok(LeaseStatus {
            id,
            granted: convert::seconds_from(granted_ttl),
            remaining: convert::seconds_from(ttl),
            keys,
        })
    }

    async fn leases(&self) -> Result<Vec<LeaseId>, StoreError> {
        let path = "/etcdserverpb.Lease/LeaseLeases";
        let request = etcd::LeaseLeasesRequest {};
        let response: etcd::LeaseLeasesResponse =
            self.call(path, request, Retry::Always, 0).await?;
        let mut ids: Vec<_> = response.leases.iter().map(|lease| lease.id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn trouble(&self) -> Option<String> {
        self.connections.trouble()
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let path = "/etcdserverpb.Maintenance/Status";
        let request = etcd::StatusRequest {};
        let status: etcd::StatusResponse = self.call(path, request, Retry::Always, 0).await?;
        Ok(StoreStatus {
            revision: self.current().await?,
            compact_revision: 0,
            size: convert::count_from(status.db_size),
            size_in_use: convert::count_from(status.db_size_in_use),
            version: format!("etcd {} ({})", status.version, status.storage_version),
        })
    }
}
