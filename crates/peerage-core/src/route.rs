//! Who answers a request: this server, a peer, nobody, or nobody knows.
//!
//! [`route`] is a pure function of a request, a [`PeerView`] and a few facts about the caller ([`Rules`]). Every
//! answer carries its reason, which logs, audit annotations, metrics and `peerage explain` show
//! ([`reason`]). Sending the request, and trying the next candidate, is the proxy's.
//!
//! The first rule that applies decides:
//!
//! | # | when | answer |
//! |---|---|---|
//! | 1 | it is no request for a resource | here |
//! | 2 | this server lists group, version, resource, subresource and verb as current | here |
//! | 3 | the shared store defines the resource, and this server can reach what is behind it | here |
//! | 4 | a reachable peer lists all of that as current | sent there; 503 for a verified peer's request |
//! | 5 | this server lists the version as stale | here: its own chain says why |
//! | 6 | a server that is away, or a stale version, lists all of that | 503 |
//! | 7 | somebody has not been heard yet | 503 |
//! | 8 | this server lists the resource | here: its own chain says 404 or 405 |
//! | 9 | a reachable peer lists the resource | sent there for the same, or 503 for a verified peer's request |
//! | 10 | a server that is away lists the resource, or a stale version lists nothing | 503 |
//! | 11 | otherwise | unknown everywhere: the local chain says 404 |
//!
//! A front, which serves nothing itself, starts at rule 4, and its local chain is one of the servers behind it. Instead of
//! rule 5 it sends what a reachable server lists as stale to that server, whose own chain says why; so a stale version is
//! no reason for rule 6 there.
//!
//! Differs: kube-apiserver's peerproxy handler looks at group, version and resource only, picks one random peer,
//! and lets the local chain say 404 whenever it does not know.
//!
//! Invariant: answers 1, 2 and 3 do not allocate.

mod candidates;
pub mod explanation;
pub mod reason;

use smallvec::SmallVec;

use crate::RequestInfo;
use crate::index::{Depth, Found, Target};
use crate::view::{Peer, PeerEntry, PeerView, Standing};

pub use explanation::{Explanation, QuestionError};
pub use reason::{ForwardReason, LocalReason, UnknownReason, UnsureReason};
use std::sync::Arc;

/// Facts that are neither in the request nor in the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether a peer that proved who it is sent this on already: then it is never sent on again.
    pub from_verified_peer: bool,
    /// Any number that differs from request to request: spreads load over candidates that are equally good.
    pub ticket: u64,
    /// After how many seconds clients are told to try again when the answer is not known.
    pub retry_after: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            from_verified_peer: false,
            ticket: 0,
            retry_after: 1,
        }
    }
}

/// Peers to try, the best first.
pub type Candidates<'v> = SmallVec<[&'v Arc<Peer>; 4]>;

/// Who answers.
#[derive(Debug, Clone)]
pub enum Route<'v> {
    /// This server's own chain.
    Local(LocalReason),
    /// One of these peers, in this order; there is at least one.
    Forward {
        /// Peers to try, the best first.
        candidates: Candidates<'v>,
        /// What this server lacks.
        reason: ForwardReason,
    },
    /// No server has it: this server's own chain says so (404).
    Unknown(UnknownReason),
    /// A server may have it that cannot be asked now: 503.
    Unsure {
        /// Why it is not known.
        reason: UnsureReason,
        /// After how many seconds to try again.
        retry_after: u32,
    },
}

/// Decides who answers `info`.
#[must_use]
pub fn route<'v>(info: &RequestInfo<'_>, view: &'v PeerView, rules: &Rules) -> Route<'v> {
    if !info.is_resource_request() {
        return Route::Local(LocalReason::NonResource);
    }
    route_target(&Target::of(info), view, rules)
}

/// Decides who answers a request for a resource.
#[must_use]
pub fn route_target<'v>(target: &Target<'_>, view: &'v PeerView, rules: &Rules) -> Route<'v> {
    let listed = view
        .local_documents()
        .map(|documents| documents.find(target))
        .unwrap_or_default();
    if view.is_front() {
        let reason = ForwardReason::of_front(listed, view.local_documents());
        return decide(
            Found::default(),
            reason,
            &Elsewhere::look(target, view),
            view,
            rules,
        );
    }
    let local = listed;
    if local.depth == Depth::Verb && !local.stale {
        return Route::Local(LocalReason::Served);
    }
    let excluded = view
        .exclusions()
        .covers(target.group, target.version, target.resource);
    if excluded && !local.stale {
        return Route::Local(LocalReason::DefinedByStore);
    }
    let elsewhere = Elsewhere::look(target, view);
    decide(local, ForwardReason::of(local), &elsewhere, view, rules)
}

/// Rules 4 to 11.
fn decide<'v>(
    local: Found,
    lacks: ForwardReason,
    elsewhere: &Elsewhere<'v>,
    view: &PeerView,
    rules: &Rules,
) -> Route<'v> {
    if !elsewhere.exact.is_empty() {
        return send(&elsewhere.exact, lacks, rules);
    }
    if local.stale {
        return Route::Local(LocalReason::StaleHere);
    }
    // A server whose aggregated API is down says so itself, and before that whether this client may know.
    if view.is_front() && !elsewhere.stale.is_empty() {
        return send(&elsewhere.stale, lacks, rules);
    }
    if let Some(reason) = elsewhere.exact_away {
        return unsure(reason, rules);
    }
    if !view.synced() {
        return unsure(UnsureReason::NotSynced, rules);
    }
    if !view.absence_is_certain() {
        return unsure(UnsureReason::PeerNotHeard, rules);
    }
    if local.depth >= Depth::Resource {
        return Route::Local(LocalReason::NobodyHasMore);
    }
    if !elsewhere.resource.is_empty() {
        return send(&elsewhere.resource, lacks, rules);
    }
    if let Some(reason) = elsewhere.resource_away {
        return unsure(reason, rules);
    }
    let is_current_here = local.depth >= Depth::Version;
    if elsewhere.stale_and_empty && !elsewhere.current_version && !is_current_here {
        return unsure(UnsureReason::StaleElsewhere, rules);
    }
    Route::Unknown(UnknownReason::of(local.depth.max(elsewhere.depth)))
}

fn unsure<'v>(reason: UnsureReason, rules: &Rules) -> Route<'v> {
    Route::Unsure {
        reason,
        retry_after: rules.retry_after,
    }
}

/// Sends to one of `able`, unless the request was sent on already.
fn send<'v>(able: &[&'v PeerEntry], reason: ForwardReason, rules: &Rules) -> Route<'v> {
    if rules.from_verified_peer {
        return unsure(UnsureReason::AlreadySent, rules);
    }
    Route::Forward {
        candidates: candidates::ordered(able, rules.ticket),
        reason,
    }
}

/// What the peers list of a target.
#[derive(Default)]
struct Elsewhere<'v> {
    /// Reachable peers that list everything as current.
    exact: SmallVec<[&'v PeerEntry; 4]>,
    /// Reachable peers that list the resource as current.
    resource: SmallVec<[&'v PeerEntry; 4]>,
    /// Reachable peers that list the version as stale.
    stale: SmallVec<[&'v PeerEntry; 4]>,
    /// Why a peer that lists everything cannot be asked.
    exact_away: Option<UnsureReason>,
    /// Why a peer that lists the resource cannot be asked.
    resource_away: Option<UnsureReason>,
    /// Whether a peer lists the version as stale without saying what is in it.
    stale_and_empty: bool,
    /// Whether a reachable peer lists the version as current.
    current_version: bool,
    /// The most that any peer lists.
    depth: Depth,
}

impl<'v> Elsewhere<'v> {
    fn look(target: &Target<'_>, view: &'v PeerView) -> Self {
        let mut it = Self::default();
        for entry in &view.entries {
            if let Some(documents) = &entry.peer.documents
                && matches!(entry.standing, Standing::Candidate | Standing::Held)
            {
                it.add(entry, documents.find(target));
            }
        }
        it
    }

    fn add(&mut self, entry: &'v PeerEntry, found: Found) {
        self.depth = self.depth.max(found.depth);
        let away = match (entry.standing, found.stale) {
            (Standing::Held, _) => Some(UnsureReason::PeerGone),
            (_, true) => Some(UnsureReason::StaleElsewhere),
            _ => None,
        };
        let Some(reason) = away else {
            self.current_version |= found.depth >= Depth::Version;
            if found.depth >= Depth::Resource {
                self.resource.push(entry);
            }
            if found.depth == Depth::Verb {
                self.exact.push(entry);
            }
            return;
        };
        self.stale_and_empty |= found.stale && found.empty;
        if entry.standing == Standing::Candidate {
            self.stale.push(entry);
        }
        if found.depth >= Depth::Resource {
            self.resource_away.get_or_insert(reason);
        }
        if found.depth == Depth::Verb {
            self.exact_away.get_or_insert(reason);
        }
    }
}
