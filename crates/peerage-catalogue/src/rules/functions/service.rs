//! Services: what depends on the type. Addresses and node ports are given out by the API server.

use peerage_objects::field::{self, FieldError};
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

/// Several ports are told apart by name; only some types have node ports.
pub(super) fn check_ports(
    path: &str,
    fields: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let ports = fields.get("ports").and_then(Value::as_array);
    let ports = ports.map_or(&[][..], Vec::as_slice);
    for (index, port) in ports.iter().enumerate() {
        let at = field::index(&field::child(path, "ports"), index);
        if ports.len() > 1 && port.get("name").is_none_or(|n| n == "") {
            errors.push(FieldError::required(field::child(&at, "name"), ""));
        }
        let number = port.get("targetPort").and_then(Value::as_i64);
        if number.is_some_and(|n| !(1..=65535).contains(&n)) {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(
                field::child(&at, "targetPort"),
                number,
                detail,
            ));
        }
        let has_node_port = port.get("nodePort").is_some_and(|p| *p != 0);
        if has_node_port && text(fields, "type") == "ClusterIP" {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(field::child(&at, "nodePort"), detail));
        }
    }
}
