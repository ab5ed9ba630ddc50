//! Gateways, as they answer on their own addresses, and what that says of the servers: who is behind one, and who is away.
//!
//! Invariant: of a gateway that was named and says nothing it is not taken that it has no servers.

use serde_json::Value;

use super::{Got, Server, Way, World, debug_peers};
use crate::check::apis;
use crate::check::report::some;

/// How many servers that are away are named.
const NAMED: usize = 5;

/// A gateway, as it answers on its own address.
#[derive(Debug, Clone)]
pub(in crate::check) struct Gateway {
    /// Its address.
    pub(in crate::check) url: String,
    /// `/readyz`.
    pub(in crate::check) ready: Got,
    /// `/debug/peers`.
    pub(in crate::check) debug: Got,
    /// `/metrics`.
    pub(in crate::check) metrics: Got,
}

impl Gateway {
    /// What it says of itself, if it does.
    pub(in crate::check) fn state(&self) -> Option<Value> {
        debug_peers(&self.debug)
    }

    /// The servers behind it, as it sees them.
    pub(in crate::check) fn peers(&self) -> Vec<Value> {
        let state = self.state().unwrap_or_default();
        state["peers"].as_array().cloned().unwrap_or_default()
    }
}

/// That clients reach a server through a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::check) struct Behind<'w> {
    /// The gateway's own address.
    pub(in crate::check) gateway: &'w str,
    /// What the gateway can do with the server.
    pub(in crate::check) standing: Standing,
}

/// What a gateway can do with a server, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::check) enum Standing {
    /// It does not say which servers are behind it: this may be one.
    Unknown,
    /// It cannot use it now.
    Away,
    /// It can use it.
    Serving,
}

impl World {
    /// Whether clients come by gateways: these find servers without the addresses that servers tell each other.
    pub(in crate::check) fn has_gateways(&self) -> bool {
        let all = self.answering().all(Server::is_behind_peerage);
        let any = self.answering().any(Server::is_gateway);
        !self.gateways.is_empty() || (all && any)
    }

    /// A gateway that was named and does not say which servers are behind it.
    pub(in crate::check) fn silent_gateway(&self) -> Option<&str> {
        let mut gateways = self.gateways.iter();
        Some(&gateways.find(|it| it.state().is_none())?.url)
    }

    /// The gateway of those named by their own address that a server stands behind; one that can use it before others.
    pub(in crate::check) fn behind(&self, server: &Server) -> Option<Behind<'_>> {
        let found = self.gateways.iter().filter_map(|gateway| {
            let peers = gateway.peers();
            let peer = peers.iter().find(|it| server.is_at(&it["address"]));
            let standing = match peer {
                Some(peer) if peer["state"] == "serving" => Standing::Serving,
                Some(_) => Standing::Away,
                None if gateway.state().is_none() => Standing::Unknown,
                None => return None,
            };
            Some(Behind {
                gateway: &gateway.url,
                standing,
            })
        });
        let is_other = !server.is_gateway();
        is_other
            .then(|| found.max_by_key(|it| it.standing))
            .flatten()
    }

    /// Whether clients may connect to a server by itself, or to the gateway that it is.
    pub(in crate::check) fn is_reached(&self, server: &Server) -> bool {
        server.answers().is_some() && self.behind(server).is_none()
    }

    /// How what only some have gets to the clients of the others.
    pub(in crate::check) fn way(&self) -> Way {
        let standing = |it: &Server| self.behind(it).map(|it| it.standing);
        let through = |it: &Server| it.is_gateway() || standing(it) == Some(Standing::Serving);
        if !self.nobody_answers() && self.answering().all(through) {
            return Way::Gateways;
        }
        if self.silent_gateway().is_some() {
            return Way::Unknown;
        }
        match self.only_release() {
            Some(release) if apis::differing(&self.servers).is_empty() => Way::NotYet(release),
            _ => Way::Own,
        }
    }

    /// The servers that cannot be used now: those that do not answer here, and those of which a gateway or another server
    /// says so.
    pub(in crate::check) fn away(&self) -> Vec<String> {
        let mut away: Vec<String> = Vec::new();
        away.extend(
            self.servers
                .iter()
                .filter(|it| it.is_away())
                .map(|it| it.name.clone()),
        );
        let states = self.gateways.iter().filter_map(Gateway::state);
        let states = states.chain(self.servers.iter().filter_map(Server::debug));
        for state in states {
            away.extend(self.away_for(&state));
        }
        let mut seen = std::collections::BTreeSet::new();
        away.retain(|it| seen.insert(it.clone()));
        away
    }

    /// Those of one gateway's or server's peers that it cannot use, by the names that they have here.
    pub(in crate::check) fn away_for(&self, state: &Value) -> Vec<String> {
        let peers = state["peers"].as_array().into_iter().flatten();
        let away = peers.filter(|it| it["state"] != "serving");
        let name = |peer: &Value| {
            let mut servers = self.servers.iter();
            let named = servers.find(|it| it.is_at(&peer["address"]));
            let id = || peer["id"].as_str().unwrap_or_default().to_owned();
            named.map_or_else(id, |it| it.name.clone())
        };
        away.map(name).collect()
    }

    /// What to do about something that a server which is away may be the cause of. Where Peerage's proxy stands between, it
    /// is the cause.
    pub(in crate::check) fn start_first(&self, through_peerage: bool, fix: &str) -> String {
        let away = self.away();
        match (away.is_empty(), through_peerage) {
            (true, _) => fix.to_owned(),
            (false, true) => format!("start {}; this follows from it", some(&away, NAMED)),
            (false, false) => {
                let away = some(&away, NAMED);
                format!("start {away} first: this may follow from it; if it stays: {fix}")
            }
        }
    }
}
