//! `peerage gateway` in front of servers, in the same form as the servers themselves.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::apiserver::Apiserver;
use super::ports;
use crate::cluster::until;
use crate::daemon::{DaemonSpec, Ready, plain};
use crate::pki::Pki;
use crate::process::AUDIT_POLICY;

/// How a gateway is started.
#[derive(Debug, Clone, Default)]
pub struct GatewaySpec {
    name: String,
    upstream: Option<String>,
    peers: Vec<String>,
    believes_nobody: bool,
    /// It is not waited for until it is ready.
    never_ready: bool,
    hosts: Option<PathBuf>,
    flags: Vec<String>,
}

/// What a test makes gateways of.
pub struct Gateway;

/// A gateway that runs.
pub struct RunningGateway {
    /// It answers like a server.
    pub server: Apiserver,
    /// Where its own health, metrics and state are.
    pub admin: SocketAddr,
}

impl Gateway {
    /// A gateway beside a server.
    pub fn beside(server: &Apiserver) -> GatewaySpec {
        GatewaySpec {
            name: "gateway".to_owned(),
            upstream: Some(server.url()),
            ..GatewaySpec::default()
        }
    }

    /// A gateway in front of servers that are all equal.
    pub fn balancing(servers: &[&Apiserver]) -> GatewaySpec {
        GatewaySpec {
            name: "balancer".to_owned(),
            peers: servers.iter().map(|server| server.url()).collect(),
            ..GatewaySpec::default()
        }
    }
}

impl RunningGateway {
    /// What it counts.
    pub async fn own_metrics(&self) -> String {
        crate::daemon::plain(self.admin, "GET", "/metrics", "")
            .await
            .unwrap()
    }

    /// What it knows of the servers behind it.
    pub async fn own_state(&self) -> serde_json::Value {
        let state = crate::daemon::plain(self.admin, "GET", "/debug/peers", "").await;
        serde_json::from_str(&state.unwrap()).unwrap()
    }

    /// What it knows of the server of an address; none when it knows none, or says nothing.
    pub async fn peer(&self, address: &str) -> Option<Value> {
        let state = plain(self.admin, "GET", "/debug/peers", "").await.ok()?;
        let state: Value = serde_json::from_str(&state).ok()?;
        let mut peers = state["peers"].as_array()?.iter();
        let found = peers.find(|it| it["address"] == address || it["id"] == address);
        found.cloned()
    }

    /// Whether it says that it is ready.
    pub async fn says_ready(&self) -> bool {
        crate::daemon::plain(self.admin, "GET", "/readyz", "")
            .await
            .is_ok()
    }
}

impl RunningGateway {
    /// Waits until it sends requests to a server again, as who upgrades servers one after the other has to.
    pub async fn uses(&self, server: &Apiserver) {
        let address = server.address().to_string();
        until(&format!("the gateway uses {address}"), || async {
            let peer = self.peer(&address).await;
            peer.is_some_and(|peer| peer["state"] == "serving" && peer["ready"] == true)
        })
        .await;
    }
}

impl std::ops::Deref for RunningGateway {
    type Target = Apiserver;

    fn deref(&self) -> &Apiserver {
        &self.server
    }
}

impl GatewaySpec {
    /// With another server behind it.
    pub fn peer(mut self, server: &Apiserver) -> Self {
        self.peers.push(server.url());
        self
    }

    /// Without believing clients that show a front-proxy certificate.
    pub fn without_front_proxies(mut self) -> Self {
        self.believes_nobody = true;
        self
    }

    /// With more flags; the last of a repeated one counts.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|f| (*f).to_owned()));
        self
    }

    /// Which never becomes ready; it answers when it was started.
    pub fn never_ready(mut self) -> Self {
        self.never_ready = true;
        self
    }

    /// Which looks names up in this file in place of `/etc/hosts`; it sees when that is written again in place.
    pub fn hosts(mut self, file: &Path) -> Self {
        self.hosts = Some(file.to_owned());
        self
    }

    /// Starts it with the certificates of a control plane; it is ready when this returns.
    pub async fn start(self, executable: &Path, pki: &Pki, directory: &Path) -> RunningGateway {
        let (address, admin) = (ports::free(), ports::free());
        let name = format!("{}-{}", self.name, address.port());
        let audit = directory.join(format!("{name}.audit"));
        let policy = directory.join(format!("{name}-policy.yaml"));
        std::fs::write(&policy, AUDIT_POLICY).unwrap();
        let mut args = vec![
            "gateway".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", address.port()),
            format!("--admin-bind-address={admin}"),
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", audit.display()),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
        ];
        let files = [
            ("tls-cert-file", "server.crt"),
            ("tls-private-key-file", "server.key"),
            ("client-ca-file", "ca.crt"),
            ("peer-ca-file", "ca.crt"),
            ("proxy-client-cert-file", "front-proxy-client.crt"),
            ("proxy-client-key-file", "front-proxy-client.key"),
            ("requestheader-client-ca-file", "front-proxy-ca.crt"),
        ];
        let given = files.len() - usize::from(self.believes_nobody);
        for (flag, file) in &files[..given] {
            args.push(format!("--{flag}={}", pki.file(file).display()));
        }
        args.extend(self.upstream.map(|url| format!("--upstream={url}")));
        args.extend(self.peers.iter().map(|url| format!("--peer={url}")));
        args.extend(self.flags);
        let program = match self.hosts {
            Some(file) => with_hosts(&file, executable, &mut args),
            None => executable.to_owned(),
        };
        let daemon = DaemonSpec {
            name,
            program,
            args,
            hostname: None,
            directory: directory.to_owned(),
            ready: match self.never_ready {
                true => Ready::Http(admin, "/livez"),
                false => Ready::Http(admin, "/readyz"),
            },
        };
        RunningGateway {
            server: Apiserver::start(daemon, address, pki, audit).await,
            admin,
        }
    }
}

/// A shell in a namespace of mounts, which becomes the program; the process id stays the same.
fn with_hosts(file: &Path, executable: &Path, args: &mut Vec<String>) -> PathBuf {
    let script =
        r#"mount --bind "$1" /etc/hosts && shift && exec setpriv --pdeathsig KILL -- "$@""#;
    let mut words = vec!["--mount", "--", "sh", "-c", script, "sh"];
    if !nix::unistd::Uid::effective().is_root() {
        words.splice(0..0, ["--user", "--map-root-user"]);
    }
    let mut all: Vec<String> = words.into_iter().map(str::to_owned).collect();
    all.extend([file, executable].map(|it| it.display().to_string()));
    all.append(args);
    *args = all;
    "unshare".into()
}
