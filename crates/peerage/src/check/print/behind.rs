//! The server behind a gateway that was named in the place of a server: the others need it as a peer.
//!
//! A gateway that is asked on its own address (`--gateway`) says whether it stands beside a server, and where that is. Of
//! others it is taken that they stand as the printed recipe has it: at the port of clients, with the server of that host
//! at the port behind.

use std::net::{IpAddr, SocketAddr};

use super::{BEHIND, SECURE_PORT};
use crate::check::gather::address;
use crate::check::records;
use crate::check::world::{self, debug_peers};

/// A gateway among those that were named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gateway {
    /// Where it was named.
    pub(super) address: String,
    behind: Behind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Behind {
    /// The gateway says so.
    Told(String),
    /// That is where the recipe has it.
    Expected(String),
    /// The gateway says that it is a balancer.
    Nobody,
    /// If there is one, its identity Lease says where.
    Listed,
    /// It may be anywhere.
    Unknown,
}

impl Gateway {
    /// Where the server behind it is.
    pub(super) fn server(&self) -> Option<&str> {
        match &self.behind {
            Behind::Told(server) | Behind::Expected(server) => Some(server),
            Behind::Nobody | Behind::Listed | Behind::Unknown => None,
        }
    }

    /// Leaves it out unless it says itself what is behind it: all servers are known by other means.
    pub(super) fn expect_nobody(&mut self) {
        if let Behind::Expected(_) = self.behind {
            self.behind = Behind::Listed;
        }
    }

    /// What is to be known of it.
    pub(super) fn comment(&self) -> String {
        let address = &self.address;
        match &self.behind {
            Behind::Told(server) => {
                format!("{address} is a gateway; the server behind it, it says, is at {server}.")
            }
            Behind::Expected(server) => format!(
                "{address} is a gateway; the server behind it is taken to be at {server}. See that it is, and leave it \
                 out if this gateway is a balancer (check's --gateway asks it)."
            ),
            Behind::Nobody => {
                format!(
                    "Left out, because it is a balancer and no server that others connect to: {address}"
                )
            }
            Behind::Listed => format!(
                "Left out, because a gateway is no server that others connect to: {address}. Where the servers are, their \
                 identity Leases say."
            ),
            Behind::Unknown => format!(
                "Left out, because a gateway is no server that others connect to: {address}. If it stands beside a \
                 server, add that one's address (check's --gateway asks it)."
            ),
        }
    }
}

/// What is behind each of these gateways, by what gateways say on their own addresses.
pub(super) fn find(gateways: Vec<String>, told: &[world::Gateway]) -> Vec<Gateway> {
    let told: Vec<Told> = told.iter().filter_map(Told::read).collect();
    let all = gateways.clone();
    let find = |address: String| Gateway {
        behind: match told.iter().find(|it| it.is_at(&address, &all)) {
            Some(it) => it.behind(&address),
            None => expected(&address),
        },
        address,
    };
    gateways.into_iter().map(find).collect()
}

fn expected(gateway: &str) -> Behind {
    match port(gateway) {
        Some(SECURE_PORT) => Behind::Expected(format!("{}:{BEHIND}", host(gateway))),
        _ => Behind::Unknown,
    }
}

/// What one gateway says of itself.
struct Told {
    /// The host of its own address.
    host: String,
    listening: SocketAddr,
    beside: Option<String>,
}

impl Told {
    fn read(gateway: &world::Gateway) -> Option<Told> {
        let said = debug_peers(&gateway.debug)?;
        let beside = said["beside"].as_str().map(|id| {
            let peers = said["peers"].as_array().into_iter().flatten();
            let at = peers
                .filter(|it| it["id"] == id)
                .find_map(|it| it["address"].as_str());
            // Without an ID of its own a server has its address for one.
            at.unwrap_or(id).to_owned()
        });
        if beside.as_deref().is_some_and(|it| !records::is_socket(it)) {
            return None;
        }
        let url = gateway.url.trim_start_matches("http://");
        Some(Told {
            host: host(&address(url)).to_owned(),
            listening: said["listening"].as_str()?.parse().ok()?,
            beside,
        })
    }

    /// Whether this gateway is the one at `gateway`, among all that were named.
    fn is_at(&self, gateway: &str, all: &[String]) -> bool {
        if gateway.parse() == Ok(self.listening) {
            return true;
        }
        let at_port = |it: &&String| port(it) == Some(self.listening.port());
        let alone = all.iter().filter(at_port).count() == 1;
        self.listening.ip().is_unspecified()
            && port(gateway) == Some(self.listening.port())
            && (host(gateway) == self.host || (alone && is_loopback(&self.host)))
    }

    /// Where others find the server beside it: an address that leads to its own host is that host's.
    fn behind(&self, gateway: &str) -> Behind {
        match &self.beside {
            None => Behind::Nobody,
            Some(server) if is_loopback(host(server)) => {
                let port = port(server).unwrap_or(BEHIND);
                let host = match is_loopback(host(gateway)) {
                    true => host(server),
                    false => host(gateway),
                };
                Behind::Told(format!("{host}:{port}"))
            }
            Some(server) => Behind::Told(server.clone()),
        }
    }
}

/// The addresses at which gateways have their servers. One that leads to the gateway's own host leads others elsewhere, and
/// counts only where clients are on that host too.
pub(super) fn peers(told: &[world::Gateway]) -> Vec<String> {
    let of = |gateway: &world::Gateway| {
        let said = gateway.state().unwrap_or_default();
        let is_local = is_loopback(host(said["listening"].as_str().unwrap_or_default()));
        let peers = gateway.peers().into_iter();
        let addresses = peers.filter_map(|it| Some(it["address"].as_str()?.to_owned()));
        let addresses = addresses.filter(|it| is_local || !is_loopback(host(it)));
        addresses.collect::<Vec<_>>()
    };
    told.iter().flat_map(of).collect()
}

/// Whether it is the port that clients know.
pub(super) fn is_at_secure_port(address: &str) -> bool {
    port(address) == Some(SECURE_PORT)
}

/// The host in `HOST:PORT`.
pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |it| it.0)
}

fn port(address: &str) -> Option<u16> {
    address.rsplit_once(':')?.1.parse().ok()
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_matches(['[', ']']).parse();
    host == "localhost" || ip.is_ok_and(|ip: IpAddr| ip.is_loopback())
}
