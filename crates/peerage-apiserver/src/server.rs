//! From options to a running server, and back: what starts in which order, and what stops in which.
//!
//! Start: the store is waited for and read, what a fresh cluster has is written, peers are heard; then `/readyz` is
//! green and the endpoint key tells the peers. Stop: `/readyz` is red and the endpoint key is gone first, so that
//! balancers and peers look elsewhere while requests are still taken; then watches end, open requests are waited
//! for, and the rest is cut off. The cache follows the store until the last request has been answered.
//!
//! Invariants: a start that is told to stop stops, whatever it waits for; a stop ends in bounded time, whether the
//! store is there or not.

mod settings;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peerage_auth::audit::{AuditError, AuditLog};
use peerage_auth::{AuthSetupError, Authenticator, TokenKeyError};
use peerage_catalogue::{Catalogue, CatalogueError};
use peerage_core::PeerView;
use peerage_http::metrics::Registry as Metrics;
use peerage_http::reload::ReloadMetrics;
use peerage_http::server::{Drained, ServerMetrics, why_not_bound};
use peerage_http::{ClientTls, HttpService, Server, ServerOptions, ServerTls, TlsError};
use peerage_proxy::{PeerProxy, ProxyOptions};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tower::Layer as _;
use tracing::{error, info, warn};

use crate::api::Api;
use crate::authz::{Authorizer, RbacKinds};
use crate::backing::Backing;
use crate::bootstrap::service::ServiceAddresses;
use crate::bootstrap::{Bootstrap, Facts};
use crate::cache::{Cache, Stored};
use crate::chain::{Chain, Inflight, Shared};
use crate::event_leases::EventLeases;
use crate::health::Health;
use crate::local::{Issuer, Local, Process};
use crate::loopback::Loopback;
use crate::metrics::{self, RequestMetrics};
use crate::openapi::OpenApi;
use crate::openapi::protobuf::V2Protobuf;
use crate::options::Options;
use crate::registry::{ENDPOINTS, Identity, Registry};
use crate::resources::Resources;
use crate::{compaction, controllers, discovery, exclusions, registry};

/// How often certificate and token files are looked at.
const RELOAD: Duration = Duration::from_secs(1);
/// The minor version from which on `/statusz` and `/flagz` are there.
const PAGES_SINCE: u32 = 37;
/// The minor version from which on impersonation can be constrained.
const CONSTRAINED_SINCE: u32 = 36;
/// Pause before a store that did not answer is asked again.
const STORE_PAUSE: Duration = Duration::from_millis(100);
/// How long a start waits for the peers to be heard once.
const PEERS_WAIT: Duration = Duration::from_secs(10);
/// How long a stop waits for controllers to end and for the store to take the farewell.
const LEAVE_WAIT: Duration = Duration::from_secs(5);

/// The server could not start, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The version or the runtime configuration.
    #[error("cannot serve that version")]
    Catalogue(#[from] CatalogueError),
    /// The address.
    #[error(
        "cannot listen on {address} (--bind-address, --secure-port){}",
        why_not_bound(source)
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A certificate, key or CA file.
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
    /// A client CA or token file.
    #[error("cannot set up authentication")]
    Authentication(#[from] AuthSetupError),
    /// The audit log.
    #[error("cannot open the audit log (--audit-log-path)")]
    Audit(#[from] AuditError),
    /// The keys of service account tokens.
    #[error("cannot publish the keys of service account tokens")]
    TokenKeys(#[from] TokenKeyError),
    /// The host name.
    #[error("cannot tell this host's name; give one with --hostname-override")]
    Hostname,
    /// Another server has the same name, and so the same identity.
    #[error(
        "a server at {other} has this server's identity {id}, which is made of the host name {hostname:?}; give one of them another name with --hostname-override"
    )]
    SameIdentity {
        /// The server ID that both have.
        id: Arc<str>,
        /// The host name that it is made of.
        hostname: String,
        /// Where the other one is.
        other: String,
    },
    /// It was told to stop while it was starting.
    #[error("told to stop before it was ready")]
    Stopped,
    /// It ran, and ended although nobody told it to.
    #[error("the server stopped serving by itself; the log says why")]
    Broken,
}

/// A server that runs.
pub struct Running {
    address: SocketAddr,
    proxy: PeerProxy,
    stop: CancellationToken,
    done: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it knows of its peers.
    pub fn view(&self) -> Arc<PeerView> {
        self.proxy.view()
    }

    /// Reads all peers anew.
    pub fn refresh(&self) {
        self.proxy.refresh();
    }

    /// Stops in good order and returns when everything has ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // What went wrong is in the log; there is nothing left to be done about it.
        let _ = self.wait().await;
    }

    /// Returns when the server has ended; to be called until then, and no more afterwards.
    ///
    /// # Errors
    /// [`RunError::Broken`] if it ended although nobody told it to.
    pub async fn wait(&mut self) -> Result<(), RunError> {
        match (&mut self.done).await {
            Ok(ended) => ended,
            Err(error) => {
                warn!(%error, "the server ended badly");
                Err(RunError::Broken)
            }
        }
    }
}

/// Runs a server until `stop`.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), RunError> {
    match start(options, stop).await {
        Ok(mut running) => running.wait().await,
        Err(RunError::Stopped) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Starts a server; it is ready to answer when this returns. It stops with `stop`, also while it is starting.
pub async fn start(options: Options, stop: CancellationToken) -> Result<Running, RunError> {
    let stopped = stop.clone();
    tokio::select! {
        biased;
        running = Start::new(options)?.run(stop) => running,
        () = stopped.cancelled() => Err(RunError::Stopped),
    }
}

/// What is made of the options before the store is needed.
struct Start {
    options: Options,
    catalogue: Arc<Catalogue>,
    authenticator: Arc<Authenticator>,
    tls: ServerTls,
    peer_tls: Option<ClientTls>,
    audit: AuditLog,
    counts: Metrics,
    health: Arc<Health>,
    store: Arc<Backing>,
    /// Ends everything that has no end of its own, also when the start fails.
    life: CancellationToken,
    end: DropGuard,
}

impl Start {
    fn new(mut options: Options) -> Result<Self, RunError> {
        let catalogue = Arc::new(Catalogue::load(&options.version, &options.runtime_config)?);
        let counts = Metrics::default();
        let store = Arc::new(Backing::new(
            options.store.clone(),
            &options.key_prefix,
            options.limits.request_timeout,
            &counts,
        ));
        options.store = store.clone();
        let life = CancellationToken::new();
        Ok(Self {
            authenticator: Arc::new(Authenticator::load(settings::authentication(&options))?),
            tls: settings::serving_tls(&options)?,
            peer_tls: settings::peer_tls(&options.peers)?,
            audit: settings::audit_log(&options, &counts)?,
            health: Arc::default(),
            end: life.clone().drop_guard(),
            life,
            options,
            catalogue,
            counts,
            store,
        })
    }

    async fn run(self, stop: CancellationToken) -> Result<Running, RunError> {
        let listener = listen(self.options.serving.bind).await?;
        let bound = listener.local_addr().map_err(|source| RunError::Listen {
            address: self.options.serving.bind,
            source,
        })?;
        let identity = settings::identity(&self.options, bound)?;
        let issuer = settings::issuer(&self.options, identity.address)?;
        let cache = self.read_store().await;
        let registry = Registry::new(self.options.store.clone(), self.root(), identity.clone());
        let registry = Arc::new(registry);
        if let Some(other) = registry.find_double(&cache).await {
            return Err(RunError::SameIdentity {
                id: identity.id,
                hostname: identity.hostname,
                other,
            });
        }
        self.ensure_bootstrap(&cache, &registry, bound).await;
        let proxy = self.start_proxy(&registry, &cache, &identity);
        let api = self.api(cache, &proxy, issuer);
        let inner = HttpService::new(V2Protobuf::new(
            proxy.layer().layer(Local::new(api.clone())),
        ));
        // Ends what writes for this server: with `stop`, and when serving ends without it.
        let leaving = stop.child_token();
        let controllers = controllers::start(
            &self.options.controllers,
            &api,
            &Loopback::new(inner.clone()),
            &identity.id,
            &leaving,
        );
        let serving = self.life.child_token();
        let server = self.serve(listener, &api, inner, &stop, serving.clone());
        self.become_ready(&proxy).await;
        let version = &*self.options.version;
        info!(address = %bound, version, id = &*identity.id, "ready");
        let lives = Lives {
            registry,
            health: self.health,
            api,
            controllers,
            leaving,
            serving,
            server,
            audit: self.audit,
            delay: self.options.shutdown_delay,
            life: self.life,
            _end: self.end,
        };
        let done = tokio::spawn(lives.until(stop.clone()));
        Ok(Running {
            address: bound,
            proxy,
            stop,
            done,
        })
    }

    fn root(&self) -> &str {
        &self.options.key_prefix
    }

    /// Waits for the store, and for the cache to hold what it has.
    async fn read_store(&self) -> Arc<Cache> {
        let root = self.root();
        let cache = Cache::start(
            self.options.store.clone(),
            &format!("{root}/"),
            prefixes(&self.catalogue, root),
            self.store.limit(),
            self.life.clone(),
        );
        info!(store = root, "reading the store");
        self.store.await_with_progress(cache.ready()).await;
        warn_of_unreadable(&cache);
        self.health.store.set(true);
        self.health.cache.set(true);
        let (health, life) = (self.health.clone(), self.life.clone());
        tokio::spawn(self.store.clone().probe(health, life));
        if let Some(interval) = self.options.compaction_interval {
            let (store, life) = (self.store.clone(), self.life.clone());
            tokio::spawn(async move { compaction::keep(&*store, interval, &life).await });
        }
        cache
    }

    /// Writes what a fresh cluster has, and keeps where its `kubernetes` Service leads.
    async fn ensure_bootstrap(&self, cache: &Arc<Cache>, registry: &Registry, bound: SocketAddr) {
        let (options, root) = (&self.options, self.root());
        let ip = options.serving.advertise.unwrap_or(bound.ip());
        let own = SocketAddr::new(settings::reachable(ip), bound.port());
        let bootstrap = Bootstrap {
            store: &*options.store,
            cache,
            catalogue: &self.catalogue,
            root,
            facts: &Facts::new(options, bound.port()),
        };
        let there = async {
            bootstrap.ensure().await;
            // Who asks first must not be refused because his role is not in the cache yet.
            while cache.fresh().await.is_err() {
                tokio::time::sleep(STORE_PAUSE).await;
            }
        };
        self.store.await_with_progress(there).await;
        self.health.bootstrap.set(true);
        let addresses = ServiceAddresses {
            store: options.store.clone(),
            cache: cache.clone(),
            catalogue: self.catalogue.clone(),
            root: root.to_owned(),
            own,
            endpoints: registry.endpoints(cache),
            read: registry::addresses,
        };
        tokio::spawn(addresses.keep(self.life.clone()));
    }

    fn start_proxy(
        &self,
        registry: &Arc<Registry>,
        cache: &Arc<Cache>,
        identity: &Identity,
    ) -> PeerProxy {
        let (id, address) = (&identity.id, identity.address.to_string());
        let local = Arc::new(discovery::local(&self.catalogue, id, &address));
        let peers = &self.options.peers;
        let options = ProxyOptions {
            tls: self.peer_tls.clone(),
            hold: peers.hold,
            name_peer_to_all: peers.show_peer,
            ..ProxyOptions::default()
        };
        let proxy = PeerProxy::start(
            options,
            registry.follow(cache),
            constant(local),
            exclusions::follow(cache, self.root()),
        );
        proxy.register_metrics(&self.counts);
        metrics::register_features(&self.counts, peers.enabled);
        proxy
    }

    fn api(&self, cache: Arc<Cache>, proxy: &PeerProxy, issuer: Option<Issuer>) -> Arc<Api> {
        let (options, root) = (&self.options, self.root());
        let kinds = rbac_kinds(&cache, root);
        Arc::new(Api {
            catalogue: self.catalogue.clone(),
            resources: Resources::new(&self.catalogue, root, &cache),
            cache,
            store: options.store.clone(),
            authenticator: self.authenticator.clone(),
            authorizer: Arc::new(Authorizer::new(options.authorization, kinds)),
            health: self.health.clone(),
            metrics: self.counts.clone(),
            openapi: OpenApi::new(self.catalogue.clone(), issuer.is_some()),
            proxy: proxy.clone(),
            process: Process::new(options.flags()),
            serves_pages: minor_of(&options.version) >= PAGES_SINCE,
            issuer,
            limits: options.limits,
            event_leases: EventLeases::new(options.event_ttl),
            stopping: CancellationToken::new(),
        })
    }

    fn serve(
        &self,
        listener: TcpListener,
        api: &Api,
        inner: HttpService,
        stop: &CancellationToken,
        serving: CancellationToken,
    ) -> JoinHandle<Drained> {
        let options = &self.options;
        self.counts.register_process();
        self.reload_files();
        let server_metrics = ServerMetrics::default();
        server_metrics.register(&self.counts);
        let shared = Arc::new(Shared {
            authenticator: self.authenticator.clone(),
            authorizer: api.authorizer.clone(),
            audit: self.audit.clone(),
            inflight: Inflight::new(options.limits.reads, options.limits.writes),
            metrics: RequestMetrics::new(&self.counts),
            request_timeout: options.limits.request_timeout,
            constrained_impersonation: minor_of(&options.version) >= CONSTRAINED_SINCE,
        });
        let server_options = ServerOptions {
            max_connections: options.limits.connections,
            drain_timeout: options.drain,
            leaving: stop.clone(),
            metrics: server_metrics,
            ..ServerOptions::default()
        };
        let chain = Chain::new(shared, inner);
        tokio::spawn(Server::serve(
            listener,
            self.tls.clone(),
            chain,
            server_options,
            serving,
        ))
    }

    /// Follows certificate, CA and token files.
    fn reload_files(&self) {
        let peers = self.peer_tls.as_ref().map(ClientTls::reloads);
        let files = [
            self.tls.reloads(),
            self.authenticator.reloads(),
            peers.unwrap_or_default(),
        ];
        let counts = ReloadMetrics::new(&self.counts);
        let report = move |what: &str, outcome: &_| counts.record(what, outcome);
        let watch = peerage_http::reload::watch(files.concat(), RELOAD, self.life.clone(), report);
        tokio::spawn(watch);
    }

    /// Waits, within bounds, until every peer known at the start has been heard once.
    async fn become_ready(&self, proxy: &PeerProxy) {
        let mut views = proxy.views();
        let synced = async {
            while !proxy.view().synced() {
                if views.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(PEERS_WAIT, synced).await.is_err() {
            warn!(
                "not all peers have answered yet; what only they may have is answered with 503 until they do"
            );
        }
        self.health.peers.set(true);
    }
}

/// What ends in order.
struct Lives {
    registry: Arc<Registry>,
    health: Arc<Health>,
    api: Arc<Api>,
    controllers: TaskTracker,
    leaving: CancellationToken,
    serving: CancellationToken,
    server: JoinHandle<Drained>,
    audit: AuditLog,
    delay: Duration,
    life: CancellationToken,
    _end: DropGuard,
}

impl Lives {
    async fn until(mut self, stop: CancellationToken) -> Result<(), RunError> {
        let renewals = self.renew();
        let broken = Server::ends_before(&stop, &mut self.server).await;
        info!("stopping: no longer ready");
        self.health.stop();
        self.leaving.cancel();
        if let Some(ended) = broken {
            error!("the server serves no more although nobody told it to stop");
            self.say_goodbye(renewals).await;
            self.end(ended).await;
            return Err(RunError::Broken);
        }
        // Balancers and peers need the delay to look elsewhere; it begins at once.
        tokio::join!(self.say_goodbye(renewals), tokio::time::sleep(self.delay));
        info!("stopping: watches end, open requests are waited for");
        self.api.stopping.cancel();
        self.serving.cancel();
        let ended = (&mut self.server).await;
        self.end(ended).await;
        info!("stopped");
        Ok(())
    }

    fn renew(&self) -> TaskTracker {
        let leaving = &self.leaving;
        let renewals = TaskTracker::new();
        let (registry, cache) = (&self.registry, self.api.cache.clone());
        renewals.spawn(registry.clone().keep_identity(leaving.clone()));
        renewals.spawn(registry.clone().keep_endpoint(leaving.clone()));
        renewals.spawn(registry.clone().collect(cache, leaving.clone()));
        renewals.close();
        renewals
    }

    /// Everything that follows the end of serving.
    async fn end(&self, ended: Result<Drained, JoinError>) {
        Drained::tell(ended);
        self.life.cancel();
        if tokio::time::timeout(LEAVE_WAIT, self.audit.flush())
            .await
            .is_err()
        {
            warn!("the audit log was not written in time: its last events are lost");
        }
    }

    async fn say_goodbye(&self, renewals: TaskTracker) {
        let goodbye = async {
            self.controllers.wait().await;
            // A renewal under way would bring the key back after the farewell.
            renewals.wait().await;
            self.registry.leave().await
        };
        match tokio::time::timeout(LEAVE_WAIT, goodbye).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "could not say goodbye to the peers"),
            Err(_) => warn!("the store did not take the farewell in time"),
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| RunError::Listen { address, source })
}

/// Says what of the store cannot be served, before a client runs into it.
fn warn_of_unreadable(cache: &Cache) {
    for (prefix, objects, first) in cache.unreadable() {
        warn!(
            prefix,
            objects,
            example = &*first.name,
            reason = first.unreadable().unwrap_or_default(),
            "objects of the store cannot be read here: they are left as they are, and lists with them fail; let kube-apiservers store JSON (--storage-media-type=application/json) and rewrite the objects"
        );
    }
}

/// Every prefix that the cache keeps: the kinds of the catalogue, and the peers' endpoint keys.
fn prefixes(
    catalogue: &Arc<Catalogue>,
    root: &str,
) -> impl Iterator<Item = (String, Option<Arc<Stored>>)> + use<> {
    let kinds = Resources::prefixes(catalogue, root)
        .into_iter()
        .map(|(prefix, stored)| (prefix, Some(stored)));
    kinds.chain([(format!("{root}/{ENDPOINTS}/"), None)])
}

fn rbac_kinds(cache: &Cache, root: &str) -> RbacKinds {
    let kind = |name: &str| {
        cache
            .kind(&format!("{root}/{name}/"))
            .cloned()
            .unwrap_or_default()
    };
    RbacKinds {
        cluster_roles: kind("clusterroles"),
        roles: kind("roles"),
        cluster_role_bindings: kind("clusterrolebindings"),
        role_bindings: kind("rolebindings"),
    }
}

/// The minor version of `1.MINOR`.
fn minor_of(version: &str) -> u32 {
    let minor = version.split('.').nth(1);
    minor.and_then(|m| m.parse().ok()).unwrap_or_default()
}

/// A value that does not change.
fn constant<T>(value: T) -> watch::Receiver<T> {
    watch::channel(value).1
}
