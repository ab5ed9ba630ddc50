//! An API server in this process, on memory, with certificates of its own.
//!
//! Faster to start than a process, and as a client sees it the same. What needs a process (signals, several servers
//! that really die) is tested with the executable.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peerage_apiserver::Options;
use peerage_apiserver::options::{
    Audit, Authentication, AuthorizationMode, Controller, Limits, Peers, RequestHeader,
    ServiceAccounts, Serving,
};
use peerage_store::Store;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::pki::{Pki, SERVER_NAME};

/// A server that runs until it is dropped.
pub struct TestServer {
    address: SocketAddr,
    pki: Pki,
    stop: CancellationToken,
    _directory: TempDir,
}

/// What differs between the servers of tests.
#[derive(Clone)]
pub struct TestServerOptions {
    /// The Kubernetes version served.
    pub version: String,
    /// Where objects are kept.
    pub store: Arc<dyn Store>,
    /// What runs beside.
    pub controllers: Vec<Controller>,
    /// Bounds on clients.
    pub limits: Limits,
}

impl TestServerOptions {
    /// `version` on an empty store in memory, without controllers.
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            store: Arc::new(peerage_store::memory::MemoryStore::new()),
            controllers: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl TestServer {
    /// Starts one; it is ready when this returns.
    pub async fn start(options: TestServerOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::create(directory.path());
        let stop = CancellationToken::new();
        let running = peerage_apiserver::start(apiserver(options, &pki), stop.clone())
            .await
            .unwrap();
        Self {
            address: running.address(),
            pki,
            stop,
            _directory: directory,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its certificates and its users'.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn apiserver(options: TestServerOptions, pki: &Pki) -> Options {
    Options {
        version: options.version,
        runtime_config: Default::default(),
        store: options.store,
        key_prefix: "/registry".to_owned(),
        serving: Serving {
            bind: ([127, 0, 0, 1], 0).into(),
            certificate: pki.file("server.crt"),
            key: pki.file("server.key"),
            advertise: None,
        },
        authentication: Authentication {
            client_ca: Some(pki.file("ca.crt")),
            request_header: Some(front_proxy(pki)),
            token_file: None,
            anonymous: true,
        },
        service_accounts: Some(ServiceAccounts {
            issuer: "https://kubernetes.default.svc".to_owned(),
            keys: vec![pki.file("sa.pub")],
            jwks_uri: None,
        }),
        authorization: AuthorizationMode::Rbac,
        audit: Audit::default(),
        peers: Peers {
            enabled: true,
            ca: None,
            client: None,
            advertise: None,
            hostname: Some("test".to_owned()),
            hold: Duration::from_secs(600),
            server_name: SERVER_NAME.to_owned(),
            show_peer: false,
        },
        limits: options.limits,
        controllers: options.controllers,
        service_cluster_ip_range: Some("10.0.0.0/24".to_owned()),
        shutdown_delay: Duration::ZERO,
        drain: Duration::from_secs(1),
        event_ttl: Duration::from_secs(3600),
        compaction_interval: None,
    }
}

fn front_proxy(pki: &Pki) -> RequestHeader {
    let names = |name: &str| vec![name.to_owned()];
    RequestHeader {
        client_ca: pki.file("front-proxy-ca.crt"),
        allowed_names: names("front-proxy-client"),
        username_headers: names("X-Remote-User"),
        group_headers: names("X-Remote-Group"),
        uid_headers: names("X-Remote-Uid"),
        extra_prefixes: names("X-Remote-Extra-"),
    }
}
