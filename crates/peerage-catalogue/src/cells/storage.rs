//! Volumes, claims, classes and drivers.

use serde_json::Value;

use super::{Entry, UNSET, joined, list, or, text};

/// Whether a class is the one that is taken when none is named.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub(super) const CELLS: &[Entry] = &[
    ("PersistentVolume", "Access Modes", |o, _| {
        modes(o, "/spec/accessModes")
    }),
    ("PersistentVolume", "Status", |o, _| phase(o)),
    ("PersistentVolume", "Claim", |o, _| {
        match o.pointer("/spec/claimRef") {
            Some(c) if c.is_object() => {
                format!("{}/{}", text(c, "/namespace"), text(c, "/name")).into()
            }
            _ => "".into(),
        }
    }),
    ("PersistentVolumeClaim", "Access Modes", |o, _| {
        match text(o, "/spec/volumeName") {
            "" => "".into(),
            _ => modes(o, "/status/accessModes"),
        }
    }),
    ("PersistentVolumeClaim", "Capacity", |o, _| {
        match text(o, "/spec/volumeName") {
            "" => "".into(),
            _ => text(o, "/status/capacity/storage").into(),
        }
    }),
    ("PersistentVolumeClaim", "Status", |o, _| phase(o)),
    ("StorageClass", "Name", |o, _| {
        let name = text(o, "/metadata/name");
        let mark = o
            .pointer("/metadata/annotations")
            .and_then(|a| a.get(DEFAULT_CLASS)?.as_str());
        match mark {
            Some("true") => format!("{name} (default)").into(),
            _ => name.into(),
        }
    }),
    ("StorageClass", "AllowVolumeExpansion", |o, _| {
        (o.get("allowVolumeExpansion") == Some(&Value::Bool(true))).into()
    }),
    ("CSIDriver", "TokenRequests", |o, _| {
        let audiences = list(o, "/spec/tokenRequests")
            .iter()
            .map(|t| text(t, "/audience"));
        or(&audiences.collect::<Vec<_>>().join(","), UNSET)
    }),
    ("CSIDriver", "RequiresRepublish", |o, _| {
        (o.pointer("/spec/requiresRepublish") == Some(&Value::Bool(true))).into()
    }),
    ("CSIDriver", "Modes", |o, _| {
        joined(
            list(o, "/spec/volumeLifecycleModes")
                .iter()
                .filter_map(Value::as_str),
        )
    }),
    ("CSINode", "Drivers", |o, _| {
        list(o, "/spec/drivers").len().into()
    }),
];

/// Bound, Released…, or Terminating.
fn phase(object: &Value) -> Value {
    match text(object, "/metadata/deletionTimestamp") {
        "" => text(object, "/status/phase").into(),
        _ => "Terminating".into(),
    }
}

/// Access modes by their short names, in their usual order.
fn modes(object: &Value, pointer: &str) -> Value {
    let names = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = list(object, pointer);
    let known = names
        .iter()
        .filter(|(name, _)| given.iter().any(|g| g == name));
    known
        .map(|(_, short)| *short)
        .collect::<Vec<_>>()
        .join(",")
        .into()
}
