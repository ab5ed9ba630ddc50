//! The protobuf encoding of what kube-apiservers keep about each other in the store: core/v1 `Endpoints` under
//! `peerserverleases`, and `Lease` objects, inside Kubernetes' `k8s\0` envelope.
//!
//! Of Endpoints only the fields that matter here are declared; readers skip the rest. Leases are declared whole, and
//! `lease` turns them into JSON and back. What is written is byte for byte what kube-apiserver writes, which includes
//! the empty members of the messages generated for Go. Endpoints in JSON are here too, for a record that was found in it.

pub(crate) mod lease;

use std::collections::BTreeMap;

use peerage_core::protobuf::Envelope;
pub(crate) use peerage_core::protobuf::MAGIC;
use prost::Message;
use serde_json::json;

use crate::registry::IDENTITY_LABEL_OF_ENDPOINT;

/// Kind and version of what is in an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeMeta {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// `metav1.ObjectMeta`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ObjectMeta {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) generate_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) namespace: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(crate) self_link: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(crate) uid: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(crate) resource_version: Option<String>,
    #[prost(int64, optional, tag = "7")]
    pub(crate) generation: Option<i64>,
    #[prost(message, optional, tag = "8")]
    pub(crate) creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub(crate) deletion_timestamp: Option<Time>,
    #[prost(int64, optional, tag = "10")]
    pub(crate) deletion_grace_period_seconds: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) labels: Vec<Entry>,
    #[prost(message, repeated, tag = "12")]
    pub(crate) annotations: Vec<Entry>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    pub(crate) finalizers: Vec<String>,
    #[prost(message, repeated, tag = "17")]
    pub(crate) managed_fields: Vec<ManagedFieldsEntry>,
}

/// An entry of a map, whose empty value is written too: prost's own maps leave it out.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(string, optional, tag = "1")]
    pub(crate) key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) value: Option<String>,
}

/// The entries of a map.
pub(crate) fn map(entries: Vec<Entry>) -> BTreeMap<String, String> {
    let pair = |e: Entry| (e.key.unwrap_or_default(), e.value.unwrap_or_default());
    entries.into_iter().map(pair).collect()
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OwnerReference {
    #[prost(string, optional, tag = "1")]
    pub(crate) kind: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) name: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(crate) uid: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(crate) api_version: Option<String>,
    #[prost(bool, optional, tag = "6")]
    pub(crate) controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub(crate) block_owner_deletion: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ManagedFieldsEntry {
    #[prost(string, optional, tag = "1")]
    pub(crate) manager: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) operation: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) api_version: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub(crate) time: Option<Time>,
    #[prost(string, optional, tag = "6")]
    pub(crate) fields_type: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub(crate) fields: Option<FieldsV1>,
    #[prost(string, optional, tag = "8")]
    pub(crate) subresource: Option<String>,
}

/// JSON, as bytes.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FieldsV1 {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) raw: Option<Vec<u8>>,
}

/// `metav1.Time` and `MicroTime`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Time {
    #[prost(int64, optional, tag = "1")]
    pub(crate) seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) nanos: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Endpoints {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) subsets: Vec<EndpointSubset>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndpointSubset {
    #[prost(message, repeated, tag = "1")]
    pub(crate) addresses: Vec<EndpointAddress>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) ports: Vec<EndpointPort>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndpointAddress {
    #[prost(string, optional, tag = "1")]
    pub(crate) ip: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) hostname: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndpointPort {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) port: Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub(crate) protocol: Option<String>,
}

/// `core/v1` `RangeAllocation`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeAllocation {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ObjectMeta>,
    #[prost(string, optional, tag = "2")]
    pub(crate) range: Option<String>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) data: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Lease {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(crate) spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    pub(crate) holder_identity: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) lease_duration_seconds: Option<i32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) acquire_time: Option<Time>,
    #[prost(message, optional, tag = "4")]
    pub(crate) renew_time: Option<Time>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) lease_transitions: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) strategy: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub(crate) preferred_holder: Option<String>,
}

/// Puts a message of that kind into the envelope.
pub(crate) fn seal(api_version: &str, kind: &str, message: &impl Message) -> Vec<u8> {
    enclose(api_version, kind, message.encode_to_vec())
}

/// Puts a message's bytes into the envelope.
pub(crate) fn enclose(api_version: &str, kind: &str, raw: Vec<u8>) -> Vec<u8> {
    let raw = Some(&*raw);
    let envelope = Envelope {
        api_version,
        kind,
        raw,
    };
    envelope.seal()
}

/// What kind in which version is in an envelope, and its message's bytes.
pub(crate) fn open_typed(value: &[u8]) -> Option<(TypeMeta, Vec<u8>)> {
    let envelope = Envelope::open(value).ok()?;
    let types = TypeMeta {
        api_version: envelope.api_version.to_owned(),
        kind: envelope.kind.to_owned(),
    };
    Some((types, envelope.raw?.to_vec()))
}

/// The value of a server's endpoint key.
pub(crate) fn endpoints(server: &str, ip: &str, port: u16, generation: i64) -> Vec<u8> {
    let empty = || Some(String::new());
    let message = Endpoints {
        metadata: Some(ObjectMeta {
            name: empty(),
            generate_name: empty(),
            namespace: empty(),
            self_link: empty(),
            uid: empty(),
            resource_version: empty(),
            generation: Some(generation),
            creation_timestamp: Some(Time {
                seconds: None,
                nanos: None,
            }),
            labels: vec![Entry {
                key: Some(IDENTITY_LABEL_OF_ENDPOINT.to_owned()),
                value: Some(server.to_owned()),
            }],
            ..ObjectMeta::default()
        }),
        subsets: vec![EndpointSubset {
            addresses: vec![EndpointAddress {
                ip: Some(ip.to_owned()),
                hostname: empty(),
            }],
            ports: vec![EndpointPort {
                name: Some("https".to_owned()),
                port: Some(i32::from(port)),
                protocol: Some("TCP".to_owned()),
            }],
        }],
    };
    seal("v1", "Endpoints", &message)
}

/// The same in JSON.
pub(crate) fn endpoints_json(server: &str, ip: &str, port: u16, generation: i64) -> Vec<u8> {
    let record = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"generation": generation, "labels": {IDENTITY_LABEL_OF_ENDPOINT: server}},
        "subsets": [{
            "addresses": [{"ip": ip}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }],
    });
    record.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kube-apiserver 1.37.2 with a four-digit port wrote it.
    #[test]
    fn an_endpoint_key_holds_the_bytes_that_kube_apiserver_writes() {
        let mut expected =
            b"k8s\x00\n\x0f\n\x02v1\x12\tEndpoints\x12o\nK\n\x00\x12\x00\x1a\x00\"\x00*\x002\x00"
                .to_vec();
        expected.extend(
            b"8\x01B\x00Z9\n\x11apiserverIdentity\x12$apiserver-7m4ksdmwgfyoyspfnlfdou37ci",
        );
        expected.extend(b"\x12\x20\n\r\n\t127.0.0.1\x1a\x00\x1a\x0f\n\x05https\x10\xea9\x1a\x03TCP\x1a\x00\"\x00");
        let value = endpoints("apiserver-7m4ksdmwgfyoyspfnlfdou37ci", "127.0.0.1", 7402, 1);
        assert_eq!(value, expected);
        assert_eq!(value.len(), 138);
        let (types, raw) = open_typed(&value).expect("it opens");
        assert_eq!(types.kind, "Endpoints");
        let message = Endpoints::decode(raw.as_slice()).expect("it decodes");
        assert_eq!(message.subsets[0].ports[0].port, Some(7402));
    }

    #[test]
    fn a_value_that_is_cut_short_is_nothing_or_whole() {
        let value = endpoints("a", "127.0.0.1", 1, 1);
        let whole = open_typed(&value).expect("it opens");
        // The two empty texts of two bytes each that come last say nothing.
        let least = value.len() - 4;
        for cut in 0..value.len() {
            let opened = open_typed(&value[..cut]);
            let expected = (cut == least || cut == least + 2).then(|| whole.clone());
            assert_eq!(opened, expected, "{cut} of {}", value.len());
        }
        for cut in 1..whole.1.len() {
            let message = Endpoints::decode(&whole.1[..cut]);
            let ports = message.map_or(0, |it| it.subsets.len());
            assert_eq!(ports, 0, "half a subset is none");
        }
        assert_eq!(open_typed(b"{}"), None);
    }
}
