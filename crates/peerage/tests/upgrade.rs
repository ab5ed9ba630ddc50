//! A rolling upgrade from the oldest version to the newest, one server at a time, with servers killed at random, under
//! traffic of all verbs and watches. What has to hold is `peerage_testkit::simulation`'s head.
//!
//! `PEERAGE_SEED` repeats a run that failed.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peerage_store::Store;
use peerage_store::sqlite::{SqliteOptions, SqliteStore};
use peerage_store::testing::{FaultPlan, FaultyStore};
use peerage_testkit::process::StoreProcess;
use peerage_testkit::seed;
use peerage_testkit::simulation::{self, Plan, Report};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const PEERAGE: &str = env!("CARGO_BIN_EXE_peerage");

/// Two to five servers by the seed, from the oldest version to the newest.
fn plan(store: &str, most: usize, kills: usize) -> Plan {
    let seed = seed();
    let versions = peerage_catalogue::versions();
    Plan {
        executable: PathBuf::from(PEERAGE),
        store: store.to_owned(),
        seed,
        servers: 2 + usize::try_from(seed % 4).unwrap().min(most - 2),
        from: versions.first().unwrap().to_string(),
        to: versions.last().unwrap().to_string(),
        kills,
    }
}

fn something_happened(report: &Report) {
    assert!(report.requests > 200, "{report:?}");
    assert!(report.events.iter().all(|events| *events > 0), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_on_a_file_loses_and_doubles_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let storage = format!("sqlite:{}", directory.path().join("store.db").display());
    let store = StoreProcess::start(Path::new(PEERAGE), &storage).await;
    something_happened(&simulation::run(plan(&store.url, 5, 5)).await);
    store.process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_on_a_slow_store_loses_and_doubles_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store.db");
    let inner = SqliteStore::open(&file, SqliteOptions::default())
        .await
        .unwrap();
    let slow = FaultPlan::slow(Duration::from_millis(50));
    let store: Arc<dyn Store> = Arc::new(FaultyStore::new(Arc::new(inner), slow));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let served = peerage_etcd::serve(
        store,
        listener,
        peerage_etcd::ServeOptions::default(),
        stop.clone(),
    );
    let served = tokio::spawn(served);
    something_happened(&simulation::run(plan(&url, 3, 1)).await);
    stop.cancel();
    served.await.unwrap().unwrap();
}
