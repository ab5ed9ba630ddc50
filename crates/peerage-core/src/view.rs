//! Everything that is known of all servers at one moment, in one immutable value.
//!
//! One writer folds documents, peers' states and exclusions into a new [`PeerView`] and publishes it; requests
//! read the one they got. Routing ([`mod@crate::route`]) and discovery documents come from the same view, so they
//! cannot disagree: what is listed as current can be called, but for what only a server has that is away (503 until it
//! is back or forgotten); what is listed as stale answers 503.
//! Where documents and states come from, and when a view is made, is the caller's (`peerage-proxy`).

mod apis;
mod documents;
mod group;
mod peer;
mod render;

use std::sync::Arc;

use apis::{Apis, Part, Role, Whole};

pub use documents::Documents;
pub use peer::{Millis, Peer, PeerState, Readiness, Standing};
pub use render::{DocumentForm, Lookup, Rendered};

use crate::discovery::{ApiGroupDiscovery, ApiGroupDiscoveryList, DiscoveryVersion};
use crate::exclusion::Exclusions;

/// What the local server serves.
#[derive(Debug, Clone, Default)]
pub struct LocalApis {
    /// Its server ID; a peer of the same ID is passed over.
    pub id: Arc<str>,
    /// Its documents; none while they are not known, which makes every absence uncertain. Empty documents are
    /// those of a front that serves nothing itself.
    pub documents: Option<Arc<Documents>>,
    /// Host and port that the legacy document of `/api` names; empty if it is to name none.
    pub server_address: Arc<str>,
    /// Whether this is a front that serves nothing itself: every request is sent on, and the documents are those of
    /// the server that it stands beside, which is one of the peers too.
    pub is_front: bool,
}

/// What a view is made from.
#[derive(Debug, Clone, Default)]
pub struct ViewInputs {
    /// The local server.
    pub local: LocalApis,
    /// All registered servers, in any order.
    pub peers: Vec<Arc<Peer>>,
    /// What the shared store defines.
    pub exclusions: Arc<Exclusions>,
    /// The time.
    pub now: Millis,
    /// Whether all peers that were known at the start have been heard once, or given up.
    pub synced: bool,
    /// For how long what a gone peer served is remembered.
    pub hold: Millis,
}

/// Whose documents are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ViewScope {
    /// Those of all servers as one.
    #[default]
    Merged,
    /// Those of the local server alone (`profile=nopeer`, and every verified peer).
    Local,
}

/// Everything that is known of all servers at one moment.
#[derive(Debug)]
pub struct PeerView {
    inputs: ViewInputs,
    pub(crate) entries: Vec<PeerEntry>,
    merged: Arc<Apis>,
    local: Arc<Apis>,
}

/// A peer with what it counts for.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    pub(crate) peer: Arc<Peer>,
    pub(crate) standing: Standing,
    /// What its ID contributes to breaking ties.
    pub(crate) seed: u64,
}

impl PeerView {
    /// Makes a view from nothing.
    #[must_use]
    pub fn build(inputs: ViewInputs) -> Self {
        Self::make(None, inputs)
    }

    /// Makes a view that takes over from `previous` whatever did not change.
    #[must_use]
    pub fn rebuild(previous: &Self, inputs: ViewInputs) -> Self {
        Self::make(Some(previous), inputs)
    }

    fn make(previous: Option<&Self>, mut inputs: ViewInputs) -> Self {
        let local_id = Arc::clone(&inputs.local.id);
        inputs.peers.retain(|peer| peer.id != local_id);
        inputs.peers.sort_by(|a, b| a.id.cmp(&b.id));
        inputs.peers.dedup_by(|a, b| a.id == b.id);
        let entry = |peer: &Arc<Peer>| PeerEntry {
            standing: peer.standing(inputs.now, inputs.hold),
            seed: fnv1a(&peer.id),
            peer: Arc::clone(peer),
        };
        let entries: Vec<PeerEntry> = inputs.peers.iter().map(entry).collect();
        let parts = parts(&inputs, &entries);
        let own = match parts.first() {
            Some(part) if part.role == Role::Local => &parts[..1],
            _ => &[],
        };
        let address = &inputs.local.server_address;
        // The server that a front stands beside is among the peers, with what it counts for.
        let all = if inputs.local.is_front {
            &parts[own.len()..]
        } else {
            &parts[..]
        };
        let local = Apis::collect(
            previous.map(|it| &it.local),
            own,
            &Exclusions::default(),
            address,
            true,
        );
        let merged = Apis::collect(
            previous.map(|it| &it.merged),
            all,
            &inputs.exclusions,
            address,
            false,
        );
        Self {
            entries,
            merged,
            local,
            inputs,
        }
    }

    /// The local server's ID.
    #[must_use]
    pub fn local_id(&self) -> &Arc<str> {
        &self.inputs.local.id
    }

    /// Whether everything is sent on (see [`LocalApis::is_front`]).
    #[must_use]
    pub fn is_front(&self) -> bool {
        self.inputs.local.is_front
    }

    /// The local server's documents, when they are known.
    #[must_use]
    pub fn local_documents(&self) -> Option<&Arc<Documents>> {
        self.inputs.local.documents.as_ref()
    }

    /// All peers with what each counts for, by ID.
    pub fn peers(&self) -> impl Iterator<Item = (&Arc<Peer>, Standing)> {
        self.entries.iter().map(|it| (&it.peer, it.standing))
    }

    /// The peer of this ID.
    #[must_use]
    pub fn peer(&self, id: &str) -> Option<&Arc<Peer>> {
        let place = self.entries.binary_search_by(|it| (*it.peer.id).cmp(id));
        place.ok().map(|place| &self.entries[place].peer)
    }

    /// What the shared store defines.
    #[must_use]
    pub fn exclusions(&self) -> &Arc<Exclusions> {
        &self.inputs.exclusions
    }

    /// When the view was made.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.inputs.now
    }

    /// Whether all peers that were known at the start had been heard.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.inputs.synced && self.inputs.local.documents.is_some()
    }

    /// Whether what is not listed is known to be served nowhere: all servers have been heard.
    #[must_use]
    pub fn absence_is_certain(&self) -> bool {
        self.synced()
            && self
                .entries
                .iter()
                .all(|it| it.standing != Standing::Unheard)
    }

    /// When the hold time of the first gone peer ends, so that a new view is due even if nothing is heard.
    #[must_use]
    pub fn next_change(&self) -> Option<Millis> {
        let held = |it: &&PeerEntry| it.standing != Standing::Forgotten;
        let ends = |it: &PeerEntry| Some(it.peer.gone_since? + self.inputs.hold);
        self.entries.iter().filter(held).filter_map(ends).min()
    }

    /// The aggregated document of `/apis`.
    #[must_use]
    pub fn aggregated_apis(&self, scope: ViewScope, version: DiscoveryVersion) -> &Rendered {
        self.apis(scope).whole(Whole::Apis(version))
    }

    /// The aggregated document of `/api`.
    #[must_use]
    pub fn aggregated_core(&self, scope: ViewScope, version: DiscoveryVersion) -> &Rendered {
        self.apis(scope).whole(Whole::Core(version))
    }

    /// The legacy document of `/apis`.
    #[must_use]
    pub fn legacy_groups(&self, scope: ViewScope) -> &Rendered {
        self.apis(scope).whole(Whole::LegacyGroups)
    }

    /// The legacy document of `/api`.
    #[must_use]
    pub fn legacy_versions(&self, scope: ViewScope) -> &Rendered {
        self.apis(scope).whole(Whole::LegacyVersions)
    }

    /// The legacy document of `/apis/GROUP`.
    #[must_use]
    pub fn legacy_group(&self, scope: ViewScope, group: &str) -> Lookup<'_> {
        self.apis(scope).legacy_group(group)
    }

    /// The legacy document of `/apis/GROUP/VERSION` or, for the empty group, `/api/VERSION`.
    #[must_use]
    pub fn legacy_resources(&self, scope: ViewScope, group: &str, version: &str) -> Lookup<'_> {
        self.apis(scope).legacy_resources(group, version)
    }

    /// The groups of `/apis` as values.
    #[must_use]
    pub fn list(&self, scope: ViewScope) -> ApiGroupDiscoveryList {
        self.apis(scope).list()
    }

    /// One group as a value; the core group for the empty name.
    #[must_use]
    pub fn group(&self, scope: ViewScope, name: &str) -> Option<&Arc<ApiGroupDiscovery>> {
        self.apis(scope).group(name).map(|group| group.discovery())
    }

    fn apis(&self, scope: ViewScope) -> &Apis {
        match scope {
            ViewScope::Merged => &self.merged,
            ViewScope::Local => &self.local,
        }
    }
}

/// Whose documents make the merged ones: the local server's first.
fn parts<'a>(inputs: &'a ViewInputs, entries: &'a [PeerEntry]) -> Vec<Part<'a>> {
    let local = inputs.local.documents.iter().map(|documents| Part {
        documents,
        role: Role::Local,
    });
    let peers = entries.iter().filter_map(|entry| {
        let role = match entry.standing {
            Standing::Candidate => Role::Candidate,
            Standing::Held => Role::Held,
            Standing::Unheard | Standing::Forgotten => return None,
        };
        let documents = entry.peer.documents.as_ref()?;
        Some(Part { documents, role })
    });
    local.chain(peers).collect()
}

/// A hash that is the same on every server and in every version (FNV-1a).
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
