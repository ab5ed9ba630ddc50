//! Flags that several servers take, with kube-apiserver's names, and the settings that they mean together.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use peerage_core::audit::Policy;

use crate::client::chain;
use crate::settings_error::SettingsError;

/// Reads a boolean as Go's `strconv.ParseBool` does.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// Reads a duration in Go's notation. No flag has a use for one below zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match peerage_core::duration::parse(text) {
        Ok(Some(duration)) => Ok(duration),
        Ok(None) => Err("it is below zero".to_owned()),
        Err(error) => Err(format!("{error}; write it like 10m, 1h30m or 1.5s")),
    }
}

/// A certificate and its private key, as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Both halves of a pair, or neither.
pub(crate) fn pair(
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

/// Each file that was named has to be there.
pub(crate) fn check_readable(flag: &'static str, path: &Path) -> Result<(), SettingsError> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(SettingsError::ReadFile {
            flag,
            path: path.to_owned(),
            source,
        }),
    }
}

/// Where a server listens, and how it stops.
#[derive(Debug, Clone, Args)]
pub struct ServingFlags {
    /// Address to listen on
    #[arg(
        long,
        value_name = "IP",
        default_value = "0.0.0.0",
        help_heading = "Serving"
    )]
    pub bind_address: IpAddr,
    /// Port to listen on; 0 for any free one
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 6443,
        help_heading = "Serving"
    )]
    pub secure_port: u16,
    /// Serving certificate; towards peers it needs the name kubernetes.default.svc
    #[arg(long, value_name = "FILE", help_heading = "Serving")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", help_heading = "Serving")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Time between /readyz failing and the end of serving when the server is stopped
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration, help_heading = "Serving")]
    pub shutdown_delay_duration: Duration,
}

impl ServingFlags {
    /// Where to listen.
    pub fn bind(&self) -> SocketAddr {
        SocketAddr::new(self.bind_address, self.secure_port)
    }

    /// The serving pair, if it is given.
    pub fn pair(&self) -> Result<Option<KeyPairFiles>, SettingsError> {
        let names = ("--tls-cert-file", "--tls-private-key-file");
        pair(names, &self.tls_cert_file, &self.tls_private_key_file)
    }
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

/// The names of identity headers where no others are given: those of Kubernetes.
const USUAL_USER: &str = "X-Remote-User";
const USUAL_UID: &str = "X-Remote-Uid";
const USUAL_GROUP: &str = "X-Remote-Group";
const USUAL_EXTRA: &str = "X-Remote-Extra-";

/// The flags of such clients.
#[derive(Debug, Clone, Args)]
pub struct FrontProxyFlags {
    /// Authorities of clients that may speak for others: peers, and authenticating proxies
    #[arg(long, value_name = "FILE", help_heading = "Who is asking")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that such clients must have; empty for any
    #[arg(
        long,
        value_name = "CN",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers of the user's name
    #[arg(
        long,
        default_value = USUAL_USER,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_username_headers: Vec<String>,
    /// Headers of the user's UID
    #[arg(
        long,
        default_value = USUAL_UID,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers of the user's groups
    #[arg(
        long,
        default_value = USUAL_GROUP,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with more about the user
    #[arg(
        long,
        default_value = USUAL_EXTRA,
        value_name = "PREFIX",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

impl FrontProxyFlags {
    /// Whether identity headers have the names of Kubernetes.
    pub fn has_usual_names(&self) -> bool {
        let names = [
            (&self.requestheader_username_headers, USUAL_USER),
            (&self.requestheader_uid_headers, USUAL_UID),
            (&self.requestheader_group_headers, USUAL_GROUP),
            (&self.requestheader_extra_headers_prefix, USUAL_EXTRA),
        ];
        names.iter().all(|(given, usual)| *given == &[*usual])
    }

    /// Who may speak for others, if anybody may.
    pub fn settings(&self) -> Option<FrontProxy> {
        let ca = self.requestheader_client_ca_file.clone()?;
        Some(FrontProxy {
            ca,
            allowed_names: self.requestheader_allowed_names.clone(),
            user_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
        })
    }
}

/// Where and what to audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The policy.
    pub policy: PathBuf,
    /// The file of lines; `-` for standard output.
    pub log: PathBuf,
    /// Megabytes at which it is rotated; 0 for 100, as in Kubernetes.
    pub max_size: u64,
    /// Days that rotated files are kept; 0 for any number.
    pub max_age: u32,
    /// Rotated files that are kept; 0 for any number.
    pub max_backups: u32,
}

impl Audit {
    /// Reads the policy.
    pub fn read_policy(&self) -> Result<Policy, SettingsError> {
        let wrong = |problem: String| SettingsError::AuditPolicy {
            path: self.policy.clone(),
            problem,
        };
        let text =
            std::fs::read_to_string(&self.policy).map_err(|source| SettingsError::ReadFile {
                flag: "--audit-policy-file",
                path: self.policy.clone(),
                source,
            })?;
        let document = crate::yaml::read_open(&text).map_err(wrong)?;
        Policy::parse(document).map_err(|e| wrong(chain(&e)))
    }
}

/// The flags of what is recorded of requests.
#[derive(Debug, Clone, Args)]
pub struct AuditFlags {
    /// What to audit (audit.k8s.io/v1 Policy)
    #[arg(long, value_name = "FILE", help_heading = "What they may do")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit lines go; - for standard output
    #[arg(long, value_name = "FILE", help_heading = "What they may do")]
    pub audit_log_path: Option<PathBuf>,
    /// Size in megabytes at which the audit log is rotated; 0 for 100, as in Kubernetes
    #[arg(
        long,
        value_name = "MB",
        default_value_t = 0,
        help_heading = "What they may do"
    )]
    pub audit_log_maxsize: u64,
    /// Days that rotated audit logs are kept; 0 for any number
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 0,
        help_heading = "What they may do"
    )]
    pub audit_log_maxage: u32,
    /// Rotated audit logs that are kept; 0 for any number
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        help_heading = "What they may do"
    )]
    pub audit_log_maxbackup: u32,
    /// Form of audit lines; json is the only one
    #[arg(long, value_name = "FORMAT", default_value = "json", hide = true)]
    pub audit_log_format: String,
}

impl AuditFlags {
    /// The audit log, if one is kept.
    pub fn settings(&self) -> Result<Option<Audit>, SettingsError> {
        if self.audit_log_format != "json" {
            return Err(SettingsError::AuditFormat {
                format: self.audit_log_format.clone(),
            });
        }
        match (&self.audit_policy_file, &self.audit_log_path) {
            (Some(policy), Some(log)) => Ok(Some(Audit {
                policy: policy.clone(),
                log: log.clone(),
                max_size: self.audit_log_maxsize,
                max_age: self.audit_log_maxage,
                max_backups: self.audit_log_maxbackup,
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
}
