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
use peerage_http::server::{Drained, ServerMetrics, why_not_bound};
use peerage_http::{HttpService, Server, ServerOptions, ServerTls, own_address};
use peerage_proxy::{Exclusions, FrontOptions, LocalApis, PeerProxy, PeerRecord, ProxyOptions};
use prometheus_client::metrics::counter::Counter;
use rand::RngExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::Layer as _;
use tracing::{error, info, warn};

use crate::GatewayOptions;
use crate::admin::Admin;
use crate::chain::{Chain, Shared, Strangers};
use crate::discovery_authorization::DiscoveryAuthorization;
use crate::readiness;
use crate::sources::Sources;

/// How often certificate files are looked at.
const RELOAD: Duration = Duration::from_secs(1);
/// How long a stop waits for the audit log.
const LEAVE_WAIT: Duration = Duration::from_secs(5);

/// The gateway could not start, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// An address.
    #[error("cannot listen on {address} ({flag}){}", why_not_bound(source))]
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
    /// It ran, and ended although nobody told it to.
    #[error("the gateway stopped serving by itself; the log says why")]
    Broken,
}

/// A gateway that runs.
pub struct Running {
    proxy: PeerProxy,
    done: JoinHandle<Result<(), GatewayError>>,
}

impl Running {
    /// Reads all servers anew.
    pub fn refresh(&self) {
        self.proxy.refresh();
    }

    /// Returns when the gateway has ended; to be called until then, and no more afterwards.
    ///
    /// # Errors
    /// [`GatewayError::Broken`] if it ended although nobody told it to.
    pub async fn wait(&mut self) -> Result<(), GatewayError> {
        match (&mut self.done).await {
            Ok(ended) => ended,
            Err(error) => {
                warn!(%error, "the gateway ended badly");
                Err(GatewayError::Broken)
            }
        }
    }
}

/// Starts a gateway; it listens when this returns. It stops with `stop`.
///
/// # Errors
/// [`GatewayError`], before anything is served.
pub async fn start(
    options: GatewayOptions,
    stop: CancellationToken,
) -> Result<Running, GatewayError> {
    let listener = listen("--bind-address, --secure-port", options.bind).await?;
    let admin = match options.admin {
        Some(address) => Some(listen("--admin-bind-address", address).await?),
        None => None,
    };
    let address = listener.local_addr().unwrap_or(options.bind);
    let start = Start::new(options, address, stop)?;
    let own = admin.as_ref().and_then(|it| it.local_addr().ok());
    info!(%address, admin = own.map(tracing::field::display), "listening");
    if let Some(admin) = admin {
        start.serve_admin(admin);
    }
    Ok(start.run(listener))
}

/// What is made of the options before clients are answered.
struct Start {
    options: GatewayOptions,
    address: SocketAddr,
    proxy: PeerProxy,
    sources: Option<Arc<Sources>>,
    metrics: Registry,
    shared: Arc<Shared>,
    /// Ends everything that has no end of its own.
    life: CancellationToken,
}

impl Start {
    fn new(
        mut options: GatewayOptions,
        address: SocketAddr,
        stop: CancellationToken,
    ) -> Result<Start, GatewayError> {
        let authenticator = Arc::new(Authenticator::load(options.authentication.clone())?);
        let life = CancellationToken::new();
        let metrics = Registry::default();
        let id = own_id(address);
        let proxy = start_proxy(&options, &id, address, &life);
        let sources = options.sources.take().map(Arc::new);
        proxy.register_metrics(&metrics);
        metrics.register_process();
        options.audit_metrics.register(&metrics);
        if let Some(sources) = &sources {
            sources.register_metrics(&metrics);
            sources.judge_by(&proxy);
        }
        let files = files(&options, &authenticator, sources.as_deref());
        follow_files(files, &metrics, life.clone());
        let shared = Arc::new(Shared {
            id,
            authenticator,
            audit: options.audit.clone(),
            rendering: options.rendering.clone(),
            stop,
            loops: loops(&metrics),
            balancer: options.beside.is_none().then(|| proxy.clone()),
            strangers: strangers(&metrics),
        });
        Ok(Start {
            options,
            address,
            proxy,
            sources,
            metrics,
            shared,
            life,
        })
    }

    fn serve_admin(&self, listener: TcpListener) {
        let admin = Admin {
            shared: self.shared.clone(),
            listening: self.address,
            beside: self.options.beside.clone(),
            proxy: self.proxy.clone(),
            metrics: self.metrics.clone(),
            sources: self.sources.clone(),
        };
        let quick = ServerOptions {
            drain_timeout: Duration::from_secs(1),
            ..ServerOptions::default()
        };
        let plain = ServerTls::plain();
        let serving = Server::serve(listener, plain, admin, quick, self.life.clone());
        tokio::spawn(serving);
    }

    fn serve(&self, listener: TcpListener, serving: CancellationToken) -> JoinHandle<Drained> {
        let authorized = authorized(&self.options, &self.proxy);
        authorized.register_metrics(&self.metrics);
        let chain = Chain::new(self.shared.clone(), HttpService::new(authorized));
        let metrics = ServerMetrics::default();
        metrics.register(&self.metrics);
        let options = ServerOptions {
            drain_timeout: self.options.drain,
            h2_max_streams: self.options.max_streams,
            leaving: self.shared.stop.clone(),
            metrics,
            ..ServerOptions::default()
        };
        let tls = self.options.tls.clone();
        tokio::spawn(Server::serve(listener, tls, chain, options, serving))
    }

    fn run(self, listener: TcpListener) -> Running {
        let serving = self.life.child_token();
        let server = self.serve(listener, serving.clone());
        let (proxy, life) = (self.proxy.clone(), self.life.clone());
        let (address, stop) = (self.address, self.shared.stop.clone());
        tokio::spawn(readiness::tell(proxy, address, stop, life));
        let lives = Lives {
            audit: self.options.audit,
            delay: self.options.shutdown_delay,
            serving,
            server,
            _sources: self.sources,
            _end: self.life.drop_guard(),
        };
        Running {
            proxy: self.proxy,
            done: tokio::spawn(lives.until(self.shared.stop.clone())),
        }
    }
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

fn start_proxy(
    options: &GatewayOptions,
    id: &Arc<str>,
    address: SocketAddr,
    life: &CancellationToken,
) -> PeerProxy {
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
            bound: options.bound.clone(),
            family: options.family.clone(),
        }),
        ..ProxyOptions::default()
    };
    let local = follow_address(id.clone(), address, options.records.clone(), life.clone());
    let (_, exclusions) = watch::channel(Arc::new(Exclusions::default()));
    PeerProxy::start(proxy, options.records.clone(), local, exclusions)
}

/// The gateway as a server, whose address follows from where it listens and where its servers are now.
fn follow_address(
    id: Arc<str>,
    bound: SocketAddr,
    mut records: watch::Receiver<Arc<[PeerRecord]>>,
    life: CancellationToken,
) -> watch::Receiver<Arc<LocalApis>> {
    let local = move |records: &[PeerRecord]| LocalApis {
        id: id.clone(),
        documents: None,
        server_address: told_address(bound, records)
            .map(|told| told.to_string().into())
            .unwrap_or_default(),
        is_front: true,
    };
    let (told, follower) = watch::channel(Arc::new(local(&records.borrow_and_update())));
    let follow = async move {
        while records.changed().await.is_ok() {
            let now = local(&records.borrow_and_update());
            told.send_if_modified(|before| {
                let moved = before.server_address != now.server_address;
                if moved {
                    *before = Arc::new(now);
                }
                moved
            });
        }
    };
    tokio::spawn(life.run_until_cancelled_owned(follow));
    follower
}

/// Where legacy discovery says that the server is: never "any address", which leads nowhere. It is then the one that this
/// machine has towards the servers; none while no server's address says which that is.
fn told_address(bound: SocketAddr, servers: &[PeerRecord]) -> Option<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return Some(bound);
    }
    let towards = |server: &PeerRecord| -> Option<SocketAddr> {
        let address = server.address.as_ref()?;
        let host = address.host().trim_matches(['[', ']']).parse().ok()?;
        let target = SocketAddr::new(host, address.port_u16().unwrap_or(443));
        Some(SocketAddr::new(own_address(target)?, bound.port()))
    };
    let ways = servers.iter().filter_map(towards);
    // Clients elsewhere cannot use a loopback address if there is another.
    ways.min_by_key(|it| it.ip().is_loopback())
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

fn strangers(metrics: &Registry) -> Strangers {
    let refused = Counter::default();
    metrics.register(
        "peerage_gateway_client_certificates_refused_total",
        "Requests answered 401 because --client-ca-file does not vouch for the client's certificate",
        refused.clone(),
    );
    Strangers::new(refused)
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
    async fn until(mut self, stop: CancellationToken) -> Result<(), GatewayError> {
        if let Some(ended) = Server::ends_before(&stop, &mut self.server).await {
            error!("the gateway serves no more although nobody told it to stop");
            self.end(ended).await;
            return Err(GatewayError::Broken);
        }
        info!("stopping: no longer ready");
        tokio::time::sleep(self.delay).await;
        info!("stopping: watches end, open requests are waited for");
        self.serving.cancel();
        let ended = (&mut self.server).await;
        self.end(ended).await;
        info!("stopped");
        Ok(())
    }

    /// Everything that follows the end of serving.
    async fn end(&self, ended: Result<Drained, JoinError>) {
        Drained::tell(ended);
        if tokio::time::timeout(LEAVE_WAIT, self.audit.flush())
            .await
            .is_err()
        {
            warn!("the audit log was not written in time: its last events are lost");
        }
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
    use crate::readiness::Unready;

    fn record(address: &str) -> PeerRecord {
        PeerRecord {
            id: address.into(),
            address: Some(address.parse().unwrap()),
            identity_lease: None,
            endpoint_live: true,
            zone: None,
        }
    }

    #[test]
    fn clients_are_told_an_address_that_leads_somewhere() {
        let servers = [record("127.0.0.1:6444"), record("server.example.com:6443")];
        let rows = [
            ("192.0.2.7:6443", &servers[..], Some("192.0.2.7:6443")),
            ("192.0.2.7:6443", &[], Some("192.0.2.7:6443")),
            ("0.0.0.0:6443", &servers, Some("127.0.0.1:6443")),
            ("[::]:6443", &servers, Some("127.0.0.1:6443")),
            ("0.0.0.0:6443", &servers[1..], None),
            ("[::]:6443", &[], None),
        ];
        for (bound, servers, expected) in rows {
            let told = told_address(bound.parse().unwrap(), servers);
            let told = told.map(|it| it.to_string());
            assert_eq!(told.as_deref(), expected, "{bound}");
        }
    }

    #[tokio::test]
    async fn an_address_that_only_later_servers_show_is_told_then() {
        let (sources, records) = watch::channel(Arc::from([record("cp.example:6443")]));
        let bound = "0.0.0.0:6443".parse().unwrap();
        let life = CancellationToken::new();
        let mut local = follow_address("gateway".into(), bound, records, life.clone());
        assert_eq!(&*local.borrow_and_update().server_address, "");
        sources.send_replace(Arc::from([record("127.0.0.1:6444")]));
        let told = local.wait_for(|it| !it.server_address.is_empty());
        let told = tokio::time::timeout(Duration::from_secs(5), told).await;
        assert_eq!(&*told.unwrap().unwrap().server_address, "127.0.0.1:6443");
        life.cancel();
    }

    fn lives(server: JoinHandle<Drained>) -> Lives {
        let life = CancellationToken::new();
        Lives {
            audit: AuditLog::off(),
            delay: Duration::ZERO,
            serving: life.child_token(),
            server,
            _sources: None,
            _end: life.drop_guard(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_whose_server_ends_by_itself_ends_too() {
        let stop = CancellationToken::new();
        let broken = tokio::spawn(async { panic!("on purpose") });
        let ended = tokio::spawn(async { Drained::Whole });
        for server in [broken, ended] {
            let until = lives(server).until(stop.clone());
            let until = tokio::time::timeout(Duration::from_secs(60), until).await;
            let error = until.expect("it does not go on without a server");
            assert!(matches!(error, Err(GatewayError::Broken)), "{error:?}");
        }
        let told_to = lives(tokio::spawn(async { Drained::Cut(1) }));
        stop.cancel();
        assert!(told_to.until(stop).await.is_ok());
    }

    #[tokio::test]
    async fn nobody_waits_for_readiness_when_the_gateway_has_ended() {
        let life = CancellationToken::new();
        let (_sources, records) = watch::channel(Arc::from([record("127.0.0.1:9")]));
        let address = "127.0.0.1:6443".parse().unwrap();
        let local = follow_address("gateway".into(), address, records.clone(), life.clone());
        let (_, exclusions) = watch::channel(Arc::new(Exclusions::default()));
        let proxy = PeerProxy::start(ProxyOptions::default(), records, local, exclusions);
        assert!(!proxy.view().synced());
        assert_eq!(Unready::of(&life, &proxy), Some(Unready::Unheard));
        life.cancel();
        let stop = CancellationToken::new();
        let waiting = readiness::tell(proxy.clone(), address, stop, life);
        let waited = tokio::time::timeout(Duration::ZERO, waiting).await;
        assert!(waited.is_ok(), "it holds the proxy for ever");
    }
}
