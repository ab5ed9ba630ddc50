//! What the store says of the other servers: their identity Leases and endpoint keys, read from the cache and
//! published as the proxy's peer records whenever one changes.
//!
//! Only Leases in `kube-system` with the identity label count, and one that cannot be read costs nothing but
//! its own record.
//!
//! Differs: kube-apiserver takes a labelled Lease of any namespace for a peer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use http::uri::Authority;
use peerage_proxy::record::registered;
use peerage_proxy::{IdentityLease, PeerRecord};
use tokio::sync::watch;

use super::NAMESPACE;
use crate::cache::{CachedObject, Content, KindCache};

/// Follows both kinds and publishes the records of everyone but `own`.
pub(super) async fn follow(
    own: Arc<str>,
    leases: Arc<KindCache>,
    endpoints: Arc<KindCache>,
    records: watch::Sender<Arc<[PeerRecord]>>,
) {
    let (mut leases_changed, mut endpoints_changed) = (leases.changes(), endpoints.changes());
    loop {
        leases_changed.borrow_and_update();
        endpoints_changed.borrow_and_update();
        let now = read(&own, &leases, &endpoints);
        records.send_if_modified(|before| {
            let changed = **before != *now;
            *before = now;
            changed
        });
        let ended = tokio::select! {
            changed = leases_changed.changed() => changed.is_err(),
            changed = endpoints_changed.changed() => changed.is_err(),
            () = records.closed() => true,
        };
        if ended {
            return;
        }
    }
}

pub(super) fn read(own: &str, leases: &KindCache, endpoints: &KindCache) -> Arc<[PeerRecord]> {
    let mut found: BTreeMap<Arc<str>, PeerRecord> = BTreeMap::new();
    let blank = |id: &Arc<str>| PeerRecord {
        id: id.clone(),
        address: None,
        identity_lease: None,
        endpoint_live: false,
        zone: None,
    };
    for object in leases.snapshot(&format!("{NAMESPACE}/"), 0).objects {
        let Some(lease) = lease(&object) else {
            continue;
        };
        let id: Arc<str> = object.own_name().into();
        found
            .entry(id.clone())
            .or_insert_with(|| blank(&id))
            .identity_lease = Some(lease);
    }
    for object in endpoints.snapshot("", 0).objects {
        let Some((id, address)) = endpoint(&object) else {
            continue;
        };
        let record = found.entry(id.clone()).or_insert_with(|| blank(&id));
        record.endpoint_live = true;
        record.address = address;
    }
    found.remove(own);
    found.into_values().collect()
}

/// Where the servers with an endpoint key are, as far as they gave addresses and no names.
pub(crate) fn addresses(endpoints: &KindCache) -> Vec<SocketAddr> {
    let objects = endpoints.snapshot("", 0).objects;
    let read = |object: &Arc<CachedObject>| endpoint(object)?.1?.as_str().parse().ok();
    objects.iter().filter_map(read).collect()
}

/// The identity Lease in an object, if it is one.
pub(super) fn lease(object: &CachedObject) -> Option<IdentityLease> {
    Some(registered::read_lease(bytes(object))?.lease)
}

/// The server that an endpoint key names, and where it is.
pub(super) fn endpoint(object: &CachedObject) -> Option<(Arc<str>, Option<Authority>)> {
    registered::read_endpoint(bytes(object))
}

fn bytes(object: &CachedObject) -> &[u8] {
    match &object.content {
        Content::Json(json) => json.bytes(),
        Content::Unreadable { value, .. } => value,
    }
}
