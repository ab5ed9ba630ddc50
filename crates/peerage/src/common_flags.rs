//! Flags that several servers take, with kube-apiserver's names, and what they mean together.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::apiserver::SettingsError;
use crate::apiserver::settings::{Audit, FrontProxy};

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

/// Clients that may speak for others.
#[derive(Debug, Clone, Default, Args)]
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
    /// Headers of the user's name [default: X-Remote-User]
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_username_headers: Vec<String>,
    /// Headers of the user's UID [default: X-Remote-Uid]
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers of the user's groups [default: X-Remote-Group]
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with more about the user [default: X-Remote-Extra-]
    #[arg(
        long,
        value_name = "PREFIX",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

impl FrontProxyFlags {
    /// Who may speak for others, if anybody may.
    pub fn settings(&self) -> Option<FrontProxy> {
        let or = |given: &Vec<String>, default: &str| match given.is_empty() {
            true => vec![default.to_owned()],
            false => given.clone(),
        };
        let ca = self.requestheader_client_ca_file.clone()?;
        Some(FrontProxy {
            ca,
            allowed_names: self.requestheader_allowed_names.clone(),
            user_headers: or(&self.requestheader_username_headers, "X-Remote-User"),
            uid_headers: or(&self.requestheader_uid_headers, "X-Remote-Uid"),
            group_headers: or(&self.requestheader_group_headers, "X-Remote-Group"),
            extra_prefixes: or(&self.requestheader_extra_headers_prefix, "X-Remote-Extra-"),
        })
    }
}

/// What is recorded of requests.
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
