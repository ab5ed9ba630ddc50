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
use std::time::{Duration, SystemTime};

use http::uri::Authority;
use peerage_proxy::{IdentityLease, PeerRecord};
use prost::Message as _;
use serde::Deserialize;
use tokio::sync::watch;

use super::{HOLD_ANNOTATION, IDENTITY_LABEL, IDENTITY_VALUE, NAMESPACE};
use crate::cache::{CachedObject, Content, KindCache};
use crate::wire;

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

#[derive(Deserialize, Default)]
#[serde(default)]
struct LeaseFile {
    metadata: MetadataFile,
    spec: LeaseSpecFile,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MetadataFile {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpecFile {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    renew_time: Option<String>,
}

pub(super) fn lease(object: &CachedObject) -> Option<IdentityLease> {
    match &object.content {
        Content::Json(_) => lease_from_json(object.parse()?),
        Content::Unreadable { value, .. } => lease_from_protobuf(value),
    }
}

fn lease_from_json(file: LeaseFile) -> Option<IdentityLease> {
    if file.metadata.labels.get(IDENTITY_LABEL).map(String::as_str) != Some(IDENTITY_VALUE) {
        return None;
    }
    let renewed = file
        .spec
        .renew_time
        .and_then(|t| t.parse::<jiff::Timestamp>().ok());
    Some(IdentityLease {
        holder: file.spec.holder_identity?.into(),
        renew_time: renewed.and_then(system_time),
        duration: file
            .spec
            .lease_duration_seconds
            .map(|s| Duration::from_secs(s.into())),
        hold: hold(&file.metadata.annotations),
    })
}

fn system_time(at: jiff::Timestamp) -> Option<SystemTime> {
    let seconds = u64::try_from(at.as_second()).ok()?;
    let nanos = u32::try_from(at.subsec_nanosecond()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

fn lease_from_protobuf(value: &[u8]) -> Option<IdentityLease> {
    let (kind, raw) = wire::open(value)?;
    let lease = (kind == "Lease").then(|| wire::Lease::decode(raw.as_slice()).ok())??;
    let (metadata, spec) = (lease.metadata?, lease.spec?);
    if wire::map(metadata.labels)
        .get(IDENTITY_LABEL)
        .map(String::as_str)
        != Some(IDENTITY_VALUE)
    {
        return None;
    }
    let renewed = spec.renew_time.and_then(|t| {
        let seconds = Duration::from_secs(u64::try_from(t.seconds.unwrap_or(0)).ok()?);
        let nanos = Duration::from_nanos(u64::try_from(t.nanos.unwrap_or(0)).ok()?);
        SystemTime::UNIX_EPOCH
            .checked_add(seconds)?
            .checked_add(nanos)
    });
    let seconds = spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok());
    Some(IdentityLease {
        holder: spec.holder_identity?.into(),
        renew_time: renewed,
        duration: seconds.map(Duration::from_secs),
        hold: hold(&wire::map(metadata.annotations)),
    })
}

fn hold(annotations: &BTreeMap<String, String>) -> Option<Duration> {
    annotations
        .get(HOLD_ANNOTATION)?
        .parse()
        .ok()
        .map(Duration::from_secs)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct EndpointsFile {
    metadata: MetadataFile,
    subsets: Vec<SubsetFile>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SubsetFile {
    addresses: Vec<AddressFile>,
    ports: Vec<PortFile>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AddressFile {
    ip: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PortFile {
    port: u16,
}

/// The server that an endpoint key names, and where it is.
pub(super) fn endpoint(object: &CachedObject) -> Option<(Arc<str>, Option<Authority>)> {
    let (labels, ip, port) = match &object.content {
        Content::Json(_) => {
            let file: EndpointsFile = object.parse()?;
            let subset = file.subsets.into_iter().next().unwrap_or_default();
            let ip = subset.addresses.into_iter().next().map(|a| a.ip);
            (
                file.metadata.labels,
                ip,
                subset.ports.first().map(|p| p.port),
            )
        }
        Content::Unreadable { value, .. } => {
            let (kind, raw) = wire::open(value)?;
            let message =
                (kind == "Endpoints").then(|| wire::Endpoints::decode(raw.as_slice()).ok())??;
            let subset = message.subsets.into_iter().next().unwrap_or_default();
            let ip = subset.addresses.into_iter().next().and_then(|a| a.ip);
            let port = subset
                .ports
                .first()
                .and_then(|p| u16::try_from(p.port?).ok());
            (wire::map(message.metadata?.labels), ip, port)
        }
    };
    let id = labels.get(super::IDENTITY_LABEL_OF_ENDPOINT)?;
    Some((id.as_str().into(), authority(ip.as_deref(), port)))
}

/// `ip:port`, with an IPv6 address in brackets.
fn authority(ip: Option<&str>, port: Option<u16>) -> Option<Authority> {
    let (ip, port) = (ip?, port?);
    let text = if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    };
    text.parse().ok()
}
