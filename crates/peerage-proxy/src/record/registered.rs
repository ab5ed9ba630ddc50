//! What kube-apiservers register about themselves, as it is stored and served: identity Leases
//! (`coordination.k8s.io/v1`) and the `Endpoints` under `peerserverleases`, in JSON or in Kubernetes' protobuf.
//!
//! Only the fields that matter here are declared; readers skip the rest. Who else may have written such an object is not
//! judged here.
//!
//! Invariant: bytes of any kind are a record or nothing, never a panic.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::uri::Authority;
use peerage_core::protobuf::Envelope;
use prost::Message;
use serde::Deserialize;

use super::IdentityLease;

/// Namespace of the identity Leases.
pub const NAMESPACE: &str = "kube-system";
/// Label of an identity Lease.
pub const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
/// Its value for a kube-apiserver and for what stands in for one.
pub const IDENTITY_VALUE: &str = "kube-apiserver";
/// Label of an endpoint record: the server ID.
pub const ENDPOINT_LABEL: &str = "apiserverIdentity";
/// Annotation of an identity Lease: the address that peers use.
pub const ADDRESS_ANNOTATION: &str = "kubernetes.io/peer-advertise-address";
/// Annotation of the Lease of a Peerage server that left in good order: for how many seconds from `renewTime` it is
/// expected back.
pub const HOLD_ANNOTATION: &str = "peerage.io/hold-seconds";
/// Key prefix of the endpoint records, below the cluster's own.
pub const ENDPOINTS: &str = "peerserverleases";

/// Where the identity Leases are listed and watched; `&` and more may follow.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";

/// What an identity Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The server ID.
    pub id: Arc<str>,
    /// The part of the Lease that says who and when.
    pub lease: IdentityLease,
    /// Where peers reach it, if that is written there.
    pub address: Option<Authority>,
}

/// Reads an object as an identity Lease, if it is one.
#[must_use]
pub fn read_lease(value: &[u8]) -> Option<Registered> {
    let file = match open(value) {
        Some(("Lease", raw)) => LeaseMessage::decode(raw).ok()?.into(),
        Some(_) => return None,
        None => serde_json::from_slice::<LeaseFile>(value).ok()?,
    };
    file.read()
}

/// Reads an object as an endpoint record, if it is one: the server that it names, and where it is.
#[must_use]
pub fn read_endpoint(value: &[u8]) -> Option<(Arc<str>, Option<Authority>)> {
    let file = match open(value) {
        Some(("Endpoints", raw)) => EndpointsMessage::decode(raw).ok()?.into(),
        Some(_) => return None,
        None => serde_json::from_slice::<EndpointsFile>(value).ok()?,
    };
    file.read()
}

/// The kind in a protobuf envelope, and its message.
fn open(value: &[u8]) -> Option<(&str, &[u8])> {
    let envelope = Envelope::open(value).ok()?;
    Some((envelope.kind, envelope.raw.unwrap_or_default()))
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
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpecFile {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    renew_time: Option<Moment>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Moment {
    Text(String),
    #[serde(skip)]
    Parts(u64, u32),
}

impl LeaseFile {
    fn read(self) -> Option<Registered> {
        let metadata = self.metadata;
        if metadata.labels.get(IDENTITY_LABEL).map(String::as_str) != Some(IDENTITY_VALUE) {
            return None;
        }
        let note = |key| metadata.annotations.get(key);
        let seconds = |s: u32| Duration::from_secs(s.into());
        Some(Registered {
            lease: IdentityLease {
                holder: self.spec.holder_identity?.into(),
                renew_time: self.spec.renew_time.and_then(Moment::time),
                duration: self.spec.lease_duration_seconds.map(seconds),
                hold: note(HOLD_ANNOTATION)
                    .and_then(|text| text.parse().ok())
                    .map(Duration::from_secs),
            },
            address: note(ADDRESS_ANNOTATION).and_then(|text| read_address(text)),
            id: metadata.name.into(),
        })
    }
}

impl Moment {
    fn time(self) -> Option<SystemTime> {
        let (seconds, nanos) = match self {
            Moment::Text(text) => {
                let at: jiff::Timestamp = text.parse().ok()?;
                let nanos = u32::try_from(at.subsec_nanosecond()).ok()?;
                (u64::try_from(at.as_second()).ok()?, nanos)
            }
            Moment::Parts(seconds, nanos) => (seconds, nanos),
        };
        let since = Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos.into()))?;
        SystemTime::UNIX_EPOCH.checked_add(since)
    }
}

/// Reads the address of a server, a host and a port: a host alone is none.
#[must_use]
pub fn read_address(text: &str) -> Option<Authority> {
    let authority: Authority = text.parse().ok()?;
    let host = authority.host();
    let is_host = match host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty(),
    };
    let plain = is_host && !text.contains('@');
    (plain && authority.port_u16().is_some_and(|port| port > 0)).then_some(authority)
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

impl EndpointsFile {
    fn read(self) -> Option<(Arc<str>, Option<Authority>)> {
        let id = self.metadata.labels.get(ENDPOINT_LABEL)?;
        let subset = self.subsets.first();
        let ip = subset.and_then(|it| Some(it.addresses.first()?.ip.as_str()));
        let port = subset.and_then(|it| Some(it.ports.first()?.port));
        Some((id.as_str().into(), address(ip, port)))
    }
}

/// `ip:port`, with an IPv6 address in brackets.
fn address(ip: Option<&str>, port: Option<u16>) -> Option<Authority> {
    let (ip, port) = (ip?, port?);
    if ip.contains(':') {
        read_address(&format!("[{ip}]:{port}"))
    } else {
        read_address(&format!("{ip}:{port}"))
    }
}

/// `metav1.ObjectMeta`.
#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    holder_identity: Option<String>,
    #[prost(int32, optional, tag = "2")]
    lease_duration_seconds: Option<i32>,
    #[prost(message, optional, tag = "4")]
    renew_time: Option<Time>,
}

/// `metav1.MicroTime`.
#[derive(Clone, PartialEq, Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct EndpointsMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    subsets: Vec<Subset>,
}

#[derive(Clone, PartialEq, Message)]
struct Subset {
    #[prost(message, repeated, tag = "1")]
    addresses: Vec<Address>,
    #[prost(message, repeated, tag = "3")]
    ports: Vec<Port>,
}

#[derive(Clone, PartialEq, Message)]
struct Address {
    #[prost(string, tag = "1")]
    ip: String,
}

#[derive(Clone, PartialEq, Message)]
struct Port {
    #[prost(int32, tag = "2")]
    port: i32,
}

impl From<ObjectMeta> for MetadataFile {
    fn from(message: ObjectMeta) -> Self {
        Self {
            name: message.name,
            labels: message.labels,
            annotations: message.annotations,
        }
    }
}

impl From<LeaseMessage> for LeaseFile {
    fn from(message: LeaseMessage) -> Self {
        let spec = message.spec.unwrap_or_default();
        let moment = |at: Time| {
            let seconds = u64::try_from(at.seconds).ok()?;
            Some(Moment::Parts(seconds, u32::try_from(at.nanos).ok()?))
        };
        Self {
            metadata: message.metadata.unwrap_or_default().into(),
            spec: LeaseSpecFile {
                holder_identity: spec.holder_identity,
                lease_duration_seconds: spec
                    .lease_duration_seconds
                    .and_then(|s| u32::try_from(s).ok()),
                renew_time: spec.renew_time.and_then(moment),
            },
        }
    }
}

impl From<EndpointsMessage> for EndpointsFile {
    fn from(message: EndpointsMessage) -> Self {
        let subset = |it: Subset| SubsetFile {
            addresses: it
                .addresses
                .into_iter()
                .map(|a| AddressFile { ip: a.ip })
                .collect(),
            ports: it
                .ports
                .into_iter()
                .filter_map(|p| u16::try_from(p.port).ok())
                .map(|port| PortFile { port })
                .collect(),
        };
        Self {
            metadata: message.metadata.unwrap_or_default().into(),
            subsets: message.subsets.into_iter().map(subset).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// As a kube-apiserver 1.37.2 wrote it.
    fn endpoint_bytes() -> Vec<u8> {
        let mut value =
            b"k8s\x00\n\x0f\n\x02v1\x12\tEndpoints\x12o\nK\n\x00\x12\x00\x1a\x00\"\x00*\x002\x00"
                .to_vec();
        value.extend(
            b"8\x01B\x00Z9\n\x11apiserverIdentity\x12$apiserver-7m4ksdmwgfyoyspfnlfdou37ci",
        );
        value.extend(b"\x12\x20\n\r\n\t127.0.0.1\x1a\x00\x1a\x0f\n\x05https\x10\xea9\x1a\x03TCP\x1a\x00\"\x00");
        value
    }

    fn lease(labels: serde_json::Value, annotations: serde_json::Value) -> Vec<u8> {
        json!({
            "metadata": {"name": "apiserver-a", "labels": labels, "annotations": annotations},
            "spec": {"holderIdentity": "apiserver-a_1", "leaseDurationSeconds": 3600,
                     "renewTime": "2026-11-29T10:00:00.500000Z"},
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn an_endpoint_is_read_in_both_encodings() {
        let (id, address) = read_endpoint(&endpoint_bytes()).unwrap();
        assert_eq!(&*id, "apiserver-7m4ksdmwgfyoyspfnlfdou37ci");
        assert_eq!(address.unwrap(), "127.0.0.1:7402");
        let json = json!({
            "kind": "Endpoints", "metadata": {"labels": {"apiserverIdentity": "a"}},
            "subsets": [{"addresses": [{"ip": "::1"}], "ports": [{"port": 7431}]}],
        });
        let (id, address) = read_endpoint(json.to_string().as_bytes()).unwrap();
        assert_eq!((&*id, address.unwrap().as_str()), ("a", "[::1]:7431"));
    }

    #[test]
    fn a_lease_is_one_only_with_the_label_and_a_holder() {
        let label = json!({IDENTITY_LABEL: IDENTITY_VALUE});
        let found = read_lease(&lease(
            label.clone(),
            json!({ADDRESS_ANNOTATION: "[::1]:6443"}),
        ));
        let found = found.unwrap();
        assert_eq!(&*found.id, "apiserver-a");
        assert_eq!(found.address.unwrap(), "[::1]:6443");
        let since = found
            .lease
            .renew_time
            .unwrap()
            .duration_since(SystemTime::UNIX_EPOCH);
        assert_eq!(since.unwrap().subsec_millis(), 500);
        let left = read_lease(&lease(label, json!({HOLD_ANNOTATION: "600"}))).unwrap();
        assert_eq!(left.lease.hold, Some(Duration::from_secs(600)));
        assert_eq!(left.address, None);
        for labels in [json!({}), json!({IDENTITY_LABEL: "other"})] {
            assert_eq!(read_lease(&lease(labels, json!({}))), None);
        }
        assert_eq!(read_lease(br#"{"metadata":{"labels":7}}"#), None);
    }

    #[test]
    fn an_address_is_a_host_and_a_port_and_nothing_else() {
        for (text, good) in [
            ("10.0.0.1:6443", true),
            ("cp.example:6443", true),
            ("10.0.0.1", false),
            ("10.0.0.1:0", false),
            ("10.0.0.1:99999", false),
            ("me@10.0.0.1:6443", false),
            ("me@[::1]:6443", false),
            ("[::1]:6443", true),
            ("[x]:6443", false),
            ("::1:6443", false),
            (":6443", false),
            ("10.0.0.1:6443/path", false),
            ("", false),
        ] {
            assert_eq!(read_address(text).is_some(), good, "{text}");
        }
    }

    proptest! {
        #[test]
        fn damaged_bytes_are_nothing_or_a_record(cut in 0usize..138, at in 0usize..138, byte: u8) {
            let mut bytes = endpoint_bytes();
            bytes[at] = byte;
            bytes.truncate(cut);
            let _ = read_endpoint(&bytes);
            let _ = read_lease(&bytes);
        }
    }
}
