//! Whether gateways know every server: clients of one that does not are told that what only that server has is not there.
//!
//! A server is the same where the address, the server ID or the certificate is. Several may share a certificate: then as
//! many of them are known as the gateway has servers with it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::check::clocks;
use crate::check::records::{is_socket, leases_of};
use crate::check::report::{Item, some};
use crate::check::world::{Gateway, Server, World};
use crate::output::counted;

const KNOWN: &str = "known-servers";
/// How many servers are named.
const NAMED: usize = 5;

/// A server that is there.
struct There {
    title: String,
    id: String,
    address: String,
    /// SHA-256 of what it shows, if that was seen.
    certificate: Option<String>,
    /// How it is known.
    by: &'static str,
}

impl There {
    fn in_words(&self) -> String {
        match self.title == self.address {
            true => self.title.clone(),
            false => format!("{} at {}", self.title, self.address),
        }
    }

    /// Whether it is what a gateway says here, whatever that shows.
    fn is(&self, said: &Value) -> bool {
        said["address"] == self.address.as_str() || said["id"] == self.id.as_str()
    }
}

/// Judges every gateway that says which servers it knows.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let there = there(world);
    let gateways = world.gateways.iter().filter(|_| !there.is_empty());
    let each = gateways.filter_map(|it| Some(judge_gateway(it, &it.state()?, &there)));
    each.flatten().collect()
}

/// Every server with a Lease that is renewed, and those that were named and answer.
fn there(world: &World) -> Vec<There> {
    let now = clocks::now(world);
    let leases = leases_of(world).into_iter();
    let leases = leases.filter(|it| it.held && it.is_fresh(now));
    let mut there: Vec<There> = leases
        .filter_map(|lease| {
            let address = lease.address.clone().filter(|it| is_socket(it))?;
            let mut ports = world.ports.iter();
            let port = ports.find(|it| it.address == address);
            let seen = port.and_then(|it| it.handshake.as_ref().ok());
            Some(There {
                title: lease.title(),
                id: lease.name,
                certificate: seen.and_then(|it| it.fingerprint()),
                address,
                by: "has an identity Lease that is renewed",
            })
        })
        .collect();
    for server in world.answering().filter(|it| !it.is_gateway()) {
        let new = named(server);
        let is_known = there.iter().any(|it| {
            let alike = it.certificate.is_some() && it.certificate == new.certificate;
            server.is_at(&json!(it.address)) || alike
        });
        if !is_known {
            there.push(new);
        }
    }
    there
}

fn named(server: &Server) -> There {
    let seen = server.handshake.as_ref().ok();
    let at = seen.and_then(|it| it.at).map(|it| it.to_string());
    There {
        title: server.name.clone(),
        id: String::new(),
        address: at.unwrap_or_else(|| server.address.clone()),
        certificate: seen.and_then(|it| it.fingerprint()),
        by: "answers",
    }
}

fn judge_gateway(gateway: &Gateway, state: &Value, there: &[There]) -> Vec<Item> {
    let said = |key: &str| state[key].as_array().into_iter().flatten();
    // Where the address that a server publishes is the gateway's own, the server is the one beside it.
    let is_own = |it: &There| state["listening"] == it.address.as_str();
    let all = said("peers").chain(said("aside"));
    let is_known = |it: &&There| is_own(it) || all.clone().any(|said| it.is(said));
    let (known, rest): (Vec<&There>, Vec<&There>) = there.iter().partition(is_known);
    // The servers of the gateway that are none of those, as one at another address of its host.
    let mut others: Vec<&Value> = said("peers")
        .filter(|said| !known.iter().any(|it| it.is(said)))
        .collect();
    let mut alike: BTreeMap<Option<&str>, Vec<&There>> = BTreeMap::new();
    for it in rest {
        alike.entry(it.certificate.as_deref()).or_default().push(it);
    }
    // Each stands for one, and those whose certificate was seen have the first choice.
    let unknown = alike
        .into_iter()
        .rev()
        .filter_map(|(certificate, servers)| {
            let mut left = servers.len();
            others.retain(|it| {
                let shows = certificate.is_none() || it["certificate"].as_str() == certificate;
                let stands = shows && left > 0;
                left -= usize::from(stands);
                !stands
            });
            (left > 0).then(|| unknown(gateway, &servers, servers.len() - left))
        });
    let unknown: Vec<Item> = unknown.collect();
    if !unknown.is_empty() {
        return unknown;
    }
    let says = format!(
        "it knows all that are there: {}",
        counted(there.len(), "server")
    );
    vec![Item::pass(KNOWN, &gateway.url, says)]
}

/// Servers of which a gateway knows so many, and no more.
fn unknown(gateway: &Gateway, servers: &[&There], known: usize) -> Item {
    let names: Vec<String> = servers.iter().map(|it| it.in_words()).collect();
    let urls: Vec<String> = servers
        .iter()
        .map(|it| format!("--peer=https://{}", it.address))
        .collect();
    let by = servers.first().map_or("", |it| it.by);
    let says = match (servers.len(), known) {
        (1, _) => format!("{by}, and the gateway does not know it"),
        (_, 0) => format!("{by} each, and the gateway knows none of them"),
        (all, known) => format!(
            "{by} each, and the gateway knows {known} of these {all}, which show one certificate"
        ),
    };
    let subject = format!("{} for {}", some(&names, NAMED), gateway.url);
    Item::warn(KNOWN, &subject, format!("{says}: to its clients what only such a server has is not there"))
        .fix(format!(
            "give that gateway {} (or in --peers-file), or --peers-from-leases where servers write their addresses",
            some(&urls, NAMED)
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::report::Verdict;

    fn there(host: u8, certificate: Option<&str>) -> There {
        There {
            title: format!("s{host}"),
            id: format!("apiserver-{host}"),
            address: format!("10.0.0.{host}:6443"),
            certificate: certificate.map(str::to_owned),
            by: "answers",
        }
    }

    /// What is said of these servers to a gateway whose own are at other addresses and show these certificates.
    fn told(servers: &[There], shown: &[&str]) -> Vec<(Verdict, String)> {
        let silent = || Err("not asked".to_owned());
        let gateway = Gateway {
            url: "http://127.0.0.1:10440".to_owned(),
            ready: silent(),
            debug: silent(),
            metrics: silent(),
        };
        let peers = shown.iter().enumerate().map(|(at, certificate)| {
            json!({"id": format!("gateway-{at}"), "address": format!("192.168.0.{at}:443"), "certificate": certificate})
        });
        let state = json!({"peers": peers.collect::<Vec<_>>(), "aside": []});
        let items = judge_gateway(&gateway, &state, servers).into_iter();
        items
            .map(|it| (it.verdict, it.subject + ": " + &it.says))
            .collect()
    }

    #[test]
    fn a_server_of_the_gateway_that_is_none_of_those_stands_for_one_of_them() {
        let unseen = || vec![there(1, None), there(2, None)];
        assert_eq!(told(&unseen(), &["a", "b"])[0].0, Verdict::Pass);
        let one = told(&unseen(), &["a"]);
        assert_eq!(one[0].0, Verdict::Warn, "{one:?}");
        assert!(one[0].1.contains("knows 1 of these 2"), "{one:?}");

        // It is left to whom it shows itself to be.
        let mixed = || vec![there(1, Some("a")), there(2, None)];
        let one = told(&mixed(), &["a"]);
        assert_eq!((one.len(), one[0].0), (1, Verdict::Warn), "{one:?}");
        assert!(one[0].1.starts_with("s2 at "), "{one:?}");
        let other = told(&mixed(), &["b"]);
        assert_eq!((other.len(), other[0].0), (1, Verdict::Warn), "{other:?}");
        assert!(other[0].1.starts_with("s1 at "), "{other:?}");
    }
}
