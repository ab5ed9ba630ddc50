//! Why the settings of a server are refused: each with the flag, what is wrong, and what to write instead.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::apiserver::gates;
use crate::exit::{Failure, Kind};
use crate::yaml::Place;

/// Why settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file is not there or not readable.
    #[error("{flag}: cannot read {}", path.display())]
    ReadFile {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration file is not what it should be.
    #[error("{}: {problem}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A key of the configuration file is not what it should be.
    #[error("{}, {place}, key {key}: {problem}", path.display())]
    ConfigKey {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: Place,
        /// The key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A key of the configuration file is the name of no flag.
    #[error("{}, {place}, key {key}: no flag has that name; `--help` lists them", path.display())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: Place,
        /// The key.
        key: String,
    },
    /// A flag that kube-apiserver has and that cannot be left out silently.
    #[error("--{name} is not there: {instead}")]
    Refused {
        /// The flag.
        name: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// A feature gate is not `Name=true` or `Name=false`.
    #[error("--feature-gates: {pair:?} is not NAME=true or NAME=false")]
    FeatureGate {
        /// What was written.
        pair: String,
    },
    /// An unknown feature gate.
    #[error(
        "--feature-gates: no gate is named {name:?}; known are {} and {}",
        gates::PROXY,
        gates::IDENTITY
    )]
    UnknownFeatureGate {
        /// Its name.
        name: String,
    },
    /// The proxy without an identity.
    #[error(
        "--feature-gates: {} needs {}, because peers know each other by their identity; leave {} on or turn both off",
        gates::PROXY,
        gates::IDENTITY,
        gates::IDENTITY
    )]
    IdentityOff,
    /// A flag of the proxy while its gate is off.
    #[error(
        "{flag} requires {} feature to be turned on: take {}=false out of --feature-gates, or leave {flag} out",
        gates::PROXY,
        gates::PROXY
    )]
    GateOff {
        /// The flag.
        flag: &'static str,
    },
    /// A name that no header can have.
    #[error("--requestheader-*: {name:?} is no header name")]
    HeaderName {
        /// What was written.
        name: String,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("{given} needs {missing}: give both or neither")]
    HalfAPair {
        /// The flag that is there.
        given: &'static str,
        /// The one that is missing.
        missing: &'static str,
    },
    /// Only one of address and port.
    #[error(
        "{given} needs {missing}: peers use both or neither (without them, --advertise-address and --secure-port)"
    )]
    HalfAnAddress {
        /// The flag that is there.
        given: &'static str,
        /// The one that is missing.
        missing: &'static str,
    },
    /// Peers' authority without our own client pair.
    #[error(
        "--peer-ca-file needs a client certificate to show to peers: give --proxy-client-cert-file and \
         --proxy-client-key-file, signed by the peers' --requestheader-client-ca-file (`peerage pki init` makes them: \
         front-proxy-client.crt and front-proxy-client.key)"
    )]
    NoProxyClient,
    /// Not a version.
    #[error("--emulated-version: {text:?} is not a version; write it like 1.36")]
    Version {
        /// What was written.
        text: String,
    },
    /// A version that the catalogue does not have.
    #[error("--emulated-version: there is no Kubernetes {version} here; there are {known}")]
    UnknownVersion {
        /// The version.
        version: String,
        /// Those that are there.
        known: String,
    },
    /// An API that cannot be turned on or off.
    #[error("--runtime-config: {problem}")]
    RuntimeConfigKey {
        /// What is wrong.
        problem: String,
    },
    /// A controller that does not exist.
    #[error("--controllers: there is none named {name:?}; there are {known}, and * for all")]
    UnknownController {
        /// Its name.
        name: String,
        /// Those that are there.
        known: String,
    },
    /// An audit policy that is none.
    #[error("--audit-policy-file: {}: {problem}", path.display())]
    AuditPolicy {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Not a pair of an API and a boolean.
    #[error(
        "--runtime-config: {pair:?} is not like api/all=true, apps/v1=false or batch/v1/jobs=false"
    )]
    RuntimeConfig {
        /// What was written.
        pair: String,
    },
    /// A host name that cannot be a label's value.
    #[error(
        "the host name {name:?} cannot name a server: it has to be 1 to 63 letters, digits, '-', '_' or '.'; give --hostname-override"
    )]
    Hostname {
        /// The name.
        name: String,
    },
    /// Not address ranges.
    #[error(
        "--service-cluster-ip-range: {text:?} is not like 10.96.0.0/12, or one range per address family"
    )]
    ServiceRange {
        /// What was written.
        text: String,
    },
    /// A key that signs, without a name to sign as.
    #[error(
        "--service-account-signing-key-file needs --service-account-issuer, such as https://kubernetes.default.svc"
    )]
    NoIssuer,
    /// An authorization mode that is unknown or given twice.
    #[error(
        "--authorization-mode: {name:?} is unknown here or given twice; write one or more of RBAC, Node, AlwaysAllow"
    )]
    AuthorizationMode {
        /// The mode.
        name: String,
    },
    /// A form of audit lines that is not written.
    #[error("--audit-log-format: {format:?} is not written here; leave the flag out, or json")]
    AuditFormat {
        /// The form.
        format: String,
    },
    /// A policy without a log, or a log without a policy.
    #[error("{given} needs {missing}: without both, nothing would be audited")]
    HalfAnAudit {
        /// The flag that is there.
        given: &'static str,
        /// The one that is missing.
        missing: &'static str,
    },
    /// Not a kind of store.
    #[error("--storage: {text:?} is none of sqlite:FILE, memory and etcd")]
    Storage {
        /// What was written.
        text: String,
    },
    /// A store and another one.
    #[error("--storage={storage} and --etcd-servers name two stores: leave one of them out")]
    TwoStores {
        /// The value of `--storage`.
        storage: String,
    },
    /// etcd without servers.
    #[error("--storage=etcd needs --etcd-servers, such as https://127.0.0.1:2379")]
    NoEtcdServers,
    /// TLS without knowing whom to believe.
    #[error("--etcd-servers with https needs --etcd-cafile, the authority of their certificates")]
    NoEtcdCa,
    /// A flag for etcd without servers.
    #[error("{flag} needs --etcd-servers: it says nothing without them")]
    EtcdFlagAlone {
        /// The flag.
        flag: &'static str,
    },
    /// A name without a password, or the other way round.
    #[error("--etcd-username and --etcd-password-file go together")]
    EtcdUser,
    /// Not the URL of a server.
    #[error("--etcd-servers: {url:?} is not like https://127.0.0.1:2379")]
    EtcdUrl {
        /// What was written.
        url: String,
    },
    /// A backend that does not exist.
    #[error("--storage-backend: {name:?} does not exist; leave the flag out, or etcd3")]
    StorageBackend {
        /// Its name.
        name: String,
    },
    /// An encoding that is not written.
    #[error(
        "--storage-media-type: objects are stored as application/json here, not {name:?}; leave the flag out"
    )]
    StorageMediaType {
        /// Its name.
        name: String,
    },
    /// Something that a gateway cannot do without.
    #[error("{flag} is missing: {why}")]
    Missing {
        /// The flag.
        flag: &'static str,
        /// What it is for.
        why: &'static str,
    },
    /// A gateway in front of nothing.
    #[error(
        "there is no server to send requests to: give --upstream, --peer once for each server, --peers-file, --peer-dns or --etcd-servers"
    )]
    NoServers,
    /// Not the URL of a server.
    #[error(
        "{flag}: {url:?} is not like https://10.0.0.2:6443 or 'https://10.0.0.2:6443;zone=a': {problem}"
    )]
    ServerUrl {
        /// The flag.
        flag: &'static str,
        /// What was written.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// More than one server to stand beside.
    #[error("--upstream: a gateway stands beside one server; name the others with --peer")]
    TwoUpstreams,
    /// A list of servers in which something is wrong.
    #[error("--peers-file: {}", problems.join("; "))]
    PeersFile {
        /// What and where.
        problems: Vec<String>,
    },
    /// One address for clients and for what is for nobody but those who run the gateway.
    #[error(
        "--admin-bind-address: {address} is where clients connect too (--bind-address, --secure-port); give another port"
    )]
    OneAddress {
        /// The address.
        address: SocketAddr,
    },
    /// Not a name with a port.
    #[error(
        "{flag}: {name:?} is not like control-plane.example:6443 or 'control-plane.example:6443;zone=a': {problem}"
    )]
    ServerName {
        /// The flag.
        flag: &'static str,
        /// What was written.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An empty prefix.
    #[error(
        "--etcd-prefix: {text:?} would mix Kubernetes' keys with others'; write it like /registry"
    )]
    StoragePrefix {
        /// What was written.
        text: String,
    },
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        let kind = match error {
            SettingsError::ReadFile { .. } => Kind::Unavailable,
            _ => Kind::Usage,
        };
        Self::new(kind, error)
    }
}
