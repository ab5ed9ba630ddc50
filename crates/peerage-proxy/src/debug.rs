//! What `GET /debug/peers` shows: every peer, its state and why, and what only it serves.
//!
//! Computed when asked for; nothing here is read by requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use peerage_core::shown::counted;
use serde::Serialize;
use tokio::time::Instant;

use crate::identity::Aside;
use crate::peer::Peer;
use crate::record::Standing;
use crate::shared::{Known, Snapshot};

/// The most APIs that are named per peer.
const MAX_NAMED: usize = 1000;

/// The state of the proxy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DebugPeers {
    /// This server's ID.
    pub server: String,
    /// Whether requests are forwarded at all.
    pub enabled: bool,
    /// The peers, by ID.
    pub peers: Vec<DebugPeer>,
    /// Registered addresses that nothing is sent to, and why.
    pub aside: Vec<DebugAside>,
}

/// A registered address that is not counted as a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DebugAside {
    /// Under which ID it is registered.
    pub id: String,
    /// Where it is.
    pub address: Option<String>,
    /// `oneself`, `stranger`, `never_heard` or `same_server`.
    pub kind: &'static str,
    /// The reason in a sentence.
    pub why: String,
    /// The last thing that went wrong there.
    pub error: Option<String>,
}

/// One peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DebugPeer {
    /// Its server ID.
    pub id: String,
    /// `serving`, or why it is not: `unreachable`, `unheard`, `starting`, `crashed`, `left`.
    pub state: &'static str,
    /// The reason in a sentence.
    pub why: String,
    /// Where it is.
    pub address: Option<String>,
    /// When a state that ends by itself ends: seconds from now.
    pub ends_in_seconds: Option<u64>,
    /// Whether its `/readyz` was good when last asked.
    pub ready: bool,
    /// Whether it lists less than before it was away or not ready, so that it seems to be starting.
    pub starting: bool,
    /// Failures since it last answered.
    pub failures: u32,
    /// The smoothed time to an answer.
    pub latency_milliseconds: f64,
    /// Requests, watches and tunnels in its hands.
    pub in_flight: usize,
    /// Since when its documents have not been confirmed.
    pub document_age_seconds: Option<f64>,
    /// When its documents last changed: seconds ago.
    pub document_changed_seconds: Option<f64>,
    /// The last thing that went wrong with its documents, while it lasts.
    pub error: Option<DebugError>,
    /// How many APIs it lists although it does not serve them itself: it answers merged documents.
    pub not_its_own: usize,
    /// The version that it serves, as far as a gateway knows it.
    pub version: Option<String>,
    /// Why it could not be asked for its version, when that was last tried.
    pub version_error: Option<String>,
    /// SHA-256 of the certificate that it shows.
    pub certificate: Option<String>,
    /// What is odd about who it is.
    pub remark: Option<String>,
    /// What no other server serves, as `group/version resource`.
    pub only_here: Vec<String>,
}

/// A failure and its metric label.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DebugError {
    /// The label.
    pub reason: &'static str,
    /// The text.
    pub message: String,
    /// How long ago.
    pub seconds_ago: f64,
}

/// Describes a snapshot.
pub(crate) fn describe(
    snapshot: &Snapshot,
    enabled: bool,
    now: Instant,
    wall: SystemTime,
) -> DebugPeers {
    let servers = servers_by_api(snapshot);
    let mut peers: Vec<DebugPeer> = snapshot
        .peers
        .values()
        .map(|known| peer(known, &servers, now, wall))
        .collect();
    peers.sort_by(|a, b| a.id.cmp(&b.id));
    DebugPeers {
        server: snapshot.view.local_id().to_string(),
        enabled,
        peers,
        aside: aside(snapshot),
    }
}

fn aside(snapshot: &Snapshot) -> Vec<DebugAside> {
    let describe = |(peer, aside): &(Arc<Peer>, Aside)| {
        let address = peer.link().map(|link| link.address.to_string());
        DebugAside {
            id: peer.id.to_string(),
            kind: aside.kind(),
            why: aside.message(address.as_deref().unwrap_or("it")),
            address,
            error: peer.trouble().map(|trouble| trouble.text.clone()),
        }
    };
    let mut all: Vec<_> = snapshot.aside.iter().map(describe).collect();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

fn peer(known: &Known, servers: &ByApi, now: Instant, wall: SystemTime) -> DebugPeer {
    let Known { peer, standing, .. } = known;
    let documents = peer.documents();
    let age = |at: Instant| (now - at).as_secs_f64();
    let (state, why) = state(known);
    let ends = standing
        .until()
        .and_then(|until| until.duration_since(wall).ok());
    DebugPeer {
        id: peer.id.to_string(),
        state,
        why,
        address: peer.link().map(|link| link.address.to_string()),
        ends_in_seconds: ends.map(|ends| ends.as_secs()),
        ready: peer.health.is_ready(),
        starting: peer.is_starting(),
        failures: peer.health.consecutive_failures(),
        latency_milliseconds: peer.health.latency().as_secs_f64() * 1000.0,
        in_flight: peer.health.in_flight(),
        document_age_seconds: documents.as_ref().map(|d| age(d.checked)),
        document_changed_seconds: documents.as_ref().map(|d| age(d.changed)),
        error: peer.trouble().map(|trouble| DebugError {
            reason: trouble.reason,
            message: trouble.text.clone(),
            seconds_ago: age(trouble.at),
        }),
        not_its_own: documents.as_ref().map_or(0, |d| d.not_own),
        version: peer.version().map(|it| it.to_string()),
        version_error: peer.version_trouble().map(|it| it.to_string()),
        certificate: peer.certificate().map(|it| it.to_string()),
        remark: peer.remark().map(|it| it.to_string()),
        only_here: only_here(&peer.id, servers),
    }
}

fn state(known: &Known) -> (&'static str, String) {
    match known.standing {
        Standing::Live if !known.answers => (
            "unreachable",
            format!(
                "it is registered but {} in a row to reach it failed",
                counted(known.peer.health.consecutive_failures(), "attempt")
            ),
        ),
        Standing::Live if !known.heard => (
            "unheard",
            "it is registered but its documents could not be read yet".to_owned(),
        ),
        Standing::Live => ("serving", "it is registered and answers".to_owned()),
        Standing::Starting { .. } => (
            "starting",
            "it has an identity but no endpoint yet".to_owned(),
        ),
        Standing::Crashed { .. } => (
            "crashed",
            "its endpoint ran out although it did not stop".to_owned(),
        ),
        Standing::Left { .. } => ("left", "it stopped and is expected back".to_owned()),
        Standing::Gone => ("gone", "it is not remembered any more".to_owned()),
    }
}

type ByApi = BTreeMap<String, Vec<String>>;

fn servers_by_api(snapshot: &Snapshot) -> ByApi {
    let mut servers = ByApi::new();
    let mut add = |server: &str, list: &peerage_core::discovery::ApiGroupDiscoveryList| {
        for group in &list.items {
            for version in &group.versions {
                for resource in &version.resources {
                    let api = name(group.name(), &version.version, &resource.resource);
                    servers.entry(api).or_default().push(server.to_owned());
                }
            }
        }
    };
    if let Some(documents) = snapshot.view.local_documents() {
        add(snapshot.view.local_id(), &documents.core());
        add(snapshot.view.local_id(), &documents.apis());
    }
    for id in snapshot.peers.keys() {
        if let Some(documents) = snapshot.view.peer(id).and_then(|p| p.documents.as_ref()) {
            add(id, &documents.core());
            add(id, &documents.apis());
        }
    }
    servers
}

fn name(group: &str, version: &str, resource: &str) -> String {
    if group.is_empty() {
        format!("{version} {resource}")
    } else {
        format!("{group}/{version} {resource}")
    }
}

fn only_here(id: &str, servers: &ByApi) -> Vec<String> {
    servers
        .iter()
        .filter(|(_, who)| who.iter().all(|server| server == id))
        .map(|(api, _)| api.clone())
        .take(MAX_NAMED)
        .collect()
}
