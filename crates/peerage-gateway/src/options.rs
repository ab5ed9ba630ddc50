//! Settings of a gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peerage_auth::audit::{AuditLog, AuditMetrics};
use peerage_auth::{AuthenticatorOptions, identity_headers::Family};
use peerage_http::{ClientTls, ServerTls};
use peerage_proxy::{BoundClients, PeerRecord, Rendering, Writes};
use tokio::sync::watch;

use crate::sources::Sources;

/// Everything that may be decided about a gateway. Files are read and checked by whoever makes one.
pub struct GatewayOptions {
    /// Where clients connect.
    pub bind: SocketAddr,
    /// How it shows itself to clients.
    pub tls: ServerTls,
    /// Where its own health, metrics and state are; none for nowhere.
    pub admin: Option<SocketAddr>,
    /// Which client certificates and front proxies are believed. Tokens are never looked at.
    pub authentication: AuthenticatorOptions,
    /// Connections with our certificate, for users that were authenticated here and for reading discovery.
    pub vouching: ClientTls,
    /// Connections without any certificate, for requests whose credentials the servers judge.
    pub passing: ClientTls,
    /// In which headers users that were authenticated here are told.
    pub family: Family,
    /// Requests at one time on one HTTP/2 connection of a client.
    pub max_streams: u32,
    /// The servers behind, whenever they change. The first value is complete.
    pub records: watch::Receiver<Arc<[PeerRecord]>>,
    /// Where those come from, to show how each source does and to keep it going.
    pub sources: Option<Sources>,
    /// The ID of the server that this gateway stands beside; none for a balancer.
    pub beside: Option<Arc<str>>,
    /// The failure domain that the gateway is in.
    pub zone: Option<Arc<str>>,
    /// Which servers may write what several of them serve.
    pub writes: Writes,
    /// Clients that no server may be older than.
    pub bound: BoundClients,
    /// How long a server that is gone is still expected.
    pub hold: Duration,
    /// How long a server's yes counts to whether a client may read discovery and OpenAPI; at zero each request asks.
    pub discovery_authorization_ttl: Duration,
    /// Whether every client is told which server answered, and not only `system:masters`.
    pub name_server_to_all: bool,
    /// How YAML is written.
    pub rendering: Rendering,
    /// What is recorded of requests.
    pub audit: AuditLog,
    /// What the audit log counts.
    pub audit_metrics: AuditMetrics,
    /// Between no longer being ready and the end of accepting connections.
    pub shutdown_delay: Duration,
    /// How long open requests may go on after that.
    pub drain: Duration,
}
