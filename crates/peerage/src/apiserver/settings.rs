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

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::flags::{ApiserverFlags, parse_bool};
use super::gates::FeatureGates;
pub use super::storage::Storage;
use super::{SettingsError, storage};

/// A certificate and its private key, as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

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

/// Clients that may speak for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontProxy {
    /// Authorities of their certificates.
    pub ca: PathBuf,
    /// Common names that they must have; empty for any.
    pub allowed_names: Vec<String>,
    /// Headers of the user's name.
    pub user_headers: Vec<String>,
    /// Headers of the user's UID.
    pub uid_headers: Vec<String>,
    /// Headers of the user's groups.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with more about the user.
    pub extra_prefixes: Vec<String>,
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

/// Where and what to audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The policy.
    pub policy: PathBuf,
    /// The file of lines; `-` for standard output.
    pub log: PathBuf,
    /// Megabytes at which it is rotated; 0 for never.
    pub max_size: u64,
    /// Days that rotated files are kept; 0 for any number.
    pub max_age: u32,
    /// Rotated files that are kept; 0 for any number.
    pub max_backups: u32,
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
        let peers = peers(&flags, gates, &mut warnings)?;
        let settings = Self {
            version: version(&flags.emulated_version)?,
            runtime_config: runtime_config(&flags.runtime_config)?,
            gates,
            controllers: flags
                .controllers
                .iter()
                .filter(|name| !name.is_empty())
                .cloned()
                .collect(),
            hostname: hostname(flags.hostname_override.as_deref())?,
            service_ranges: service_ranges(&flags.service_cluster_ip_range)?,
            serving: serving(&flags, &data_dir)?,
            authentication: authentication(&flags, peers.proxy.is_some(), &mut warnings)?,
            authorization: authorization(&flags.authorization_mode, &mut warnings)?,
            audit: audit(&flags)?,
            storage: storage::read(&flags, &data_dir)?,
            storage_prefix: storage::prefix(&flags.etcd_prefix)?,
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
            pair("--etcd-certfile", "--etcd-keyfile", &etcd.pair)?;
            files.extend(etcd.ca.as_deref().map(|ca| ("--etcd-cafile", ca)));
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

fn check_readable(flag: &'static str, path: &Path) -> Result<(), SettingsError> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(SettingsError::ReadFile {
            flag,
            path: path.to_owned(),
            source,
        }),
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

/// Both halves of a pair, or neither.
pub(super) fn pair(
    flags: (&'static str, &'static str),
    certificate: &Option<PathBuf>,
    key: &Option<PathBuf>,
) -> Result<Option<KeyPairFiles>, SettingsError> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(KeyPairFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(SettingsError::HalfAPair {
            given: flags.0,
            missing: flags.1,
        }),
        (None, Some(_)) => Err(SettingsError::HalfAPair {
            given: flags.1,
            missing: flags.0,
        }),
    }
}

fn peers(
    flags: &ApiserverFlags,
    gates: FeatureGates,
    warnings: &mut Vec<String>,
) -> Result<Peers, SettingsError> {
    if !gates.proxy {
        let given = [
            ("--peer-ca-file", flags.peer_ca_file.is_some()),
            ("--peer-advertise-ip", flags.peer_advertise_ip.is_some()),
            ("--peer-advertise-port", flags.peer_advertise_port.is_some()),
        ];
        if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(SettingsError::GateOff { flag });
        }
    }
    let advertise = match (flags.peer_advertise_ip, flags.peer_advertise_port) {
        (Some(ip), Some(port)) => Some(SocketAddr::new(ip, port)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(SettingsError::HalfAnAddress {
                given: "--peer-advertise-ip",
                missing: "--peer-advertise-port",
            });
        }
        (None, Some(_)) => {
            return Err(SettingsError::HalfAnAddress {
                given: "--peer-advertise-port",
                missing: "--peer-advertise-ip",
            });
        }
    };
    let names = ("--proxy-client-cert-file", "--proxy-client-key-file");
    let client = pair(
        names,
        &flags.proxy_client_cert_file,
        &flags.proxy_client_key_file,
    )?;
    let proxy = match (&flags.peer_ca_file, client) {
        (Some(ca), Some(pair)) => Some(PeerProxy {
            ca: ca.clone(),
            pair,
        }),
        (Some(_), None) => return Err(SettingsError::NoProxyClient),
        (None, _) => None,
    };
    if gates.proxy && proxy.is_none() {
        warnings.push(
            "no --peer-ca-file: requests for APIs that only a peer serves are answered 404 here, and discovery is this \
             server's alone; to change it, give --peer-ca-file (the authority of the peers' serving certificates) with \
             --proxy-client-cert-file and --proxy-client-key-file"
                .to_owned(),
        );
    }
    Ok(Peers {
        proxy,
        advertise,
        hold: flags.peer_hold,
        header_for_all: flags.peer_header_for_all,
    })
}

/// `1.36`, `v1.36`, `1.36.0` or `kube=1.36`.
fn version(given: &[String]) -> Result<Option<String>, SettingsError> {
    let Some(text) = given.last() else {
        return Ok(None);
    };
    let wrong = || SettingsError::Version { text: text.clone() };
    let bare = text.strip_prefix("kube=").unwrap_or(text);
    let bare = bare.strip_prefix('v').unwrap_or(bare);
    let numbers: Vec<u16> = bare
        .split('.')
        .map(|part| part.parse().map_err(|_| wrong()))
        .collect::<Result<_, _>>()?;
    match numbers[..] {
        [major, minor] | [major, minor, _] => Ok(Some(format!("{major}.{minor}"))),
        _ => Err(wrong()),
    }
}

fn runtime_config(pairs: &[String]) -> Result<Vec<(String, bool)>, SettingsError> {
    let read = |pair: &String| {
        // A name alone turns it on, as in kube-apiserver.
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let on =
            parse_bool(value).map_err(|_| SettingsError::RuntimeConfig { pair: pair.clone() })?;
        Ok((name.trim().to_owned(), on))
    };
    pairs
        .iter()
        .filter(|pair| !pair.is_empty())
        .map(read)
        .collect()
}

fn hostname(given: Option<&str>) -> Result<String, SettingsError> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => gethostname::gethostname().to_string_lossy().into_owned(),
    };
    // The identity Lease carries it as a label, and a label's value has at most 63 characters.
    let good = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let ends_well = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let valid = name.len() <= 63
        && name.bytes().all(good)
        && ends_well(name.bytes().next())
        && ends_well(name.bytes().last());
    if valid {
        Ok(name)
    } else {
        Err(SettingsError::Hostname { name })
    }
}

fn service_ranges(given: &[String]) -> Result<Vec<(IpAddr, u8)>, SettingsError> {
    let read = |text: &String| {
        let wrong = || SettingsError::ServiceRange { text: text.clone() };
        let (ip, bits) = text.split_once('/').ok_or_else(wrong)?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        if bits <= longest {
            Ok((ip, bits))
        } else {
            Err(wrong())
        }
    };
    let ranges: Vec<_> = given
        .iter()
        .filter(|text| !text.is_empty())
        .map(read)
        .collect::<Result<_, _>>()?;
    let v4 = ranges.iter().filter(|(ip, _)| ip.is_ipv4()).count();
    if v4 > 1 || ranges.len() - v4 > 1 {
        return Err(SettingsError::ServiceRange {
            text: given.join(","),
        });
    }
    Ok(ranges)
}

fn serving(flags: &ApiserverFlags, data_dir: &Path) -> Result<Serving, SettingsError> {
    let names = ("--tls-cert-file", "--tls-private-key-file");
    let limit = |count: u32| (count > 0).then_some(count);
    Ok(Serving {
        bind: SocketAddr::new(flags.bind_address, flags.secure_port),
        advertise_address: flags.advertise_address,
        pair: pair(names, &flags.tls_cert_file, &flags.tls_private_key_file)?,
        cert_dir: flags
            .cert_dir
            .clone()
            .unwrap_or_else(|| data_dir.join("pki")),
        max_reads: limit(flags.max_requests_inflight),
        max_writes: limit(flags.max_mutating_requests_inflight),
        request_timeout: flags.request_timeout,
        min_watch_timeout: Duration::from_secs(u64::from(flags.min_request_timeout)),
        shutdown_delay: flags.shutdown_delay_duration,
    })
}

fn authentication(
    flags: &ApiserverFlags,
    proxies: bool,
    warnings: &mut Vec<String>,
) -> Result<Authentication, SettingsError> {
    let or = |given: &Vec<String>, default: &str| match given.is_empty() {
        true => vec![default.to_owned()],
        false => given.clone(),
    };
    let front_proxy = flags
        .requestheader_client_ca_file
        .as_ref()
        .map(|ca| FrontProxy {
            ca: ca.clone(),
            allowed_names: flags.requestheader_allowed_names.clone(),
            user_headers: or(&flags.requestheader_username_headers, "X-Remote-User"),
            uid_headers: or(&flags.requestheader_uid_headers, "X-Remote-Uid"),
            group_headers: or(&flags.requestheader_group_headers, "X-Remote-Group"),
            extra_prefixes: or(&flags.requestheader_extra_headers_prefix, "X-Remote-Extra-"),
        });
    if proxies && front_proxy.is_none() {
        warnings.push(
            "no --requestheader-client-ca-file: requests that peers send here are refused (401), because nobody may \
             speak for others; give the authority of the peers' --proxy-client-cert-file"
                .to_owned(),
        );
    }
    if flags.service_account_signing_key_file.is_some() && flags.service_account_issuer.is_empty() {
        return Err(SettingsError::NoIssuer);
    }
    Ok(Authentication {
        client_ca: flags.client_ca_file.clone(),
        anonymous: flags.anonymous_auth,
        tokens: flags.token_auth_file.clone(),
        front_proxy,
        service_accounts: ServiceAccounts {
            issuers: flags.service_account_issuer.clone(),
            keys: flags.service_account_key_file.clone(),
            signing_key: flags.service_account_signing_key_file.clone(),
            audiences: flags.api_audiences.clone(),
        },
    })
}

fn authorization(
    given: &[String],
    warnings: &mut Vec<String>,
) -> Result<Vec<AuthorizationMode>, SettingsError> {
    let mut modes = Vec::new();
    for name in given {
        let mode = match name.as_str() {
            "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
            "RBAC" => AuthorizationMode::Rbac,
            "Node" => {
                warnings.push(
                    "--authorization-mode=Node: nodes have what RBAC gives them and nothing more; kubelets need the \
                     binding system:node to the group system:nodes"
                        .to_owned(),
                );
                continue;
            }
            _ => return Err(SettingsError::AuthorizationMode { name: name.clone() }),
        };
        if modes.contains(&mode) {
            return Err(SettingsError::AuthorizationMode { name: name.clone() });
        }
        modes.push(mode);
    }
    if modes.is_empty() {
        return Err(SettingsError::AuthorizationMode {
            name: given.join(","),
        });
    }
    if modes.contains(&AuthorizationMode::AlwaysAllow) {
        warnings.push(
            "--authorization-mode=AlwaysAllow: anyone who reaches this server may do anything"
                .to_owned(),
        );
    }
    Ok(modes)
}

fn audit(flags: &ApiserverFlags) -> Result<Option<Audit>, SettingsError> {
    if flags.audit_log_format != "json" {
        return Err(SettingsError::AuditFormat {
            format: flags.audit_log_format.clone(),
        });
    }
    match (&flags.audit_policy_file, &flags.audit_log_path) {
        (Some(policy), Some(log)) => Ok(Some(Audit {
            policy: policy.clone(),
            log: log.clone(),
            max_size: flags.audit_log_maxsize,
            max_age: flags.audit_log_maxage,
            max_backups: flags.audit_log_maxbackup,
        })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(SettingsError::HalfAnAudit {
            given: "--audit-policy-file",
            missing: "--audit-log-path",
        }),
        (None, Some(_)) => Err(SettingsError::HalfAnAudit {
            given: "--audit-log-path",
            missing: "--audit-policy-file",
        }),
    }
}
