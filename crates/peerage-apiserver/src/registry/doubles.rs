//! Two servers with one identity: they share a Lease and an endpoint key, and each takes the other for itself.
//!
//! A server that starts refuses to when another one of its identity is alive; two that start at the same moment say
//! so, loudly, in their logs. A key that a server left behind when it was killed is not taken for a living one.
//!
//! Differs: kube-apiserver goes on in silence, and half of what peers send goes to the wrong server.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peerage_store::KeyValue;
use tracing::{error, info};

use super::{ENDPOINT_TTL, Registry, records};
use crate::cache::{Cache, CachedObject};

/// How long the other address may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// How often the endpoint key is looked at while its writer is judged.
const LOOK: Duration = Duration::from_millis(500);

impl Registry {
    /// The address of a living server with this one's identity. A key of another address counts as alive if
    /// somebody answers there and renews it: usually known at once, else within one renewal.
    pub(crate) async fn find_double(&self, cache: &Cache) -> Option<String> {
        if !self.identity.announced {
            return None;
        }
        let endpoints = cache.kind(&self.endpoints)?;
        let first = endpoints.get(&self.identity.id)?;
        let other = self.other_address(&first)?;
        let address: SocketAddr = other.parse().ok()?;
        let answers = tokio::time::timeout(CONNECT, tokio::net::TcpStream::connect(address)).await;
        if !matches!(answers, Ok(Ok(_))) {
            return None;
        }
        info!(%address, "another server may have this server's identity; waiting to see whether it lives");
        let mut waited = Duration::ZERO;
        while waited < ENDPOINT_TTL {
            tokio::time::sleep(LOOK).await;
            waited += LOOK;
            let now = endpoints.get(&self.identity.id)?;
            if now.revision != first.revision {
                return self.other_address(&now);
            }
        }
        None
    }

    /// Says so if another server has written the endpoint key, which is this, since this one did.
    pub(super) fn warn_of_double(&self, kv: &KeyValue) {
        let written = self.written.load(Ordering::Relaxed);
        if written == 0 || kv.mod_revision == written {
            return;
        }
        if let Some(other) = self.double_of(kv) {
            error!(
                other,
                id = &*self.identity.id,
                hostname = self.identity.hostname,
                "another running server has this server's identity, and each is taken for the other; give one of them another name with --hostname-override and restart it"
            );
        }
    }

    /// The address in an endpoint key, if it is not this server's.
    pub(super) fn double_of(&self, kv: &KeyValue) -> Option<String> {
        self.other_address(&load(kv))
    }

    fn other_address(&self, object: &CachedObject) -> Option<String> {
        let (_, address) = records::endpoint(object)?;
        let address = address?.to_string();
        (address != self.identity.address.to_string()).then_some(address)
    }
}

fn load(kv: &KeyValue) -> CachedObject {
    CachedObject::load("".into(), kv, None)
}
