//! Servers in this process, over a store that can be switched off.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use peerage_apiserver::options::{
    Audit, Authentication, AuthorizationMode, Controller, Limits, Peers, Serving,
};
use peerage_apiserver::{Options, Running};
use peerage_store::memory::MemoryStore;
use peerage_store::{
    Lease, LeaseId, LeaseStatus, RangeRequest, RangeResponse, Revision, Store, StoreError,
    StoreExt as _, StoreStatus, Txn, TxnResponse, WatchRequest, WatchStream,
};
use peerage_testkit::pki::{Pki, SERVER_NAME};
use peerage_testkit::wire::{Answer, Client, Outgoing};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a test waits for what has to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a store does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Answers.
    There,
    /// Fails at once; watches end.
    Away,
    /// Never answers; watches end.
    Silent,
    /// Lets nobody in; watches end.
    Refusing,
}

/// What is known to be wrong while the store does not answer.
pub(crate) const TROUBLE: &str = "its certificate is not what it should be";

/// A store that can go away.
pub(crate) struct Switch {
    inner: Arc<MemoryStore>,
    mode: watch::Sender<Mode>,
}

impl Switch {
    pub(crate) fn new(mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(MemoryStore::new()),
            mode: watch::Sender::new(mode),
        })
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// The store itself, whatever the switch says.
    pub(crate) fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn pass(&self) -> Result<(), StoreError> {
        let mode = *self.mode.borrow();
        match mode {
            Mode::There => Ok(()),
            Mode::Away => Err(away()),
            Mode::Silent => std::future::pending().await,
            Mode::Refusing => Err(StoreError::Denied {
                reason: "the password is another one now".to_owned(),
            }),
        }
    }
}

fn away() -> StoreError {
    StoreError::Unavailable {
        reason: "it is switched off".to_owned(),
    }
}

#[async_trait]
impl Store for Switch {
    fn trouble(&self) -> Option<String> {
        (*self.mode.borrow() == Mode::Silent).then(|| TROUBLE.to_owned())
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.pass().await?;
        self.inner.range(request).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        self.pass().await?;
        self.inner.txn(txn).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, StoreError> {
        self.pass().await?;
        let watch = self.inner.watch(request).await?;
        let (start, progress) = (watch.start_revision(), watch.progress_requester());
        let mut mode = self.mode.subscribe();
        let gone = async move {
            let _ = mode.changed().await;
        };
        let items = watch
            .take_until(gone)
            .chain(futures::stream::once(async { Err(away()) }));
        Ok(WatchStream::new(start, items, progress))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.pass().await?;
        self.inner.compact(revision).await
    }

    async fn lease_grant(&self, ttl: Duration, id: Option<LeaseId>) -> Result<Lease, StoreError> {
        self.pass().await?;
        self.inner.lease_grant(ttl, id).await
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Lease, StoreError> {
        self.pass().await?;
        self.inner.lease_keep_alive(id).await
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, StoreError> {
        self.pass().await?;
        self.inner.lease_revoke(id).await
    }

    async fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<LeaseStatus, StoreError> {
        self.pass().await?;
        self.inner.lease_time_to_live(id, keys).await
    }

    async fn leases(&self) -> Result<Vec<LeaseId>, StoreError> {
        self.pass().await?;
        self.inner.leases().await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        self.pass().await?;
        self.inner.status().await
    }
}

/// Certificates for the servers of one test.
pub(crate) struct Site {
    pub(crate) pki: Pki,
    _directory: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            pki: Pki::create(directory.path()),
            _directory: directory,
        }
    }

    /// A server of that version and host name.
    pub(crate) fn options(&self, version: &str, hostname: &str, store: Arc<dyn Store>) -> Options {
        let file = |name: &str| self.pki.file(name);
        Options {
            version: version.to_owned(),
            runtime_config: Default::default(),
            store,
            key_prefix: "/registry".to_owned(),
            serving: Serving {
                bind: ([127, 0, 0, 1], 0).into(),
                certificate: file("server.crt"),
                key: file("server.key"),
                advertise: None,
            },
            authentication: Authentication {
                client_ca: Some(file("ca.crt")),
                request_header: Some(peerage_apiserver::options::RequestHeader {
                    client_ca: file("front-proxy-ca.crt"),
                    allowed_names: vec!["front-proxy-client".to_owned()],
                    username_headers: vec!["X-Remote-User".to_owned()],
                    group_headers: vec!["X-Remote-Group".to_owned()],
                    uid_headers: vec!["X-Remote-Uid".to_owned()],
                    extra_prefixes: vec!["X-Remote-Extra-".to_owned()],
                }),
                token_file: None,
                anonymous: true,
            },
            authorization: AuthorizationMode::Rbac,
            audit: Audit::default(),
            peers: Peers {
                enabled: true,
                ca: Some(file("ca.crt")),
                client: Some((
                    file("front-proxy-client.crt"),
                    file("front-proxy-client.key"),
                )),
                advertise: None,
                hostname: Some(hostname.to_owned()),
                hold: Duration::from_secs(600),
                server_name: SERVER_NAME.to_owned(),
                show_peer: false,
            },
            limits: Limits::default(),
            controllers: Vec::<Controller>::new(),
            service_accounts: None,
            service_cluster_ip_range: Some("10.96.0.0/16".to_owned()),
            shutdown_delay: Duration::ZERO,
            drain: Duration::from_secs(5),
            event_ttl: Duration::from_secs(3600),
            compaction_interval: None,
        }
    }

    pub(crate) async fn start(&self, options: Options) -> Server {
        let running = peerage_apiserver::start(options, CancellationToken::new())
            .await
            .unwrap();
        let client = Client::new(running.address(), &self.pki, "admin");
        Server { running, client }
    }
}

/// A running server and its administrator.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) client: Client,
}

impl Server {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.client.send(&Outgoing::new("GET", path)).await.unwrap()
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        let request = Outgoing::new(method, path).json("application/json", body);
        self.client.send(&request).await.unwrap()
    }

    pub(crate) async fn config_map(&self, name: &str) -> Answer {
        let path = "/api/v1/namespaces/default/configmaps";
        self.send("POST", path, &json!({"metadata": {"name": name}}))
            .await
    }
}

/// Waits until `there` says so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut there: impl FnMut() -> F) {
    let wait = async {
        while !there().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "not in time: {what}");
}

/// What the store has under that key, as JSON.
pub(crate) async fn stored(store: &dyn Store, key: &str) -> Option<Value> {
    let kv = store.get(key.to_owned()).await.unwrap()?;
    let json = peerage_apiserver::stored_json(&kv.value).unwrap();
    Some(serde_json::from_slice(&json).unwrap())
}
