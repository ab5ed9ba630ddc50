//! Namespaces, nodes, quotas, events, configuration, leases, definitions and services of the API itself.

use serde_json::Value;

use super::{Entry, NONE, UNKNOWN, UNSET, ago, condition, joined, list, number, or, text};

pub(super) const CELLS: &[Entry] = &[
    ("Node", "Status", |o, _| node_status(o)),
    ("Node", "Roles", |o, _| roles(o)),
    ("Node", "Internal-IP", |o, _| address(o, "InternalIP")),
    ("Node", "External-IP", |o, _| address(o, "ExternalIP")),
    ("ConfigMap", "Data", |o, _| {
        (count(o, "data") + count(o, "binaryData")).into()
    }),
    ("Secret", "Data", |o, _| count(o, "data").into()),
    ("ResourceQuota", "Request", |o, _| quota(o, false)),
    ("ResourceQuota", "Limit", |o, _| quota(o, true)),
    ("ComponentStatus", "Status", |o, _| {
        health(o, "/conditions/0/status")
    }),
    ("ComponentStatus", "Message", |o, _| {
        text(o, "/conditions/0/message").into()
    }),
    ("ComponentStatus", "Error", |o, _| {
        text(o, "/conditions/0/error").into()
    }),
    ("Event", "Last Seen", |o, now| {
        let places = [
            "/series/lastObservedTime",
            "/lastTimestamp",
            "/deprecatedLastTimestamp",
            "/eventTime",
        ];
        first_time(o, &places, now)
    }),
    ("Event", "First Seen", |o, now| {
        first_time(
            o,
            &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"],
            now,
        )
    }),
    ("Event", "Object", |o, _| {
        let about = o
            .get("involvedObject")
            .or(o.get("regarding"))
            .unwrap_or(&Value::Null);
        format!(
            "{}/{}",
            text(about, "/kind").to_lowercase(),
            text(about, "/name")
        )
        .into()
    }),
    ("Event", "Source", |o, _| event_source(o)),
    ("Event", "Count", |o, _| {
        let counts = ["/series/count", "/count", "/deprecatedCount"].map(|p| number(o, p));
        counts.into_iter().find(|c| *c > 0).unwrap_or(1).into()
    }),
    ("CustomResourceDefinition", "Scope", |o, _| {
        text(o, "/spec/scope").into()
    }),
    ("CustomResourceDefinition", "Versions", |o, _| {
        let versions = list(o, "/spec/versions").iter().map(|v| {
            let mark = if v["storage"] == true {
                "(storage)"
            } else {
                ""
            };
            format!("{}{mark}", text(v, "/name"))
        });
        versions.collect::<Vec<_>>().join(",").into()
    }),
    ("CustomResourceDefinition", "Group", |o, _| {
        text(o, "/spec/group").into()
    }),
    ("CustomResourceDefinition", "Kind", |o, _| {
        text(o, "/spec/names/kind").into()
    }),
    ("CustomResourceDefinition", "ShortNames", |o, _| {
        let names = list(o, "/spec/names/shortNames")
            .iter()
            .filter_map(Value::as_str);
        names.collect::<Vec<_>>().join(",").into()
    }),
    ("CustomResourceDefinition", "Established", |o, _| {
        condition(o, "Established")
            .is_some_and(|c| c["status"] == "True")
            .into()
    }),
    ("APIService", "Service", |o, _| {
        match o.pointer("/spec/service") {
            Some(s) if s.is_object() => {
                format!("{}/{}", text(s, "/namespace"), text(s, "/name")).into()
            }
            _ => "Local".into(),
        }
    }),
    ("APIService", "Available", |o, _| {
        match condition(o, "Available") {
            Some(c) if c["status"] == "True" => "True".into(),
            Some(c) => format!("{} ({})", text(c, "/status"), text(c, "/reason")).into(),
            None => "Unknown".into(),
        }
    }),
    ("FlowSchema", "MissingPL", |o, _| {
        match condition(o, "Dangling") {
            Some(c) => text(c, "/status").into(),
            None => "?".into(),
        }
    }),
    ("ValidatingWebhookConfiguration", "Webhooks", |o, _| {
        list(o, "/webhooks").len().into()
    }),
    ("MutatingWebhookConfiguration", "Webhooks", |o, _| {
        list(o, "/webhooks").len().into()
    }),
    ("ValidatingAdmissionPolicy", "Validations", |o, _| {
        list(o, "/spec/validations").len().into()
    }),
    ("MutatingAdmissionPolicy", "Mutations", |o, _| {
        list(o, "/spec/mutations").len().into()
    }),
    ("*", "ParamKind", |o, _| {
        match o.pointer("/spec/paramKind") {
            Some(k) if k.is_object() => {
                format!("{}/{}", text(k, "/apiVersion"), text(k, "/kind")).into()
            }
            _ => UNSET.into(),
        }
    }),
    ("*", "ParamRef", |o, _| match o.pointer("/spec/paramRef") {
        Some(r) if r.is_object() => match text(r, "/namespace") {
            "" => or(text(r, "/name"), "*"),
            namespace => format!("{namespace}/{}", text(r, "/name")).into(),
        },
        _ => UNSET.into(),
    }),
    ("StorageVersionMigration", "Resource", |o, _| {
        let resource = o.pointer("/spec/resource").unwrap_or(&Value::Null);
        match text(resource, "/group") {
            "" => text(resource, "/resource").into(),
            group => format!("{}.{group}", text(resource, "/resource")).into(),
        }
    }),
    ("StorageVersionMigration", "Status", |o, _| {
        let states = ["Succeeded", "Failed", "Running"];
        let is = |kind: &&&str| condition(o, kind).is_some_and(|c| c["status"] == "True");
        states.iter().find(is).copied().unwrap_or("Unknown").into()
    }),
    ("ResourceClaim", "State", |o, _| claim_state(o)),
    ("DeviceTaintRule", "Key", |o, _| {
        text(o, "/spec/taint/key").into()
    }),
    ("DeviceTaintRule", "Value", |o, _| {
        text(o, "/spec/taint/value").into()
    }),
    ("DeviceTaintRule", "Effect", |o, _| {
        text(o, "/spec/taint/effect").into()
    }),
    ("DeviceTaintRule", "TimeAdded", |o, now| {
        ago(o, "/spec/taint/timeAdded", now, UNKNOWN)
    }),
];

fn health(object: &Value, pointer: &str) -> Value {
    match text(object, pointer) {
        "True" => "Healthy".into(),
        "False" => "Unhealthy".into(),
        _ => "Unknown".into(),
    }
}

fn count(object: &Value, field: &str) -> usize {
    object
        .get(field)
        .and_then(Value::as_object)
        .map_or(0, |m| m.len())
}

fn node_status(node: &Value) -> Value {
    let ready = condition(node, "Ready").map(|c| text(c, "/status"));
    let mut words = match ready {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        words.push_str(",SchedulingDisabled");
    }
    words.into()
}

fn roles(node: &Value) -> Value {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let roles = labels.into_iter().flatten().filter_map(|(key, value)| {
        let role = key.strip_prefix("node-role.kubernetes.io/");
        let old = (key == "kubernetes.io/role").then(|| value.as_str().unwrap_or(""));
        role.or(old).filter(|r| !r.is_empty())
    });
    joined(roles)
}

fn address(node: &Value, kind: &str) -> Value {
    let address = list(node, "/status/addresses")
        .iter()
        .find(|a| a["type"] == kind);
    or(address.map_or("", |a| text(a, "/address")), NONE)
}

/// What is used and allowed, of requests or of limits: `pods: 4/100, requests.cpu: 750m/1`.
fn quota(quota: &Value, limits: bool) -> Value {
    let hard = quota.pointer("/status/hard").and_then(Value::as_object);
    let words = hard
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("limits") == limits)
        .map(|(name, hard)| {
            let used = quota
                .pointer("/status/used")
                .and_then(|u| u.get(name)?.as_str())
                .unwrap_or("0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or(""))
        });
    words.collect::<Vec<_>>().join(", ").into()
}

fn first_time(object: &Value, places: &[&str], now: jiff::Timestamp) -> Value {
    let place = places.iter().find(|p| !text(object, p).is_empty());
    place.map_or(UNKNOWN.into(), |p| ago(object, p, now, UNKNOWN))
}

fn event_source(event: &Value) -> Value {
    let source = event
        .get("source")
        .or(event.get("deprecatedSource"))
        .unwrap_or(&Value::Null);
    let controller = event
        .get("reportingComponent")
        .or(event.get("reportingController"));
    let component = match text(source, "/component") {
        "" => controller.and_then(Value::as_str).unwrap_or(""),
        component => component,
    };
    match text(source, "/host") {
        "" => component.into(),
        host => format!("{component}, {host}").into(),
    }
}

fn claim_state(claim: &Value) -> Value {
    let mut words = Vec::new();
    if !text(claim, "/metadata/deletionTimestamp").is_empty() {
        words.push("deleted");
    }
    match claim.pointer("/status/allocation") {
        Some(a) if a.is_object() => words.push("allocated"),
        _ if text(claim, "/metadata/deletionTimestamp").is_empty() => words.push("pending"),
        _ => {}
    }
    if !list(claim, "/status/reservedFor").is_empty() {
        words.push("reserved");
    }
    words.join(",").into()
}
