//! What servers should agree on, nearly: their versions.

use std::collections::BTreeMap;

use serde_json::json;

use super::report::{Item, not_known};
use super::world::{Gateway, Server, World};
use crate::diff::lifecycle::Release;
use crate::output::counted;

const VERSIONS: &str = "version-skew";

/// Judges the versions of the servers that say theirs.
pub(super) fn judge(world: &World) -> Option<Item> {
    let mut versions: BTreeMap<Release, Vec<String>> = BTreeMap::new();
    let (gateways, named): (Vec<&Server>, Vec<&Server>) =
        world.servers.iter().partition(|it| it.is_gateway());
    // A server that says its version itself is not counted again as one behind a gateway.
    let mut told = Vec::new();
    for (address, (id, release)) in behind(world) {
        let server = world.servers.iter().find(|it| it.is_at(&json!(address)));
        if server.is_some_and(|it| it.version().is_some()) {
            continue;
        }
        let name = server.map_or(id, |it| it.name.clone());
        versions.entry(release).or_default().push(name.clone());
        told.push(name);
    }
    if !gateways.is_empty() && versions.is_empty() && named.len() < 2 {
        let says = "a gateway has no version of its own, and this is that of whichever server answered: name the servers, or give --gateway";
        return Some(Item::skip(VERSIONS, "", says));
    }
    let mut emulating = Vec::new();
    let mut unknown = Vec::new();
    for server in named {
        let name = server.name.clone();
        let Some(version) = server.version() else {
            unknown.extend(Some(name).filter(|it| !told.contains(it)));
            continue;
        };
        if version.emulated != version.binary {
            emulating.push(format!("{name} serves as {}", version.emulated));
        }
        versions.entry(version.binary).or_default().push(name);
    }
    compared(&versions, &emulating, &unknown)
}

/// The item for what is known, which says what is not.
fn compared(
    versions: &BTreeMap<Release, Vec<String>>,
    emulating: &[String],
    unknown: &[String],
) -> Option<Item> {
    let each = versions.iter();
    let each: Vec<String> = each
        .map(|(release, names)| format!("{release} ({})", names.join(", ")))
        .collect();
    let mut parts = vec![each.join(", ")];
    parts.extend(emulating.iter().cloned());
    parts.extend(not_known(unknown));
    parts.retain(|part| !part.is_empty());
    let says = parts.join("; ");
    let known: usize = versions.values().map(Vec::len).sum();
    if known < 2 && !unknown.is_empty() {
        return Some(Item::skip(VERSIONS, "", says));
    }
    let (oldest, newest) = (*versions.keys().next()?, *versions.keys().next_back()?);
    let apart = newest.1.abs_diff(oldest.1);
    if oldest.0 == newest.0 && apart <= 1 {
        return Some(Item::pass(VERSIONS, "", says));
    }
    let says = format!(
        "{says}: {} apart, while Kubernetes supports kube-apiservers one apart",
        counted(apart, "minor version")
    );
    Some(
        Item::warn(VERSIONS, "", says)
            .fix("upgrade one minor version at a time, every server before the next minor"),
    )
}

/// The servers behind gateways by their addresses, each with an ID and its release, by what gateways say of them.
fn behind(world: &World) -> BTreeMap<String, (String, Release)> {
    let peers = world.gateways.iter().flat_map(Gateway::peers);
    let known = peers.filter_map(|peer| {
        let id = peer["id"].as_str()?.to_owned();
        let release = Release::parse(peer["version"].as_str()?)?;
        let address = peer["address"].as_str().unwrap_or(&id).to_owned();
        Some((address, (id, release)))
    });
    known.collect()
}
