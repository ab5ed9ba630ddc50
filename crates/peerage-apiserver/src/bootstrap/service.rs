//! The Endpoints and EndpointSlice of the `kubernetes` Service: the addresses of all servers that are there, kept in
//! step with their endpoint keys. Whoever of them writes, the same comes out.
//!
//! Servers on one host have different ports, which one EndpointSlice cannot say: it has those of the first port.
//!
//! Differs: kube-apiserver keeps another set of keys for this (`masterleases`), with addresses only.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use peerage_catalogue::Catalogue;
use peerage_store::{Store, StoreExt as _, WriteError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::facts::family;
use super::{identified, now, place_of};
use crate::cache::{Cache, KindCache};

/// Changes that come shortly after each other are written once.
const SETTLE: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_secs(5);

/// Keeps both objects true.
pub(crate) struct ServiceAddresses {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) root: String,
    /// Where clients reach this server.
    pub(crate) own: SocketAddr,
    /// The endpoint keys of all servers.
    pub(crate) endpoints: Arc<KindCache>,
    /// Reads the address out of an endpoint key.
    pub(crate) read: fn(&KindCache) -> Vec<SocketAddr>,
}

impl ServiceAddresses {
    /// Until `stop`.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        let mut changes = self.endpoints.changes();
        loop {
            changes.borrow_and_update();
            let retry = tokio::select! {
                written = self.write_both() => written.is_err(),
                () = stop.cancelled() => return,
            };
            let pause = if retry { RETRY } else { SETTLE };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => return }
            if !retry {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = stop.cancelled() => return,
                }
            }
        }
    }

    async fn write_both(&self) -> Result<(), WriteError> {
        let mut ports: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
        for address in (self.read)(&self.endpoints).into_iter().chain([self.own]) {
            ports.entry(address.port()).or_default().push(address.ip());
        }
        for ips in ports.values_mut() {
            ips.sort();
            ips.dedup();
        }
        for object in [endpoints(&ports), endpoint_slice(&ports)] {
            if let Err(error) = self.write(&object).await {
                if let WriteError::Store(error) = &error {
                    warn!(%error, "could not write the addresses of the kubernetes Service");
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn write(&self, wanted: &Value) -> Result<(), WriteError> {
        let Some(place) = place_of(&self.catalogue, &self.root, wanted) else {
            return Ok(());
        };
        let key = format!("{}{}", place.prefix, place.name);
        let cached = self
            .cache
            .kind(&place.prefix)
            .and_then(|kind| kind.get(&place.name));
        let Some(cached) = cached else {
            let object = identified(wanted.clone(), &now());
            self.store.create(key, object.to_string(), 0).await?;
            return Ok(());
        };
        let Some(mut object) = cached.parse::<Value>() else {
            return Ok(());
        };
        let before = object.clone();
        for field in ["subsets", "endpoints", "ports", "addressType"] {
            if let Some(value) = wanted.get(field) {
                object[field] = value.clone();
            }
        }
        if object != before {
            self.store
                .update(key, object.to_string(), cached.revision, 0)
                .await?;
        }
        Ok(())
    }
}

fn port(number: u16) -> Value {
    json!([{"name": "https", "port": number, "protocol": "TCP"}])
}

fn endpoints(ports: &BTreeMap<u16, Vec<IpAddr>>) -> Value {
    let addresses = |ips: &[IpAddr]| ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>();
    let subsets = ports
        .iter()
        .map(|(number, ips)| json!({"addresses": addresses(ips), "ports": port(*number)}));
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": subsets.collect::<Vec<_>>(),
    })
}

fn endpoint_slice(ports: &BTreeMap<u16, Vec<IpAddr>>) -> Value {
    let first = ports.iter().next();
    let (number, ips) = first.map_or((0, &[][..]), |(number, ips)| (*number, ips.as_slice()));
    let kind = ips.first().map_or("IPv4", |ip| family(*ip));
    let same_kind = ips.iter().filter(|ip| family(**ip) == kind);
    let endpoints = same_kind.map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}}));
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
        "metadata": {
            "name": "kubernetes", "namespace": "default", "generation": 1,
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": port(number),
    })
}
