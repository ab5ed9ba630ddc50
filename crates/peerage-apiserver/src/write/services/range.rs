//! Ranges of addresses, as `ServiceCIDR` objects have them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::call::Call;
use crate::error::ApiError;
use crate::write::unreadable_of;

const PLURAL: &str = "servicecidrs";
/// The object of the ranges that the cluster began with (`--service-cluster-ip-range`).
const FIRST: &str = "kubernetes";

/// Addresses that are counted out when drawing at random finds none; an IPv6 range would take for ever.
const COUNTED: u128 = 1 << 16;

/// The addresses of a network that services may have: all but its own, and IPv4's broadcast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    first: u128,
    size: u128,
    v6: bool,
}

/// The ranges of the cluster.
pub(super) struct Ranges {
    /// All, in the order of their objects' names.
    pub(super) all: Vec<Range>,
    /// Those that the cluster began with, which decide on the families of addresses.
    pub(super) first: Vec<Range>,
}

/// The ranges of the cluster; those that are on their way out or not ready give nothing. What cannot be read may be any.
pub(super) fn of_cluster(call: &Call) -> Result<Ranges, ApiError> {
    let (mut all, mut first) = (Vec::new(), Vec::new());
    let resources = &call.api().resources;
    let place = resources
        .get("networking.k8s.io", "v1", PLURAL)
        .and_then(|served| served.place.as_ref());
    let objects = place.map(|place| (place, place.cache.snapshot("", 0).objects));
    for (place, object) in objects
        .iter()
        .flat_map(|(p, all)| all.iter().map(|o| (*p, o)))
    {
        if let Some(reason) = object.unreadable() {
            return Err(unreadable_of(PLURAL, &place.prefix, object, reason));
        }
        let ranges = of_object(&object.parse().unwrap_or_default());
        if &*object.name == FIRST {
            first.clone_from(&ranges);
        }
        all.extend(ranges);
    }
    if first.is_empty() {
        first.clone_from(&all);
    }
    Ok(Ranges { all, first })
}

fn of_object(object: &Value) -> Vec<Range> {
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten();
    // Without that condition nobody judges it.
    let ready = ready
        .filter(|it| it["type"] == "Ready")
        .all(|it| it["status"] == "True");
    if !ready || !object["metadata"]["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let cidrs = object["spec"]["cidrs"].as_array();
    let cidrs = cidrs.into_iter().flatten().filter_map(Value::as_str);
    cidrs.filter_map(Range::parse).collect()
}

impl Range {
    /// Reads `10.0.0.0/24`.
    pub(super) fn parse(cidr: &str) -> Option<Self> {
        let (address, length) = cidr.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let length: u32 = length.parse().ok()?;
        let (number, bits, v6) = match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32u32, false),
            IpAddr::V6(v6) => (u128::from(v6), 128, true),
        };
        let host = bits.checked_sub(length)?;
        let count = 1u128.checked_shl(host).unwrap_or(u128::MAX);
        let network = number & !(count - 1);
        let kept = if v6 { 1 } else { 2 };
        let size = count.checked_sub(kept).filter(|s| *s > 0)?;
        Some(Self {
            first: network + 1,
            size,
            v6,
        })
    }

    pub(super) fn is_v6(&self) -> bool {
        self.v6
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(v4) => u128::from(u32::from(v4)),
            IpAddr::V6(v6) => u128::from(v6),
        };
        self.v6 == address.is_ipv6()
            && number
                .checked_sub(self.first)
                .is_some_and(|at| at < self.size)
    }

    /// Any address, by a random number. The lower part is left to those who ask for an address, as kube-apiserver
    /// does: a sixteenth of the range, at least 16 and at most 256 addresses.
    pub(super) fn draw(&self, random: u64) -> IpAddr {
        let kept = (self.size / 16).clamp(16, 256);
        let kept = if self.size > kept { kept } else { 0 };
        self.at(kept + u128::from(random) % (self.size - kept))
    }

    /// Its addresses in their order, the upper part first.
    pub(super) fn all(&self) -> impl Iterator<Item = IpAddr> + '_ {
        (0..self.size.min(COUNTED)).rev().map(|at| self.at(at))
    }

    fn at(&self, at: u128) -> IpAddr {
        let number = self.first + at;
        if self.v6 {
            IpAddr::V6(Ipv6Addr::from(number))
        } else {
            // An IPv4 range is made of 32-bit numbers.
            IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_range_has_all_addresses_but_the_networks_own_and_the_broadcast() {
        let range = Range::parse("10.0.0.0/29").expect("it is one");
        let all: Vec<String> = range.all().map(|a| a.to_string()).collect();
        assert_eq!(
            all,
            [
                "10.0.0.6", "10.0.0.5", "10.0.0.4", "10.0.0.3", "10.0.0.2", "10.0.0.1"
            ]
        );
        for random in [0, 1, 77, u64::MAX] {
            assert!(range.contains(range.draw(random)));
        }
        assert!(!range.contains("10.0.0.0".parse().expect("an address")));
        assert!(!range.contains("10.0.0.7".parse().expect("an address")));
        assert!(!range.contains("::a00:1".parse().expect("an address")));
    }

    #[test]
    fn an_object_gives_its_ranges_while_it_is_ready_and_stays() {
        let object = |metadata: Value, status: Value| {
            let cidrs = json!(["10.0.0.0/24", "fd00::/112", "x"]);
            json!({"metadata": metadata, "spec": {"cidrs": cidrs}, "status": status})
        };
        let ready = |status| json!({"conditions": [{"type": "Ready", "status": status}]});
        let going = json!({"deletionTimestamp": "2026-11-30T10:00:00Z"});
        for (object, count) in [
            (object(json!({}), json!({})), 2),
            (object(json!({}), ready("True")), 2),
            (object(json!({}), ready("False")), 0),
            (object(going, ready("True")), 0),
            (json!({}), 0),
        ] {
            assert_eq!(of_object(&object).len(), count, "{object}");
        }
    }

    #[test]
    fn odd_ranges_are_none() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/31",
            "10.0.0.0/32",
            "x/8",
            "10.0.0.0/-1",
        ] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
        assert!(Range::parse("::/0").is_some());
        assert!(Range::parse("fd00::/64").is_some_and(|r| r.is_v6()));
        assert!(Range::parse("0.0.0.0/0").is_some());
    }
}
