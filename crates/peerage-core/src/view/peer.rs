//! One other server, as far as it is known.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use super::Documents;

/// A point in time in milliseconds since an epoch that the caller chooses, or the time between two such points.
/// Nothing here reads a clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Add for Millis {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Millis {
    type Output = Self;

    /// The time since `other`; none when it lies ahead.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Millis> for Duration {
    fn from(millis: Millis) -> Self {
        Self::from_millis(millis.0)
    }
}

/// Whether a peer can be sent requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// Registered, and not yet spoken to since it started: not sent requests.
    #[default]
    Starting,
    /// Answers.
    Live,
    /// Failed lately; taken when nobody better is there.
    Failing,
    /// Left, or does not answer: never sent a request, but what it served is remembered for the hold time.
    Gone,
}

impl PeerState {
    /// A short word for metrics and output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Live => "live",
            Self::Failing => "failing",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for PeerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a peer's `/readyz` says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Readiness {
    /// It is ready.
    Ready,
    /// It was not asked, or the answer meant nothing.
    #[default]
    Unknown,
    /// It is not: taken when nobody else has the API.
    NotReady,
}

/// One other server, as far as it is known.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its server ID.
    pub id: Arc<str>,
    /// Host and port at which servers reach it; empty when not known.
    pub address: Arc<str>,
    /// Whether it can be sent requests.
    pub state: PeerState,
    /// Whether it says that it is ready.
    pub readiness: Readiness,
    /// How long it takes to answer, smoothed; none when never measured.
    pub latency: Option<Duration>,
    /// Its last good documents; none when it was never heard.
    pub documents: Option<Arc<Documents>>,
    /// When those documents were last confirmed.
    pub heard_at: Option<Millis>,
    /// Since when it is gone.
    pub gone_since: Option<Millis>,
}

impl Peer {
    /// A peer of which nothing is known but where it is.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, address: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            address: address.into(),
            state: PeerState::Starting,
            readiness: Readiness::Unknown,
            latency: None,
            documents: None,
            heard_at: None,
            gone_since: None,
        }
    }

    /// How long ago its documents were confirmed.
    #[must_use]
    pub fn age(&self, now: Millis) -> Option<Millis> {
        self.heard_at.map(|at| now - at)
    }

    /// How it stands with the peer at `now`.
    pub(super) fn standing(&self, now: Millis, hold: Millis) -> Standing {
        let gone = self.state == PeerState::Gone;
        let forgotten = gone && self.gone_since.is_some_and(|since| now - since >= hold);
        match (self.state, &self.documents) {
            _ if forgotten => Standing::Forgotten,
            (_, None) => Standing::Unheard,
            (PeerState::Live | PeerState::Failing, Some(_)) => Standing::Candidate,
            (PeerState::Starting | PeerState::Gone, Some(_)) => Standing::Held,
        }
    }
}

/// What a peer counts for in a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Requests can be sent to it.
    Candidate,
    /// Gone, but within the hold time, or coming back: its APIs are listed as stale and answer 503.
    Held,
    /// Nothing is known of what it serves, so nothing can be said to be unknown everywhere.
    Unheard,
    /// Gone for longer than the hold time: counts for nothing.
    Forgotten,
}
