//! Why a request is answered where it is: as a word for metrics and as a sentence for people.
//!
//! Words are stable; sentences are not.

use std::fmt;
use std::sync::Arc;

use super::Route;
use crate::index::{Depth, Found};
use crate::view::Documents;

/// Why this server's own chain answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocalReason {
    /// It is no request for a resource.
    NonResource,
    /// This server lists everything that is asked for.
    Served,
    /// The shared store defines the resource, so every server answers for itself.
    DefinedByStore,
    /// This server lists the version as stale and no other can do better.
    StaleHere,
    /// This server has the resource, and nobody has the subresource or verb.
    NobodyHasMore,
}

/// What this server lacks, so that the request is sent to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ForwardReason {
    /// The group.
    Group,
    /// The version of the group.
    Version,
    /// The resource.
    Resource,
    /// The subresource.
    Subresource,
    /// The verb.
    Verb,
    /// Nothing, but it cannot reach what is behind the version now.
    Freshness,
    /// Nothing in particular: this is a front, and several servers may have it.
    Behind,
}

/// What no server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnknownReason {
    /// The group.
    Group,
    /// The version of the group.
    Version,
    /// The resource.
    Resource,
}

/// Why it is not known whether the request can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnsureReason {
    /// This server has just started, and has not heard of all peers.
    NotSynced,
    /// A peer has joined of which nothing is known yet.
    PeerNotHeard,
    /// A server that has it is gone, within the hold time.
    PeerGone,
    /// The servers that list the version cannot reach what is behind it.
    StaleElsewhere,
    /// A peer sent this here, and another server has it: the peer's view differs from this one.
    AlreadySent,
}

impl ForwardReason {
    pub(super) fn of(local: Found) -> Self {
        match local.depth {
            _ if local.stale => Self::Freshness,
            Depth::Nothing => Self::Group,
            Depth::Group => Self::Version,
            Depth::Version => Self::Resource,
            Depth::Resource => Self::Subresource,
            Depth::Endpoint | Depth::Verb => Self::Verb,
        }
    }
}

impl ForwardReason {
    /// For a front: what the server that it stands beside lacks, if it stands beside one and that lacks something.
    pub(super) fn of_front(beside: Found, documents: Option<&Arc<Documents>>) -> Self {
        let alone = documents.is_none_or(|documents| documents.is_empty());
        if alone || (beside.depth == Depth::Verb && !beside.stale) {
            return Self::Behind;
        }
        Self::of(beside)
    }
}

impl UnknownReason {
    pub(super) fn of(depth: Depth) -> Self {
        match depth {
            Depth::Nothing => Self::Group,
            Depth::Group => Self::Version,
            _ => Self::Resource,
        }
    }
}

impl Route<'_> {
    /// Who answers, as a word for metrics: `local`, `peer`, `unknown` or `unsure`.
    #[must_use]
    pub fn answer(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Forward { .. } => "peer",
            Self::Unknown(_) => "unknown",
            Self::Unsure { .. } => "unsure",
        }
    }

    /// Why, as a word for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Local(reason) => reason.as_str(),
            Self::Forward { reason, .. } => reason.as_str(),
            Self::Unknown(reason) => reason.as_str(),
            Self::Unsure { reason, .. } => reason.as_str(),
        }
    }

    /// Who answers and why, as one line for people.
    #[must_use]
    pub fn explain(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Route<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(reason) => write!(f, "answered here: {reason}"),
            Self::Forward { candidates, reason } => {
                f.write_str("sent to ")?;
                for (position, peer) in candidates.iter().enumerate() {
                    let before = if position > 0 { ", else " } else { "" };
                    write!(f, "{before}{}", peer.id)?;
                }
                write!(f, ": {reason}")
            }
            Self::Unknown(reason) => write!(f, "404: {reason}"),
            Self::Unsure {
                reason,
                retry_after,
            } => write!(f, "503, try again in {retry_after} s: {reason}"),
        }
    }
}

/// Gives each variant its word and its sentence.
macro_rules! words {
    ($type:ty { $($variant:ident => $word:literal, $sentence:literal;)+ }) => {
        impl $type {
            /// Every reason there is.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word for metrics.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $sentence,)+
                })
            }
        }
    };
}

words!(LocalReason {
    NonResource => "non_resource", "it is not a request for a resource";
    Served => "served", "this server serves it";
    DefinedByStore => "defined_by_store",
        "a custom resource definition or APIService in the shared store defines it, so every server serves it by itself";
    StaleHere => "stale_here",
        "this server lists the version as stale, and no other server has it current";
    NobodyHasMore => "nobody_has_more",
        "this server serves the resource, and no server has the subresource or verb";
});

words!(ForwardReason {
    Group => "group", "this server does not have the group";
    Version => "version", "this server does not have this version of the group";
    Resource => "resource", "this server does not have the resource";
    Subresource => "subresource", "this server has the resource without the subresource";
    Verb => "verb", "this server has the resource without the verb";
    Freshness => "freshness", "this server cannot reach what is behind this version now";
    Behind => "behind", "a server behind this gateway serves it";
});

words!(UnknownReason {
    Group => "group", "no server has the group";
    Version => "version", "no server has this version of the group";
    Resource => "resource", "no server has the resource in this version of the group";
});

words!(UnsureReason {
    NotSynced => "not_synced",
        "this server does not serve it and has not yet heard what all other servers serve";
    PeerNotHeard => "peer_not_heard",
        "this server does not serve it, and a peer has not yet said what it serves";
    PeerGone => "peer_gone", "the server that serves it is away, and may come back";
    StaleElsewhere => "stale_elsewhere",
        "the servers that list it cannot reach what is behind it now";
    AlreadySent => "already_sent",
        "a peer sent it here, but it is another server that serves it; requests are sent on once only";
});
