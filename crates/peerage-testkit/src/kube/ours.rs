//! `peerage store` and `peerage apiserver` beside real servers, with the same certificates and in the same form.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::apiserver::read_audit;
use super::ports;
use crate::daemon::{Daemon, DaemonSpec, Ready};
use crate::multiplex::Multiplexed;
use crate::pki::Pki;
use crate::process::{ServerSpec, arguments};
use crate::wire::Client;

/// `peerage store`. [`Daemon`]'s methods kill, pause, resume, stop and restart it.
pub struct PeerageStore {
    daemon: Daemon,
    address: SocketAddr,
}

impl PeerageStore {
    /// Starts one that keeps a SQLite file in `directory`; it is ready when this returns.
    pub async fn start(executable: &Path, directory: &Path) -> Self {
        let address = ports::free();
        let name = format!("peerage-store-{}", address.port());
        let file = directory.join(format!("{name}.db"));
        let daemon = DaemonSpec {
            name,
            program: executable.to_owned(),
            args: vec![
                "store".to_owned(),
                format!("--storage=sqlite:{}", file.display()),
                format!("--listen-client-urls=http://{address}"),
            ],
            hostname: None,
            directory: directory.to_owned(),
            ready: Ready::Tcp(address),
        };
        Self {
            daemon: Daemon::start(daemon).await,
            address,
        }
    }

    /// `--etcd-servers`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Deref for PeerageStore {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// `peerage apiserver` on a shared store. [`Daemon`]'s methods kill, pause, resume, stop and restart it.
pub struct PeerageApiserver {
    daemon: Daemon,
    address: SocketAddr,
    pki: Pki,
    audit: PathBuf,
}

impl PeerageApiserver {
    /// Starts one as a spec says (`ServerSpec::peer(name, version, store)`); it is ready when this returns.
    pub async fn start(executable: &Path, pki: &Pki, directory: &Path, spec: &ServerSpec) -> Self {
        let address = ports::free();
        let name = format!("{}-{}", spec.name, address.port());
        let audit = directory.join(format!("{name}.audit"));
        let mut args = arguments(pki, spec, &audit);
        for arg in &mut args {
            if arg == "--secure-port=0" {
                *arg = format!("--secure-port={}", address.port());
            }
        }
        let daemon = DaemonSpec {
            name,
            program: executable.to_owned(),
            args,
            hostname: None,
            directory: directory.to_owned(),
            ready: Ready::Https(Client::new(address, pki, "admin"), "/readyz"),
        };
        Self {
            daemon: Daemon::start(daemon).await,
            address,
            pki: pki.clone(),
            audit,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://` and where it listens.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// An HTTP/1.1 client of it, as a user of its certificates; `anonymous` shows none.
    pub fn client(&self, user: &str) -> Client {
        Client::new(self.address, &self.pki, user)
    }

    /// An HTTP/2 connection to it, as a user of its certificates.
    pub async fn multiplexed(&self, user: &str) -> Multiplexed {
        Multiplexed::connect(self.address, &self.pki, user)
            .await
            .unwrap()
    }

    /// The events of its audit log so far, each at its last stage, without bodies.
    pub fn audit(&self) -> Vec<Value> {
        read_audit(&self.audit)
    }
}

impl Deref for PeerageApiserver {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}
