//! `peerage store` and `peerage apiserver` beside real servers, with the same certificates and in the same form.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;

use super::apiserver::Apiserver;
use super::ports;
use crate::daemon::{Daemon, DaemonSpec, Ready};
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
                // etcd's own, so that what is compared with etcd is told as often.
                "--watch-progress-notify-interval=10m".to_owned(),
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

/// `peerage apiserver` on a shared store.
pub struct PeerageApiserver;

impl PeerageApiserver {
    /// Starts one as a spec says (`ServerSpec::peer(name, version, store)`); it is ready when this returns.
    pub async fn start(
        executable: &Path,
        pki: &Pki,
        directory: &Path,
        spec: &ServerSpec,
    ) -> Apiserver {
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
        Apiserver::start(daemon, address, pki, audit).await
    }
}
