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

/// What an update does to what a service has been given: it keeps what the new state leaves out, and gives up what
/// its new type does not have, unless the same update changes it.
pub(super) fn keep_given(new: &mut Value, old: &Value) {
    let Some(old) = old.get("spec").and_then(Value::as_object) else {
        return;
    };
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let before = Needs::of(old);
    let now = Needs::of(spec);
    if before.address && now.address {
        keep_addresses(spec, old);
    }
    if before.node_ports && now.node_ports {
        keep_node_ports(spec, old);
    }
    if before.health_port && now.health_port && unset(spec.get("healthCheckNodePort")) {
        keep(spec, old, "healthCheckNodePort");
    }
    if before.address && !now.address {
        for field in [
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ] {
            give_up(spec, old, field);
        }
    }
    if before.node_ports && !now.node_ports {
        give_up_node_ports(spec, old);
    }
    if before.health_port && !now.health_port {
        give_up(spec, old, "healthCheckNodePort");
    }
    if before.outside && !now.outside {
        give_up(spec, old, "externalTrafficPolicy");
    }
    if before.balancer && !now.balancer {
        give_up(spec, old, "allocateLoadBalancerNodePorts");
        give_up(spec, old, "loadBalancerClass");
    }
}

/// What a type of service has.
struct Needs {
    address: bool,
    node_ports: bool,
    outside: bool,
    balancer: bool,
    health_port: bool,
}

impl Needs {
    fn of(spec: &Fields) -> Self {
        let kind = text(spec, "type");
        let balancer = kind == "LoadBalancer";
        let node_ports = balancer || kind == "NodePort";
        let external = spec.get("externalIPs").and_then(Value::as_array);
        Self {
            // Not defaulted yet, a type that is left out is ClusterIP.
            address: kind != "ExternalName",
            node_ports,
            outside: node_ports || external.is_some_and(|ips| !ips.is_empty()),
            balancer,
            health_port: balancer && text(spec, "externalTrafficPolicy") == "Local",
        }
    }
}

fn unset(value: Option<&Value>) -> bool {
    value.is_none_or(|v| v.is_null() || *v == "" || *v == 0)
}

fn keep(spec: &mut Fields, old: &Fields, field: &str) {
    if let Some(value) = old.get(field) {
        spec.insert(field.to_owned(), value.clone());
    }
}

/// Takes a field away that has not been changed.
fn give_up(spec: &mut Fields, old: &Fields, field: &str) {
    if spec.get(field) == old.get(field) {
        spec.remove(field);
    }
}

/// `clusterIP` is the first of `clusterIPs`; a client may give either.
fn keep_addresses(spec: &mut Fields, old: &Fields) {
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if unset(spec.get(field)) {
            keep(spec, old, field);
        }
    }
    let many = spec.get("clusterIPs").and_then(Value::as_array);
    let many = many.is_some_and(|ips| !ips.is_empty());
    if unset(spec.get("clusterIP")) {
        match many {
            true => {
                let first = spec.get("clusterIPs").and_then(|ips| ips.get(0)).cloned();
                drop(first.map(|first| spec.insert("clusterIP".to_owned(), first)));
            }
            false => {
                keep(spec, old, "clusterIP");
                keep(spec, old, "clusterIPs");
            }
        }
        return;
    }
    let changed = spec.get("clusterIP") != old.get("clusterIP");
    if !many || (changed && spec.get("clusterIPs") == old.get("clusterIPs")) {
        let one = json!([spec.get("clusterIP")]);
        spec.insert("clusterIPs".to_owned(), one);
    }
}

/// A port that is the same by number and protocol keeps its node port.
fn keep_node_ports(spec: &mut Fields, old: &Fields) {
    let own = |port: &Value| {
        let protocol = port
            .get("protocol")
            .and_then(Value::as_str)
            .unwrap_or("TCP");
        (
            port.get("port").and_then(Value::as_i64),
            protocol.to_owned(),
        )
    };
    let before = old.get("ports").and_then(Value::as_array);
    let before = before.map_or(&[][..], Vec::as_slice);
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    let taken: Vec<Value> = ports
        .iter()
        .flat_map(|ports| ports.iter())
        .filter_map(|p| p.get("nodePort").cloned())
        .collect();
    for port in ports.into_iter().flatten() {
        let same = before.iter().find(|p| own(p) == own(port));
        let kept = same.and_then(|p| p.get("nodePort")).cloned();
        if let (Some(kept), Some(port)) = (kept, port.as_object_mut())
            && unset(port.get("nodePort"))
            && !taken.contains(&kept)
        {
            port.insert("nodePort".to_owned(), kept);
        }
    }
}

fn give_up_node_ports(spec: &mut Fields, old: &Fields) {
    let given = |ports: Option<&Value>| -> Vec<Value> {
        let ports = ports.and_then(Value::as_array).into_iter().flatten();
        ports
            .filter_map(|p| p.get("nodePort").cloned())
            .filter(|p| !unset(Some(p)))
            .collect()
    };
    let before = given(old.get("ports"));
    if given(spec.get("ports")).iter().any(|p| !before.contains(p)) {
        // The client asks for another one, which the checks refuse.
        return;
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}

/// An address that was given stays for as long as the service has one.
pub(super) fn check_addresses(
    path: &str,
    fields: &Fields,
    old: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let first = |fields: &Fields| fields.get("clusterIPs").and_then(|ips| ips.get(0)).cloned();
    let Some(old) = old.filter(|old| Needs::of(old).address && Needs::of(fields).address) else {
        return;
    };
    if let (Some(before), now) = (first(old), first(fields))
        && now.as_ref() != Some(&before)
    {
        let at = field::index(&field::child(path, "clusterIPs"), 0);
        let value = fields.get("clusterIPs").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(at, value, "may not change once set"));
    }
}
