//! What is counted of each peer.
//!
//! The counts are the peer's own and are read through the snapshot when they are scraped. So they go when the peer is
//! forgotten, and what is still counted of it then, the end of a watch say, brings no series back.
//!
//! Invariant: outcomes and reasons are words of this program, so a peer has a bounded number of series.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::StatusCode;
use peerage_http::metrics::Registry;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use crate::peer::Peer;
use crate::record::Standing;
use crate::shared::{Known, Shared};

/// From a local cache to the longest wait for a first byte.
const LATENCY_BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0,
];

/// What may come of an attempt, in the order of [`PeerCounts::outcomes`].
const OUTCOMES: [&str; 5] = [
    "answered",
    "client_error",
    "server_error",
    "tunnel",
    "failed",
];
const FAILED: usize = 4;

/// The counts of one peer.
#[derive(Debug)]
pub(crate) struct PeerCounts {
    outcomes: [AtomicU64; OUTCOMES.len()],
    errors: Mutex<BTreeMap<&'static str, u64>>,
    latency: Histogram,
}

impl Default for PeerCounts {
    fn default() -> PeerCounts {
        PeerCounts {
            outcomes: Default::default(),
            errors: Mutex::default(),
            latency: Histogram::new(LATENCY_BUCKETS),
        }
    }
}

impl PeerCounts {
    /// The head of an answer came.
    pub(crate) fn answered(&self, status: StatusCode, took: Duration) {
        let outcome = match status.as_u16() {
            101 => 3,
            200..=399 => 0,
            400..=499 => 1,
            _ => 2,
        };
        self.outcomes[outcome].fetch_add(1, Ordering::Relaxed);
        self.latency.observe(took.as_secs_f64());
    }

    /// An attempt came to nothing.
    pub(crate) fn attempt_failed(&self, reason: &'static str) {
        self.outcomes[FAILED].fetch_add(1, Ordering::Relaxed);
        self.error(reason);
    }

    /// Something else went wrong with the peer.
    pub(crate) fn error(&self, reason: &'static str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(reason).or_default() += 1;
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PeerLabels {
    peer: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    peer: Arc<str>,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    peer: Arc<str>,
    reason: &'static str,
}

/// Makes the series of all peers visible.
pub(super) fn register(registry: &Registry, shared: &Arc<Shared>) {
    let counters: [(&str, &str, MetricType, Write); 3] = [
        (
            "peerage_peer_requests_total",
            "Attempts to send a request to a peer, by what came of it",
            MetricType::Counter,
            requests,
        ),
        (
            "peerage_peer_errors_total",
            "Failed requests to and polls of a peer, by reason",
            MetricType::Counter,
            errors,
        ),
        (
            "peerage_peer_latency_seconds",
            "Time from a request's arrival to the head of the peer's answer",
            MetricType::Histogram,
            latency,
        ),
    ];
    for (name, help, kind, write) in counters {
        let shared = Arc::downgrade(shared);
        registry.register(
            name,
            help,
            Counted {
                shared,
                kind,
                write,
            },
        );
    }
    for (name, help, read) in GAUGES {
        let shared = Arc::downgrade(shared);
        registry.register(name, help, PeerGauge { shared, read });
    }
}

type Write = fn(&Peer, &mut MetricEncoder<'_>) -> fmt::Result;

fn requests(peer: &Peer, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    for (outcome, count) in OUTCOMES.into_iter().zip(&peer.counts.outcomes) {
        let count = count.load(Ordering::Relaxed);
        if count > 0 {
            let peer = peer.id.clone();
            counter(encoder, &OutcomeLabels { peer, outcome }, count)?;
        }
    }
    Ok(())
}

fn errors(peer: &Peer, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    let errors = peer.counts.errors.lock();
    let errors = errors.unwrap_or_else(PoisonError::into_inner).clone();
    for (reason, count) in errors {
        let peer = peer.id.clone();
        counter(encoder, &ErrorLabels { peer, reason }, count)?;
    }
    Ok(())
}

fn counter(
    encoder: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    count: u64,
) -> fmt::Result {
    let mut encoder = encoder.encode_family(labels)?;
    encoder.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

fn latency(peer: &Peer, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    let answered = &peer.counts.outcomes[..FAILED];
    if answered.iter().all(|it| it.load(Ordering::Relaxed) == 0) {
        return Ok(());
    }
    let labels = PeerLabels {
        peer: peer.id.clone(),
    };
    peer.counts.latency.encode(encoder.encode_family(&labels)?)
}

/// What was counted of each peer that is remembered.
struct Counted {
    shared: Weak<Shared>,
    kind: MetricType,
    write: Write,
}

impl EncodeMetric for Counted {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(());
        };
        let snapshot = shared.snapshot.load();
        let mut peers = snapshot.remembered.iter();
        peers.try_for_each(|peer| (self.write)(peer, &mut encoder))
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

type Read = fn(&Known, Instant) -> f64;

const GAUGES: [(&str, &str, Read); 5] = [
    (
        "peerage_peer_document_age_seconds",
        "Time since a peer's documents were last known to be right; -1 if there are none",
        |known, now| {
            known
                .peer
                .documents()
                .map_or(-1.0, |d| (now - d.checked).as_secs_f64())
        },
    ),
    (
        "peerage_peer_live",
        "Whether a peer is registered as serving",
        |known, _| f64::from(u8::from(known.standing == Standing::Live)),
    ),
    (
        "peerage_peer_answering",
        "Whether a peer answers what it is asked",
        |known, _| f64::from(u8::from(!known.peer.health.is_open())),
    ),
    (
        "peerage_peer_ready",
        "Whether a peer's readyz was good when last asked",
        |known, _| f64::from(u8::from(known.peer.health.is_ready())),
    ),
    (
        "peerage_peer_streams",
        "Requests, watches and tunnels that a peer has in hand",
        |known, _| known.peer.health.in_flight() as f64,
    ),
];

/// One gauge for each peer of the snapshot.
struct PeerGauge {
    shared: Weak<Shared>,
    read: Read,
}

impl EncodeMetric for PeerGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(());
        };
        let now = Instant::now();
        for (id, known) in &shared.snapshot.load().peers {
            let labels = PeerLabels { peer: id.clone() };
            encoder
                .encode_family(&labels)?
                .encode_gauge(&(self.read)(known, now))?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl fmt::Debug for PeerGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerGauge").finish_non_exhaustive()
    }
}
