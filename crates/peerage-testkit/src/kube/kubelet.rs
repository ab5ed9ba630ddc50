//! A node: where kube-apiservers send exec, attach, port-forward and logs to.
//!
//! `interop/go/kubelet` serves them with the code of real kubelets and runs commands as ordinary processes; here it is
//! started, made known to a server as a node, and given pods.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::apiserver::Apiserver;
use super::ports;
use super::program::Program;
use crate::daemon::{Daemon, DaemonSpec, Ready};
use crate::pki::Pki;
use crate::wire::Outgoing;

/// A node. [`Daemon`]'s methods kill, pause, resume, stop and restart it.
pub struct Kubelet {
    daemon: Daemon,
    address: SocketAddr,
    name: String,
    files: PathBuf,
}

impl Kubelet {
    /// Starts one with files of its own in `directory`.
    pub async fn start(name: &str, pki: &Pki, directory: &Path) -> Self {
        let address = ports::free();
        let files = directory.join(format!("{name}-files"));
        std::fs::create_dir_all(&files).unwrap();
        let file = |name: &str| pki.file(name).display().to_string();
        let spec = DaemonSpec {
            name: name.to_owned(),
            program: Program::Kubelet.executable().await,
            args: vec![
                address.to_string(),
                files.display().to_string(),
                file("server.crt"),
                file("server.key"),
                file("ca.crt"),
            ],
            hostname: None,
            directory: directory.to_owned(),
            ready: Ready::Tcp(address),
        };
        Self {
            daemon: Daemon::start(spec).await,
            address,
            name: name.to_owned(),
            files,
        }
    }

    /// Where commands run.
    pub fn files(&self) -> &Path {
        &self.files
    }

    /// Makes it known to a server, with a namespace for its pods.
    pub async fn register(&self, server: &Apiserver, namespace: &str) {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name},
            "status": {
                "addresses": [{"type": "InternalIP", "address": self.address.ip()}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self.address.port()}},
            },
        });
        server.create("/api/v1/nodes", &node).await;
        let space =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        server.create("/api/v1/namespaces", &space).await;
        // No controller makes it here, and no pod comes without.
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        server.create(&accounts, &account).await;
    }

    /// Makes a pod that runs on it.
    pub async fn run(&self, server: &Apiserver, namespace: &str, name: &str) {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.name,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "main", "stdin": true}],
            },
        });
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        server.create(&pods, &pod).await;
        let runs = json!({"status": {"phase": "Running"}});
        let status = Outgoing::new("PATCH", &format!("{pods}/{name}/status"))
            .json("application/merge-patch+json", &runs);
        let answer = server.client("admin").send(&status).await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.in_words());
    }
}

impl Deref for Kubelet {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}
