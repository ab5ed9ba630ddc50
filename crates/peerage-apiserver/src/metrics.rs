//! What this server counts of its requests, by the names of kube-apiserver.

use std::time::Duration;

use http::{Method, StatusCode};
use peerage_core::RequestInfo;
use peerage_http::metrics::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Bounds of request durations, seconds.
const SECONDS: [f64; 12] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0, 2.0, 5.0, 15.0, 60.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    component: &'static str,
    dry_run: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Timed {
    verb: String,
    scope: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Feature {
    name: &'static str,
    stage: &'static str,
}

/// Counts of requests.
#[derive(Debug, Clone)]
pub(crate) struct RequestMetrics {
    requests: Family<Request, Counter>,
    durations: Family<Timed, Histogram, fn() -> Histogram>,
}

impl RequestMetrics {
    /// Registers the counts.
    pub(crate) fn new(registry: &Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        };
        registry.register(
            "apiserver_request_total",
            "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
            metrics.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
            metrics.durations.clone(),
        );
        metrics
    }

    /// Counts one answer.
    pub(crate) fn record(
        &self,
        info: &RequestInfo<'_>,
        method: &Method,
        code: StatusCode,
        took: Duration,
    ) {
        let verb = if info.is_resource_request() {
            info.verb().to_uppercase()
        } else {
            method.as_str().to_owned()
        };
        let scope = match (
            info.is_resource_request(),
            info.namespace().is_empty(),
            info.name().is_empty(),
        ) {
            (false, ..) => "",
            (true, _, false) => "resource",
            (true, false, true) => "namespace",
            (true, true, true) => "cluster",
        };
        // Names of what is not served are the client's to choose: they would make series without end.
        let known = code != StatusCode::NOT_FOUND && code != StatusCode::FORBIDDEN;
        let own = |text: &str| {
            if known {
                text.to_owned()
            } else {
                String::new()
            }
        };
        let labels = Request {
            verb: verb.clone(),
            group: own(info.api_group()),
            version: own(info.api_version()),
            resource: own(info.resource()),
            subresource: own(info.subresource()),
            scope,
            component: "apiserver",
            dry_run: dry_run(info),
            code: code.as_u16(),
        };
        self.requests.get_or_create(&labels).inc();
        if info.verb() != "watch" {
            self.durations
                .get_or_create(&Timed { verb, scope })
                .observe(took.as_secs_f64());
        }
    }
}

/// The one value that `?dryRun=` has; others are refused, and would make series without end.
fn dry_run(info: &RequestInfo<'_>) -> &'static str {
    match info.query().first("dryRun") {
        Some("All") => "All",
        _ => "",
    }
}

/// Says which feature gates are on.
pub(crate) fn register_features(registry: &Registry, proxy: bool) {
    let features: Family<Feature, Gauge> = Family::default();
    features
        .get_or_create(&Feature {
            name: "APIServerIdentity",
            stage: "BETA",
        })
        .set(1);
    let name = "UnknownVersionInteroperabilityProxy";
    features
        .get_or_create(&Feature {
            name,
            stage: "BETA",
        })
        .set(i64::from(proxy));
    registry.register(
        "kubernetes_feature_enabled",
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
        features,
    );
}
