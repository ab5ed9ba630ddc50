//! A real kube-apiserver: one process with a host name, a port and an audit log of its own.
//!
//! It authorizes by RBAC, believes the front-proxy certificate, signs service account tokens, and lets in the users of
//! the control plane's certificates: `admin` may do everything, `alice` nothing.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ports;
use super::program::Program;
use crate::cluster::until;
use crate::daemon::{Daemon, DaemonSpec, Ready};
use crate::multiplex::Multiplexed;
use crate::pki::Pki;
use crate::process::AUDIT_POLICY;
use crate::wire::{Client, Outgoing};

/// The gate of kube-apiserver's own proxy among servers of different versions.
const OWN_PROXY: &str = "UnknownVersionInteroperabilityProxy";

/// Which kube-apiserver, and how.
#[derive(Debug, Clone, Default)]
pub struct ApiserverSpec {
    version: String,
    name: String,
    address: Option<SocketAddr>,
    emulated: Option<String>,
    own_proxy: bool,
    json: bool,
    gates: Vec<String>,
    tokens: Vec<String>,
    header_names: Vec<String>,
    flags: Vec<String>,
}

/// What a test makes real kube-apiservers of.
pub struct KubeApiserver;

/// An API server that runs, real or ours, or something in front of one that speaks the same. [`Daemon`]'s methods kill,
/// pause, resume, stop and restart it.
pub struct Apiserver {
    daemon: Daemon,
    address: SocketAddr,
    pki: Pki,
    audit: PathBuf,
}

impl KubeApiserver {
    /// A kube-apiserver of a minor version such as `1.37`, named `v1.37`, without its own proxy.
    pub fn of(version: &str) -> ApiserverSpec {
        ApiserverSpec {
            version: version.to_owned(),
            name: format!("v{version}"),
            ..ApiserverSpec::default()
        }
    }
}

impl Apiserver {
    /// Starts a daemon that serves at `address` and audits to a file; it is ready when this returns.
    pub async fn start(spec: DaemonSpec, address: SocketAddr, pki: &Pki, audit: PathBuf) -> Self {
        Self {
            daemon: Daemon::start(spec).await,
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

    /// Waits until it answers 200 to a GET, as it does when it knows the peer that has what is asked for.
    ///
    /// Better than to ask for `/apis` again and again: a kube-apiserver that renders its merged document while it hears
    /// of a peer may keep the old one until the next peer comes or goes.
    pub async fn serves(&self, path: &str) {
        let client = self.client("admin");
        until(&format!("{} serves {path}", self.name()), || async {
            let answer = client.send(&Outgoing::new("GET", path)).await;
            answer.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
    }

    /// Creates an object as an administrator; as it is then.
    pub async fn create(&self, collection: &str, object: &Value) -> Value {
        let request = Outgoing::new("POST", collection).json("application/json", object);
        let answer = self.client("admin").send(&request).await.unwrap();
        assert_eq!(answer.status(), 201, "{collection}: {}", answer.in_words());
        answer.json()
    }

    /// How many watches of a resource it has under way, by its own count.
    pub async fn watches(&self, resource: &str) -> u64 {
        let (admin, ask) = (self.client("admin"), Outgoing::new("GET", "/metrics"));
        let metrics = admin.send(&ask).await.unwrap();
        let of = format!("resource=\"{resource}\"");
        let counted = |line: &&str| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains(&of)
                && line.contains("verb=\"WATCH\"")
        };
        let text = String::from_utf8_lossy(&metrics.body);
        let values = text.lines().filter(counted);
        let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>() as u64
    }

    /// The events of its audit log so far, each at its last stage, without bodies.
    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.audit).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        lines.filter_map(Result::ok).collect()
    }

    /// The events whose lines hold a text, such as an audit id or a user agent; the others are not read, of which there
    /// are many.
    pub fn audit_with(&self, text: &str) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.audit).unwrap_or_default();
        let lines = log.lines().filter(|line| line.contains(text));
        let events = lines.map(serde_json::from_str);
        events.filter_map(Result::ok).collect()
    }

    /// The event of an audit id; waits for it, because logs are written behind answers.
    pub async fn audited(&self, id: &str) -> Value {
        let mut found = None;
        let what = format!("{} has audited {id}", self.name());
        until(&what, || {
            let mut events = self.audit_with(id).into_iter();
            found = events.find(|e| e["auditID"] == id);
            std::future::ready(found.is_some())
        })
        .await;
        found.unwrap()
    }
}

impl ApiserverSpec {
    /// With a host name, which its identity is made from.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Where another server was, which has ended: as in an upgrade in place.
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Serving as an older minor version does.
    pub fn emulating(mut self, version: &str) -> Self {
        self.emulated = Some(version.to_owned());
        self
    }

    /// With kube-apiserver's own proxy: its feature gate and `--peer-ca-file`.
    pub fn own_proxy(mut self) -> Self {
        self.own_proxy = true;
        self
    }

    /// Storing JSON, which Peerage reads too; protobuf is the default.
    pub fn storing_json(mut self) -> Self {
        self.json = true;
        self
    }

    /// With a feature gate: `Name=true`.
    pub fn gate(mut self, gate: &str) -> Self {
        self.gates.push(gate.to_owned());
        self
    }

    /// With a bearer token of a user in groups.
    pub fn token(mut self, token: &str, user: &str, groups: &[&str]) -> Self {
        let line = format!("{token},{user},{user}-uid,\"{}\"\n", groups.join(","));
        self.tokens.push(line);
        self
    }

    /// Reading who is asking from headers of other names: `--requestheader-*` flags in place of the usual ones, which
    /// would be added to.
    pub fn header_names(mut self, flags: &[&str]) -> Self {
        self.header_names = flags.iter().map(|f| (*f).to_owned()).collect();
        self
    }

    /// With more flags; the last of a repeated one counts.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|f| (*f).to_owned()));
        self
    }

    /// Its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts it on a store; it is ready when this returns.
    pub async fn start(self, pki: &Pki, directory: &Path, store: &str) -> Apiserver {
        let program = Program::KubeApiserver(&self.version).executable().await;
        let address = self.address.unwrap_or_else(ports::free);
        let audit = directory.join(format!("{}-{}.audit", self.name, address.port()));
        let daemon = DaemonSpec {
            name: format!("{}-{}", self.name, address.port()),
            program,
            args: self.arguments(pki, directory, store, address, &audit),
            hostname: Some(self.name.clone()),
            directory: directory.to_owned(),
            ready: Ready::Https(Client::new(address, pki, "admin"), "/readyz"),
        };
        Apiserver::start(daemon, address, pki, audit).await
    }

    fn arguments(
        &self,
        pki: &Pki,
        directory: &Path,
        store: &str,
        address: SocketAddr,
        audit: &Path,
    ) -> Vec<String> {
        let file = |name: &str| pki.file(name).display().to_string();
        let policy = audit.with_extension("policy.yaml");
        std::fs::write(&policy, AUDIT_POLICY).unwrap();
        let mut args = vec![
            format!("--etcd-servers={store}"),
            format!("--secure-port={}", address.port()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            // The endpoints of the Service `kubernetes` may not be loopback addresses; peers' may.
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--cert-dir={}", directory.display()),
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", audit.display()),
        ];
        for (flag, name) in FILES {
            args.push(format!("--{flag}={}", file(name)));
        }
        args.push(ALLOWED_NAMES.to_owned());
        if self.header_names.is_empty() {
            args.extend(HEADER_NAMES.map(str::to_owned));
        }
        args.extend(self.header_names.iter().cloned());
        if store.starts_with("https") {
            for (flag, name) in STORE_FILES {
                args.push(format!("--{flag}={}", file(name)));
            }
        }
        self.choices(pki, directory, address, &mut args);
        args
    }

    /// The flags that differ between servers.
    fn choices(&self, pki: &Pki, directory: &Path, address: SocketAddr, args: &mut Vec<String>) {
        let mut gates = self.gates.clone();
        if self.own_proxy {
            gates.push(format!("{OWN_PROXY}=true"));
            args.push(format!("--peer-ca-file={}", pki.file("ca.crt").display()));
        }
        if !gates.is_empty() {
            args.push(format!("--feature-gates={}", gates.join(",")));
        }
        if let Some(version) = &self.emulated {
            args.push(format!("--emulated-version={version}"));
            args.push(format!("--min-compatibility-version={version}"));
        }
        if self.json {
            args.push("--storage-media-type=application/json".to_owned());
        }
        if !self.tokens.is_empty() {
            let path = directory.join(format!("{}-{}.tokens", self.name, address.port()));
            std::fs::write(&path, self.tokens.concat()).unwrap();
            args.push(format!("--token-auth-file={}", path.display()));
        }
        args.extend(self.flags.iter().cloned());
    }
}

/// Flags that name files of the certificates' directory.
const FILES: [(&str, &str); 11] = [
    ("tls-cert-file", "server.crt"),
    ("tls-private-key-file", "server.key"),
    ("client-ca-file", "ca.crt"),
    ("requestheader-client-ca-file", "front-proxy-ca.crt"),
    ("proxy-client-cert-file", "front-proxy-client.crt"),
    ("proxy-client-key-file", "front-proxy-client.key"),
    ("service-account-key-file", "sa.pub"),
    ("service-account-signing-key-file", "sa.key"),
    ("kubelet-certificate-authority", "ca.crt"),
    ("kubelet-client-certificate", "kubelet-client.crt"),
    ("kubelet-client-key", "kubelet-client.key"),
];

/// The same, towards a store with TLS.
const STORE_FILES: [(&str, &str); 3] = [
    ("etcd-cafile", "ca.crt"),
    ("etcd-certfile", "etcd-client.crt"),
    ("etcd-keyfile", "etcd-client.key"),
];

/// Which front proxies are believed.
const ALLOWED_NAMES: &str = "--requestheader-allowed-names=front-proxy-client";

/// In which headers a front proxy says who is asking.
const HEADER_NAMES: [&str; 4] = [
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-uid-headers=X-Remote-Uid",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
];

impl Deref for Apiserver {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}
