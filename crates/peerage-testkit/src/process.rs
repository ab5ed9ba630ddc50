//! Servers and stores as processes of the `peerage` executable, each of which can really be killed.
//!
//! A process listens on a port that the system chose and says which in its log, which is read here line by line. It
//! ends when its standard input does, so none outlives the test however the test ends. Signals go to the process's
//! own id and to nothing else.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

use crate::pki::Pki;
use crate::wire::Client;

/// How long a process may take to be ready.
const START: Duration = Duration::from_secs(60);
/// How long a process may take to stop when it is asked to.
const STOP: Duration = Duration::from_secs(20);
/// How many lines of a log are kept.
const KEPT_LINES: usize = 400;

type Lines = Arc<Mutex<VecDeque<String>>>;

/// A running process.
pub struct Process {
    name: String,
    child: Child,
    _stdin: Option<ChildStdin>,
    lines: Lines,
    ready: watch::Receiver<Option<Value>>,
}

impl Process {
    /// Starts `executable` with `args`; the log line with the message `ready` says that it is.
    fn spawn(name: &str, executable: &Path, args: &[String], ready: &'static str) -> Self {
        let mut command = Command::new(executable);
        command
            .args(args)
            .args(["--exit-with-stdin", "--log-format=json"]);
        command
            .env_remove("KUBECONFIG")
            .env_remove("PEERAGE_DATA_DIR")
            .env_remove("PEERAGE_LOG");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", executable.display()));
        let lines = Lines::default();
        let (found, seen) = watch::channel(None);
        let stderr = child.stderr.take().unwrap();
        let kept = lines.clone();
        tokio::spawn(async move {
            let mut stderr = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = stderr.next_line().await {
                if let Ok(entry) = serde_json::from_str::<Value>(&line)
                    && entry["message"] == ready
                {
                    found.send_replace(Some(entry));
                }
                let mut kept = kept.lock().unwrap();
                kept.push_back(line);
                if kept.len() > KEPT_LINES {
                    kept.pop_front();
                }
            }
        });
        Self {
            name: name.to_owned(),
            _stdin: child.stdin.take(),
            child,
            lines,
            ready: seen,
        }
    }

    /// The log line that says that the process is ready.
    async fn ready(&self) -> Value {
        let mut ready = self.ready.clone();
        let waited = tokio::time::timeout(START, ready.wait_for(Option::is_some)).await;
        match waited {
            Ok(Ok(entry)) => entry.clone().unwrap(),
            _ => panic!("{} is not ready:\n{}", self.name, self.log()),
        }
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|line| format!("    {line}\n")).collect()
    }

    /// Its process id; none when it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to stop, as a service manager does, and says how it ended.
    pub async fn stop(mut self) -> ExitStatus {
        if let Some(id) = self.child.id() {
            let id = nix::unistd::Pid::from_raw(i32::try_from(id).unwrap());
            nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        }
        match tokio::time::timeout(STOP, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("{} does not stop:\n{}", self.name, self.log()),
        }
    }
}

/// A store that several servers share.
pub struct StoreProcess {
    /// The process.
    pub process: Process,
    /// Where it listens.
    pub url: String,
}

impl StoreProcess {
    /// Starts `peerage store` with `storage` (`memory`, `sqlite:FILE`).
    pub async fn start(executable: &Path, storage: &str) -> Self {
        let args = [
            "store".to_owned(),
            format!("--storage={storage}"),
            "--listen-client-urls=http://127.0.0.1:0".to_owned(),
        ];
        let process = Process::spawn("store", executable, &args, "serving the store");
        let entry = process.ready().await;
        let url = entry["url"].as_str().unwrap().to_owned();
        Self { process, url }
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
    pub process: Process,
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
        let process = Process::spawn(&spec.name, executable, &args, "ready");
        let entry = process.ready().await;
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
