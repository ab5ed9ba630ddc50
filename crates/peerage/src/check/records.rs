//! Identity Leases and the addresses in them: who is there, who has gone, and where peers are told to connect to.
//!
//! `host_names.rs` counts them beside the Service's endpoints. The endpoint records beside them are in etcd alone and not served; a server whose Lease is renewed has one as a rule.

mod host_names;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use peerage_apiserver::server_id;
use peerage_proxy::record::registered::{self, ADDRESS_ANNOTATION};
use serde_json::Value;

use super::clocks;
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

/// The same, with their times by the clock to go by: a server whose clock is wrong writes its own Lease by that.
pub(super) fn leases_of(world: &World) -> Vec<Lease> {
    let mut leases = leases(&world.leases);
    for lease in &mut leases {
        if let (Some(address), Some(renewed)) = (&lease.address, lease.renewed) {
            lease.renewed = Some(clocks::corrected(world, address, renewed));
        }
    }
    leases
}

/// Whether peers and the gateway take a text for an address.
pub(super) fn is_socket(address: &str) -> bool {
    registered::read_address(address).is_some()
}

/// Judges the Leases.
pub(super) fn judge(world: &World) -> Vec<Item> {
    if let Err(problem) = good(&world.leases) {
        return vec![rights::unread(LEASE, "", rights::LEASES, &problem)];
    }
    let leases = leases_of(world);
    if leases.is_empty() {
        return vec![
            Item::fail(LEASE, "", "there are none: no server can find its peers")
                .fix("turn the gate APIServerIdentity on (the default since 1.26)"),
        ];
    }
    let now = clocks::now(world);
    let mut items: Vec<Item> = leases
        .iter()
        .map(|lease| judge_lease(lease, &leases, now, world.has_gateways()))
        .collect();
    items.push(host_names::judge(world, &leases, now));
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
