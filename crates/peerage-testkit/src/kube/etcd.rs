//! A real etcd on loopback, its data in a directory of the test's: one member, or several ([`EtcdCluster`]).
//!
//! Flushing to the disk is off: tests kill the process and not the machine, and what a process has written is there
//! after it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::ports;
use super::program::Program;
use crate::daemon::{Daemon, DaemonSpec, Ready, plain};
use crate::pki::Pki;
use crate::wire::{Client, Outgoing};

/// Which etcd, and how.
#[derive(Debug, Clone, Default)]
pub struct EtcdSpec {
    version: String,
    tls: bool,
    password: Option<String>,
    flags: Vec<String>,
}

/// A real etcd. [`Daemon`]'s methods kill, pause, resume, stop and restart it.
pub struct Etcd {
    daemon: Daemon,
    client: SocketAddr,
    pki: Pki,
    spec: EtcdSpec,
}

impl Etcd {
    /// An etcd of a minor version such as `3.6`, without TLS and users.
    pub fn of(version: &str) -> EtcdSpec {
        EtcdSpec {
            version: version.to_owned(),
            ..EtcdSpec::default()
        }
    }

    /// `--etcd-servers`.
    pub fn url(&self) -> String {
        let scheme = if self.spec.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.client)
    }

    /// Where it listens for clients.
    pub fn address(&self) -> SocketAddr {
        self.client
    }

    /// Asks through its JSON gateway: `call("/v3/maintenance/defragment", json!({}))`. Keys and values are base64.
    pub async fn call(&self, path: &str, body: &Value) -> Result<Value, String> {
        let text = match self.spec.tls {
            false => plain(self.client, "POST", path, &body.to_string()).await?,
            true => {
                let client = Client::new(self.client, &self.pki, "etcd-client");
                let request = Outgoing::new("POST", path).json("application/json", body);
                let answer = client.send(&request).await.map_err(|e| e.to_string())?;
                if answer.status() != 200 {
                    return Err(answer.in_words());
                }
                String::from_utf8_lossy(&answer.body).into_owned()
            }
        };
        serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))
    }

    /// The revision of the last change.
    pub async fn revision(&self) -> i64 {
        let body = json!({"key": "AA==", "limit": "1", "keys_only": true});
        let answer = self.call("/v3/kv/range", &body).await.unwrap();
        let revision = answer["header"]["revision"].as_str().unwrap();
        revision.parse().unwrap()
    }

    /// Whether it leads the members of its cluster, and says so at once.
    async fn leads(&self) -> bool {
        let nothing = json!({});
        let status = self.call("/v3/maintenance/status", &nothing);
        let status = timeout(Duration::from_secs(2), status).await;
        let status = status.ok().and_then(Result::ok).unwrap_or_default();
        let own = &status["header"]["member_id"];
        own.is_string() && status["leader"] == *own
    }

    /// Forgets what was before a revision.
    pub async fn compact(&self, revision: i64) {
        let body = json!({"revision": revision.to_string(), "physical": true});
        self.call("/v3/kv/compaction", &body).await.unwrap();
    }

    /// Gives freed space back; nothing is answered meanwhile.
    pub async fn defragment(&self) {
        let path = "/v3/maintenance/defragment";
        self.call(path, &json!({})).await.unwrap();
    }

    /// Makes `root` with the password and asks everybody for one from now on.
    async fn require_password(&self, password: &str) {
        let user = json!({"name": "root", "password": password});
        self.call("/v3/auth/user/add", &user).await.unwrap();
        let role = json!({"user": "root", "role": "root"});
        self.call("/v3/auth/user/grant", &role).await.unwrap();
        self.call("/v3/auth/enable", &json!({})).await.unwrap();
    }
}

impl EtcdSpec {
    /// With TLS: its certificate is `server`'s, clients show one of the same authority's (`etcd-client`).
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// With a user `root` of that password, and nothing for anybody else.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// With more flags.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|f| (*f).to_owned()));
        self
    }

    /// Starts it; it is ready when this returns.
    pub async fn start(mut self, pki: &Pki, directory: &Path) -> Etcd {
        // It is the only member: nobody else's election has to be waited for.
        let quick = ["--heartbeat-interval=20", "--election-timeout=100"];
        self.flags.splice(0..0, quick.map(str::to_owned));
        let member = Member::new();
        let cluster = member.in_cluster();
        let etcd = self.start_member(pki, directory, member, &cluster).await;
        if let Some(password) = etcd.spec.password.clone() {
            etcd.require_password(&password).await;
        }
        etcd
    }

    /// Starts several members; they are one cluster, and ready, when this returns.
    pub async fn start_cluster(self, members: usize, pki: &Pki, directory: &Path) -> EtcdCluster {
        let members: Vec<_> = (0..members).map(|_| Member::new()).collect();
        let cluster: Vec<_> = members.iter().map(Member::in_cluster).collect();
        let cluster = cluster.join(",");
        let start = |member| self.clone().start_member(pki, directory, member, &cluster);
        EtcdCluster {
            members: futures::future::join_all(members.into_iter().map(start)).await,
        }
    }

    async fn start_member(
        self,
        pki: &Pki,
        directory: &Path,
        member: Member,
        cluster: &str,
    ) -> Etcd {
        let daemon = DaemonSpec {
            name: member.name(),
            program: Program::Etcd(&self.version).executable().await,
            args: self.arguments(pki, directory, &member, cluster),
            hostname: None,
            directory: directory.to_owned(),
            ready: Ready::Http(member.metrics, "/health"),
        };
        Etcd {
            daemon: Daemon::start(daemon).await,
            client: member.client,
            pki: pki.clone(),
            spec: self,
        }
    }

    fn arguments(
        &self,
        pki: &Pki,
        directory: &Path,
        member: &Member,
        cluster: &str,
    ) -> Vec<String> {
        let scheme = if self.tls { "https" } else { "http" };
        let (name, client, peer) = (member.name(), member.client, member.peer);
        let data = directory.join(&name);
        let mut args = vec![
            format!("--name={name}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={scheme}://{client}"),
            format!("--advertise-client-urls={scheme}://{client}"),
            format!("--listen-peer-urls=http://{peer}"),
            format!("--initial-advertise-peer-urls=http://{peer}"),
            format!("--initial-cluster={cluster}"),
            format!("--listen-metrics-urls=http://{}", member.metrics),
            "--log-level=error".to_owned(),
            "--unsafe-no-fsync".to_owned(),
        ];
        if self.tls {
            let file = |name: &str| pki.file(name).display().to_string();
            args.push(format!("--cert-file={}", file("server.crt")));
            args.push(format!("--key-file={}", file("server.key")));
            args.push(format!("--trusted-ca-file={}", file("ca.crt")));
            args.push("--client-cert-auth".to_owned());
        }
        args.extend(self.flags.iter().cloned());
        args
    }
}

/// Where one member is.
struct Member {
    client: SocketAddr,
    peer: SocketAddr,
    metrics: SocketAddr,
}

impl Member {
    fn new() -> Self {
        Self {
            client: ports::free(),
            peer: ports::free(),
            metrics: ports::free(),
        }
    }

    fn name(&self) -> String {
        format!("etcd-{}", self.client.port())
    }

    /// What `--initial-cluster` says of it.
    fn in_cluster(&self) -> String {
        format!("{}=http://{}", self.name(), self.peer)
    }
}

/// Several members of one etcd.
pub struct EtcdCluster {
    members: Vec<Etcd>,
}

impl EtcdCluster {
    /// `--etcd-servers`: all members.
    pub fn urls(&self) -> String {
        let urls: Vec<_> = self.members.iter().map(Etcd::url).collect();
        urls.join(",")
    }

    /// All members.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// The member that leads, as those say that answer; waits until one does.
    pub async fn leader(&self) -> &Etcd {
        let found = async {
            loop {
                for member in self.members.iter().filter(|it| it.id().is_some()) {
                    if member.leads().await {
                        return member;
                    }
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let found = timeout(Duration::from_secs(30), found).await;
        found.expect("the etcd has a leader")
    }
}

impl Deref for Etcd {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}
