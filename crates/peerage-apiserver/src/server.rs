//! From options to a running server, and back: what starts in which order, and what stops in which.
//!
//! Start: the store is read, what a fresh cluster has is written, peers are heard; then `/readyz` is green and the
//! endpoint key tells the peers. Stop: `/readyz` is red and the endpoint key is gone first, so that balancers and
//! peers look elsewhere while requests are still taken; then watches end, open requests are waited for, and the
//! rest is cut off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peerage_auth::audit::{AuditError, AuditLog, AuditOptions, Rotation};
use peerage_auth::{
    AuthSetupError, Authenticator, AuthenticatorOptions, RequestHeaderOptions, TokenKeyError,
    TokenKeys,
};
use peerage_catalogue::{Catalogue, CatalogueError};
use peerage_core::{Exclusions, PeerView};
use peerage_http::metrics::Registry as Metrics;
use peerage_http::server::{Drained, ServerMetrics};
use peerage_http::tls::{ClientTlsOptions, ServerTlsOptions};
use peerage_http::{ClientTls, HttpService, Pem, Server, ServerOptions, ServerTls, TlsError};
use peerage_proxy::{PeerProxy, ProxyOptions};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;
use tracing::{info, warn};

use crate::api::Api;
use crate::authz::{Authorizer, RbacKinds};
use crate::cache::Cache;
use crate::chain::{Chain, Inflight, Shared};
use crate::event_leases::EventLeases;
use crate::health::Health;
use crate::local::{Issuer, Local, Process};
use crate::loopback::Loopback;
use crate::metrics::{self, RequestMetrics};
use crate::openapi::OpenApi;
use crate::options::{Options, Peers, RequestHeader};
use crate::registry::{ENDPOINTS, Identity, Registry, server_id};
use crate::resources::Resources;
use crate::{bootstrap, controllers, discovery};

/// How often certificate and token files are looked at.
const RELOAD: Duration = Duration::from_secs(1);
/// The minor version from which on `/statusz` and `/flagz` are there.
const PAGES_SINCE: u32 = 37;
/// The minor version from which on impersonation can be constrained.
const CONSTRAINED_SINCE: u32 = 36;
/// How long a start waits for the peers to be heard once.
const PEERS_WAIT: Duration = Duration::from_secs(10);
/// How long a stop waits for the store to take the farewell.
const LEAVE_WAIT: Duration = Duration::from_secs(5);

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The version or the runtime configuration.
    #[error("cannot serve that version")]
    Catalogue(#[from] CatalogueError),
    /// The address.
    #[error(
        "cannot listen on {address}; is another server running there? (--bind-address, --secure-port)"
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
}

/// A server that runs.
pub struct Running {
    address: SocketAddr,
    proxy: PeerProxy,
    stop: CancellationToken,
    done: JoinHandle<()>,
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
    pub async fn stop(self) {
        self.stop.cancel();
        self.wait().await;
    }

    /// Returns when the server has ended.
    pub async fn wait(self) {
        if let Err(error) = self.done.await {
            warn!(%error, "the server ended badly");
        }
    }
}

/// Runs a server until `stop`.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), RunError> {
    start(options, stop).await?.wait().await;
    Ok(())
}

/// Starts a server; it is ready to answer when this returns. It stops with `stop`.
pub async fn start(options: Options, stop: CancellationToken) -> Result<Running, RunError> {
    let catalogue = Arc::new(Catalogue::load(&options.version, &options.runtime_config)?);
    let listener = listen(options.serving.bind).await?;
    let bound = listener.local_addr().map_err(|source| RunError::Listen {
        address: options.serving.bind,
        source,
    })?;
    let identity = identity(&options, bound)?;
    let tls = serving_tls(&options)?;
    let authenticator = Arc::new(Authenticator::load(authentication(&options))?);
    let peer_tls = peer_tls(&options.peers)?;
    let issuer = issuer(&options, identity.address)?;
    let counts = Metrics::default();
    let audit = audit_log(&options, &counts)?;

    let root = options.key_prefix.as_str();
    let cache = Cache::start(
        options.store.clone(),
        &format!("{root}/"),
        prefixes(&catalogue, root),
        stop.clone(),
    );
    info!(store = root, "reading the store");
    cache.ready().await;
    bootstrap::ensure(&*options.store, &catalogue, root).await;

    let registry = Arc::new(Registry::new(options.store.clone(), root, identity.clone()));
    let records = registry.follow(&cache, root);
    let local = Arc::new(discovery::local(
        &catalogue,
        &identity.id,
        &identity.address.to_string(),
    ));
    let proxy_options = ProxyOptions {
        tls: peer_tls.clone(),
        hold: options.peers.hold,
        name_peer_to_all: options.peers.show_peer,
        ..ProxyOptions::default()
    };
    let proxy = PeerProxy::start(
        proxy_options,
        records,
        constant(local),
        constant(Arc::new(Exclusions::default())),
    );

    let health = Arc::new(Health::default());
    proxy.register_metrics(&counts);
    metrics::register_features(&counts, options.peers.enabled);
    let server_metrics = ServerMetrics::default();
    server_metrics.register(&counts);
    let resources = Resources::new(&catalogue, root, &cache);
    let authorizer = Arc::new(Authorizer::new(
        options.authorization,
        rbac_kinds(&cache, root),
    ));
    let api = Arc::new(Api {
        catalogue: catalogue.clone(),
        resources,
        cache,
        store: options.store.clone(),
        authenticator: authenticator.clone(),
        authorizer: authorizer.clone(),
        health: health.clone(),
        metrics: counts.clone(),
        openapi: OpenApi::new(catalogue.clone(), issuer.is_some()),
        proxy: proxy.clone(),
        process: Process::new(options.flags()),
        serves_pages: minor_of(&options.version) >= PAGES_SINCE,
        issuer,
        limits: options.limits,
        event_leases: EventLeases::new(options.event_ttl),
        stopping: CancellationToken::new(),
    });
    let inner = HttpService::new(proxy.layer().layer(Local::new(api.clone())));
    let reloads = [
        tls.reloads(),
        authenticator.reloads(),
        peer_tls.map(|t| t.reloads()).unwrap_or_default(),
    ]
    .concat();
    tokio::spawn(peerage_http::reload::watch(
        reloads,
        RELOAD,
        stop.clone(),
        |_, _| {},
    ));
    let shared = Arc::new(Shared {
        authenticator,
        authorizer,
        audit,
        inflight: Inflight::new(options.limits.reads, options.limits.writes),
        metrics: RequestMetrics::new(&counts),
        request_timeout: options.limits.request_timeout,
        constrained_impersonation: minor_of(&options.version) >= CONSTRAINED_SINCE,
    });
    let chain = Chain::new(shared, inner.clone());
    controllers::start(
        &options.controllers,
        &api,
        &Loopback::new(inner),
        &identity.id,
        &stop,
    );

    let serving = CancellationToken::new();
    let server_options = ServerOptions {
        max_connections: options.limits.connections,
        drain_timeout: options.drain,
        metrics: server_metrics,
        ..ServerOptions::default()
    };
    let server = tokio::spawn(Server::serve(
        listener,
        tls,
        chain,
        server_options,
        serving.clone(),
    ));
    become_ready(&proxy, &health).await;
    info!(address = %bound, version = options.version, id = &*identity.id, "ready");
    let lives = Lives {
        registry,
        health,
        api,
        serving,
        server,
        delay: options.shutdown_delay,
        peers: options.peers.enabled,
    };
    let done = tokio::spawn(lives.until(stop.clone()));
    Ok(Running {
        address: bound,
        proxy,
        stop,
        done,
    })
}

/// What ends in order.
struct Lives {
    registry: Arc<Registry>,
    health: Arc<Health>,
    api: Arc<Api>,
    serving: CancellationToken,
    server: JoinHandle<Drained>,
    delay: Duration,
    /// Whether this server tells others where it is.
    peers: bool,
}

impl Lives {
    async fn until(self, stop: CancellationToken) {
        let renewals = CancellationToken::new();
        let mut renewing = Vec::new();
        let (registry, end) = (self.registry.clone(), renewals.clone());
        renewing.push(tokio::spawn(
            async move { registry.keep_identity(end).await },
        ));
        if self.peers {
            let (registry, end) = (self.registry.clone(), renewals.clone());
            renewing.push(tokio::spawn(
                async move { registry.keep_endpoint(end).await },
            ));
        }
        stop.cancelled().await;
        info!("stopping: no longer ready");
        self.health.stop();
        renewals.cancel();
        for task in renewing {
            // A renewal under way would bring the key back after the farewell.
            let _ = tokio::time::timeout(LEAVE_WAIT, task).await;
        }
        match tokio::time::timeout(LEAVE_WAIT, self.registry.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "could not say goodbye to the peers"),
            Err(_) => warn!("the store did not take the farewell in time"),
        }
        tokio::time::sleep(self.delay).await;
        self.api.stopping.cancel();
        self.serving.cancel();
        let _ = self.server.await;
        info!("stopped");
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| RunError::Listen { address, source })
}

fn identity(options: &Options, bound: SocketAddr) -> Result<Identity, RunError> {
    let hostname = match &options.peers.hostname {
        Some(name) => name.clone(),
        None => gethostname::gethostname()
            .into_string()
            .map_err(|_| RunError::Hostname)?,
    };
    let own = SocketAddr::new(
        options.serving.advertise.unwrap_or(bound.ip()),
        bound.port(),
    );
    Ok(Identity {
        id: server_id(&hostname).into(),
        hostname,
        address: options.peers.advertise.unwrap_or(own),
        hold: options.peers.hold,
    })
}

/// Waits, within bounds, until every peer known at the start has been heard once.
async fn become_ready(proxy: &PeerProxy, health: &Health) {
    health.store.set(true);
    health.cache.set(true);
    health.bootstrap.set(true);
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
    health.peers.set(true);
}

/// Every prefix that the cache keeps: the kinds of the catalogue, and the peers' endpoint keys.
fn prefixes(
    catalogue: &Catalogue,
    root: &str,
) -> impl Iterator<Item = (String, Option<Arc<peerage_catalogue::Resource>>)> + use<> {
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

fn serving_tls(options: &Options) -> Result<ServerTls, TlsError> {
    let serving = &options.serving;
    let mut tls = ServerTlsOptions::new(Pem::file(&serving.certificate), Pem::file(&serving.key));
    let authentication = &options.authentication;
    tls.client_cas
        .extend(authentication.client_ca.iter().map(Pem::file));
    tls.client_cas.extend(
        authentication
            .request_header
            .iter()
            .map(|r| Pem::file(&r.client_ca)),
    );
    ServerTls::load(tls)
}

/// Whose token keys are published, if somebody's are. Only an https URL can be discovered.
fn issuer(options: &Options, address: SocketAddr) -> Result<Option<Issuer>, RunError> {
    let Some(given) = &options.service_accounts else {
        return Ok(None);
    };
    let keys = TokenKeys::load(&given.keys)?;
    if !given.issuer.starts_with("https://") {
        warn!(
            issuer = given.issuer,
            "the issuer of service account tokens is no https URL; its keys are not published"
        );
        return Ok(None);
    }
    Ok(Some(Issuer {
        issuer: given.issuer.clone(),
        jwks_uri: given
            .jwks_uri
            .clone()
            .unwrap_or_else(|| format!("https://{address}/openid/v1/jwks")),
        keys,
    }))
}

/// The minor version of `1.MINOR`.
fn minor_of(version: &str) -> u32 {
    let minor = version.split('.').nth(1);
    minor.and_then(|m| m.parse().ok()).unwrap_or_default()
}

fn peer_tls(peers: &Peers) -> Result<Option<ClientTls>, TlsError> {
    let (true, Some(ca), Some((certificate, key))) = (peers.enabled, &peers.ca, &peers.client)
    else {
        return Ok(None);
    };
    let mut tls = ClientTlsOptions::new(Pem::file(ca));
    tls.identity = Some((Pem::file(certificate), Pem::file(key)));
    tls.server_name = peers.server_name.clone();
    ClientTls::load(tls).map(Some)
}

fn authentication(options: &Options) -> AuthenticatorOptions {
    let authentication = &options.authentication;
    AuthenticatorOptions {
        client_ca: authentication.client_ca.as_ref().map(Pem::file),
        request_header: authentication.request_header.as_ref().map(request_header),
        token_file: authentication.token_file.clone(),
        anonymous: authentication.anonymous,
    }
}

fn request_header(given: &RequestHeader) -> RequestHeaderOptions {
    RequestHeaderOptions {
        client_ca: Pem::file(&given.client_ca),
        allowed_names: given.allowed_names.clone(),
        username_headers: given.username_headers.clone(),
        uid_headers: given.uid_headers.clone(),
        group_headers: given.group_headers.clone(),
        extra_header_prefixes: given.extra_prefixes.clone(),
    }
}

/// Records nothing without a policy.
fn audit_log(options: &Options, counts: &Metrics) -> Result<AuditLog, AuditError> {
    let given = &options.audit;
    let Some(policy) = &given.policy else {
        return Ok(AuditLog::off());
    };
    let mut audit = AuditOptions::new(policy.clone());
    audit.path = given.path.clone();
    audit.rotation = Rotation {
        // As in kube-apiserver, no bound is the default one.
        max_bytes: match given.max_size {
            0 => Rotation::default().max_bytes,
            megabytes => megabytes << 20,
        },
        max_age_days: given.max_age,
        max_backups: given.max_backup as usize,
    };
    audit.metrics.register(counts);
    AuditLog::open(audit)
}

/// A value that does not change.
fn constant<T>(value: T) -> watch::Receiver<T> {
    watch::channel(value).1
}
