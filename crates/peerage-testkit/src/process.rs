//! Our servers and stores, each a process of the `peerage` executable that can really be killed.
//!
//! A process listens on a port that the system chose and says which in its log. Where the same port is wanted again
//! after a restart, and beside real servers, `kube::ours` starts them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{Daemon, DaemonSpec, Ready};
use crate::pki::Pki;
use crate::wire::Client;

/// Starts the executable; with the log line that says that it is ready.
async fn start(
    name: &str,
    executable: &Path,
    directory: &Path,
    args: Vec<String>,
    ready: &'static str,
) -> (Daemon, Value) {
    let told = ["--exit-with-stdin", "--log-format=json"].map(str::to_owned);
    let daemon = Daemon::start(DaemonSpec {
        name: name.to_owned(),
        program: executable.to_owned(),
        args: args.into_iter().chain(told).collect(),
        hostname: None,
        directory: directory.to_owned(),
        ready: Ready::Logged(ready),
    });
    let daemon = daemon.await;
    let entry = daemon.logged(ready).unwrap();
    (daemon, entry)
}

/// A store that several servers share.
pub struct StoreProcess {
    /// The process.
    pub process: Daemon,
    /// Where it listens.
    pub url: String,
    _directory: TempDir,
}

impl StoreProcess {
    /// Starts `peerage store` with `storage` (`memory`, `sqlite:FILE`).
    pub async fn start(executable: &Path, storage: &str) -> Self {
        let args = vec![
            "store".to_owned(),
            format!("--storage={storage}"),
            "--listen-client-urls=http://127.0.0.1:0".to_owned(),
        ];
        let directory = tempfile::tempdir().unwrap();
        let (process, entry) = start(
            "store",
            executable,
            directory.path(),
            args,
            "serving the store",
        )
        .await;
        Self {
            url: entry["url"].as_str().unwrap().to_owned(),
            process,
            _directory: directory,
        }
    }
}

/// Which API server to start, and how.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// Its host name, to itself and to its peers.
    pub name: String,
    /// The Kubernetes version that it serves.
    pub version: String,
    /// `--etcd-servers`, or none for a store in memory.
    pub store: Option<String>,
    /// Whether it trusts, and is trusted by, peers.
    pub proxy: bool,
    /// `--controllers`.
    pub controllers: String,
    /// More flags.
    pub flags: Vec<String>,
}

impl ServerSpec {
    /// A server of `version` by itself: a store in memory, no peers, no controllers.
    pub fn alone(version: &str) -> Self {
        Self {
            name: format!("v{version}"),
            version: version.to_owned(),
            store: None,
            proxy: false,
            controllers: String::new(),
            flags: Vec::new(),
        }
    }

    /// A server of `version` among others on one store.
    pub fn peer(name: &str, version: &str, store: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            store: Some(store.to_owned()),
            proxy: true,
            controllers: String::new(),
            flags: Vec::new(),
        }
    }
}

/// An API server.
pub struct ServerProcess {
    /// The process.
    pub process: Daemon,
    /// Where it listens.
    pub address: SocketAddr,
    pki: Pki,
    audit: PathBuf,
}

impl ServerProcess {
    /// Starts `peerage apiserver`; it is ready when this returns.
    pub async fn start(executable: &Path, pki: &Pki, spec: &ServerSpec) -> Self {
        let audit = pki.file(&format!("{}.audit", spec.name));
        let args = arguments(pki, spec, &audit);
        let (process, entry) = start(&spec.name, executable, pki.directory(), args, "ready").await;
        Self {
            address: entry["address"].as_str().unwrap().parse().unwrap(),
            process,
            pki: pki.clone(),
            audit,
        }
    }

    /// A client of it, as a user of its certificates.
    pub fn client(&self, user: &str) -> Client {
        Client::new(self.address, &self.pki, user)
    }

    /// Stops it and returns the events of its audit log, which is whole only then.
    pub async fn stop(self) -> Vec<Value> {
        let Self { process, audit, .. } = self;
        process.stop().await;
        let text = std::fs::read_to_string(&audit).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// A gateway as a balancer.
pub struct GatewayProcess {
    /// The process.
    pub process: Daemon,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its own address.
    pub admin: SocketAddr,
}

impl GatewayProcess {
    /// Starts `peerage gateway`; it is ready when this returns.
    pub async fn start(executable: &Path, pki: &Pki, before: SocketAddr) -> Self {
        let servers = format!("--peer=https://{before}");
        Self::until(executable, pki, servers, "ready").await
    }

    /// Starts `peerage gateway` over the servers that a flag names; it listens when this returns, also on an address of
    /// its own.
    pub async fn listening(executable: &Path, pki: &Pki, servers: String) -> Self {
        Self::until(executable, pki, servers, "listening").await
    }

    async fn until(executable: &Path, pki: &Pki, servers: String, logged: &'static str) -> Self {
        let file = |flag: &str, name: &str| format!("--{flag}={}", pki.file(name).display());
        let args = vec![
            "gateway".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=0".to_owned(),
            "--admin-bind-address=127.0.0.1:0".to_owned(),
            servers,
            file("tls-cert-file", "server.crt"),
            file("tls-private-key-file", "server.key"),
            file("client-ca-file", "ca.crt"),
            file("peer-ca-file", "ca.crt"),
            file("proxy-client-cert-file", "front-proxy-client.crt"),
            file("proxy-client-key-file", "front-proxy-client.key"),
        ];
        let (process, entry) = start("gateway", executable, pki.directory(), args, logged).await;
        let listening = process.logged("listening").unwrap();
        Self {
            address: entry["address"].as_str().unwrap().parse().unwrap(),
            admin: listening["admin"].as_str().unwrap().parse().unwrap(),
            process,
        }
    }
}

/// What is audited: everything, without bodies.
pub(crate) const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n";

pub(crate) fn arguments(pki: &Pki, spec: &ServerSpec, audit: &Path) -> Vec<String> {
    let file = |name: &str| pki.file(name).display().to_string();
    let policy = pki.file("audit-policy.yaml");
    std::fs::write(&policy, AUDIT_POLICY).unwrap();
    let mut args = vec![
        "apiserver".to_owned(),
        format!("--emulated-version={}", spec.version),
        format!("--hostname-override={}", spec.name),
        format!("--data-dir={}", file(&format!("data-{}", spec.name))),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--controllers={}", spec.controllers),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!(
            "--requestheader-client-ca-file={}",
            file("front-proxy-ca.crt")
        ),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", audit.display()),
    ];
    args.push(match &spec.store {
        Some(url) => format!("--etcd-servers={url}"),
        None => "--storage=memory".to_owned(),
    });
    if spec.proxy {
        args.push(format!(
            "--proxy-client-cert-file={}",
            file("front-proxy-client.crt")
        ));
        args.push(format!(
            "--proxy-client-key-file={}",
            file("front-proxy-client.key")
        ));
        args.push(format!("--peer-ca-file={}", file("ca.crt")));
    }
    args.extend(spec.flags.iter().cloned());
    args
}
