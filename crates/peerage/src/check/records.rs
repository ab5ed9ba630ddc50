//! Identity Leases and the addresses in them: who is there, who has gone, and where peers are told to connect to.
//!
//! The endpoint records beside them are in etcd alone and not served; a server whose Lease is renewed has one as a rule.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use peerage_apiserver::server_id;
use peerage_proxy::record::registered::{self, ADDRESS_ANNOTATION};
use serde_json::Value;

use super::report::Item;
use super::rights;
use super::world::{Got, World, good};

const LEASE: &str = "identity-lease";
/// Leases are renewed every 10 s or a little more: after three of these something is wrong.
const RENEWED_WITHIN: i64 = 35;

/// An identity Lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Lease {
    /// Its name, the server's ID.
    pub(super) name: String,
    /// The server's host name.
    pub(super) hostname: String,
    /// Where its peers are told to connect to.
    pub(super) address: Option<String>,
    /// Whether it has a holder, without which it is nobody's.
    pub(super) held: bool,
    /// When it was last renewed.
    pub(super) renewed: Option<Timestamp>,
    /// For how many seconds it holds.
    pub(super) duration: Option<i64>,
    /// For how many seconds a server that stopped in good order is expected back (Peerage's servers say so).
    pub(super) hold: Option<i64>,
}

impl Lease {
    /// What the gateway and the servers read of it, and what they do not need but a reader of the checklist does.
    fn read(lease: &Value) -> Self {
        let metadata = &lease["metadata"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let registered = registered::read_lease(lease.to_string().as_bytes());
        let registered = registered.map(|it| it.lease);
        let read = registered.as_ref();
        let seconds = |it: Duration| i64::try_from(it.as_secs()).unwrap_or(i64::MAX);
        Self {
            name: text(&metadata["name"]).unwrap_or_default(),
            hostname: text(&metadata["labels"]["kubernetes.io/hostname"]).unwrap_or_default(),
            address: text(&metadata["annotations"][ADDRESS_ANNOTATION]),
            held: read.is_some(),
            renewed: read.and_then(|it| it.renew_time?.try_into().ok()),
            duration: read.and_then(|it| it.duration).map(seconds),
            hold: read.and_then(|it| it.hold).map(seconds),
        }
    }

    /// What to call it.
    pub(super) fn title(&self) -> String {
        match self.hostname.as_str() {
            "" => self.name.clone(),
            hostname => hostname.to_owned(),
        }
    }

    /// Seconds since it was renewed.
    fn age(&self, now: Timestamp) -> Option<i64> {
        Some(now.as_second() - self.renewed?.as_second())
    }

    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        self.hold.is_none() && self.age(now).is_some_and(|age| age <= RENEWED_WITHIN)
    }
}

/// The Leases of a list.
pub(super) fn leases(got: &Got) -> Vec<Lease> {
    let Ok(answer) = good(got) else {
        return Vec::new();
    };
    let items = answer.json()["items"].as_array().cloned();
    items.unwrap_or_default().iter().map(Lease::read).collect()
}

/// Whether peers and the gateway take a text for an address.
pub(super) fn is_socket(address: &str) -> bool {
    registered::read_address(address).is_some()
}

/// Now by the servers' clocks, by which Leases are written.
pub(super) fn servers_now(world: &World) -> Timestamp {
    let ahead = world.servers.iter().find_map(|it| it.answers()?.ahead);
    let milliseconds = ahead.map_or(0.0, |it| (it.least + it.most) / 2.0 * 1000.0);
    let ahead = jiff::SignedDuration::from_millis(milliseconds as i64);
    world.now.checked_add(ahead).unwrap_or(world.now)
}

/// Judges the Leases.
pub(super) fn judge(world: &World) -> Vec<Item> {
    if let Err(problem) = good(&world.leases) {
        return vec![rights::unread(LEASE, "", rights::LEASES, &problem)];
    }
    let leases = leases(&world.leases);
    if leases.is_empty() {
        return vec![
            Item::fail(LEASE, "", "there are none: no server can find its peers")
                .fix("turn the gate APIServerIdentity on (the default since 1.26)"),
        ];
    }
    let now = servers_now(world);
    let mut items: Vec<Item> = leases
        .iter()
        .map(|lease| judge_lease(lease, &leases, now, world.has_gateways()))
        .collect();
    items.extend(doubled(world, &leases, now));
    items
}

fn judge_lease(lease: &Lease, all: &[Lease], now: Timestamp, has_gateways: bool) -> Item {
    let subject = lease.title();
    let namesake = all.iter().find(|it| {
        it.name != lease.name && !it.hostname.is_empty() && it.hostname == lease.hostname
    });
    if let Some(namesake) = namesake {
        let subject = &lease.name;
        return Item::fail(
            LEASE,
            subject,
            format!(
                "the host name {} is also that of {}: of two such servers only one is seen",
                lease.hostname, namesake.name
            ),
        )
        .fix(format!(
            "give every server a host name of its own; delete the Lease that nobody renews: kubectl -n kube-system delete lease {}",
            older(lease, namesake).name
        ));
    }
    let needs_no_address = lease.address.is_none() && has_gateways;
    let wrong_address = || wrong_address(lease, all, now);
    (!needs_no_address)
        .then(wrong_address)
        .flatten()
        .or_else(|| stale(lease, now))
        .unwrap_or_else(|| {
            let without = match has_gateways {
                true => "no address for peers, which a gateway does not need",
                false => "no address",
            };
            let address = lease.address.as_deref().unwrap_or(without);
            let age = lease.age(now).unwrap_or_default().max(0);
            Item::pass(LEASE, &subject, format!("renewed {age} s ago, {address}"))
        })
}

fn older<'l>(a: &'l Lease, b: &'l Lease) -> &'l Lease {
    if a.renewed <= b.renewed { a } else { b }
}

fn stale(lease: &Lease, now: Timestamp) -> Option<Item> {
    let subject = lease.title();
    let delete = format!(
        "if it is not coming back: kubectl -n kube-system delete lease {}",
        lease.name
    );
    let (Some(age), true) = (lease.age(now), lease.held) else {
        let says = "it has no holder or no renewTime: servers do not take it for a peer's";
        return Some(Item::fail(LEASE, &subject, says).fix(delete));
    };
    if let Some(hold) = lease.hold {
        let says =
            format!("it stopped in good order {age} s ago and is expected back within {hold} s");
        return Some(Item::warn(LEASE, &subject, says).fix(delete));
    }
    let ran_out = lease.duration.is_none_or(|duration| age > duration);
    if age > RENEWED_WITHIN {
        let until = if ran_out {
            "it has run out, and servers delete it within the hour"
        } else {
            "Kubernetes' own proxy goes on listing its APIs and answers 503"
        };
        let says = format!("not renewed for {age} s (every 10 s is usual): {until}");
        return Some(Item::warn(LEASE, &subject, says).fix(delete));
    }
    let expected = server_id(&lease.hostname);
    if !lease.hostname.is_empty() && expected != lease.name {
        let says = format!(
            "its name is {}, but a server of that host name is {expected}: made by hand, or by Kubernetes 1.26 or older",
            lease.name
        );
        return Some(Item::warn(LEASE, &subject, says).fix(delete));
    }
    None
}

/// What is wrong with the address that its peers are told.
fn wrong_address(lease: &Lease, all: &[Lease], now: Timestamp) -> Option<Item> {
    let subject = lease.title();
    let fix = "set --advertise-address to the address by which the other servers reach it";
    let Some(address) = &lease.address else {
        let others = all.iter().any(|it| it.address.is_some());
        let says =
            "it tells its peers no address: its gate UnknownVersionInteroperabilityProxy is off";
        return others.then(|| {
            Item::warn(LEASE, &subject, says).fix(
                "turn the gate on there (on by default since 1.36), or put `peerage gateway` before the servers",
            )
        });
    };
    if !is_socket(address) {
        let says = format!("its address {address:?} is not HOST:PORT");
        return Some(Item::fail(LEASE, &subject, says).fix(fix));
    }
    let ip = address.parse::<SocketAddr>().ok()?.ip();
    if ip.is_unspecified() {
        let says =
            format!("its address {address} is every address, and none that peers could reach");
        return Some(Item::fail(LEASE, &subject, says).fix(fix));
    }
    let fresh = |it: &&Lease| it.name != lease.name && it.is_fresh(now);
    let elsewhere = |it: &Lease| {
        let other = it.address.as_ref()?.parse::<SocketAddr>().ok()?.ip();
        (!other.is_loopback()).then_some(())
    };
    if ip.is_loopback() && all.iter().filter(fresh).any(|it| elsewhere(it).is_some()) {
        let says = format!("its address {address} leads its peers to themselves");
        return Some(Item::fail(LEASE, &subject, says).fix(fix));
    }
    let same = all
        .iter()
        .filter(fresh)
        .find(|it| it.address == lease.address)?;
    if !lease.is_fresh(now) {
        return None;
    }
    let says = format!(
        "its address {address} is also that of {}: a load balancer's, or copied",
        same.title()
    );
    Some(Item::fail(LEASE, &subject, says).fix(fix))
}

/// Servers that share a host name share one Lease, which shows only beside the Service's endpoints.
fn doubled(world: &World, leases: &[Lease], now: Timestamp) -> Option<Item> {
    let answer = match good(&world.endpoints) {
        Ok(answer) => answer,
        Err(problem) => {
            return Some(rights::unread(
                "host-names",
                "",
                rights::ENDPOINTS,
                &problem,
            ));
        }
    };
    let slices = answer.json()["items"].as_array().cloned();
    let mut addresses: Vec<String> = slices
        .unwrap_or_default()
        .iter()
        .filter_map(|slice| slice["endpoints"].as_array().cloned())
        .flatten()
        .filter_map(|endpoint| endpoint["addresses"][0].as_str().map(str::to_owned))
        .collect();
    addresses.sort();
    addresses.dedup();
    let fresh = leases.iter().filter(|it| it.is_fresh(now)).count();
    if addresses.len() > fresh {
        let says = format!(
            "the Service kubernetes has {} servers ({}), but only {fresh} identity Leases are renewed: some share a host name, or run without an identity",
            addresses.len(),
            addresses.join(", ")
        );
        return Some(
            Item::fail("host-names", "", says).fix("give every server a host name of its own"),
        );
    }
    Some(Item::pass(
        "host-names",
        "",
        format!("{fresh} servers, each with an identity of its own"),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::report::Verdict;
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-11-29T12:00:00Z".parse().unwrap()
    }

    fn lease(hostname: &str, address: Option<&str>, seconds_ago: i64) -> Lease {
        Lease {
            name: server_id(hostname),
            hostname: hostname.to_owned(),
            address: address.map(str::to_owned),
            held: true,
            renewed: Some(Timestamp::from_second(now().as_second() - seconds_ago).unwrap()),
            duration: Some(3600),
            hold: None,
        }
    }

    #[test]
    fn each_lease_is_judged_by_itself_and_beside_the_others() {
        let fine = || lease("a", Some("10.0.0.1:6443"), 5);
        let with = |change: &dyn Fn(&mut Lease)| {
            let mut lease = fine();
            change(&mut lease);
            lease
        };
        let named = |name: &str, hostname: &str| Lease {
            name: name.to_owned(),
            hostname: hostname.to_owned(),
            ..lease("x", Some("10.0.0.3:6443"), 5)
        };
        for (judged, other, verdict, says) in [
            (
                fine(),
                None,
                Verdict::Pass,
                "renewed 5 s ago, 10.0.0.1:6443",
            ),
            (
                lease("a", Some("10.0.0.1:6443"), 120),
                None,
                Verdict::Warn,
                "not renewed for 120 s",
            ),
            (
                lease("a", Some("10.0.0.1:6443"), 4000),
                None,
                Verdict::Warn,
                "has run out",
            ),
            (
                with(&|it| it.held = false),
                None,
                Verdict::Fail,
                "no holder",
            ),
            (
                with(&|it| it.renewed = None),
                None,
                Verdict::Fail,
                "no renewTime",
            ),
            (
                with(&|it| it.hold = Some(600)),
                None,
                Verdict::Warn,
                "expected back within 600 s",
            ),
            (
                with(&|it| it.address = Some("10.0.0.1".into())),
                None,
                Verdict::Fail,
                "is not HOST:PORT",
            ),
            (
                with(&|it| it.address = Some("0.0.0.0:6443".into())),
                None,
                Verdict::Fail,
                "every address",
            ),
            (
                with(&|it| it.address = Some("127.0.0.1:6443".into())),
                Some(lease("b", Some("10.0.0.2:6443"), 5)),
                Verdict::Fail,
                "themselves",
            ),
            (
                with(&|it| it.address = Some("127.0.0.1:6443".into())),
                Some(lease("b", Some("127.0.0.1:6444"), 5)),
                Verdict::Pass,
                "renewed",
            ),
            (
                fine(),
                Some(lease("b", Some("10.0.0.1:6443"), 5)),
                Verdict::Fail,
                "also that of b",
            ),
            (
                fine(),
                Some(lease("b", Some("10.0.0.1:6443"), 500)),
                Verdict::Pass,
                "renewed",
            ),
            (
                with(&|it| it.address = None),
                Some(lease("b", Some("10.0.0.2:6443"), 5)),
                Verdict::Warn,
                "no address",
            ),
            (
                with(&|it| it.address = None),
                Some(lease("b", None, 5)),
                Verdict::Pass,
                "no address",
            ),
            (
                named("apiserver-old", "c"),
                None,
                Verdict::Warn,
                "made by hand",
            ),
            (
                fine(),
                Some(named("apiserver-other", "a")),
                Verdict::Fail,
                "only one is seen",
            ),
        ] {
            let all: Vec<Lease> = [Some(judged.clone()), other]
                .into_iter()
                .flatten()
                .collect();
            let item = judge_lease(&judged, &all, now(), false);
            assert_eq!(item.verdict, verdict, "{item:?}");
            assert!(item.says.contains(says), "{says}: {item:?}");
            assert_eq!(item.fix.is_some(), verdict > Verdict::Pass, "{item:?}");
        }
    }

    #[test]
    fn a_server_behind_a_gateway_needs_no_address() {
        let all = [lease("a", None, 5), lease("b", Some("10.0.0.2:6443"), 5)];
        let item = judge_lease(&all[0], &all, now(), true);
        assert_eq!(item.verdict, Verdict::Pass, "{item:?}");
        assert!(item.says.contains("no address for peers"), "{item:?}");
        let late = lease("a", None, 120);
        let item = judge_lease(&late, &all, now(), true);
        assert!(item.says.starts_with("not renewed"), "{item:?}");
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (text, good) in [
            ("10.0.0.1:6443", true),
            ("host.example:443", true),
            ("[::1]:6443", true),
            ("::1:6443", false),
            ("10.0.0.1", false),
            ("10.0.0.1:0", false),
            ("10.0.0.1:http", false),
            (":6443", false),
            ("[x]:1", false),
            ("user@10.0.0.1:6443", false),
            ("10.0.0.1:6443/path", false),
        ] {
            assert_eq!(is_socket(text), good, "{text}");
        }
    }

    #[test]
    fn a_lease_is_read_as_servers_write_it() {
        let written = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "h", "apiserver.kubernetes.io/identity": "kube-apiserver"},
            "annotations": {"kubernetes.io/peer-advertise-address": "10.0.0.1:1", "peerage.io/hold-seconds": "600"}},
            "spec": {"holderIdentity": "n_u", "leaseDurationSeconds": 3600, "renewTime": "2026-11-29T12:00:00.000001Z"}});
        let read = Lease::read(&written);
        assert_eq!(
            (read.title().as_str(), read.hold, read.held),
            ("h", Some(600), true)
        );
        assert_eq!(read.age(now()), Some(0));
        assert_eq!(Lease::read(&Value::Null), Lease::default());
    }
}
