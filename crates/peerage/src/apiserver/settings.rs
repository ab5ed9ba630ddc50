//! The settings of one API server: plain values, checked against each other.
//!
//! What kube-apiserver accepts silently and then does not do is refused here, or warned of, with the fix in the message.
//! Nothing is opened or started; that the files are there and readable is checked, so that a typing mistake is found
//! before anything runs.
//!
//! Differs: kube-apiserver starts with only one of `--peer-advertise-ip` and `--peer-advertise-port`, and with values that
//! are neither address nor port, and uses neither; with an audit policy without a log, or a log without a policy; and
//! says nothing when `--peer-ca-file` is missing.
//! Differs: the default of `--authorization-mode` is RBAC, not AlwaysAllow; the `--requestheader-*-headers` flags have
//! the names that everybody gives them as defaults, so that the authority alone makes a front proxy work.

mod parts;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::flags::ApiserverFlags;
use super::gates::FeatureGates;
use super::storage;
pub use super::storage::Storage;
use crate::common_flags::{Audit, FrontProxy, KeyPairFiles, check_readable};
use crate::settings_error::SettingsError;

/// One API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiserverSettings {
    /// Directory of what the server keeps.
    pub data_dir: PathBuf,
    /// Kubernetes version served, `major.minor`; the newest when there is none.
    pub version: Option<String>,
    /// APIs turned on and off, in order.
    pub runtime_config: Vec<(String, bool)>,
    /// Feature gates.
    pub gates: FeatureGates,
    /// Controllers as given: names, `*`, `-name`.
    pub controllers: Vec<String>,
    /// Host name that the identity is made from.
    pub hostname: String,
    /// Address ranges of Services.
    pub service_ranges: Vec<(IpAddr, u8)>,
    /// Where and how to listen.
    pub serving: Serving,
    /// Who is asking.
    pub authentication: Authentication,
    /// What decides what they may do, in order.
    pub authorization: Vec<AuthorizationMode>,
    /// Audit, if it is kept.
    pub audit: Option<Audit>,
    /// Where objects are kept.
    pub storage: Storage,
    /// Start of all keys, with a leading and without a closing slash.
    pub storage_prefix: String,
    /// How often one of several servers on one etcd compacts it.
    pub compaction_interval: Option<Duration>,
    /// How long Events are kept.
    pub event_ttl: Duration,
    /// Peers.
    pub peers: Peers,
    /// What to tell the reader of the log once.
    pub warnings: Vec<String>,
}

/// Where and how to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// Address and port; port 0 for any free one.
    pub bind: SocketAddr,
    /// Address for others, if given.
    pub advertise_address: Option<IpAddr>,
    /// The serving pair; made in `cert_dir` when there is none.
    pub pair: Option<KeyPairFiles>,
    /// Where certificates are made.
    pub cert_dir: PathBuf,
    /// Reading requests in flight; `None` for no limit.
    pub max_reads: Option<u32>,
    /// Writing requests in flight; `None` for no limit.
    pub max_writes: Option<u32>,
    /// Longest time for a request that is not long-running.
    pub request_timeout: Duration,
    /// Shortest time of a watch that names none.
    pub min_watch_timeout: Duration,
    /// Time between not being ready and the end of serving.
    pub shutdown_delay: Duration,
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// Authorities of client certificates; made in `cert_dir` when there are none.
    pub client_ca: Option<PathBuf>,
    /// Whether anonymous requests are let in.
    pub anonymous: bool,
    /// File of bearer tokens.
    pub tokens: Option<PathBuf>,
    /// Clients that may speak for others.
    pub front_proxy: Option<FrontProxy>,
    /// Service account tokens.
    pub service_accounts: ServiceAccounts,
}

/// Service account tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceAccounts {
    /// Issuers; the first one issues.
    pub issuers: Vec<String>,
    /// Keys that verify.
    pub keys: Vec<PathBuf>,
    /// Key that signs.
    pub signing_key: Option<PathBuf>,
    /// Audiences of tokens for this server.
    pub audiences: Vec<String>,
}

/// What decides what a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Everything is allowed.
    AlwaysAllow,
    /// Roles and bindings.
    Rbac,
}

/// Peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    /// How to reach peers; without it, requests stay here.
    pub proxy: Option<PeerProxy>,
    /// Address and port that peers reach this server at, if given.
    pub advertise: Option<SocketAddr>,
    /// How long a peer that is gone is still expected.
    pub hold: Duration,
    /// Whether everyone is told which peer answered.
    pub header_for_all: bool,
}

/// How to reach peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerProxy {
    /// Authorities of their serving certificates.
    pub ca: PathBuf,
    /// Our client pair.
    pub pair: KeyPairFiles,
}

impl ApiserverSettings {
    /// Checks the flags against each other.
    pub fn new(flags: ApiserverFlags) -> Result<Self, SettingsError> {
        let mut warnings = Vec::new();
        let gates = FeatureGates::parse(&flags.feature_gates)?;
        let data_dir = flags.data_dir.clone().unwrap_or_else(default_data_dir);
        let peers = parts::peers(&flags, gates, &mut warnings)?;
        let settings = Self {
            version: parts::version(&flags.emulated_version)?,
            runtime_config: parts::runtime_config(&flags.runtime_config)?,
            gates,
            controllers: flags
                .controllers
                .iter()
                .filter(|name| !name.is_empty())
                .cloned()
                .collect(),
            hostname: parts::hostname(flags.hostname_override.as_deref())?,
            service_ranges: parts::service_ranges(&flags.service_cluster_ip_range)?,
            serving: parts::serving(&flags, &data_dir)?,
            authentication: parts::authentication(&flags, peers.proxy.is_some(), &mut warnings)?,
            authorization: parts::authorization(&flags.authorization_mode, &mut warnings)?,
            audit: flags.audit.settings()?,
            storage: storage::read(&flags, &data_dir)?,
            storage_prefix: flags.etcd.prefix()?,
            compaction_interval: Some(flags.etcd_compaction_interval).filter(|it| !it.is_zero()),
            event_ttl: flags.event_ttl,
            peers,
            data_dir,
            warnings,
        };
        settings.check_files()?;
        Ok(settings)
    }

    /// Each file that was named has to be there.
    fn check_files(&self) -> Result<(), SettingsError> {
        let mut files: Vec<(&'static str, &Path)> = Vec::new();
        let pair = |certificate, key, pair: &Option<KeyPairFiles>| {
            if let Some(pair) = pair {
                check_readable(certificate, &pair.certificate)?;
                check_readable(key, &pair.key)?;
            }
            Ok::<_, SettingsError>(())
        };
        pair(
            "--tls-cert-file",
            "--tls-private-key-file",
            &self.serving.pair,
        )?;
        let proxy = self.peers.proxy.as_ref();
        pair(
            "--proxy-client-cert-file",
            "--proxy-client-key-file",
            &proxy.map(|proxy| proxy.pair.clone()),
        )?;
        if let Storage::Etcd(etcd) = &self.storage {
            files.extend(etcd.files());
        }
        files.extend(proxy.map(|proxy| ("--peer-ca-file", proxy.ca.as_path())));
        let who = &self.authentication;
        files.extend(
            who.client_ca
                .as_deref()
                .map(|file| ("--client-ca-file", file)),
        );
        files.extend(
            who.tokens
                .as_deref()
                .map(|file| ("--token-auth-file", file)),
        );
        let front_proxy = who.front_proxy.as_ref();
        files.extend(
            front_proxy.map(|front| ("--requestheader-client-ca-file", front.ca.as_path())),
        );
        let keys = who.service_accounts.keys.iter();
        files.extend(keys.map(|file| ("--service-account-key-file", file.as_path())));
        let policy = self.audit.as_ref().map(|audit| audit.policy.as_path());
        files.extend(policy.map(|file| ("--audit-policy-file", file)));
        files
            .into_iter()
            .try_for_each(|(flag, file)| check_readable(flag, file))
    }
}

/// `$XDG_STATE_HOME/peerage`, which is `~/.local/state/peerage`; `peerage-data` here for those without a home.
pub fn default_data_dir() -> PathBuf {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    match state.filter(|path| path.is_absolute()).or_else(home) {
        Some(state) => state.join("peerage"),
        None => PathBuf::from("peerage-data"),
    }
}
