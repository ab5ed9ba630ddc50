//! A real kube-controller-manager, which works through whatever server it is pointed at.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;

use super::ports;
use super::program::Program;
use crate::daemon::{Daemon, DaemonSpec, Ready};
use crate::kubectl::kubeconfig;
use crate::pki::Pki;
use crate::wire::Client;

/// The user that it works as, which RBAC's bootstrap roles know.
const USER: &str = "system:kube-controller-manager";

/// A real kube-controller-manager. [`Daemon`]'s methods kill, pause, resume, stop and restart it.
pub struct ControllerManager {
    daemon: Daemon,
}

impl ControllerManager {
    /// Starts one of a minor version such as `1.37` that works through the server at `url`, with more flags such as
    /// `--controllers=namespace,garbagecollector`; it is ready when this returns.
    pub async fn start(
        version: &str,
        url: &str,
        pki: &Pki,
        directory: &Path,
        flags: &[&str],
    ) -> Self {
        let program = Program::KubeControllerManager(version).executable().await;
        let address = ports::free();
        let name = format!("kube-controller-manager-{}", address.port());
        pki.client("kube-controller-manager", USER, &[]);
        let config = directory.join(format!("{name}.kubeconfig"));
        std::fs::write(&config, kubeconfig(url, pki, "kube-controller-manager")).unwrap();
        let daemon = DaemonSpec {
            name,
            program,
            args: arguments(&config, pki, address, flags),
            hostname: None,
            directory: directory.to_owned(),
            ready: Ready::Https(Client::new(address, pki, "admin"), "/healthz"),
        };
        Self {
            daemon: Daemon::start(daemon).await,
        }
    }
}

fn arguments(config: &Path, pki: &Pki, address: SocketAddr, flags: &[&str]) -> Vec<String> {
    let file = |name: &str| pki.file(name).display().to_string();
    let mut args = vec![
        format!("--kubeconfig={}", config.display()),
        format!("--secure-port={}", address.port()),
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("sa.key")),
    ];
    args.extend(flags.iter().map(|f| (*f).to_owned()));
    args
}

impl Deref for ControllerManager {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}
