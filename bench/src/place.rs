//! What all parts begin with: a directory, certificates, an etcd that flushes to the disk as in use, objects.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use peerage_testkit::kube::Etcd;
use peerage_testkit::pki::Pki;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::load::{Call, Endpoint, Load, TOKEN};

/// The version of kube-apiserver.
pub(crate) const KUBERNETES: &str = "1.37";
/// What the older one serves as.
pub(crate) const OLDER: &str = "1.34";
/// The version of etcd.
pub(crate) const ETCD: &str = "3.6";

/// A directory with certificates.
pub(crate) struct Place {
    pub(crate) pki: Pki,
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("peerage-bench-")?;
        let pki = Pki::create(directory.path());
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n";
        std::fs::write(pki.file("unaudited.yaml"), policy)?;
        let token = format!("{TOKEN},bench,bench-uid,\"system:masters\"\n");
        std::fs::write(pki.file("tokens.csv"), token)?;
        Ok(Self { pki, directory })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// An etcd that has on the disk what it says it has.
    pub(crate) async fn etcd(&self) -> Etcd {
        let flags = [
            "--unsafe-no-fsync=false",
            "--quota-backend-bytes=8000000000",
        ];
        let spec = Etcd::of(ETCD).flags(&flags);
        spec.start(&self.pki, self.directory()).await
    }

    /// The flag of a policy that audits nothing.
    pub(crate) fn unaudited(&self) -> String {
        let file = self.pki.file("unaudited.yaml");
        format!("--audit-policy-file={}", file.display())
    }

    /// The flag of a file with the token that all clients show, for servers that are not given one otherwise.
    pub(crate) fn tokens(&self) -> String {
        let file = self.pki.file("tokens.csv");
        format!("--token-auth-file={}", file.display())
    }

    /// Asked with a token.
    pub(crate) fn endpoint(&self, address: SocketAddr) -> Endpoint {
        Endpoint {
            address,
            pki: self.pki.clone(),
            certificate: false,
        }
    }
}

/// Creates so many objects; `NUMBER` in one becomes 0, 1, 2 and so on.
pub(crate) async fn create(
    endpoint: &Endpoint,
    collection: &str,
    object: &Value,
    count: usize,
) -> anyhow::Result<()> {
    let call = Call::create(collection, object.to_string()).numbered();
    let load = Load::prepare(endpoint, 16, &call, 0).await?;
    let created = load.run(count).await;
    created.with_context(|| format!("filling {collection}"))?;
    Ok(())
}

/// A small object as there are many.
pub(crate) fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "bench"}},
        "data": {"settings.yaml": "replicas: 3\nlevel: info\n".repeat(8)},
    })
}
