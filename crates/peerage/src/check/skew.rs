//! What servers should agree on, nearly: their versions.

use std::collections::BTreeMap;

use super::report::{Item, not_known};
use super::world::{Server, World, debug_peers};
use crate::diff::lifecycle::Release;
use crate::output::counted;

const VERSIONS: &str = "version-skew";

/// Judges the versions of the servers that say theirs.
pub(super) fn judge(world: &World) -> Option<Item> {
    let mut versions: BTreeMap<Release, Vec<String>> = BTreeMap::new();
    let (gateways, named): (Vec<&Server>, Vec<&Server>) =
        world.servers.iter().partition(|it| it.is_gateway());
    for (name, release) in behind(world) {
        versions.entry(release).or_default().push(name);
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
            unknown.push(name);
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

/// The servers behind gateways, by what these say of them, each once.
fn behind(world: &World) -> BTreeMap<String, Release> {
    let states = world
        .gateways
        .iter()
        .filter_map(|it| debug_peers(&it.debug));
    let mut releases = BTreeMap::new();
    for state in states {
        for peer in state["peers"].as_array().into_iter().flatten() {
            let release = peer["version"].as_str().and_then(Release::parse);
            if let (Some(id), Some(release)) = (peer["id"].as_str(), release) {
                releases.insert(id.to_owned(), release);
            }
        }
    }
    releases
}
