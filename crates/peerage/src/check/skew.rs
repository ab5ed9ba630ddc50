//! What servers should agree on: their versions, nearly, and the time.

use std::collections::BTreeMap;

use super::report::Item;
use super::world::{Ahead, Server, World, debug_peers};
use crate::diff::lifecycle::Release;

const VERSIONS: &str = "version-skew";
const CLOCK: &str = "clock";
/// Seconds from which on Leases' times mislead whoever reads them.
const NOTICEABLE: f64 = 2.0;
/// Seconds from which on tokens and new certificates are refused.
const HARMFUL: f64 = 60.0;

/// Judges versions and clocks.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let mut items = Vec::new();
    items.extend(versions(world));
    items.extend(clocks(world));
    items
}

fn versions(world: &World) -> Option<Item> {
    let mut servers: BTreeMap<Release, Vec<String>> = BTreeMap::new();
    let mut emulating = Vec::new();
    let (gateways, named): (Vec<&Server>, Vec<&Server>) = world
        .servers
        .iter()
        .partition(|it| it.gateway_to().is_some());
    for (name, release) in behind(world) {
        servers.entry(release).or_default().push(name);
    }
    if !gateways.is_empty() && servers.is_empty() && named.len() < 2 {
        let says = "a gateway has no version of its own, and this is that of whichever server answered: name the servers, or give --gateway";
        return Some(Item::skip(VERSIONS, "", says));
    }
    for server in named {
        let version = server.version()?;
        servers
            .entry(version.binary)
            .or_default()
            .push(server.name.clone());
        if version.emulated != version.binary {
            emulating.push(format!("{} serves as {}", server.name, version.emulated));
        }
    }
    let (oldest, newest) = (*servers.keys().next()?, *servers.keys().next_back()?);
    let each: Vec<_> = servers
        .iter()
        .map(|(release, names)| format!("{release} ({})", names.join(", ")))
        .collect();
    let mut says = each.join(", ");
    if !emulating.is_empty() {
        says.push_str(&format!("; {}", emulating.join(", ")));
    }
    let apart = newest.1.abs_diff(oldest.1);
    if oldest.0 != newest.0 || apart > 1 {
        let says = format!(
            "{says}: {apart} minor versions apart, while Kubernetes supports kube-apiservers one apart"
        );
        return Some(
            Item::warn(VERSIONS, "", says)
                .fix("upgrade one minor version at a time, every server before the next minor"),
        );
    }
    Some(Item::pass(VERSIONS, "", says))
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

fn clocks(world: &World) -> Vec<Item> {
    let known: Vec<(&str, Ahead)> = world
        .servers
        .iter()
        .filter_map(|it| Some((it.name.as_str(), it.answers()?.ahead?)))
        .collect();
    let mut items: Vec<Item> = known
        .iter()
        .map(|(name, ahead)| {
            let (off, direction) = distance(*ahead);
            judge_clock(name, off, &format!("{direction} this machine's clock"))
        })
        .collect();
    for (at, (one, a)) in known.iter().enumerate() {
        for (other, b) in &known[at + 1..] {
            let between = Ahead {
                least: a.least - b.most,
                most: a.most - b.least,
            };
            let (off, direction) = distance(between);
            // Two that both agree with this machine's need no line of their own.
            if off >= NOTICEABLE {
                items.push(judge_clock(
                    one,
                    off,
                    &format!("{direction} that of {other}"),
                ));
            }
        }
    }
    items
}

/// By how much at least it is off, and in which direction.
fn distance(ahead: Ahead) -> (f64, &'static str) {
    if ahead.least > 0.0 {
        (ahead.least, "ahead of")
    } else if ahead.most < 0.0 {
        (-ahead.most, "behind")
    } else {
        (0.0, "with")
    }
}

fn judge_clock(name: &str, off: f64, what: &str) -> Item {
    if off < NOTICEABLE {
        return Item::pass(CLOCK, name, "right within two seconds");
    }
    let says = format!("at least {:.0} s {what}", off.floor());
    let fix = "synchronise it (chrony, systemd-timesyncd): Leases, certificates and tokens are judged by it";
    match off < HARMFUL {
        true => Item::warn(CLOCK, name, says).fix(fix),
        false => Item::fail(CLOCK, name, says).fix(fix),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    #[test]
    fn a_clock_is_off_only_by_what_the_date_proves() {
        for (least, most, off) in [
            (-0.9, 0.2, 0.0),
            (1.5, 2.6, 1.5),
            (100.0, 101.2, 100.0),
            (-31.0, -30.0, 30.0),
        ] {
            assert_eq!(distance(Ahead { least, most }).0, off);
        }
        for (off, verdict) in [
            (0.0, Verdict::Pass),
            (1.9, Verdict::Pass),
            (2.0, Verdict::Warn),
            (60.0, Verdict::Fail),
        ] {
            assert_eq!(judge_clock("a", off, "ahead of").verdict, verdict, "{off}");
        }
    }
}
