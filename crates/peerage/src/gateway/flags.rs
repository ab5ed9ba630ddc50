//! The flags of `peerage gateway`, as typed. What they mean together is `settings.rs`'s matter.
//!
//! Names are kube-apiserver's wherever it has the flag.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::common_flags::{AuditFlags, FrontProxyFlags, ServingFlags, parse_bool, parse_duration};
use crate::etcd::EtcdFlags;
use crate::logging::LogFlags;

/// Which servers may write what several of them serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WritesFlag {
    /// The newest that answers: no older server erases fields that only the newer knows.
    Newest,
    /// Whichever the request goes to anyway.
    Local,
}

/// How users with a certificate are told to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IdentityFlag {
    /// X-Remote-User and its kin, over connections that show the front-proxy certificate.
    FrontProxy,
    /// Impersonate-User and its kin, as a user who may impersonate.
    Impersonate,
}

/// The flags.
#[derive(Debug, Clone, Args)]
pub struct GatewayFlags {
    /// YAML file with the names of these flags as keys; the command line wins
    #[arg(long, value_name = "FILE", help_heading = "General")]
    pub config: Option<PathBuf>,
    /// Print the settings in force, with where each came from, and exit
    #[arg(long, help_heading = "General")]
    pub print_config: bool,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,

    /// The server that the gateway stands beside: it is asked first, and its discovery is the gateway's own. Without it
    /// the gateway is a balancer
    #[arg(long, value_name = "URL", help_heading = "Servers")]
    pub upstream: Option<String>,
    /// Another server, https://HOST:PORT, with ;zone=NAME if it is in one and ;id=ID if its server ID is known (repeat)
    #[arg(long, value_name = "URL", help_heading = "Servers")]
    pub peer: Vec<String>,
    /// YAML or JSON file with a list of {url: https://HOST:PORT, zone: NAME, id: ID}; read again when it changes
    #[arg(long, value_name = "FILE", help_heading = "Servers")]
    pub peers_file: Option<PathBuf>,
    /// Name each of whose addresses is a server, HOST:PORT, with ;zone=NAME (repeat); looked up every ten seconds
    #[arg(long, value_name = "NAME:PORT", help_heading = "Servers")]
    pub peer_dns: Vec<String>,
    /// Find servers by their identity Leases in kube-system, read through the servers that are known already. Only
    /// servers with the feature gate UnknownVersionInteroperabilityProxy write there where they are
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = parse_bool, action = clap::ArgAction::Set, help_heading = "Servers")]
    pub peers_from_leases: bool,
    /// As whom these are read: it needs get, list and watch on leases.coordination.k8s.io in kube-system
    #[arg(
        long,
        value_name = "USER",
        default_value = "peerage-gateway",
        help_heading = "Servers"
    )]
    pub peers_from_leases_user: String,
    /// The etcd in which servers with that feature gate keep endpoint keys, by which more are found.
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// The failure domain that the gateway is in; servers in it are preferred
    #[arg(long, value_name = "NAME", help_heading = "Servers")]
    pub zone: Option<String>,
    /// Which servers may write what several of them serve [default: newest as balancer, local beside a server]
    #[arg(long, value_enum, help_heading = "Servers")]
    pub writes: Option<WritesFlag>,
    /// Clients that are sent to no server of an older minor version than theirs, by their name in User-Agent (repeat, or
    /// separate with commas), for example kubelet, which Kubernetes allows no older server
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Servers"
    )]
    pub version_bound_clients: Vec<String>,
    /// Authorities of the servers' certificates
    #[arg(long, value_name = "FILE", help_heading = "Servers")]
    pub peer_ca_file: Option<PathBuf>,
    /// Name that the servers' certificates must have
    #[arg(
        long,
        value_name = "NAME",
        default_value = "kubernetes.default.svc",
        help_heading = "Servers"
    )]
    pub peer_server_name: String,
    /// Client certificate towards the servers, of their --requestheader-client-ca-file
    #[arg(long, value_name = "FILE", help_heading = "Servers")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", help_heading = "Servers")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// How users who show a client certificate are told to the servers
    #[arg(
        long,
        value_enum,
        default_value = "front-proxy",
        help_heading = "Servers"
    )]
    pub identity: IdentityFlag,
    /// How long a server that is on no list any more is still expected: its APIs answer 503 with Retry-After, then 404
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration, help_heading = "Servers")]
    pub peer_hold: Duration,
    /// How long a server's yes counts to whether a client may read discovery and OpenAPI; 0 asks for each request
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration, help_heading = "Servers")]
    pub discovery_authorization_ttl: Duration,
    /// Name the server that answered (X-Peerage-Peer) to everyone, not only to system:masters
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = parse_bool, action = clap::ArgAction::Set, help_heading = "Servers")]
    pub peer_header_for_all: bool,

    /// Where it listens, and how it stops.
    #[command(flatten)]
    pub serving: ServingFlags,
    /// Where the gateway's own /healthz, /readyz, /metrics and /debug/peers are, over plain HTTP; empty for nowhere
    #[arg(
        long,
        value_name = "IP:PORT",
        default_value = "127.0.0.1:10440",
        value_parser = parse_address,
        help_heading = "Serving"
    )]
    pub admin_bind_address: AdminAddress,
    /// Requests at one time on one HTTP/2 connection of a client
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Serving")]
    pub http2_max_streams_per_connection: u32,
    /// How long open requests may go on after --shutdown-delay-duration; then they are cut off
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration, help_heading = "Serving")]
    pub drain_timeout: Duration,

    /// Authorities of client certificates: who shows one is told to the servers by name
    #[arg(long, value_name = "FILE", help_heading = "Who is asking")]
    pub client_ca_file: Option<PathBuf>,
    /// Clients that may speak for others.
    #[command(flatten)]
    pub front_proxy: FrontProxyFlags,

    /// What is recorded of requests.
    #[command(flatten)]
    pub audit: AuditFlags,
    /// Flags of logging.
    #[command(flatten)]
    pub log: LogFlags,
}

/// Where the gateway's own health is, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminAddress(pub Option<SocketAddr>);

/// An address, or nothing.
fn parse_address(text: &str) -> Result<AdminAddress, String> {
    if text.is_empty() {
        return Ok(AdminAddress(None));
    }
    let address = text.parse();
    address
        .map(|address| AdminAddress(Some(address)))
        .map_err(|_| "write it like 127.0.0.1:10440".to_owned())
}
