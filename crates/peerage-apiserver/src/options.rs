//! What an API server is told: plain, checked settings. Flags, files and their texts are the binary's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use peerage_catalogue::RuntimeConfig;
use peerage_core::audit::Policy;
use peerage_store::Store;

pub use crate::authz::Mode as AuthorizationMode;

/// Everything that [`crate::run`] needs.
#[derive(Clone)]
pub struct Options {
    /// The Kubernetes minor version whose API is served, such as `1.37`.
    pub version: String,
    /// Which group-versions and resources of it.
    pub runtime_config: RuntimeConfig,
    /// Where the objects are.
    pub store: Arc<dyn Store>,
    /// What every key begins with, without a slash at its end (`--etcd-prefix`).
    pub key_prefix: String,
    /// Where the server listens.
    pub serving: Serving,
    /// Who is asking.
    pub authentication: Authentication,
    /// Whose token keys are published (`--service-account-*`).
    pub service_accounts: Option<ServiceAccounts>,
    /// What they may do.
    pub authorization: AuthorizationMode,
    /// What is written down about it.
    pub audit: Audit,
    /// The other servers.
    pub peers: Peers,
    /// Bounds.
    pub limits: Limits,
    /// Names of the controllers that run in this server (`--controllers`).
    pub controllers: Vec<Controller>,
    /// `--service-cluster-ip-range`: the first of its addresses is the `kubernetes` Service's.
    pub service_cluster_ip_range: Option<String>,
    /// How long a server that was told to stop still takes connections while `/readyz` is red (`--shutdown-delay-duration`).
    pub shutdown_delay: Duration,
    /// How long open requests may then still take.
    pub drain: Duration,
    /// How long Events are kept (`--event-ttl`).
    pub event_ttl: Duration,
    /// How often one of the servers on a shared store compacts it (`--etcd-compaction-interval`); none for a store
    /// that looks after itself.
    pub compaction_interval: Option<Duration>,
}

/// Where the server listens.
#[derive(Debug, Clone)]
pub struct Serving {
    /// `--bind-address` and `--secure-port`; port 0 takes a free one.
    pub bind: SocketAddr,
    /// `--tls-cert-file`.
    pub certificate: PathBuf,
    /// `--tls-private-key-file`.
    pub key: PathBuf,
    /// `--advertise-address`: what others are told; the bound address when absent.
    pub advertise: Option<std::net::IpAddr>,
}

/// How users are recognised.
#[derive(Debug, Clone, Default)]
pub struct Authentication {
    /// `--client-ca-file`.
    pub client_ca: Option<PathBuf>,
    /// The `--requestheader-*` flags.
    pub request_header: Option<RequestHeader>,
    /// `--token-auth-file`.
    pub token_file: Option<PathBuf>,
    /// `--anonymous-auth`.
    pub anonymous: bool,
}

/// Trust in an authenticating proxy, which every peer is.
#[derive(Debug, Clone)]
pub struct RequestHeader {
    /// `--requestheader-client-ca-file`.
    pub client_ca: PathBuf,
    /// `--requestheader-allowed-names`; empty for any.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub username_headers: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_prefixes: Vec<String>,
}

/// The issuer of service account tokens, as others may verify them.
#[derive(Debug, Clone)]
pub struct ServiceAccounts {
    /// `--service-account-issuer`.
    pub issuer: String,
    /// `--service-account-key-file`, or the key that signs.
    pub keys: Vec<PathBuf>,
    /// `--service-account-jwks-uri`; this server when absent.
    pub jwks_uri: Option<String>,
}

/// The audit log.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    /// The parsed `--audit-policy-file`; none writes nothing.
    pub policy: Option<Policy>,
    /// `--audit-log-path`; `-` is standard output.
    pub path: Option<PathBuf>,
    /// `--audit-log-maxsize`, MiB; 0 for the default of 100.
    pub max_size: u64,
    /// `--audit-log-maxage`, days; 0 for no bound.
    pub max_age: u32,
    /// `--audit-log-maxbackup`; 0 for no bound.
    pub max_backup: u32,
}

/// The Mixed Version Proxy.
#[derive(Debug, Clone)]
pub struct Peers {
    /// The feature gate `UnknownVersionInteroperabilityProxy`.
    pub enabled: bool,
    /// `--peer-ca-file`; without it this server routes nothing and shows only its own APIs.
    pub ca: Option<PathBuf>,
    /// `--proxy-client-cert-file` and `--proxy-client-key-file`.
    pub client: Option<(PathBuf, PathBuf)>,
    /// `--peer-advertise-ip` and `--peer-advertise-port`; the advertised address and serving port when absent.
    pub advertise: Option<SocketAddr>,
    /// What the server ID is made of; the host name when absent.
    pub hostname: Option<String>,
    /// `--peer-hold`: for how long an API whose server has gone answers 503 and not 404.
    pub hold: Duration,
    /// The name that peers' serving certificates must have.
    pub server_name: String,
    /// Whether every answer from a peer says which (`X-Peerage-Peer`); `system:masters` always see it.
    pub show_peer: bool,
}

/// Bounds on what clients may do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `--max-requests-inflight`: reads at once.
    pub reads: usize,
    /// `--max-mutating-requests-inflight`: writes at once.
    pub writes: usize,
    /// Largest request body, bytes.
    pub body: usize,
    /// `--request-timeout`: for everything that is not a watch or a stream.
    pub request_timeout: Duration,
    /// `--max-connections`: connections at once.
    pub connections: usize,
}

impl Default for Limits {
    /// kube-apiserver's.
    fn default() -> Self {
        Self {
            reads: 400,
            writes: 200,
            body: 3 << 20,
            request_timeout: Duration::from_secs(60),
            connections: 20_000,
        }
    }
}

/// A controller that runs in the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Empties and removes terminating namespaces (`namespace`).
    Namespace,
}

impl Options {
    /// The settings by the names of their flags, for who looks into a running server.
    pub(crate) fn flags(&self) -> BTreeMap<&'static str, String> {
        let path = |path: &Option<PathBuf>| {
            path.as_ref()
                .map_or_else(String::new, |p| p.display().to_string())
        };
        let controllers: Vec<_> = self.controllers.iter().map(|c| c.name()).collect();
        let mode = match self.authorization {
            AuthorizationMode::Rbac => "RBAC",
            AuthorizationMode::AlwaysAllow => "AlwaysAllow",
        };
        BTreeMap::from([
            ("anonymous-auth", self.authentication.anonymous.to_string()),
            ("audit-log-path", path(&self.audit.path)),
            ("authorization-mode", mode.to_owned()),
            ("bind-address", self.serving.bind.ip().to_string()),
            ("client-ca-file", path(&self.authentication.client_ca)),
            ("controllers", controllers.join(",")),
            ("emulated-version", self.version.clone()),
            (
                "etcd-compaction-interval",
                format!(
                    "{}s",
                    self.compaction_interval.unwrap_or_default().as_secs()
                ),
            ),
            ("etcd-prefix", self.key_prefix.clone()),
            ("event-ttl", format!("{}s", self.event_ttl.as_secs())),
            ("max-connections", self.limits.connections.to_string()),
            (
                "max-mutating-requests-inflight",
                self.limits.writes.to_string(),
            ),
            ("max-requests-inflight", self.limits.reads.to_string()),
            ("peer-ca-file", path(&self.peers.ca)),
            ("peer-hold", format!("{}s", self.peers.hold.as_secs())),
            (
                "request-timeout",
                format!("{}s", self.limits.request_timeout.as_secs()),
            ),
            ("secure-port", self.serving.bind.port().to_string()),
            (
                "shutdown-delay-duration",
                format!("{}s", self.shutdown_delay.as_secs()),
            ),
            (
                "tls-cert-file",
                self.serving.certificate.display().to_string(),
            ),
        ])
    }
}

impl Controller {
    /// Its name in `--controllers`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
        }
    }
}
