//! One gateway from start to stop.
//!
//! It listens at once and answers 503 until it knows what the servers behind serve; its own `/readyz` says when that is.
//! A stop goes in kube-apiserver's order: `/readyz` is red first, so that balancers look elsewhere while requests are
//! still taken; then watches end between two events, open requests are waited for, and the rest is cut off.
//!
//! Invariants: a stop ends in bounded time; an address that cannot be had is an error before anything is served.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peerage_auth::audit::AuditLog;
use peerage_auth::{AuthSetupError, Authenticator};
use peerage_http::metrics::Registry;
use peerage_http::reload::{Reload, ReloadMetrics};
use peerage_http::server::{Drained, ServerMetrics};
use peerage_http::{HttpService, Server, ServerOptions, ServerTls, own_address};
use peerage_proxy::{Exclusions, FrontOptions, LocalApis, PeerProxy, PeerRecord, ProxyOptions};
use prometheus_client::metrics::counter::Counter;
use rand::RngExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::Layer as _;
use tracing::{info, warn};

use crate::GatewayOptions;
use crate::admin::Admin;
use crate::chain::{Chain, Shared};
use crate::discovery_authorization::DiscoveryAuthorization;
use crate::sources::Sources;

/// How often certificate files are looked at.
const RELOAD: Duration = Duration::from_secs(1);
/// How long a stop waits for the audit log.
const LEAVE_WAIT: Duration = Duration::from_secs(5);

/// The gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// An address.
    #[error("cannot listen on {address} ({flag}); is another server running there?")]
    Listen {
        /// Which one.
        flag: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A client CA.
    #[error("cannot set up authentication")]
    Authentication(#[from] AuthSetupError),
}

/// A gateway that runs.
pub struct Running {
    proxy: PeerProxy,
    done: JoinHandle<()>,
}

impl Running {
    /// Reads all servers anew.
    pub fn refresh(&self) {
        self.proxy.refresh();
    }

    /// Returns when the gateway has ended.
    pub async fn wait(self) {
        if let Err(error) = self.done.await {
            warn!(%error, "the gateway ended badly");
        }
    }
}

/// Starts a gateway; it listens when this returns. It stops with `stop`.
///
/// # Errors
/// [`GatewayError`], before anything is served.
pub async fn start(
    mut options: GatewayOptions,
    stop: CancellationToken,
) -> Result<Running, GatewayError> {
    let listener = listen("--bind-address, --secure-port", options.bind).await?;
    let admin = match options.admin {
        Some(address) => Some(listen("--admin-bind-address", address).await?),
        None => None,
    };
    let authenticator = Arc::new(Authenticator::load(options.authentication.clone())?);
    let address = listener.local_addr().unwrap_or(options.bind);

    let life = CancellationToken::new();
    let metrics = Registry::default();
    let id = own_id(address);
    let proxy = start_proxy(&options, &id, address);
    proxy.register_metrics(&metrics);
    metrics.register_process();
    options.audit_metrics.register(&metrics);
    let sources = options.sources.take().map(Arc::new);
    if let Some(sources) = &sources {
        sources.register_metrics(&metrics);
    }
    let files = files(&options, &authenticator, sources.as_deref());
    follow_files(files, &metrics, life.clone());
    let shared = Arc::new(Shared {
        id,
        authenticator,
        audit: options.audit.clone(),
        rendering: options.rendering.clone(),
        stop: stop.clone(),
        loops: loops(&metrics),
    });
    let authorized = authorized(&options, &proxy);
    authorized.register_metrics(&metrics);
    let chain = Chain::new(shared.clone(), HttpService::new(authorized));
    let serving = life.child_token();
    let server_metrics = ServerMetrics::default();
    server_metrics.register(&metrics);
    let server_options = ServerOptions {
        drain_timeout: options.drain,
        h2_max_streams: options.max_streams,
        leaving: stop.clone(),
        metrics: server_metrics,
        ..ServerOptions::default()
    };
    let server = tokio::spawn(Server::serve(
        listener,
        options.tls.clone(),
        chain,
        server_options,
        serving.clone(),
    ));
    if let Some(listener) = admin {
        let admin = Admin {
            shared: shared.clone(),
            proxy: proxy.clone(),
            metrics,
            sources: sources.clone(),
        };
        let quick = ServerOptions {
            drain_timeout: Duration::from_secs(1),
            ..ServerOptions::default()
        };
        tokio::spawn(Server::serve(
            listener,
            ServerTls::plain(),
            admin,
            quick,
            life.clone(),
        ));
    }
    tokio::spawn(say_when_ready(proxy.clone(), address));
    let lives = Lives {
        audit: options.audit,
        delay: options.shutdown_delay,
        serving,
        server,
        _sources: sources,
        _end: life.drop_guard(),
    };
    let done = tokio::spawn(lives.until(stop));
    Ok(Running { proxy, done })
}

/// Tells this process from every other one, so that a request that comes back is recognised.
fn own_id(address: SocketAddr) -> Arc<str> {
    format!(
        "gateway-{}-{:08x}",
        address.port(),
        rand::rng().random::<u32>()
    )
    .into()
}

fn start_proxy(options: &GatewayOptions, id: &Arc<str>, address: SocketAddr) -> PeerProxy {
    let local = LocalApis {
        id: id.clone(),
        documents: None,
        server_address: told_address(address, &options.records.borrow())
            .to_string()
            .into(),
        is_front: true,
    };
    let proxy = ProxyOptions {
        tls: Some(options.vouching.clone()),
        hold: options.hold,
        name_peer_to_all: options.name_server_to_all,
        rendering: options.rendering.clone(),
        // Every request is sent on: the audit log says where to, when that is wanted.
        log_requests: false,
        front: Some(FrontOptions {
            beside: options.beside.clone(),
            passing: options.passing.clone(),
            zone: options.zone.clone(),
            writes: options.writes,
            family: options.family.clone(),
        }),
        ..ProxyOptions::default()
    };
    let (_, local) = watch::channel(Arc::new(local));
    let (_, exclusions) = watch::channel(Arc::new(Exclusions::default()));
    PeerProxy::start(proxy, options.records.clone(), local, exclusions)
}

/// Where legacy discovery says that the server is: never "any address", which leads nowhere. It is then the one that this
/// machine has towards the servers.
fn told_address(bound: SocketAddr, servers: &[PeerRecord]) -> SocketAddr {
    if !bound.ip().is_unspecified() {
        return bound;
    }
    let towards = |server: &PeerRecord| -> Option<SocketAddr> {
        let address = server.address.as_ref()?;
        let host = address.host().trim_matches(['[', ']']).parse().ok()?;
        let target = SocketAddr::new(host, address.port_u16().unwrap_or(443));
        Some(SocketAddr::new(own_address(target)?, bound.port()))
    };
    let mut ways: Vec<SocketAddr> = servers.iter().filter_map(towards).collect();
    // Clients elsewhere cannot use a loopback address if there is another.
    ways.sort_by_key(|it| it.ip().is_loopback());
    ways.first().copied().unwrap_or(bound)
}

/// The proxy, with what it knows shown to those who may see it.
fn authorized(options: &GatewayOptions, proxy: &PeerProxy) -> DiscoveryAuthorization {
    let known = proxy.clone();
    DiscoveryAuthorization::new(
        options.discovery_authorization_ttl,
        Arc::new(move |method, info| known.answers(method, info)),
        options.rendering.clone(),
        HttpService::new(proxy.layer().layer(proxy.behind())),
        HttpService::new(proxy.behind()),
    )
}

/// Certificate and CA files.
fn files(
    options: &GatewayOptions,
    authenticator: &Authenticator,
    sources: Option<&Sources>,
) -> Vec<Arc<dyn Reload>> {
    let files = [
        options.tls.reloads(),
        authenticator.reloads(),
        options.vouching.reloads(),
        options.passing.reloads(),
        sources.map(Sources::reloads).unwrap_or_default(),
    ];
    files.concat()
}

fn follow_files(files: Vec<Arc<dyn Reload>>, metrics: &Registry, stop: CancellationToken) {
    let counts = ReloadMetrics::new(metrics);
    let report = move |what: &str, outcome: &_| counts.record(what, outcome);
    tokio::spawn(peerage_http::reload::watch(files, RELOAD, stop, report));
}

fn loops(metrics: &Registry) -> Counter {
    let loops = Counter::default();
    metrics.register(
        "peerage_gateway_loops_total",
        "Requests that had passed through this gateway before",
        loops.clone(),
    );
    loops
}

async fn say_when_ready(proxy: PeerProxy, address: SocketAddr) {
    let mut views = proxy.views();
    while !proxy.view().synced() {
        if views.changed().await.is_err() {
            return;
        }
    }
    info!(%address, "ready");
}

/// What ends in order.
struct Lives {
    audit: AuditLog,
    delay: Duration,
    serving: CancellationToken,
    server: JoinHandle<Drained>,
    _sources: Option<Arc<Sources>>,
    _end: DropGuard,
}

impl Lives {
    async fn until(self, stop: CancellationToken) {
        stop.cancelled().await;
        info!("stopping: no longer ready");
        tokio::time::sleep(self.delay).await;
        info!("stopping: watches end, open requests are waited for");
        self.serving.cancel();
        let _ = self.server.await;
        let _ = tokio::time::timeout(LEAVE_WAIT, self.audit.flush()).await;
        info!("stopped");
    }
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, GatewayError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| GatewayError::Listen {
            flag,
            address,
            source,
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn clients_are_told_an_address_that_leads_somewhere() {
        let record = |address: &str| PeerRecord {
            id: address.into(),
            address: Some(address.parse().unwrap()),
            identity_lease: None,
            endpoint_live: true,
            zone: None,
        };
        let servers = [record("127.0.0.1:6444"), record("server.example.com:6443")];
        let rows = [
            ("192.0.2.7:6443", &servers[..], "192.0.2.7:6443"),
            ("0.0.0.0:6443", &servers, "127.0.0.1:6443"),
            ("[::]:6443", &servers, "127.0.0.1:6443"),
            ("0.0.0.0:6443", &servers[1..], "0.0.0.0:6443"),
        ];
        for (bound, servers, expected) in rows {
            let told = told_address(bound.parse().unwrap(), servers);
            assert_eq!(told.to_string(), expected, "{bound}");
        }
    }
}
