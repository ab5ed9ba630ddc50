//! `peerage apiserver` on a real etcd that is killed, stopped, paused, defragmented and compacted under load: nothing
//! that was acknowledged is lost, and no watch has a gap. And who compacts it.
//!
//! What has to hold is `peerage_testkit::simulation`'s head. `PEERAGE_SEED` repeats a run that failed.

use std::time::{Duration, Instant};

use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_store::{KeyRange, RangeRequest, Store as _, StoreError, StoreExt as _};
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Backend, ControlPlane, Etcd, KubeApiserver};
use peerage_testkit::pki::Pki;
use peerage_testkit::simulation::{self, traffic};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::ours::executable;

/// What happens to the etcd.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill(Outage),
    Stop,
    Pause(Outage),
    Defragment,
    Compact,
}

/// How long it is away.
#[derive(Debug, Clone, Copy)]
enum Outage {
    /// Nobody needs to be told.
    Short,
    /// Until clients are told to come again.
    Felt,
}

impl Outage {
    async fn passes(self, shared: &simulation::Shared) {
        match self {
            Self::Short => traffic(shared).await,
            Self::Felt => {
                let before = shared.told_to_wait();
                let told = async || shared.told_to_wait() > before;
                until("clients are told to come again", told).await;
            }
        }
    }
}

/// What happens, in any order.
fn faults(random: &mut StdRng) -> Vec<Fault> {
    let mut all = [
        Fault::Kill(Outage::Short),
        Fault::Kill(Outage::Felt),
        Fault::Stop,
        Fault::Stop,
        Fault::Pause(Outage::Short),
        Fault::Pause(Outage::Felt),
        Fault::Defragment,
        Fault::Defragment,
        Fault::Compact,
        Fault::Compact,
    ];
    all.shuffle(random);
    all.to_vec()
}

async fn disturb(etcd: &Etcd, fault: Fault, shared: &simulation::Shared) {
    eprintln!("{fault:?}");
    match fault {
        Fault::Kill(outage) => {
            etcd.kill();
            outage.passes(shared).await;
            etcd.restart().await;
        }
        Fault::Stop => {
            etcd.stop().await;
            etcd.restart().await;
        }
        Fault::Pause(outage) => {
            etcd.pause();
            outage.passes(shared).await;
            etcd.resume();
        }
        Fault::Defragment => etcd.defragment().await,
        Fault::Compact => {
            let revision = etcd.revision().await;
            traffic(shared).await;
            etcd.compact(revision).await;
        }
    }
}

async fn nothing_is_lost_on(version: &str) {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of(version).start(&pki, directory.path()).await;
    let report = simulation::run_on(&etcd.url(), executable(), async |shared, random| {
        for fault in faults(random) {
            disturb(&etcd, fault, shared).await;
            traffic(shared).await;
        }
    })
    .await;
    assert!(
        report.requests > 200 && report.told_to_wait > 0,
        "{report:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn on_etcd_3_6_nothing_is_lost_whatever_happens_to_it() {
    nothing_is_lost_on("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_etcd_3_5_nothing_is_lost_whatever_happens_to_it() {
    nothing_is_lost_on("3.5").await;
}

/// How often the store has been compacted by its API servers.
async fn compactions(store: &EtcdStore) -> i64 {
    let kv = store.get("compact_rev_key").await.unwrap();
    kv.map_or(0, |kv| kv.version)
}

#[tokio::test]
async fn of_a_real_kube_apiserver_and_ours_one_compacts_and_the_other_takes_over() {
    const INTERVAL: &str = "--etcd-compaction-interval=1s";
    const ROUNDS: i64 = 5;
    let plane = ControlPlane::on(Backend::Etcd("3.6"))
        .server(
            KubeApiserver::of("1.37")
                .named("real")
                .storing_json()
                .flags(&[INTERVAL]),
        )
        .start()
        .await;
    let ours = plane.start_peerage(executable(), "ours", "1.37", &[INTERVAL]);
    let _ours = ours.await;
    let store = EtcdStore::connect(EtcdOptions::new([plane.etcd().url()]))
        .await
        .unwrap();
    let (begun, first) = (Instant::now(), compactions(&store).await);
    until("the store is compacted", || async {
        compactions(&store).await >= first + ROUNDS
    })
    .await;
    let took = begun.elapsed();
    // Two that did not know of each other would need half the time.
    assert!(
        took > Duration::from_secs(1) * (ROUNDS as u32 - 1),
        "{took:?}"
    );
    let past = RangeRequest::new(KeyRange::prefix("/registry/")).at(2);
    let error = store.range(past).await.unwrap_err();
    assert!(matches!(error, StoreError::Compacted { .. }), "{error}");

    plane.server("real").kill();
    let now = compactions(&store).await;
    until("ours goes on", || async {
        compactions(&store).await >= now + ROUNDS
    })
    .await;
}
