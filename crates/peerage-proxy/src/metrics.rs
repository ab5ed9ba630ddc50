//! What the proxy counts: Kubernetes' own series under their own names, and one set per peer.
//!
//! Gauges of peers are read from the snapshot when they are scraped, so a peer that has gone has none.
//!
//! Differs: kube-apiserver counts a rerouted request when it is over, upgrades as code 0 and connection failures as
//! code 503 only; here every forwarded request is counted when its head is there, a tunnel as 101, and failures
//! have a reason.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::StatusCode;
use peerage_core::RequestInfo;
use peerage_http::metrics::Registry;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use crate::error::ProxyError;
use crate::shared::{Known, Shared};

/// From a local cache to the longest wait for a first byte.
const LATENCY_BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0,
];

type Api = [(&'static str, String); 4];

/// The counters of one proxy.
#[derive(Clone)]
pub(crate) struct ProxyMetrics {
    rerouted: Family<Vec<(&'static str, String)>, Counter>,
    proxy_errors: Family<Vec<(&'static str, String)>, Counter>,
    sync_errors: Family<SyncLabels, Counter>,
    pub(crate) aggregated: Counter,
    pub(crate) merged_hits: Counter,
    pub(crate) merged_misses: Counter,
    pub(crate) nopeer: Counter,
    pub(crate) guard_ignored: Counter,
    pub(crate) refused_hops: Counter,
    pub(crate) unknown: Counter,
    refused: Family<ReasonLabels, Counter>,
    requests: Family<OutcomeLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    latency: Family<PeerLabels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SyncLabels {
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
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

impl ProxyMetrics {
    pub(crate) fn new() -> ProxyMetrics {
        ProxyMetrics {
            rerouted: Family::default(),
            proxy_errors: Family::default(),
            sync_errors: Family::default(),
            aggregated: Counter::default(),
            merged_hits: Counter::default(),
            merged_misses: Counter::default(),
            nopeer: Counter::default(),
            guard_ignored: Counter::default(),
            refused_hops: Counter::default(),
            unknown: Counter::default(),
            refused: Family::default(),
            requests: Family::default(),
            errors: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS)),
        }
    }

    /// The head of a peer's answer is there.
    pub(crate) fn rerouted(
        &self,
        peer: &Arc<str>,
        info: &RequestInfo<'_>,
        status: StatusCode,
        took: Duration,
    ) {
        self.rerouted
            .get_or_create(&api("code", status.as_str(), info).to_vec())
            .inc();
        let outcome = match status.as_u16() {
            101 => "tunnel",
            200..=399 => "answered",
            400..=499 => "client_error",
            _ => "server_error",
        };
        self.requests
            .get_or_create(&OutcomeLabels {
                peer: peer.clone(),
                outcome,
            })
            .inc();
        self.latency
            .get_or_create(&PeerLabels { peer: peer.clone() })
            .observe(took.as_secs_f64());
    }

    /// An attempt with this peer failed.
    pub(crate) fn request_failed(&self, peer: &Arc<str>, reason: &'static str) {
        let peer = peer.clone();
        self.requests
            .get_or_create(&OutcomeLabels {
                peer: peer.clone(),
                outcome: "failed",
            })
            .inc();
        self.errors
            .get_or_create(&ErrorLabels { peer, reason })
            .inc();
    }

    /// An answer of this peer broke off because it paused for too long.
    pub(crate) fn answer_stalled(&self, peer: &Arc<str>) {
        let (peer, reason) = (peer.clone(), "stalled");
        self.errors
            .get_or_create(&ErrorLabels { peer, reason })
            .inc();
    }

    /// The proxy refused a request.
    pub(crate) fn refused(&self, error: &ProxyError, info: &RequestInfo<'_>) {
        let reason = error.reason();
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
        let kind = match error {
            ProxyError::NoneUsable | ProxyError::NotKnown { .. } => "endpoint_resolution",
            _ => "proxy_transport",
        };
        let mut labels = api("type", kind, info);
        if !error.is_about_listed_api() {
            // What clients make up is no label.
            labels[1..].iter_mut().for_each(|(_, name)| name.clear());
        }
        self.proxy_errors.get_or_create(&labels.to_vec()).inc();
    }

    /// A discovery document was asked for.
    pub(crate) fn discovery_fetched(&self, status: StatusCode) {
        let none = String::new;
        let labels: Api = [
            ("code", status.as_str().to_owned()),
            ("group", none()),
            ("version", none()),
            ("resource", none()),
        ];
        self.rerouted.get_or_create(&labels.to_vec()).inc();
    }

    /// A peer's documents could not be had.
    pub(crate) fn sync_error(&self, peer: &Arc<str>, reason: &'static str) {
        let r#type = "fetch_discovery";
        self.sync_errors.get_or_create(&SyncLabels { r#type }).inc();
        let peer = peer.clone();
        self.errors
            .get_or_create(&ErrorLabels { peer, reason })
            .inc();
    }

    /// A peer answered documents that are not its own.
    pub(crate) fn merged_documents(&self, peer: &Arc<str>) {
        let (peer, reason) = (peer.clone(), "merged_documents");
        self.errors
            .get_or_create(&ErrorLabels { peer, reason })
            .inc();
    }

    /// A peer did not say which version it serves.
    pub(crate) fn version_unsaid(&self, peer: &Arc<str>) {
        let (peer, reason) = (peer.clone(), "version");
        self.errors
            .get_or_create(&ErrorLabels { peer, reason })
            .inc();
    }

    /// A peer's document of OpenAPI version 2 could not be had.
    pub(crate) fn openapi_failed(&self, peer: &Arc<str>) {
        let (peer, reason) = (peer.clone(), "openapi");
        self.errors
            .get_or_create(&ErrorLabels { peer, reason })
            .inc();
    }

    /// Who answers at a peer's address is not who should.
    pub(crate) fn identity(&self, peer: &Arc<str>, reason: &'static str) {
        let peer = peer.clone();
        self.errors
            .get_or_create(&ErrorLabels { peer, reason })
            .inc();
    }

    /// A peer has an endpoint key, but no address in it.
    pub(crate) fn no_address(&self) {
        let r#type = "hostport_resolution";
        self.sync_errors.get_or_create(&SyncLabels { r#type }).inc();
    }

    /// Makes the series of a proxy visible.
    pub(crate) fn register(&self, registry: &Registry, shared: &Arc<Shared>) {
        self.register_upstream(registry);
        if shared.options.tls.is_some() {
            self.register_merging(registry);
        }
        self.register_own(registry);
        for (name, help, read) in GAUGES {
            let shared = Arc::downgrade(shared);
            registry.register(name, help, PeerGauge { shared, read });
        }
    }

    fn register_upstream(&self, registry: &Registry) {
        registry.register("apiserver_rerouted_request_total", "[ALPHA] Total number of requests that were proxied to a peer kube-apiserver because the local apiserver was not capable of serving it, broken down by 'group', 'version', and 'resource' indicating the GVR of the request. If all three are empty (\"\"), the request is a discovery request.", self.rerouted.clone());
        registry.register("apiserver_peer_proxy_errors_total", "[ALPHA] Total number of errors encountered while proxying requests to a peer kube apiserver", self.proxy_errors.clone());
        registry.register("apiserver_peer_discovery_sync_errors_total", "[ALPHA] Total number of errors encountered while syncing discovery information from a peer kube-apiserver", self.sync_errors.clone());
        registry.register(
            "aggregator_discovery_aggregation_count_total",
            "[ALPHA] Counter of number of times discovery was aggregated",
            self.aggregated.clone(),
        );
    }

    /// kube-apiserver has these only where it has peers.
    fn register_merging(&self, registry: &Registry) {
        registry.register(
            "aggregator_discovery_peer_aggregated_cache_hits_total",
            "[ALPHA] Counter of number of times discovery was served from peer-aggregated cache",
            self.merged_hits.clone(),
        );
        registry.register(
            "aggregator_discovery_peer_aggregated_cache_misses_total",
            "[ALPHA] Counter of number of times discovery was aggregated across all API servers",
            self.merged_misses.clone(),
        );
        registry.register("aggregator_discovery_nopeer_requests_total", "[ALPHA] Counter of number of times no-peer (non peer-aggregated) discovery was requested", self.nopeer.clone());
    }

    fn register_own(&self, registry: &Registry) {
        registry.register(
            "peerage_peer_requests_total",
            "Attempts to send a request to a peer, by what came of it",
            self.requests.clone(),
        );
        registry.register(
            "peerage_peer_errors_total",
            "Failed requests to and polls of a peer, by reason",
            self.errors.clone(),
        );
        registry.register(
            "peerage_peer_latency_seconds",
            "Time from a request's arrival to the head of the peer's answer",
            self.latency.clone(),
        );
        registry.register(
            "peerage_proxy_refused_total",
            "Requests that the proxy itself refused, by reason",
            self.refused.clone(),
        );
        registry.register(
            "peerage_proxy_guard_ignored_total",
            "Requests whose peer-proxied header was removed because they did not come from a verified peer",
            self.guard_ignored.clone(),
        );
        registry.register(
            "peerage_proxy_refused_hops_total",
            "Requests of verified peers that would have needed another hop",
            self.refused_hops.clone(),
        );
        registry.register(
            "peerage_proxy_unknown_total",
            "Requests for an API that no server is known to serve",
            self.unknown.clone(),
        );
    }
}

fn api(first: &'static str, value: &str, info: &RequestInfo<'_>) -> Api {
    [
        (first, value.to_owned()),
        ("group", info.api_group().to_owned()),
        ("version", info.api_version().to_owned()),
        ("resource", info.resource().to_owned()),
    ]
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
        |known, _| f64::from(u8::from(known.standing == crate::record::Standing::Live)),
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
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
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
