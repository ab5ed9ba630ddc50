//! Services, endpoints, ingresses, network policies and addresses.

use serde_json::Value;

use super::{Entry, NONE, UNSET, first_few, joined, labels, list, number, or, selector, text};

/// How many endpoints or hosts are shown.
const FEW: usize = 3;

pub(super) const CELLS: &[Entry] = &[
    ("Service", "Cluster-IP", |o, _| {
        or(text(o, "/spec/clusterIP"), NONE)
    }),
    ("Service", "External-IP", |o, _| external(o)),
    ("Service", "Port(s)", |o, _| {
        let ports = list(o, "/spec/ports").iter().map(|p| {
            let (port, protocol) = (number(p, "/port"), text(p, "/protocol"));
            match number(p, "/nodePort") {
                0 => format!("{port}/{protocol}"),
                node => format!("{port}:{node}/{protocol}"),
            }
        });
        or(&ports.collect::<Vec<_>>().join(","), NONE)
    }),
    ("Service", "Selector", |o, _| {
        labels(o.pointer("/spec/selector"))
    }),
    ("Endpoints", "Endpoints", |o, _| endpoints(o)),
    ("EndpointSlice", "Ports", |o, _| {
        let ports = list(o, "/ports")
            .iter()
            .map(|p| match p.get("port").and_then(Value::as_i64) {
                Some(port) => port.to_string(),
                None => "*".to_owned(),
            });
        some(&ports.collect::<Vec<_>>(), UNSET)
    }),
    ("EndpointSlice", "Endpoints", |o, _| {
        let addresses = list(o, "/endpoints")
            .iter()
            .flat_map(|e| list(e, "/addresses"));
        let addresses: Vec<String> = addresses
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        some(&addresses, UNSET)
    }),
    ("Ingress", "Class", |o, _| {
        or(text(o, "/spec/ingressClassName"), NONE)
    }),
    ("Ingress", "Hosts", |o, _| {
        let hosts = list(o, "/spec/rules")
            .iter()
            .map(|r| text(r, "/host"))
            .filter(|h| !h.is_empty());
        let hosts: Vec<String> = hosts.map(str::to_owned).collect();
        if hosts.is_empty() {
            "*".into()
        } else {
            first_few(&hosts, FEW)
        }
    }),
    ("Ingress", "Address", |o, _| balancer(o).into()),
    ("Ingress", "Ports", |o, _| {
        if list(o, "/spec/tls").is_empty() {
            "80"
        } else {
            "80, 443"
        }
        .into()
    }),
    ("IngressClass", "Parameters", |o, _| {
        match o.pointer("/spec/parameters") {
            Some(p) if p.is_object() => match text(p, "/apiGroup") {
                "" => format!("{}/{}", text(p, "/kind"), text(p, "/name")).into(),
                group => format!("{}.{group}/{}", text(p, "/kind"), text(p, "/name")).into(),
            },
            _ => NONE.into(),
        }
    }),
    ("NetworkPolicy", "Pod-Selector", |o, _| {
        selector(o.pointer("/spec/podSelector"))
    }),
    ("ServiceCIDR", "CIDRs", |o, _| {
        joined(list(o, "/spec/cidrs").iter().filter_map(Value::as_str))
    }),
    ("IPAddress", "ParentRef", |o, _| {
        let parent = o.pointer("/spec/parentRef").unwrap_or(&Value::Null);
        let parts = ["/group", "/resource", "/namespace", "/name"].map(|p| text(parent, p));
        let resource = if parts[0].is_empty() {
            parts[1].to_owned()
        } else {
            format!("{}.{}", parts[1], parts[0])
        };
        let named = [&*resource, parts[2], parts[3]]
            .into_iter()
            .filter(|p| !p.is_empty());
        named.collect::<Vec<_>>().join("/").into()
    }),
];

fn some(words: &[String], none: &str) -> Value {
    if words.is_empty() {
        none.into()
    } else {
        first_few(words, FEW)
    }
}

/// The addresses that a load balancer gave.
fn balancer(object: &Value) -> String {
    let given = list(object, "/status/loadBalancer/ingress").iter();
    let given = given.map(|i| match text(i, "/ip") {
        "" => text(i, "/hostname"),
        ip => ip,
    });
    given.collect::<Vec<_>>().join(",")
}

fn external(service: &Value) -> Value {
    let own: Vec<_> = list(service, "/spec/externalIPs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    match text(service, "/spec/type") {
        "ExternalName" => text(service, "/spec/externalName").into(),
        "LoadBalancer" => {
            let mut all = balancer(service);
            if !own.is_empty() {
                all = [all, own.join(",")]
                    .into_iter()
                    .filter(|p| !p.is_empty())
                    .collect::<Vec<_>>()
                    .join(",");
            }
            or(&all, "<pending>")
        }
        _ => or(&own.join(","), NONE),
    }
}

fn endpoints(endpoints: &Value) -> Value {
    let mut all = Vec::new();
    for subset in list(endpoints, "/subsets") {
        let ports = list(subset, "/ports");
        for address in list(subset, "/addresses") {
            let ip = text(address, "/ip");
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|p| {
                let host = if ip.contains(':') {
                    format!("[{ip}]")
                } else {
                    ip.to_owned()
                };
                format!("{host}:{}", number(p, "/port"))
            }));
        }
    }
    first_few(&all, FEW)
}
