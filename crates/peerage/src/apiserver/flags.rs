//! The flags of `peerage apiserver`, as typed. What they mean together is `settings.rs`'s matter.
//!
//! Names, and what a value looks like, are kube-apiserver's wherever it has the flag. No flag has a default here that
//! depends on another one, so that "not given" can be told from "given".

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::common_flags::{AuditFlags, FrontProxyFlags, ServingFlags, parse_bool, parse_duration};
use crate::etcd::EtcdFlags;
use crate::logging::LogFlags;

/// The flags.
#[derive(Debug, Clone, Args)]
pub struct ApiserverFlags {
    /// YAML file with the names of these flags as keys; the command line wins
    #[arg(long, value_name = "FILE", help_heading = "General")]
    pub config: Option<PathBuf>,
    /// Directory of what the server keeps: its store, and certificates it makes itself [default: peerage in $XDG_STATE_HOME, ~/.local/state]
    #[arg(
        long,
        value_name = "DIR",
        help_heading = "General",
        env = "PEERAGE_DATA_DIR"
    )]
    pub data_dir: Option<PathBuf>,
    /// Kubernetes version whose API is served, such as 1.36 [default: the newest]
    #[arg(long, value_name = "VERSION", help_heading = "General")]
    pub emulated_version: Vec<String>,
    /// APIs to turn on or off: api/all, api/ga, api/beta, api/alpha, GROUP/VERSION or GROUP/VERSION/RESOURCE, =true or =false
    #[arg(
        long,
        value_name = "KEY=BOOL",
        value_delimiter = ',',
        help_heading = "General"
    )]
    pub runtime_config: Vec<String>,
    /// Feature gates: UnknownVersionInteroperabilityProxy and APIServerIdentity, both on by default
    #[arg(
        long,
        value_name = "NAME=BOOL",
        value_delimiter = ',',
        help_heading = "General"
    )]
    pub feature_gates: Vec<String>,
    /// Controllers to run: * for all, NAME, -NAME to leave one out; empty for none
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "*",
        help_heading = "General"
    )]
    pub controllers: Vec<String>,
    /// Host name that the server's identity is made from [default: the machine's]
    #[arg(
        long,
        alias = "server-name",
        value_name = "NAME",
        help_heading = "General"
    )]
    pub hostname_override: Option<String>,
    /// Address range of Services, one per family
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        default_value = "10.0.0.0/24",
        help_heading = "General"
    )]
    pub service_cluster_ip_range: Vec<String>,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,

    /// Where it listens, and how it stops.
    #[command(flatten)]
    pub serving: ServingFlags,
    /// Address that others reach this server at [default: --bind-address, or the default interface's]
    #[arg(long, value_name = "IP", help_heading = "Serving")]
    pub advertise_address: Option<IpAddr>,
    /// Where certificates are made when none are given [default: pki in --data-dir]
    #[arg(long, value_name = "DIR", help_heading = "Serving")]
    pub cert_dir: Option<PathBuf>,
    /// Reading requests in flight, watches not counted; 0 for no limit
    #[arg(
        long,
        value_name = "N",
        default_value_t = 400,
        help_heading = "Serving"
    )]
    pub max_requests_inflight: u32,
    /// Writing requests in flight; 0 for no limit
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        help_heading = "Serving"
    )]
    pub max_mutating_requests_inflight: u32,
    /// Longest time for a request that is not a watch
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration, help_heading = "Serving")]
    pub request_timeout: Duration,
    /// Shortest time after which a watch without timeoutSeconds is ended (up to twice this), in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1800,
        help_heading = "Serving"
    )]
    pub min_request_timeout: u32,

    /// Authorities of client certificates (CN is the user, O the groups) [default: made in --cert-dir]
    #[arg(long, value_name = "FILE", help_heading = "Who is asking")]
    pub client_ca_file: Option<PathBuf>,
    /// Whether requests without credentials are let in as system:anonymous
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_parser = parse_bool, action = clap::ArgAction::Set, help_heading = "Who is asking")]
    pub anonymous_auth: bool,
    /// File of bearer tokens, lines of token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE", help_heading = "Who is asking")]
    pub token_auth_file: Option<PathBuf>,
    /// Clients that may speak for others.
    #[command(flatten)]
    pub front_proxy: FrontProxyFlags,
    /// Issuer of service account tokens (repeat; the first one issues)
    #[arg(long, value_name = "URL", help_heading = "Who is asking")]
    pub service_account_issuer: Vec<String>,
    /// Keys that verify service account tokens (repeat)
    #[arg(long, value_name = "FILE", help_heading = "Who is asking")]
    pub service_account_key_file: Vec<PathBuf>,
    /// Key that signs service account tokens
    #[arg(long, value_name = "FILE", help_heading = "Who is asking")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Audiences of tokens for this server [default: the first issuer]
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Who is asking"
    )]
    pub api_audiences: Vec<String>,

    /// What decides, in order: RBAC, Node, AlwaysAllow
    #[arg(
        long,
        value_name = "MODE",
        value_delimiter = ',',
        default_value = "RBAC",
        help_heading = "What they may do"
    )]
    pub authorization_mode: Vec<String>,
    /// What is recorded of requests.
    #[command(flatten)]
    pub audit: AuditFlags,

    /// Where objects are kept: sqlite:FILE, memory, or etcd [default: sqlite:store.db in --data-dir, or etcd with --etcd-servers]
    #[arg(long, value_name = "WHERE", help_heading = "Store")]
    pub storage: Option<String>,
    /// The etcd that objects are kept in.
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// How often one of the servers on them compacts what is past; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration, help_heading = "Store")]
    pub etcd_compaction_interval: Duration,
    /// How long Events are kept
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration, help_heading = "Store")]
    pub event_ttl: Duration,
    /// Kind of store; etcd3 is the only one
    #[arg(long, value_name = "KIND", default_value = "etcd3", hide = true)]
    pub storage_backend: String,
    /// Encoding of stored objects; application/json is the only one that is written
    #[arg(long, value_name = "TYPE", hide = true)]
    pub storage_media_type: Option<String>,

    /// Authorities of peers' serving certificates: with it, requests for what only a peer serves are sent there
    #[arg(long, value_name = "FILE", help_heading = "Peers")]
    pub peer_ca_file: Option<PathBuf>,
    /// Client certificate towards peers, of their --requestheader-client-ca-file (also --peer-cert-file)
    #[arg(long, value_name = "FILE", help_heading = "Peers")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Its private key (also --peer-key-file)
    #[arg(long, value_name = "FILE", help_heading = "Peers")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// Address that peers reach this server at; together with the port [default: --advertise-address]
    #[arg(long, value_name = "IP", help_heading = "Peers")]
    pub peer_advertise_ip: Option<IpAddr>,
    /// Port that peers reach this server at; together with the address [default: --secure-port]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Peers")]
    pub peer_advertise_port: Option<u16>,
    /// How long a peer that is gone is still expected: its APIs answer 503 with Retry-After, then 404
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration, help_heading = "Peers")]
    pub peer_hold: Duration,
    /// Name the peer that answered (X-Peerage-Peer) to everyone, not only to system:masters
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = parse_bool, action = clap::ArgAction::Set, help_heading = "Peers")]
    pub peer_header_for_all: bool,

    /// Flags of logging.
    #[command(flatten)]
    pub log: LogFlags,
}
