//! What lets servers and gateways reach each other: a NetworkPolicy, and rules for hosts, which such a policy does not
//! reach.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::{BEHIND, PLACEHOLDER, SECURE_PORT};

/// The policy, for servers at these addresses; for placeholders if there are none.
pub(super) fn text(addresses: &[String]) -> String {
    let placeholders = [format!("{PLACEHOLDER}:{SECURE_PORT}")];
    let addresses = match addresses {
        [] => &placeholders,
        addresses => addresses,
    };
    let (rules, hosts) = (egress(addresses), host_rules(addresses));
    format!(
        "# Servers reach each other at: {list}
# kube-apiservers and sidecars are in their hosts' network, which NetworkPolicies do not reach; on each host (where a
# gateway stands beside the server, the gateways of the others come to port {BEHIND}; without any leave that out):
{hosts}\
# `peerage gateway` as a balancer in pods of its own (label app.kubernetes.io/name: peerage-gateway) needs:
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: peerage-gateway
  namespace: kube-system
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: peerage-gateway
  policyTypes: [Ingress, Egress]
  ingress:
  - ports:
    - protocol: TCP
      port: {SECURE_PORT}
  egress:
  # Where servers have host names, and for --peer-dns:
  # - to:
  #   - namespaceSelector:
  #       matchLabels:
  #         kubernetes.io/metadata.name: kube-system
  #   ports:
  #   - protocol: UDP
  #     port: 53
  #   - protocol: TCP
  #     port: 53
{rules}",
        list = addresses.join(", ")
    )
    .trim_end()
    .to_owned()
}

/// The addresses that gateways connect to.
fn egress(addresses: &[String]) -> String {
    let mut rules = String::new();
    for address in addresses {
        if address.starts_with(PLACEHOLDER) {
            // A server takes it for no address, as it should.
            let _ = writeln!(
                rules,
                "  - to:\n    - ipBlock:\n        cidr: {PLACEHOLDER}/32\n    ports:\n    - protocol: TCP\n      port: {SECURE_PORT}"
            );
            continue;
        }
        let Ok(socket) = address.parse::<SocketAddr>() else {
            let _ = writeln!(rules, "  # {address} is a host name; put its address here");
            continue;
        };
        let (ip, port) = (socket.ip(), socket.port());
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        let _ = writeln!(
            rules,
            "  - to:\n    - ipBlock:\n        cidr: {ip}/{bits}\n    ports:\n    - protocol: TCP\n      port: {port}"
        );
    }
    rules
}

/// Who may connect to a server's host, for each family of addresses.
fn host_rules(addresses: &[String]) -> String {
    let told = addresses.iter().filter_map(|it| it.rsplit_once(':'));
    let behind = BEHIND.to_string();
    let mut ports: Vec<&str> = told.map(|(_, port)| port).chain([&*behind]).collect();
    ports.sort_unstable();
    ports.dedup();
    let sockets = addresses
        .iter()
        .filter_map(|it| it.parse::<SocketAddr>().ok());
    let mut by_family: [Vec<String>; 2] = Default::default();
    for ip in sockets.map(|it| it.ip()) {
        let ips = &mut by_family[usize::from(ip.is_ipv6())];
        if !ips.contains(&ip.to_string()) {
            ips.push(ip.to_string());
        }
    }
    let rule = |(what, ips): (&str, &Vec<String>)| {
        format!(
            "#   nft add rule inet filter input {what} '{{ {} }}' tcp dport '{{ {} }}' accept\n",
            ips.join(", "),
            ports.join(", ")
        )
    };
    let rules = ["ip saddr", "ip6 saddr"].into_iter().zip(&by_family);
    rules.filter(|(_, ips)| !ips.is_empty()).map(rule).collect()
}
