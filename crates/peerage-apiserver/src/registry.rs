//! This server's place among the others on the same store: its identity Lease and endpoint key, written in the
//! rhythm and form of kube-apiserver (KEP-4020, KEP-1965), and the records of everyone else for the proxy.
//!
//! The Lease says that a server of that identity exists; the endpoint key, which lives for fifteen seconds,
//! says that it is there and where. A server that stops in good order removes the key and leaves its Lease
//! behind, shortened to the hold time, so that the others answer 503 until it is back, and not 404.
//!
//! Differs: the endpoint key is written first. kube-apiserver writes its Lease before it can answer; peers that see the
//! Lease then fail to find the endpoint, and one before 1.35 gives up after five tries in a fifth of a second.
//!
//! Differs: kube-apiserver deletes both, and its peers answer 404 from that moment on. It also deletes the Lease of
//! its own name when it starts; here the Lease is taken over and keeps its uid.

mod doubles;
mod garbage;
mod identity;
mod records;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use peerage_proxy::PeerRecord;
use peerage_proxy::record::registered::{ADDRESS_ANNOTATION, HOLD_ANNOTATION};
pub(crate) use peerage_proxy::record::registered::{
    ENDPOINT_LABEL as IDENTITY_LABEL_OF_ENDPOINT, ENDPOINTS, IDENTITY_LABEL, IDENTITY_VALUE,
    NAMESPACE,
};
use peerage_store::{KeyValue, Revision, Store, StoreError, StoreExt as _, WriteError};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::cache::{Cache, KindCache};
use crate::encoding::{self, ENDPOINT_ENCODING, Encoding, LEASE_ENCODING};
use crate::wire;
pub use identity::server_id;
pub(crate) use records::addresses;

const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// How often the Lease and the endpoint key are renewed (kube-apiserver: 10 s, the Lease with up to 4 % jitter).
const RENEW: Duration = Duration::from_secs(10);
/// How long an endpoint key outlives its last renewal.
const ENDPOINT_TTL: Duration = Duration::from_secs(15);
/// Duration of an identity Lease. Others read it only to collect what is left of servers long gone.
const LEASE_SECONDS: u64 = 3_600;
/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// How long the first Lease waits for the endpoint key. A store that takes longer refuses both, or will not.
const LOCATING: Duration = Duration::from_secs(5);
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
    /// Whether peers are told where this server is.
    pub(crate) announced: bool,
}

/// Keeps this server's records in the store and follows those of the others.
pub(crate) struct Registry {
    store: Arc<dyn Store>,
    identity: Identity,
    holder: String,
    lease_key: String,
    endpoint_key: String,
    /// Key prefix of all Leases.
    leases: String,
    /// Key prefix of all endpoint keys.
    endpoints: String,
    /// Revision of the endpoint key as this server wrote it last; 0 before that.
    written: AtomicI64,
    /// Cancelled when the endpoint key has been written once.
    located: CancellationToken,
}

impl Registry {
    pub(crate) fn new(store: Arc<dyn Store>, root: &str, identity: Identity) -> Self {
        Self {
            holder: format!("{}_{}", identity.id, uuid::Uuid::new_v4()),
            lease_key: format!("{root}/leases/{NAMESPACE}/{}", identity.id),
            endpoint_key: format!("{root}/{ENDPOINTS}/{}", identity.id),
            leases: format!("{root}/leases/"),
            endpoints: format!("{root}/{ENDPOINTS}/"),
            written: AtomicI64::new(0),
            located: CancellationToken::new(),
            store,
            identity,
        }
    }

    /// Publishes the records of the other servers, from now on.
    pub(crate) fn follow(&self, cache: &Cache) -> watch::Receiver<Arc<[PeerRecord]>> {
        let kind = |prefix: &str| cache.kind(prefix).cloned().unwrap_or_default();
        let (leases, endpoints) = (kind(&self.leases), kind(&self.endpoints));
        let own = self.identity.id.clone();
        // What is there already is published at once: a start waits for the peers known at it.
        let known = records::read(&own, &leases, &endpoints);
        let (records, followed) = watch::channel(known);
        tokio::spawn(records::follow(own, leases, endpoints, records));
        followed
    }

    /// The endpoint keys of all servers.
    pub(crate) fn endpoints(&self, cache: &Cache) -> Arc<KindCache> {
        cache.kind(&self.endpoints).cloned().unwrap_or_default()
    }

    /// Renews the identity Lease until `stop`, from when peers can find out where this server is.
    pub(crate) async fn keep_identity(self: Arc<Self>, stop: CancellationToken) {
        if self.identity.announced {
            tokio::select! {
                () = self.located.cancelled() => {}
                () = tokio::time::sleep(LOCATING) => {}
                () = stop.cancelled() => return,
            }
        }
        loop {
            let pause = match self.renew_lease(None).await {
                Ok(()) => RENEW + RENEW.mul_f64(0.04 * rand::random::<f64>()),
                Err(error) => {
                    warn!(%error, lease = self.lease_key, "could not renew the identity Lease");
                    RETRY
                }
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => return }
        }
    }

    /// Renews the endpoint key until `stop`. Started once this server is ready to answer.
    pub(crate) async fn keep_endpoint(self: Arc<Self>, stop: CancellationToken) {
        if !self.identity.announced {
            return;
        }
        let (mut generation, mut failures) = (0, 0u32);
        loop {
            generation += 1;
            let pause = match self.renew_endpoint(generation).await {
                Ok(()) => {
                    failures = 0;
                    RENEW
                }
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        warn!(%error, key = self.endpoint_key, "could not renew the endpoint key; trying on");
                    }
                    (RETRY * failures).min(RENEW / 2)
                }
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => return }
        }
    }

    /// Says goodbye: no endpoint any more, and a Lease that asks the others to wait for the hold time. A server that
    /// never told where it is leaves nothing behind.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        if !self.identity.announced {
            self.delete(&self.endpoint_key, None).await?;
            return self.delete(&self.lease_key, None).await;
        }
        if let Some(kv) = self.store.get(self.endpoint_key.clone()).await? {
            if let Some(other) = self.double_of(&kv) {
                warn!(
                    other,
                    "another server has this server's identity; its records stay"
                );
                return Ok(());
            }
            self.delete(&self.endpoint_key, Some(kv.mod_revision))
                .await?;
        }
        self.renew_lease(Some(self.identity.hold)).await?;
        info!(hold = ?self.identity.hold, "left; peers answer 503 for what only this server has until it is back");
        Ok(())
    }

    /// Deletes a key, unless it is another than at the revision that is given.
    async fn delete(&self, key: &str, expected: Option<Revision>) -> Result<(), StoreError> {
        match self.store.delete(key.to_owned(), expected).await {
            Ok(_) | Err(WriteError::Conflict { .. }) => Ok(()),
            Err(WriteError::Store(error)) => Err(error),
        }
    }

    async fn renew_endpoint(&self, generation: i64) -> Result<(), StoreError> {
        let current = self.store.get(self.endpoint_key.clone()).await?;
        if let Some(kv) = &current {
            self.warn_of_double(kv);
        }
        let encoding = current.map_or(ENDPOINT_ENCODING, |kv| Encoding::of(&kv.value));
        let value = endpoint(&self.identity, generation, encoding);
        let lease = self.store.lease_grant(ENDPOINT_TTL, None).await?;
        let written = self
            .store
            .put(self.endpoint_key.clone(), Bytes::from(value), lease.id)
            .await?;
        self.written.store(written.mod_revision, Ordering::Relaxed);
        self.located.cancel();
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
            let expected = current.as_ref().map_or(0, |kv| kv.mod_revision);
            let encoding = current
                .as_ref()
                .map_or(LEASE_ENCODING, |kv| Encoding::of(&kv.value));
            let lease = self.lease(current.as_ref().and_then(readable), leaving);
            let value = encoding::seal(encoding, lease.to_string().into());
            match self
                .store
                .update(self.lease_key.clone(), value, expected, 0)
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
        let mut lease = current.unwrap_or_else(|| {
            json!({ "metadata": {
                "name": &*self.identity.id, "namespace": NAMESPACE,
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": now(0),
            }})
        });
        lease["apiVersion"] = json!("coordination.k8s.io/v1");
        lease["kind"] = json!("Lease");
        let metadata = &mut lease["metadata"];
        let hostname = &self.identity.hostname;
        let hostname = (hostname.len() <= LABEL_MAX).then(|| hostname.clone());
        let address = (self.identity.announced).then(|| self.identity.address.to_string());
        let hold = leaving.map(|hold| hold.as_secs().to_string());
        let identity = Some(IDENTITY_VALUE.to_owned());
        note(
            metadata,
            "labels",
            [(IDENTITY_LABEL, identity), (HOSTNAME_LABEL, hostname)],
        );
        note(
            metadata,
            "annotations",
            [(ADDRESS_ANNOTATION, address), (HOLD_ANNOTATION, hold)],
        );
        let seconds = leaving.map_or(LEASE_SECONDS, |hold| hold.as_secs().max(1));
        lease["spec"] = json!({
            "holderIdentity": self.holder, "leaseDurationSeconds": seconds, "renewTime": now(6),
        });
        lease
    }
}

/// The value of this server's endpoint key.
fn endpoint(identity: &Identity, generation: i64, encoding: Encoding) -> Vec<u8> {
    let (id, address) = (&identity.id, identity.address);
    let (ip, port) = (address.ip().to_string(), address.port());
    match encoding {
        Encoding::Protobuf => wire::endpoints(id, &ip, port, generation),
        Encoding::Json => wire::endpoints_json(id, &ip, port, generation),
    }
}

/// The Lease as a value, if it can be read as an object; a damaged one is written anew.
fn readable(kv: &KeyValue) -> Option<Value> {
    let (json, _) = encoding::open(&kv.value).ok()?;
    let lease: Value = serde_json::from_slice(&json).ok()?;
    lease["metadata"].is_object().then_some(lease)
}

/// Puts labels or annotations there, or takes them away; those of others stay.
fn note<const N: usize>(metadata: &mut Value, field: &str, notes: [(&str, Option<String>); N]) {
    let mut all = match metadata[field].take() {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    };
    for (key, value) in notes {
        match value {
            Some(value) => all.insert(key.to_owned(), json!(value)),
            None => all.remove(key),
        };
    }
    match metadata.as_object_mut() {
        Some(metadata) if all.is_empty() => drop(metadata.remove(field)),
        _ => metadata[field] = Value::Object(all),
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
