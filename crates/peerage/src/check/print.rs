//! `peerage check --print`: what is missing, ready to be put where it belongs.
//!
//! What the servers tell (their Leases, and the pods of kube-apiservers) is filled in; without servers there are
//! placeholders. Everything printed is YAML or a unit file with comments that say what to do with it.

mod behind;
mod gates;
mod gateway;
mod kubeadm;
mod network_policy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;

use self::behind::Gateway;
use super::command_line;
use super::gather::{self, Plan};
use super::records::{self, Lease};
use super::report::some;
use super::rights;
use super::world::{self, CommandLine, good};
use crate::exit::Failure;
use crate::output::one_line;

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// The flags that kube-apiservers lack, as kubeadm's ClusterConfiguration (v1beta4, kubeadm 1.31 and newer)
    Kubeadm,
    /// The same as v1beta3, for older kubeadm
    KubeadmV1beta3,
    /// `peerage gateway` beside a kube-apiserver, as a static pod
    StaticPod,
    /// `peerage gateway` beside a kube-apiserver, as a systemd unit
    Systemd,
    /// What has to be let through between the servers, as a NetworkPolicy and as rules for hosts
    NetworkPolicy,
}

impl What {
    fn is_beside_a_server(self) -> bool {
        matches!(self, What::StaticPod | What::Systemd)
    }

    fn is_for_kubeadm(self) -> bool {
        matches!(self, What::Kubeadm | What::KubeadmV1beta3)
    }
}

/// The port of a kube-apiserver once the gateway has its own.
const BEHIND: u16 = 6444;
/// The port that clients know.
const SECURE_PORT: u16 = 6443;

/// What is known of the control plane.
#[derive(Debug, Clone, Default)]
struct Facts {
    /// Hosts and ports that the servers tell each other.
    addresses: Vec<String>,
    /// Flags of kube-apiservers.
    lines: Vec<CommandLine>,
    /// What could not be read, in words.
    unread: Vec<String>,
    /// Which of the addresses are those of servers as they were named here.
    as_named: Vec<String>,
    /// Which of them a gateway that was asked knows its servers by.
    as_told: Vec<String>,
    /// Servers whose address is not known, or not for certain, in words.
    unknown: Vec<String>,
    /// Addresses that were named here and are gateways': nobody's peer, but there may be a server behind each.
    gateways: Vec<Gateway>,
}

/// What is written where something is not known. No address, image or range can be that, so it is refused where it was
/// left.
const PLACEHOLDER: &str = "<REPLACE-ME>";

impl Facts {
    /// The addresses of Leases, and where one has none, those of the servers as they were named and as gateways know them,
    /// without gateways.
    fn take_addresses(
        &mut self,
        leases: &[Lease],
        named: impl Iterator<Item = String>,
        told: &[world::Gateway],
    ) {
        let of_lease = |it: &Lease| it.address.clone().filter(|it| records::is_socket(it));
        self.addresses = leases.iter().filter_map(of_lease).collect();
        let in_leases = self.addresses.clone();
        if !leases.is_empty() && in_leases.len() == leases.len() {
            self.gateways.iter_mut().for_each(Gateway::expect_nobody);
            return;
        }
        let gateways = &self.gateways;
        let is_gateway = |it: &String| gateways.iter().any(|gateway| gateway.address == *it);
        let is_server = |it: &String| records::is_socket(it) && !is_gateway(it);
        for address in named.filter(is_server) {
            if !self.addresses.contains(&address) {
                self.as_named.push(address.clone());
                self.addresses.push(address);
            }
        }
        for address in behind::peers(told).into_iter().filter(is_server) {
            if !self.addresses.contains(&address) {
                self.as_told.push(address.clone());
                self.addresses.push(address);
            }
        }
        let now = Timestamp::now();
        let without = leases.iter().filter(|it| of_lease(it).is_none());
        let without: Vec<String> = without
            .filter(|it| it.is_fresh(now))
            .map(Lease::title)
            .collect();
        let mut others = self.servers();
        others.retain(|it| !in_leases.contains(it));
        if others.len() < without.len() {
            let may_be = match others.is_empty() {
                true => "no address is known; add --peer for it".to_owned(),
                false => format!(
                    "its identity Lease has no address; if it is at none of {}, add --peer for it",
                    others.join(", ")
                ),
            };
            let unknown = without.iter().map(|it| format!("{it}: {may_be}"));
            self.unknown = unknown.collect();
        }
    }

    /// Where each server is once a gateway has its port: behind those that there are, it is already.
    fn behind(&self) -> Vec<String> {
        let hosts = self.to_move().into_keys();
        let mut all: Vec<String> = hosts.map(|host| format!("{host}:{BEHIND}")).collect();
        all.extend(self.moved().iter().map(|it| (*it).to_owned()));
        all.sort();
        all.dedup();
        all
    }

    /// The servers that are behind a gateway already.
    fn moved(&self) -> Vec<&str> {
        let moved = self.gateways.iter().filter_map(Gateway::server);
        // Where a gateway has a server at another port than clients' it is there to stay.
        let told = self
            .as_told
            .iter()
            .filter(|it| !behind::is_at_secure_port(it));
        moved.chain(told.map(String::as_str)).collect()
    }

    /// Where the others are now, by their hosts.
    fn to_move(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let moved = self.moved();
        let is_there = |host: &str| moved.iter().any(|it| behind::host(it) == host);
        let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for address in &self.addresses {
            let host = behind::host(address);
            if !is_there(host) {
                all.entry(host).or_default().insert(address);
            }
        }
        all
    }

    /// Every address at which a server is, or is to be expected.
    fn servers(&self) -> Vec<String> {
        let moved = self.gateways.iter().filter_map(Gateway::server);
        let mut all = self.addresses.clone();
        all.extend(moved.map(str::to_owned));
        let mut seen = BTreeSet::new();
        all.retain(|it| seen.insert(it.clone()));
        all
    }
}

/// Asks what is to be filled in, and writes. Placeholders are for those who have no servers yet: when none of those that
/// there are answers, nothing is printed that looks as if it were for them, unless files say all that it takes.
pub(super) async fn print(what: What, plan: &Plan) -> Result<String, Failure> {
    let mut facts = Facts {
        lines: plan.manifests.clone(),
        ..Facts::default()
    };
    if !plan.targets.is_empty() {
        let gather::Cluster {
            leases,
            pods,
            gateways,
            told,
        } = gather::of_cluster(plan).await;
        facts.gateways = behind::find(gateways, &told);
        let from_files = what.is_for_kubeadm() && !plan.manifests.is_empty();
        if let (false, Err(why), Err(_)) = (from_files, &leases, &pods) {
            let names: Vec<String> = plan.targets.iter().map(|it| it.name.clone()).collect();
            return Err(Failure::unavailable(format!(
                "none of the servers answers ({}): {why}",
                some(&names, 5)
            )));
        }
        for (got, right) in [(&leases, rights::LEASES), (&pods, rights::PODS)] {
            if let Err(problem) = good(got) {
                let item = rights::unread("", "", right, &problem);
                facts
                    .unread
                    .extend([Some(item.says), item.fix].into_iter().flatten());
            }
        }
        let leases = records::leases(&leases);
        let targets = plan.targets.iter();
        facts.take_addresses(
            &leases,
            targets.map(|it| gather::address(&it.connection.url)),
            &told,
        );
        if let Ok(pods) = good(&pods) {
            facts.lines.extend(command_line::of_pods(&pods.json()));
        }
    }
    Ok(text(what, &facts))
}

fn text(what: What, facts: &Facts) -> String {
    let mut head = String::new();
    for problem in &facts.unread {
        let _ = writeln!(
            head,
            "# NOT READ, so not filled in from this cluster: {problem}"
        );
    }
    if facts.lines.is_empty() && !facts.unread.is_empty() {
        head.push_str("# Values here are placeholders; keep feature gates that the cluster has beside the one named here.\n");
    }
    if !what.is_for_kubeadm() {
        head.push_str(&where_from(facts));
    }
    if what.is_beside_a_server() {
        head.push_str(&on_one_host(facts));
    }
    head + &filled_in(what, facts)
}

/// What is to be known of addresses that no Lease tells.
fn where_from(facts: &Facts) -> String {
    let mut text = String::new();
    for gateway in &facts.gateways {
        let _ = writeln!(text, "# {}", one_line(&gateway.comment()));
    }
    if facts.servers().is_empty() {
        let _ = writeln!(
            text,
            "# {PLACEHOLDER}: no server's address is known here; write each server's in its place."
        );
    }
    for address in &facts.as_named {
        let _ = writeln!(
            text,
            "# {address} is as the server was named here, not from an identity Lease: see that the others reach it there."
        );
    }
    for address in &facts.as_told {
        let _ = writeln!(
            text,
            "# {address} is where a gateway that was asked has a server: see that the others reach it there."
        );
    }
    for server in &facts.unknown {
        let _ = writeln!(text, "# {}", one_line(server));
    }
    text
}

/// What is to be known of servers that cannot all have the one port that is written here.
fn on_one_host(facts: &Facts) -> String {
    let mut text = String::new();
    for (host, addresses) in facts.to_move() {
        if addresses.len() > 1 {
            let addresses = addresses.into_iter().collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                text,
                "# {host} has several servers ({addresses}), and one of them alone can be at {BEHIND} there: give each a port of its \
                 own, its gateway too, and write a --peer for each."
            );
        }
    }
    text
}

fn filled_in(what: What, facts: &Facts) -> String {
    match what {
        What::Kubeadm => kubeadm::text("v1beta4", facts),
        What::KubeadmV1beta3 => kubeadm::text("v1beta3", facts),
        What::StaticPod => gateway::static_pod(facts),
        What::Systemd => gateway::systemd(facts),
        What::NetworkPolicy => network_policy::text(&facts.servers()),
    }
}
