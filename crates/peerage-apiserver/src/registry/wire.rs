//! The protobuf encoding of what kube-apiservers keep about each other in the store: core/v1 `Endpoints` under
//! `peerserverleases`, and `Lease` objects, inside Kubernetes' `k8s\0` envelope.
//!
//! Only the fields that matter here are declared; readers skip the rest. What is written is byte for byte what
//! kube-apiserver writes, which includes the empty members of the messages generated for Go.

use prost::Message;

/// The four bytes before every protobuf value.
pub(super) const MAGIC: &[u8; 4] = b"k8s\0";

/// `runtime.Unknown`: the envelope.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub(super) type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) raw: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    pub(super) content_encoding: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) content_type: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TypeMeta {
    #[prost(string, optional, tag = "1")]
    pub(super) api_version: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) kind: Option<String>,
}

/// `metav1.ObjectMeta`, without what is never read here.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) generate_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) namespace: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) self_link: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(super) uid: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) resource_version: Option<String>,
    #[prost(int64, optional, tag = "7")]
    pub(super) generation: Option<i64>,
    #[prost(message, optional, tag = "8")]
    pub(super) creation_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(super) labels: std::collections::BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

/// `metav1.Time` and `MicroTime`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, optional, tag = "1")]
    pub(super) seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    pub(super) nanos: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Endpoints {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    pub(super) subsets: Vec<EndpointSubset>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndpointSubset {
    #[prost(message, repeated, tag = "1")]
    pub(super) addresses: Vec<EndpointAddress>,
    #[prost(message, repeated, tag = "3")]
    pub(super) ports: Vec<EndpointPort>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndpointAddress {
    #[prost(string, optional, tag = "1")]
    pub(super) ip: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) hostname: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndpointPort {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(super) port: Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub(super) protocol: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Lease {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    pub(super) holder_identity: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(super) lease_duration_seconds: Option<i32>,
    #[prost(message, optional, tag = "4")]
    pub(super) renew_time: Option<Time>,
}

/// Puts a message of that kind into the envelope.
pub(super) fn seal(api_version: &str, kind: &str, message: &impl Message) -> Vec<u8> {
    let envelope = Unknown {
        type_meta: Some(TypeMeta {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
        }),
        raw: Some(message.encode_to_vec()),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    };
    let mut value = MAGIC.to_vec();
    value.extend(envelope.encode_to_vec());
    value
}

/// The kind in an envelope and its message's bytes.
pub(super) fn open(value: &[u8]) -> Option<(String, Vec<u8>)> {
    let envelope = Unknown::decode(value.strip_prefix(MAGIC)?).ok()?;
    Some((envelope.type_meta?.kind?, envelope.raw?))
}

/// The value of a server's endpoint key.
pub(super) fn endpoints(server: &str, ip: &str, port: u16, generation: i64) -> Vec<u8> {
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
            labels: [(
                super::IDENTITY_LABEL_OF_ENDPOINT.to_owned(),
                server.to_owned(),
            )]
            .into(),
            annotations: Default::default(),
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
        let (kind, raw) = open(&value).expect("it opens");
        assert_eq!(kind, "Endpoints");
        let message = Endpoints::decode(raw.as_slice()).expect("it decodes");
        assert_eq!(message.subsets[0].ports[0].port, Some(7402));
    }

    #[test]
    fn damaged_values_are_nothing() {
        let value = endpoints("a", "127.0.0.1", 1, 1);
        for cut in 0..value.len() {
            let _ = open(&value[..cut]).map(|(_, raw)| Endpoints::decode(raw.as_slice()));
        }
        assert_eq!(open(b"{}"), None);
    }
}
