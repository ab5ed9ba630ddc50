//! Leases between protobuf and JSON, without loss: what one of the two forms cannot say is refused, so that a Lease
//! that a newer server has written is not cut down to what this one knows.

use jiff::Timestamp;
use prost::Message as _;
use serde_json::{Map, Value, json};

use super::{
    Entry, FieldsV1, Lease, LeaseSpec, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time, seal,
};

pub(crate) const GROUP: &str = "coordination.k8s.io";
pub(crate) const API_VERSION: &str = "coordination.k8s.io/v1";
pub(crate) const KIND: &str = "Lease";

/// Why a Lease in protobuf cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    #[error("is damaged")]
    Damaged,
    #[error("has fields which this server does not know")]
    UnknownFields,
}

/// The JSON of a message.
pub(crate) fn to_json(raw: &[u8]) -> Result<Vec<u8>, LeaseError> {
    let lease = Lease::decode(raw).map_err(|_| LeaseError::Damaged)?;
    // Go writes fields in their order, as it is done here: whatever is not declared makes a difference.
    if lease.encode_to_vec() != raw {
        return Err(LeaseError::UnknownFields);
    }
    let value = value_of(lease).ok_or(LeaseError::Damaged)?;
    serde_json::to_vec(&value).map_err(|_| LeaseError::Damaged)
}

/// The stored value for an object's JSON; none if that has something that the message does not.
pub(crate) fn from_json(json: &[u8]) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let lease = message_of(&value)?;
    (value_of(lease.clone())? == value).then(|| seal(API_VERSION, KIND, &lease))
}

/// An object without the members that are null.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let there = members.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(there.map(|(k, v)| (k.to_owned(), v)).collect())
}

/// Go leaves out empty strings, lists and maps.
fn text(text: Option<String>) -> Value {
    text.filter(|t| !t.is_empty())
        .map_or(Value::Null, Value::String)
}

fn list(items: Vec<Value>) -> Value {
    if items.is_empty() {
        return Value::Null;
    }
    Value::Array(items)
}

fn entries(entries: Vec<Entry>) -> Value {
    let map: Map<_, _> = super::map(entries)
        .into_iter()
        .map(|(k, v)| (k, v.into()))
        .collect();
    if map.is_empty() {
        return Value::Null;
    }
    Value::Object(map)
}

fn value_of(lease: Lease) -> Option<Value> {
    let spec = lease.spec.unwrap_or_default();
    Some(object([
        ("apiVersion", json!(API_VERSION)),
        ("kind", json!(KIND)),
        (
            "metadata",
            value_of_meta(lease.metadata.unwrap_or_default())?,
        ),
        (
            "spec",
            object([
                ("holderIdentity", json!(spec.holder_identity)),
                ("leaseDurationSeconds", json!(spec.lease_duration_seconds)),
                ("acquireTime", time(spec.acquire_time, MICROSECONDS)?),
                ("renewTime", time(spec.renew_time, MICROSECONDS)?),
                ("leaseTransitions", json!(spec.lease_transitions)),
                ("strategy", json!(spec.strategy)),
                ("preferredHolder", json!(spec.preferred_holder)),
            ]),
        ),
    ]))
}

fn value_of_meta(meta: ObjectMeta) -> Option<Value> {
    let fields = meta.managed_fields.into_iter().map(value_of_fields);
    let created = meta.creation_timestamp.filter(|t| *t != Time::default());
    Some(object([
        ("name", text(meta.name)),
        ("generateName", text(meta.generate_name)),
        ("namespace", text(meta.namespace)),
        ("selfLink", text(meta.self_link)),
        ("uid", text(meta.uid)),
        ("resourceVersion", text(meta.resource_version)),
        ("generation", json!(meta.generation.filter(|g| *g != 0))),
        ("creationTimestamp", time(created, SECONDS)?),
        ("deletionTimestamp", time(meta.deletion_timestamp, SECONDS)?),
        (
            "deletionGracePeriodSeconds",
            json!(meta.deletion_grace_period_seconds),
        ),
        ("labels", entries(meta.labels)),
        ("annotations", entries(meta.annotations)),
        (
            "ownerReferences",
            list(
                meta.owner_references
                    .into_iter()
                    .map(value_of_owner)
                    .collect(),
            ),
        ),
        (
            "finalizers",
            list(meta.finalizers.into_iter().map(Value::from).collect()),
        ),
        ("managedFields", list(fields.collect::<Option<_>>()?)),
    ]))
}

fn value_of_owner(owner: OwnerReference) -> Value {
    object([
        ("apiVersion", json!(owner.api_version.unwrap_or_default())),
        ("kind", json!(owner.kind.unwrap_or_default())),
        ("name", json!(owner.name.unwrap_or_default())),
        ("uid", json!(owner.uid.unwrap_or_default())),
        ("controller", json!(owner.controller)),
        ("blockOwnerDeletion", json!(owner.block_owner_deletion)),
    ])
}

fn value_of_fields(entry: ManagedFieldsEntry) -> Option<Value> {
    let fields = match entry.fields.and_then(|fields| fields.raw) {
        Some(raw) => serde_json::from_slice(&raw).ok()?,
        None => Value::Null,
    };
    Some(object([
        ("manager", text(entry.manager)),
        ("operation", text(entry.operation)),
        ("apiVersion", text(entry.api_version)),
        ("time", time(entry.time, SECONDS)?),
        ("fieldsType", text(entry.fields_type)),
        ("fieldsV1", fields),
        ("subresource", text(entry.subresource)),
    ]))
}

const SECONDS: &str = "%Y-%m-%dT%H:%M:%SZ";
const MICROSECONDS: &str = "%Y-%m-%dT%H:%M:%S%.6fZ";

/// A time as text, null where there is none.
fn time(time: Option<Time>, form: &str) -> Option<Value> {
    let Some(time) = time else {
        return Some(Value::Null);
    };
    let (seconds, nanos) = (time.seconds.unwrap_or(0), time.nanos.unwrap_or(0));
    let at = Timestamp::new(seconds, nanos).ok()?;
    Some(at.strftime(form).to_string().into())
}

fn message_of(lease: &Value) -> Option<Lease> {
    let spec = &lease["spec"];
    Some(Lease {
        metadata: Some(message_of_meta(&lease["metadata"])?),
        spec: Some(LeaseSpec {
            holder_identity: string(&spec["holderIdentity"]),
            lease_duration_seconds: number(&spec["leaseDurationSeconds"]),
            acquire_time: message_of_time(&spec["acquireTime"]),
            renew_time: message_of_time(&spec["renewTime"]),
            lease_transitions: number(&spec["leaseTransitions"]),
            strategy: string(&spec["strategy"]),
            preferred_holder: string(&spec["preferredHolder"]),
        }),
    })
}

/// Go's messages have no empty members: what is not there is written as empty.
fn message_of_meta(meta: &Value) -> Option<ObjectMeta> {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let fields = all(&meta["managedFields"]);
    Some(ObjectMeta {
        name: written(&meta["name"]),
        generate_name: written(&meta["generateName"]),
        namespace: written(&meta["namespace"]),
        self_link: written(&meta["selfLink"]),
        uid: written(&meta["uid"]),
        resource_version: written(&meta["resourceVersion"]),
        generation: Some(meta["generation"].as_i64().unwrap_or(0)),
        creation_timestamp: Some(message_of_time(&meta["creationTimestamp"]).unwrap_or_default()),
        deletion_timestamp: message_of_time(&meta["deletionTimestamp"]),
        deletion_grace_period_seconds: meta["deletionGracePeriodSeconds"].as_i64(),
        labels: message_of_map(&meta["labels"]),
        annotations: message_of_map(&meta["annotations"]),
        owner_references: all(&meta["ownerReferences"])
            .iter()
            .map(message_of_owner)
            .collect(),
        finalizers: all(&meta["finalizers"]).iter().filter_map(string).collect(),
        managed_fields: fields
            .iter()
            .map(message_of_fields)
            .collect::<Option<_>>()?,
    })
}

fn message_of_owner(owner: &Value) -> OwnerReference {
    OwnerReference {
        kind: written(&owner["kind"]),
        name: written(&owner["name"]),
        uid: written(&owner["uid"]),
        api_version: written(&owner["apiVersion"]),
        controller: owner["controller"].as_bool(),
        block_owner_deletion: owner["blockOwnerDeletion"].as_bool(),
    }
}

fn message_of_fields(entry: &Value) -> Option<ManagedFieldsEntry> {
    let fields = match &entry["fieldsV1"] {
        Value::Null => None,
        fields => Some(FieldsV1 {
            raw: Some(serde_json::to_vec(fields).ok()?),
        }),
    };
    Some(ManagedFieldsEntry {
        manager: written(&entry["manager"]),
        operation: written(&entry["operation"]),
        api_version: written(&entry["apiVersion"]),
        time: message_of_time(&entry["time"]),
        fields_type: written(&entry["fieldsType"]),
        fields,
        subresource: written(&entry["subresource"]),
    })
}

fn message_of_map(map: &Value) -> Vec<Entry> {
    let entry = |(key, value): (&String, &Value)| Entry {
        key: Some(key.clone()),
        value: string(value),
    };
    map.as_object().into_iter().flatten().map(entry).collect()
}

fn message_of_time(text: &Value) -> Option<Time> {
    let at: Timestamp = text.as_str()?.parse().ok()?;
    Some(Time {
        seconds: Some(at.as_second()),
        nanos: Some(at.subsec_nanosecond()),
    })
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn written(value: &Value) -> Option<String> {
    Some(string(value).unwrap_or_default())
}

fn number(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|n| i32::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{open_typed, seal};
    use super::*;

    fn lease() -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "metadata": {
                "name": "a", "namespace": "kube-system", "uid": "u", "creationTimestamp": "2026-11-29T10:00:00Z",
                "labels": {"a": "", "b": "c"}, "annotations": {"x": "y"}, "finalizers": ["f/g"],
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "v", "controller": false,
                }],
                "managedFields": [{
                    "manager": "kube-apiserver", "operation": "Update", "apiVersion": API_VERSION,
                    "time": "2026-11-29T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:x": {}}},
                }],
            },
            "spec": {
                "holderIdentity": "h", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
                "renewTime": "2026-11-29T10:00:00.123456Z",
            },
        })
    }

    fn there_and_back(lease: &Value) -> Option<Value> {
        let value = from_json(lease.to_string().as_bytes())?;
        let (_, raw) = open_typed(&value).unwrap();
        Some(serde_json::from_slice(&to_json(&raw).unwrap()).unwrap())
    }

    #[test]
    fn a_lease_is_the_same_after_a_trip_through_protobuf() {
        assert_eq!(there_and_back(&lease()), Some(lease()));
        let bare =
            json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}, "spec": {}});
        assert_eq!(there_and_back(&bare), Some(bare));
    }

    #[test]
    fn what_protobuf_has_no_place_for_is_not_written_as_such() {
        for (at, member) in [("/spec", "later"), ("/metadata", "later"), ("", "status")] {
            let mut lease = lease();
            lease.pointer_mut(at).unwrap()[member] = json!({"x": 1});
            assert_eq!(
                from_json(lease.to_string().as_bytes()),
                None,
                "{at}/{member}"
            );
        }
        let mut odd = lease();
        odd["spec"]["renewTime"] = json!("2026-11-29T10:00:00.123456789Z");
        assert_eq!(from_json(odd.to_string().as_bytes()), None);
        assert_eq!(from_json(b"[]"), None);
    }

    #[test]
    fn a_lease_with_a_field_of_the_future_is_not_cut_down() {
        let value = from_json(lease().to_string().as_bytes()).unwrap();
        let (_, raw) = open_typed(&value).unwrap();
        let later = [&raw[..], b"\x1a\x01x"].concat();
        assert!(matches!(to_json(&later), Err(LeaseError::UnknownFields)));
        for cut in 0..raw.len() {
            let _ = to_json(&raw[..cut]);
        }
        assert!(!seal(API_VERSION, KIND, &Lease::default()).is_empty());
    }
}
