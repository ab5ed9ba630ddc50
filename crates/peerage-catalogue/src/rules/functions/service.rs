//! Services: what depends on the type. Addresses and node ports are given out by the API server.

use serde_json::{Value, json};

use super::{Fields, made, object, set_default, text};

/// Three hours.
const AFFINITY_SECONDS: i64 = 10800;

/// The defaults of a whole service.
pub(super) fn service(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    let kind = text(spec, "type").to_owned();
    affinity(spec);
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        let number = port.get("port").cloned().unwrap_or_default();
        match port.get("targetPort") {
            None | Some(Value::Null) => drop(port.insert("targetPort".to_owned(), number)),
            Some(target) if *target == 0 || *target == "" => {
                port.insert("targetPort".to_owned(), number);
            }
            Some(_) => {}
        }
    }
    let outside = spec
        .get("externalIPs")
        .and_then(Value::as_array)
        .is_some_and(|ips| !ips.is_empty());
    let exposed = matches!(&*kind, "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && outside);
    if exposed {
        set_default(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(&*kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn affinity(spec: &mut Fields) {
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let config = made(spec, "sessionAffinityConfig").and_then(|c| made(c, "clientIP"));
            if let Some(config) = config {
                set_default(config, "timeoutSeconds", json!(AFFINITY_SECONDS));
            }
        }
        _ => {}
    }
}
