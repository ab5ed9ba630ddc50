//! What the tasks and the requests of one proxy share.
//!
//! Requests read a [`Snapshot`], which the writer replaces whole: the view and the peers that it names always
//! belong together.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use peerage_core::PeerView;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::front::Front;
use crate::headers::Origins;
use crate::health::Mark;
use crate::identity::{Aside, Twins};
use crate::log_gate::LogGate;
use crate::metrics::ProxyMetrics;
use crate::openapi::{Elsewhere, v2};
use crate::options::ProxyOptions;
use crate::peer::Peer;
use crate::record::Standing;

/// Everything that lives as long as the proxy.
pub(crate) struct Shared {
    pub(crate) options: ProxyOptions,
    pub(crate) metrics: ProxyMetrics,
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// Counts the snapshots.
    pub(crate) views: watch::Sender<u64>,
    /// Wakes the writer.
    pub(crate) changed: Notify,
    /// Chooses among the servers behind, if this is a front.
    pub(crate) front: Option<Front>,
    pub(crate) tunnels: Arc<Semaphore>,
    /// Ends tunnels and tasks.
    pub(crate) stop: CancellationToken,
    /// Which addresses are one server's.
    pub(crate) twins: Twins,
    /// The merged document of OpenAPI version 2.
    pub(crate) openapi_v2: v2::Cache,
    /// Tells one merged document from the next, for counting.
    pub(crate) last_merged: AtomicUsize,
    /// For warnings about requests.
    pub(crate) log_gate: LogGate,
}

/// One complete state of the world.
pub(crate) struct Snapshot {
    pub(crate) view: Arc<PeerView>,
    pub(crate) peers: HashMap<Arc<str>, Known>,
    /// Registered addresses that are not counted as servers, and why.
    pub(crate) aside: Vec<(Arc<Peer>, Aside)>,
    /// All that are registered or were lately, whether they count or not, by ID.
    pub(crate) remembered: Vec<Arc<Peer>>,
    elsewhere: OnceLock<Elsewhere>,
}

impl Known {
    /// Whether requests are sent there for what it lists.
    pub(crate) fn is_serving(&self) -> bool {
        !self.is_away() && self.heard
    }

    /// Whether requests cannot be sent there now.
    pub(crate) fn is_away(&self) -> bool {
        self.standing != Standing::Live || !self.answers
    }
}

impl Snapshot {
    pub(crate) fn new(view: Arc<PeerView>, peers: HashMap<Arc<str>, Known>) -> Snapshot {
        Snapshot {
            view,
            peers,
            aside: Vec::new(),
            remembered: Vec::new(),
            elsewhere: OnceLock::new(),
        }
    }

    /// Who describes what this server does not, found out when first asked for.
    pub(crate) fn elsewhere(&self) -> &Elsewhere {
        self.elsewhere.get_or_init(|| Elsewhere::of(self))
    }
}

/// A peer in a snapshot.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) peer: Arc<Peer>,
    pub(crate) standing: Standing,
    /// Whether the view has its documents.
    pub(crate) heard: bool,
    /// Whether it answered when the view was made.
    pub(crate) answers: bool,
}

impl Shared {
    /// Who says which pages may read answers.
    pub(crate) fn origins(&self) -> Origins {
        match self.front {
            Some(_) => Origins::There,
            None => Origins::Here,
        }
    }

    /// A request or poll failed to reach the peer, over this connection if it is known over which.
    pub(crate) fn peer_failed(&self, peer: &Peer, connection: Option<u64>) {
        if peer.health.failed(connection) {
            // Of one that was never heard nobody knows what only it serves; that it cannot be read is told with the reason.
            if peer.documents().is_some() {
                tracing::warn!(
                    peer = &*peer.id,
                    "a peer does not answer; what only it serves answers 503 until it does"
                );
            }
            self.changed.notify_one();
            peer.recheck();
        }
    }

    /// A request or poll that was begun at this moment got an answer from the peer.
    pub(crate) fn peer_answered(&self, peer: &Peer, begun: Mark, took: Duration) {
        if peer.health.succeeded(begun, took) {
            tracing::info!(peer = &*peer.id, "a peer answers again");
            self.changed.notify_one();
        }
    }
}

/// A number that differs from call to call.
pub(crate) fn ticket() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
