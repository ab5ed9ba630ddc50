//! This server's place among the others on the same store: its identity Lease and endpoint key, written in the
//! rhythm and form of kube-apiserver (KEP-4020, KEP-1965), and the records of everyone else for the proxy.
//!
//! The Lease says that a server of that identity exists; the endpoint key, which lives for fifteen seconds,
//! says that it is there and where. A server that stops in good order removes the key and leaves its Lease
//! behind, shortened to the hold time, so that the others answer 503 until it is back, and not 404.
//!
//! Differs: kube-apiserver deletes both, and its peers answer 404 from that moment on.

mod identity;
mod records;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use peerage_proxy::PeerRecord;
use peerage_store::{Store, StoreError, StoreExt as _, WriteError};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::cache::Cache;
pub use identity::server_id;

/// Namespace of the identity Leases.
pub(crate) const NAMESPACE: &str = "kube-system";
/// Label of an identity Lease.
pub(crate) const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
/// Its value for a kube-apiserver and for what stands in for one.
pub(crate) const IDENTITY_VALUE: &str = "kube-apiserver";
/// Label of an endpoint record: the server ID.
pub(crate) const IDENTITY_LABEL_OF_ENDPOINT: &str = "apiserverIdentity";
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// Annotation of an identity Lease: the address that peers use, for people only.
const ADDRESS_ANNOTATION: &str = "kubernetes.io/peer-advertise-address";
/// Annotation of the Lease of a server that left in good order: for how many seconds from `renewTime` it is expected back.
const HOLD_ANNOTATION: &str = "peerage.io/hold-seconds";
/// Key prefix of the endpoint records below the root.
pub(crate) const ENDPOINTS: &str = "peerserverleases";

/// How often the Lease and the endpoint key are renewed (kube-apiserver: 10 s, the Lease with up to 4 % jitter).
const RENEW: Duration = Duration::from_secs(10);
/// How long an endpoint key outlives its last renewal.
const ENDPOINT_TTL: Duration = Duration::from_secs(15);
/// Duration of an identity Lease. Others read it only to collect what is left of servers long gone.
const LEASE_SECONDS: u64 = 3_600;
/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Tries of one renewal before it waits for the next round.
const TRIES: usize = 5;
/// Longest label value; a longer host name is left out, since it would make the Lease invalid.
const LABEL_MAX: usize = 63;

/// Who this server is towards its peers.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The server ID, see [`server_id`].
    pub(crate) id: Arc<str>,
    pub(crate) hostname: String,
    /// Where peers reach this server.
    pub(crate) address: SocketAddr,
    /// How long others should wait for its return after a clean stop.
    pub(crate) hold: Duration,
}

/// Keeps this server's records in the store and follows those of the others.
pub(crate) struct Registry {
    store: Arc<dyn Store>,
    identity: Identity,
    holder: String,
    lease_key: String,
    endpoint_key: String,
}

impl Registry {
    pub(crate) fn new(store: Arc<dyn Store>, root: &str, identity: Identity) -> Self {
        Self {
            holder: format!("{}_{}", identity.id, uuid::Uuid::new_v4()),
            lease_key: format!("{root}/leases/{NAMESPACE}/{}", identity.id),
            endpoint_key: format!("{root}/{ENDPOINTS}/{}", identity.id),
            store,
            identity,
        }
    }

    /// Publishes the records of the other servers, from now on.
    pub(crate) fn follow(&self, cache: &Cache, root: &str) -> watch::Receiver<Arc<[PeerRecord]>> {
        let (records, followed) = watch::channel(Arc::from([]));
        let leases = cache.kind(&format!("{root}/leases/"));
        let endpoints = cache.kind(&format!("{root}/{ENDPOINTS}/"));
        if let (Some(leases), Some(endpoints)) = (leases, endpoints) {
            let own = self.identity.id.clone();
            tokio::spawn(records::follow(
                own,
                leases.clone(),
                endpoints.clone(),
                records,
            ));
        }
        followed
    }

    /// Renews the identity Lease until `stop`.
    pub(crate) async fn keep_identity(&self, stop: CancellationToken) {
        loop {
            if let Err(error) = self.renew_lease(None).await {
                warn!(%error, lease = self.lease_key, "could not renew the identity Lease");
            }
            let jitter = RENEW.mul_f64(0.04 * rand::random::<f64>());
            tokio::select! { () = tokio::time::sleep(RENEW + jitter) => {}, () = stop.cancelled() => return }
        }
    }

    /// Renews the endpoint key until `stop`. Started once this server is ready to answer.
    pub(crate) async fn keep_endpoint(&self, stop: CancellationToken) {
        let mut generation = 0;
        loop {
            generation += 1;
            let pause = match self.renew_endpoint(generation).await {
                Ok(()) => RENEW,
                Err(error) => {
                    warn!(%error, key = self.endpoint_key, "could not renew the endpoint key");
                    RETRY
                }
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => return }
        }
    }

    /// Says goodbye: no endpoint any more, and a Lease that asks the others to wait for the hold time.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        match self.store.delete(self.endpoint_key.clone(), None).await {
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(WriteError::Store(error)) => return Err(error),
        }
        self.renew_lease(Some(self.identity.hold)).await?;
        info!(hold = ?self.identity.hold, "left; peers answer 503 for what only this server has until it is back");
        Ok(())
    }

    async fn renew_endpoint(&self, generation: i64) -> Result<(), StoreError> {
        let address = self.identity.address;
        let value = wire::endpoints(
            &self.identity.id,
            &address.ip().to_string(),
            address.port(),
            generation,
        );
        let lease = self.store.lease_grant(ENDPOINT_TTL, None).await?;
        self.store
            .put(self.endpoint_key.clone(), Bytes::from(value), lease.id)
            .await?;
        debug!(
            key = self.endpoint_key,
            generation, "renewed the endpoint key"
        );
        Ok(())
    }

    /// Writes the Lease: as it is, with a new time; as it should be, when there is none or it is another's.
    async fn renew_lease(&self, leaving: Option<Duration>) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let current = self.store.get(self.lease_key.clone()).await?;
            let (value, expected) = match &current {
                Some(kv) => (
                    self.lease(serde_json::from_slice(&kv.value).ok(), leaving),
                    kv.mod_revision,
                ),
                None => (self.lease(None, leaving), 0),
            };
            match self
                .store
                .update(self.lease_key.clone(), value.to_string(), expected, 0)
                .await
            {
                Ok(_) => return Ok(()),
                Err(WriteError::Store(error)) => return Err(error),
                Err(WriteError::Conflict { .. }) => debug!(
                    key = self.lease_key,
                    "somebody else wrote the identity Lease"
                ),
            }
        }
        // The next round tries again.
        Ok(())
    }

    fn lease(&self, current: Option<Value>, leaving: Option<Duration>) -> Value {
        let mut lease = current.filter(Value::is_object).unwrap_or_else(|| {
            json!({ "metadata": {
                "name": &*self.identity.id, "namespace": NAMESPACE,
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": now(0),
            }})
        });
        lease["apiVersion"] = json!("coordination.k8s.io/v1");
        lease["kind"] = json!("Lease");
        lease["metadata"]["labels"][IDENTITY_LABEL] = json!(IDENTITY_VALUE);
        if self.identity.hostname.len() <= LABEL_MAX {
            lease["metadata"]["labels"][HOSTNAME_LABEL] = json!(self.identity.hostname);
        }
        let annotations = &mut lease["metadata"]["annotations"];
        annotations[ADDRESS_ANNOTATION] = json!(self.identity.address.to_string());
        match leaving {
            Some(hold) => annotations[HOLD_ANNOTATION] = json!(hold.as_secs().to_string()),
            None => {
                annotations
                    .as_object_mut()
                    .map(|a| a.remove(HOLD_ANNOTATION));
            }
        }
        let seconds = leaving.map_or(LEASE_SECONDS, |hold| hold.as_secs().max(1));
        lease["spec"] = json!({
            "holderIdentity": self.holder, "leaseDurationSeconds": seconds, "renewTime": now(6),
        });
        lease
    }
}

/// The time now, as Kubernetes writes it, with that many digits after the second.
fn now(digits: u8) -> String {
    let now = Timestamp::now();
    if digits == 0 {
        now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }
}
