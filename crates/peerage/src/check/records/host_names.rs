//! Whether every server has a host name of its own: by how many are behind the Service `kubernetes`, and how many Leases
//! are renewed.

use jiff::Timestamp;

use super::Lease;
use crate::check::report::Item;
use crate::check::rights;
use crate::check::world::{World, good};
use crate::output::counted;

const HOST_NAMES: &str = "host-names";

/// Servers that share a host name share one Lease, which shows only beside the Service's endpoints.
pub(super) fn judge(world: &World, leases: &[Lease], now: Timestamp) -> Item {
    let answer = match good(&world.endpoints) {
        Ok(answer) => answer,
        Err(problem) => {
            return rights::unread(HOST_NAMES, "", rights::ENDPOINTS, &problem);
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
            "the Service kubernetes has {} ({}), but only {} renewed: some share a host name, or run without an identity",
            counted(addresses.len(), "server"),
            addresses.join(", "),
            counted(fresh, "identity Lease")
        );
        return Item::fail(HOST_NAMES, "", says).fix("give every server a host name of its own");
    }
    let servers = counted(fresh, "server");
    let says = format!("{servers}, each with an identity of its own");
    Item::pass(HOST_NAMES, "", says)
}
