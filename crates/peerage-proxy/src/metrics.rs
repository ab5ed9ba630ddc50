//! What the proxy counts: Kubernetes' own series under their own names, and one set per peer.
//!
//! What is told of each peer goes when the peer is forgotten ([`peers`]).
//!
//! Differs: kube-apiserver counts a rerouted request when it is over, upgrades as code 0 and connection failures as
//! code 503 only; here every forwarded request is counted when its head is there, a tunnel as 101, and failures
//! have a reason.
//!
//! Invariant: nothing that a client makes up becomes a label, only what some server's documents list; so the number of
//! series is bounded.

mod peers;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use peerage_core::{Depth, Documents, PeerView, RequestInfo, Target};
use peerage_http::metrics::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::error::ProxyError;
use crate::peer::Peer;
use crate::shared::Shared;

pub(crate) use peers::PeerCounts;

/// The counters of one proxy.
#[derive(Clone)]
pub(crate) struct ProxyMetrics {
    rerouted: Family<ReroutedLabels, Counter>,
    proxy_errors: Family<ProxyErrorLabels, Counter>,
    sync_errors: Family<SyncLabels, Counter>,
    pub(crate) aggregated: Counter,
    pub(crate) merged_hits: Counter,
    pub(crate) merged_misses: Counter,
    pub(crate) nopeer: Counter,
    pub(crate) guard_ignored: Counter,
    pub(crate) refused_hops: Counter,
    pub(crate) unknown: Counter,
    refused: Family<ReasonLabels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReroutedLabels {
    code: u16,
    group: String,
    version: String,
    resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProxyErrorLabels {
    r#type: &'static str,
    group: String,
    version: String,
    resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SyncLabels {
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
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
        }
    }

    /// The head of a peer's answer is there.
    pub(crate) fn rerouted(
        &self,
        peer: &Peer,
        info: &RequestInfo<'_>,
        status: StatusCode,
        took: Duration,
    ) {
        let listed = peer.documents().is_some_and(|it| lists(&it.served, info));
        let [group, version, resource] = names(info, listed);
        let labels = ReroutedLabels {
            code: status.as_u16(),
            group,
            version,
            resource,
        };
        self.rerouted.get_or_create(&labels).inc();
        peer.counts.answered(status, took);
    }

    /// The proxy refused a request.
    pub(crate) fn refused(&self, error: &ProxyError, info: &RequestInfo<'_>, view: &PeerView) {
        let reason = error.reason();
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
        let r#type = match error {
            ProxyError::NoneUsable | ProxyError::NotKnown { .. } => "endpoint_resolution",
            _ => "proxy_transport",
        };
        let of_peers = view.peers().filter_map(|(it, _)| it.documents.as_ref());
        let mut all = view.local_documents().into_iter().chain(of_peers);
        let [group, version, resource] = names(info, all.any(|it| lists(it, info)));
        let labels = ProxyErrorLabels {
            r#type,
            group,
            version,
            resource,
        };
        self.proxy_errors.get_or_create(&labels).inc();
    }

    /// A discovery document was asked for.
    pub(crate) fn discovery_fetched(&self, status: StatusCode) {
        let labels = ReroutedLabels {
            code: status.as_u16(),
            group: String::new(),
            version: String::new(),
            resource: String::new(),
        };
        self.rerouted.get_or_create(&labels).inc();
    }

    /// A peer's documents could not be had.
    pub(crate) fn sync_error(&self) {
        let r#type = "fetch_discovery";
        self.sync_errors.get_or_create(&SyncLabels { r#type }).inc();
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
        peers::register(registry, shared);
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

/// Whether these documents have what the request names.
fn lists(documents: &Documents, info: &RequestInfo<'_>) -> bool {
    documents.find(&Target::of(info)).depth >= Depth::Resource
}

/// Group, version and resource, or nothing if no server lists them: then the client may have made them up.
fn names(info: &RequestInfo<'_>, listed: bool) -> [String; 3] {
    let names = [info.api_group(), info.api_version(), info.resource()];
    names.map(|name| String::from(if listed { name } else { "" }))
}
