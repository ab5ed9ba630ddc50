//! What of a fresh cluster's objects depends on how this server is run: addresses, ports, whom it trusts.

use std::net::IpAddr;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::options::{Authentication, Options};

/// Facts of this server.
#[derive(Default)]
pub(crate) struct Facts {
    /// `--service-cluster-ip-range`.
    range: Option<String>,
    /// The first address of the range: the `kubernetes` Service's.
    service: Option<IpAddr>,
    port: u16,
    /// `extension-apiserver-authentication`.
    authentication: Map<String, Value>,
}

impl Facts {
    /// `port` is where this server listens.
    pub(crate) fn new(options: &Options, port: u16) -> Self {
        let range = options.service_cluster_ip_range.clone();
        Self {
            service: range.as_deref().and_then(first_address),
            range,
            port,
            authentication: authentication(&options.authentication),
        }
    }

    /// Puts the facts where the recording has its own.
    pub(super) fn fill_in(&self, objects: &mut [Value]) {
        for object in objects {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let name = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            match (kind.as_str(), name.as_str()) {
                ("Service", "kubernetes") => self.service(object),
                ("IPAddress", _) => self.ip_address(object),
                ("ServiceCIDR", "kubernetes") => {
                    if let Some(range) = &self.range {
                        object["spec"]["cidrs"] = json!([range]);
                    }
                }
                ("ConfigMap", "extension-apiserver-authentication") => {
                    object["data"] = Value::Object(self.authentication.clone());
                }
                _ => {}
            }
        }
    }

    fn service(&self, object: &mut Value) {
        object["spec"]["ports"][0]["targetPort"] = json!(self.port);
        if let Some(ip) = self.service {
            object["spec"]["clusterIP"] = json!(ip);
            object["spec"]["clusterIPs"] = json!([ip]);
            object["spec"]["ipFamilies"] = json!([family(ip)]);
        }
    }

    fn ip_address(&self, object: &mut Value) {
        if let Some(ip) = self.service {
            object["metadata"]["name"] = json!(ip);
            object["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"] = json!(family(ip));
        }
    }
}

pub(super) fn family(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

/// The address after the network's own.
fn first_address(range: &str) -> Option<IpAddr> {
    let (network, bits) = range.split_once('/')?;
    let bits: u32 = bits.parse().ok()?;
    match network.trim().parse().ok()? {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32u32.checked_sub(bits)?).unwrap_or(0);
            Some(IpAddr::V4(((u32::from(ip) & mask) + 1).into()))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX
                .checked_shl(128u32.checked_sub(bits)?)
                .unwrap_or(0);
            Some(IpAddr::V6(((u128::from(ip) & mask) + 1).into()))
        }
    }
}

/// Whom extension servers are to trust: what this server trusts itself.
fn authentication(given: &Authentication) -> Map<String, Value> {
    let mut data = Map::new();
    let mut put = |key: &str, value: String| drop(data.insert(key.to_owned(), json!(value)));
    if let Some(pem) = given.client_ca.as_deref().and_then(read) {
        put("client-ca-file", pem);
    }
    if let Some(proxy) = &given.request_header {
        if let Some(pem) = read(&proxy.client_ca) {
            put("requestheader-client-ca-file", pem);
        }
        for (key, list) in [
            ("username", &proxy.username_headers),
            ("uid", &proxy.uid_headers),
            ("group", &proxy.group_headers),
        ] {
            put(
                &format!("requestheader-{key}-headers"),
                json!(list).to_string(),
            );
        }
        put(
            "requestheader-extra-headers-prefix",
            json!(proxy.extra_prefixes).to_string(),
        );
        put(
            "requestheader-allowed-names",
            json!(proxy.allowed_names).to_string(),
        );
    }
    data
}

fn read(path: &Path) -> Option<String> {
    // It has just been loaded as a CA file; if it vanished meanwhile the next start says it.
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_has_the_first_address_of_the_range() {
        for (range, address) in [
            ("10.96.0.0/12", Some("10.96.0.1")),
            ("10.0.0.77/24", Some("10.0.0.1")),
            ("fd00:1::/108", Some("fd00:1::1")),
            ("0.0.0.0/0", Some("0.0.0.1")),
            ("10.0.0.0/33", None),
            ("ten/8", None),
            ("10.0.0.0", None),
        ] {
            let expected = address.map(|a| a.parse().unwrap());
            assert_eq!(first_address(range), expected, "{range}");
        }
    }
}
