//! A real etcd is a store like any other: the store's conformance suite on it.

use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_store::testing::conformance::Fixture;
use peerage_testkit::kube::Etcd;
use peerage_testkit::kube::etcd::EtcdSpec;
use peerage_testkit::pki::Pki;
use tempfile::TempDir;

/// An etcd, and what it needs.
struct Running {
    // In the order of their end.
    etcd: Etcd,
    _pki: Pki,
    _directory: TempDir,
}

async fn start(spec: EtcdSpec) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    Running {
        etcd: spec.start(&pki, directory.path()).await,
        _pki: pki,
        _directory: directory,
    }
}

async fn connect(etcd: &Etcd) -> EtcdStore {
    EtcdStore::connect(EtcdOptions::new([etcd.url()]))
        .await
        .unwrap()
}

/// A new etcd for each case.
async fn fixture(version: &str) -> Fixture {
    let running = start(Etcd::of(version)).await;
    let store = connect(&running.etcd).await;
    Fixture {
        guard: Box::new(running),
        // The client goes on by itself.
        cuts_off: false,
        ..Fixture::new(store)
    }
}

mod etcd_3_6 {
    use super::*;

    async fn fixture() -> Fixture {
        super::fixture("3.6").await
    }

    peerage_store::conformance!(fixture);
}

mod etcd_3_5 {
    use super::*;

    async fn fixture() -> Fixture {
        super::fixture("3.5").await
    }

    peerage_store::conformance!(fixture);
}
