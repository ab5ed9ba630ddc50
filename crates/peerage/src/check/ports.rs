//! The ports that peers are told to connect to: whether they can be reached from here, and prove who they are. What is
//! said of a server that is away already is not said of its port again.

use std::collections::BTreeMap;

use serde_json::json;

use super::certificates::Doubt;
use super::clocks;
use super::gather::PEER_NAME;
use super::handshake;
use super::records::{Lease, leases_of};
use super::report::Item;
use super::world::{Port, World};

const PORT: &str = "peer-port";

/// Judges the ports that peers are told to connect to.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let by_name: BTreeMap<String, Lease> = leases_of(world)
        .into_iter()
        .map(|lease| (lease.name.clone(), lease))
        .collect();
    let now = clocks::now(world);
    let told = |port: &&Port| port.handshake.is_ok() || !world.is_away(&json!(port.address));
    let items = world.ports.iter().filter(told).map(|port| {
        let lease = by_name.get(&port.lease).cloned().unwrap_or_default();
        let subject = format!("{} at {}", lease.title(), port.address);
        let seen = match &port.handshake {
            Ok(seen) => seen,
            Err(error) if !lease.is_fresh(now) => {
                let says = format!("{error}; its Lease is not renewed either: the server is gone");
                return Item::warn(PORT, &subject, says).fix(format!(
                    "start it again; if it is not coming back: kubectl -n kube-system delete lease {}",
                    lease.name
                ));
            }
            Err(error) => {
                return Item::fail(PORT, &subject, error.to_string()).fix(
                    "let every control plane host reach this port of every other (`peerage check --print network-policy`); \
                     if the address is wrong, correct that server's --advertise-address",
                );
            }
        };
        let Some((authority, authority_from)) = world.authority() else {
            return Item::skip(PORT, &subject, "no authority to check it by");
        };
        match handshake::verify(authority, &seen.certificates, PEER_NAME, world.now) {
            Ok(()) => Item::pass(
                PORT,
                &subject,
                format!("answers as {PEER_NAME} after {} ms", seen.took.as_millis()),
            ),
            Err(error) => Doubt {
                error: &error,
                authority_from,
                chain: &seen.certificates,
                name: PEER_NAME,
            }
            .item(PORT, &subject),
        }
    });
    items.collect()
}
