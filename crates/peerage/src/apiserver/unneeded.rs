//! Flags of kube-apiserver that are accepted so that its command lines work, and that do nothing here.
//!
//! A flag that would change what clients see is either implemented or refused by name, never listed here silently: each
//! row says why it may be left out, and the server logs that once.

/// A flag that is accepted and does nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Unneeded {
    /// Its name, without dashes.
    pub name: &'static str,
    /// Whether the next word is its value when it has no `=`.
    pub takes_value: bool,
    /// Why it does nothing.
    pub why: &'static str,
}

/// The row of a flag.
pub fn find(name: &str) -> Option<&'static Unneeded> {
    TABLE.iter().find(|flag| flag.name == name)
}

const fn value(name: &'static str, why: &'static str) -> Unneeded {
    Unneeded {
        name,
        takes_value: true,
        why,
    }
}

const fn switch(name: &'static str, why: &'static str) -> Unneeded {
    Unneeded {
        name,
        takes_value: false,
        why,
    }
}

const ADMISSION: &str = "admission plug-ins cannot be chosen yet";
const AUDIT_BATCH: &str = "audit lines are written in order, as they come";
const AUDIT_ROTATION: &str = "rotated audit logs are left as they are";
const AUDIT_WEBHOOK: &str = "audit events go to the log file only";
const CLOUD: &str = "there is no cloud provider in the API server";
const DEBUG: &str = "there is no Go runtime to inspect";
const EGRESS: &str = "peers are reached directly";
const FLOW: &str = "requests in flight are limited by --max-requests-inflight alone";
const GONE: &str = "newer versions of kube-apiserver do not have it either";
const KUBELET: &str = "nothing connects to kubelets yet";
const LOGS: &str = "logs go to standard error; see -v, --log-format and --log-filter";
const METRICS: &str = "all metrics are shown";
const RECONCILER: &str = "servers find each other by their leases";
const SERVICES: &str = "addresses and ports of Services are not allotted here yet";
const STORE_TUNING: &str = "the store looks after this itself";
const TLS: &str = "TLS 1.2 and 1.3 are served with rustls' own choice of ciphers";
const TOKENS: &str = "service account tokens are not issued yet";
const TRACING: &str = "spans are not exported";
const WATCH_CACHE: &str = "reads always come from the watch cache, whose size follows the objects";
const WEBHOOK_AUTH: &str = "there is no webhook authentication, and it is configured elsewhere";

/// Why a flag is refused although kube-apiserver has it: leaving it out would be less safe than what was asked for.
pub fn refusal(name: &str) -> Option<&'static str> {
    REFUSED
        .iter()
        .find(|(refused, _)| *refused == name)
        .map(|(_, fix)| *fix)
}

/// Flags that are refused, with what to do instead.
static REFUSED: &[(&str, &str)] = &[
    (
        "authentication-config",
        "use --client-ca-file, --token-auth-file and --anonymous-auth",
    ),
    (
        "authentication-token-webhook-config-file",
        "use --client-ca-file or --token-auth-file",
    ),
    ("authorization-config", "use --authorization-mode=RBAC"),
    ("authorization-policy-file", "use --authorization-mode=RBAC"),
    (
        "authorization-webhook-config-file",
        "use --authorization-mode=RBAC",
    ),
    (
        "encryption-provider-config",
        "objects would be stored in the clear; encrypt the disk, and leave the flag out",
    ),
];

/// All rows, by name.
#[rustfmt::skip]
static TABLE: &[Unneeded] = &[
    value("admission-control", ADMISSION),
    value("admission-control-config-file", ADMISSION),
    switch("aggregator-reject-forwarding-redirect", "redirects are never followed"),
    value("allow-metric-labels", METRICS),
    value("allow-metric-labels-manifest", METRICS),
    switch("allow-privileged", "Pods are stored, not run"),
    switch("alsologtostderr", LOGS),
    value("apiserver-count", RECONCILER),
    value("audit-log-batch-buffer-size", AUDIT_BATCH),
    value("audit-log-batch-max-size", AUDIT_BATCH),
    value("audit-log-batch-max-wait", AUDIT_BATCH),
    value("audit-log-batch-throttle-burst", AUDIT_BATCH),
    switch("audit-log-batch-throttle-enable", AUDIT_BATCH),
    value("audit-log-batch-throttle-qps", AUDIT_BATCH),
    switch("audit-log-compress", AUDIT_ROTATION),
    value("audit-log-mode", AUDIT_BATCH),
    switch("audit-log-truncate-enabled", AUDIT_BATCH),
    value("audit-log-truncate-max-batch-size", AUDIT_BATCH),
    value("audit-log-truncate-max-event-size", AUDIT_BATCH),
    value("audit-log-version", "events are audit.k8s.io/v1"),
    value("audit-webhook-batch-buffer-size", AUDIT_WEBHOOK),
    value("audit-webhook-batch-max-size", AUDIT_WEBHOOK),
    value("audit-webhook-batch-max-wait", AUDIT_WEBHOOK),
    value("audit-webhook-batch-throttle-burst", AUDIT_WEBHOOK),
    switch("audit-webhook-batch-throttle-enable", AUDIT_WEBHOOK),
    value("audit-webhook-batch-throttle-qps", AUDIT_WEBHOOK),
    value("audit-webhook-config-file", AUDIT_WEBHOOK),
    value("audit-webhook-initial-backoff", AUDIT_WEBHOOK),
    value("audit-webhook-mode", AUDIT_WEBHOOK),
    switch("audit-webhook-truncate-enabled", AUDIT_WEBHOOK),
    value("audit-webhook-truncate-max-batch-size", AUDIT_WEBHOOK),
    value("audit-webhook-truncate-max-event-size", AUDIT_WEBHOOK),
    value("audit-webhook-version", AUDIT_WEBHOOK),
    value("authentication-token-webhook-cache-ttl", WEBHOOK_AUTH),
    value("authentication-token-webhook-version", WEBHOOK_AUTH),
    value("authorization-webhook-cache-authorized-ttl", WEBHOOK_AUTH),
    value("authorization-webhook-cache-unauthorized-ttl", WEBHOOK_AUTH),
    value("authorization-webhook-version", WEBHOOK_AUTH),
    value("cloud-config", CLOUD),
    value("cloud-provider", CLOUD),
    value("cloud-provider-gce-l7lb-src-cidrs", CLOUD),
    value("cloud-provider-gce-lb-src-cidrs", CLOUD),
    switch("contention-profiling", DEBUG),
    value("coordinated-leadership-lease-duration", "leader election is not coordinated here"),
    value("coordinated-leadership-renew-deadline", "leader election is not coordinated here"),
    value("coordinated-leadership-retry-period", "leader election is not coordinated here"),
    value("cors-allowed-origins", "browsers are not clients here"),
    value("debug-socket-path", DEBUG),
    value("default-not-ready-toleration-seconds", ADMISSION),
    value("default-unreachable-toleration-seconds", ADMISSION),
    value("default-watch-cache-size", WATCH_CACHE),
    value("delete-collection-workers", "objects of a collection are deleted in order"),
    value("disable-admission-plugins", ADMISSION),
    switch("disable-http2-serving", "clients choose HTTP/1.1 or HTTP/2 by ALPN"),
    value("disabled-metrics", METRICS),
    value("egress-selector-config-file", EGRESS),
    switch("emulation-forward-compatible", "each version is served as it is in the catalogue"),
    value("enable-admission-plugins", ADMISSION),
    switch("enable-aggregator-routing", "aggregated APIs are not called yet"),
    switch("enable-bootstrap-token-auth", "bootstrap tokens are not accepted yet"),
    switch("enable-garbage-collector", "owner references are a controller's matter"),
    switch("enable-logs-handler", "there is no /logs"),
    switch("enable-priority-and-fairness", FLOW),
    value("endpoint-reconciler-type", RECONCILER),
    value("etcd-count-metric-poll-period", STORE_TUNING),
    value("etcd-db-metric-poll-interval", STORE_TUNING),
    value("etcd-healthcheck-timeout", STORE_TUNING),
    value("etcd-readycheck-timeout", STORE_TUNING),
    value("etcd-servers-overrides", STORE_TUNING),
    value("external-hostname", "documents hold no absolute links"),
    value("goaway-chance", "connections are not closed to spread load"),
    value("http2-max-streams-per-connection", "streams are bounded already"),
    value("identity-lease-duration-seconds", "leases live as long as kube-apiserver's"),
    value("identity-lease-renew-interval-seconds", "leases are renewed as often as kube-apiserver's"),
    value("insecure-bind-address", GONE),
    value("insecure-port", GONE),
    value("kubelet-certificate-authority", KUBELET),
    value("kubelet-client-certificate", KUBELET),
    value("kubelet-client-key", KUBELET),
    switch("kubelet-https", KUBELET),
    value("kubelet-port", KUBELET),
    value("kubelet-preferred-address-types", KUBELET),
    value("kubelet-read-only-port", KUBELET),
    value("kubelet-timeout", KUBELET),
    value("kubernetes-service-node-port", SERVICES),
    value("lease-reuse-duration-seconds", STORE_TUNING),
    value("livez-grace-period", "the server is live as soon as it answers"),
    value("log-backtrace-at", LOGS),
    value("log-dir", LOGS),
    value("log-file", LOGS),
    value("log-file-max-size", LOGS),
    value("log-flush-frequency", LOGS),
    value("log-json-info-buffer-size", LOGS),
    switch("log-json-split-stream", LOGS),
    value("log-text-info-buffer-size", LOGS),
    switch("log-text-split-stream", LOGS),
    switch("logtostderr", LOGS),
    value("master-service-namespace", GONE),
    value("max-connection-bytes-per-sec", KUBELET),
    value("min-compatibility-version", "any version of the catalogue can be served on one store"),
    switch("one-output", LOGS),
    value("oidc-ca-file", "OpenID Connect tokens are not accepted yet"),
    value("oidc-client-id", "OpenID Connect tokens are not accepted yet"),
    value("oidc-groups-claim", "OpenID Connect tokens are not accepted yet"),
    value("oidc-groups-prefix", "OpenID Connect tokens are not accepted yet"),
    value("oidc-issuer-url", "OpenID Connect tokens are not accepted yet"),
    value("oidc-required-claim", "OpenID Connect tokens are not accepted yet"),
    value("oidc-signing-algs", "OpenID Connect tokens are not accepted yet"),
    value("oidc-username-claim", "OpenID Connect tokens are not accepted yet"),
    value("oidc-username-prefix", "OpenID Connect tokens are not accepted yet"),
    switch("permit-address-sharing", "the address is shared only by systemd's hand"),
    switch("permit-port-sharing", "the port is not shared"),
    switch("profiling", DEBUG),
    switch("runtime-config-emulation-forward-compatible", "each version is served as it is in the catalogue"),
    value("service-account-api-audiences", TOKENS),
    switch("service-account-extend-token-expiration", TOKENS),
    switch("service-account-lookup", TOKENS),
    value("service-account-jwks-uri", TOKENS),
    value("service-account-max-token-expiration", TOKENS),
    value("service-account-signing-endpoint", TOKENS),
    value("service-node-port-range", SERVICES),
    value("show-hidden-metrics-for-version", METRICS),
    switch("shutdown-send-retry-after", "while it stops, a server always answers with Retry-After"),
    value("shutdown-watch-termination-grace-period", "watches are ended when the server stops"),
    switch("skip-headers", LOGS),
    switch("skip-log-headers", LOGS),
    value("ssh-keyfile", GONE),
    value("ssh-user", GONE),
    value("stderrthreshold", LOGS),
    value("storage-initialization-timeout", STORE_TUNING),
    value("storage-versions", GONE),
    value("strict-transport-security-directives", "browsers are not clients here"),
    value("target-ram-mb", GONE),
    value("tls-cipher-suites", TLS),
    value("tls-curve-preferences", TLS),
    value("tls-min-version", TLS),
    value("tls-private-key-passphrase", TLS),
    value("tls-sni-cert-key", "one serving certificate is shown to all; give it all names"),
    value("tracing-config-file", TRACING),
    value("vmodule", LOGS),
    switch("watch-cache", WATCH_CACHE),
    value("watch-cache-sizes", WATCH_CACHE),
    switch("unsafe-allow-list-all-resources", GONE),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_flag_is_listed_twice() {
        let names: BTreeSet<_> = TABLE.iter().map(|flag| flag.name).collect();
        assert_eq!(names.len(), TABLE.len());
    }
}
