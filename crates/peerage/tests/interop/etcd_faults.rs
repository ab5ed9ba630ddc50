//! `peerage apiserver` on a real etcd that is killed, stopped, paused, defragmented and compacted under load: nothing
//! that was acknowledged is lost, and no watch has a gap. And who compacts it.
//!
//! What has to hold is `peerage_testkit::simulation`'s head. `PEERAGE_SEED` repeats a run that failed.

use std::time::{Duration, Instant};

use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_store::{KeyRange, RangeRequest, Store as _, StoreError, StoreExt as _};
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Backend, ControlPlane, Etcd, KubeApiserver, PeerageApiserver};
use peerage_testkit::pki::Pki;
use peerage_testkit::process::ServerSpec;
use peerage_testkit::simulation::{self, traffic};
use peerage_testkit::wire::{Client, Outgoing};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde_json::{Value, json};

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
            let noted = async || shared.noted() >= revision;
            until("what will be compacted away is noted", noted).await;
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

/// How long clients may wait for an answer while etcd is away, and how long the server may be taken for ready.
const ANSWERED: Duration = Duration::from_secs(10);
const READY: Duration = Duration::from_secs(8);
/// What a busy machine may add to that.
const BUSY: Duration = Duration::from_secs(5);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn create(name: &str) -> Outgoing {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    Outgoing::new("POST", MAPS).json("application/json", &map)
}

/// What a client asks while etcd is away is answered 503 in time.
async fn is_told_to_come_again(client: &Client, request: Outgoing) {
    let since = Instant::now();
    let answer = client.send(&request).await.unwrap();
    let took = since.elapsed();
    assert_eq!(answer.status(), 503, "{}", answer.in_words());
    assert!(answer.head.header("retry-after").is_some(), "{request:?}");
    assert!(took < ANSWERED + BUSY, "{request:?} took {took:?}");
}

/// The server says in time that it is not ready.
async fn turns_red(client: &Client) {
    let since = Instant::now();
    until("it is not ready", || async {
        let ready = client.send(&Outgoing::new("GET", "/readyz")).await;
        ready.unwrap().status() == 500
    })
    .await;
    let took = since.elapsed();
    assert!(took < READY + BUSY, "{took:?}");
}

async fn clients_hear_in_time_that_it_is_away(version: &str) {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of(version).start(&pki, directory.path()).await;
    let spec = ServerSpec::peer("ours", "1.37", &etcd.url());
    let ours = PeerageApiserver::start(executable(), &pki, directory.path(), &spec).await;
    let client = ours.client("admin");
    assert_eq!(client.send(&create("there")).await.unwrap().status(), 201);
    let watch = Outgoing::new("GET", &format!("{MAPS}?watch=1"));
    let (_, mut watch) = client.open(&watch).await.unwrap();
    let there = format!("{MAPS}/there");
    for fault in ["killed", "paused"] {
        match fault {
            "killed" => etcd.kill(),
            _ => etcd.pause(),
        }
        tokio::join!(
            turns_red(&client),
            is_told_to_come_again(&client, Outgoing::new("GET", &there)),
            is_told_to_come_again(&client, Outgoing::new("GET", MAPS)),
            is_told_to_come_again(&client, Outgoing::new("DELETE", &there)),
            is_told_to_come_again(&client, create("meanwhile")),
        );
        match fault {
            "killed" => etcd.restart().await,
            _ => etcd.resume(),
        }
        until("it serves again", || async {
            client.send(&create(fault)).await.unwrap().status() == 201
        })
        .await;
        // The same watch tells of it.
        loop {
            let line = watch.line().await.unwrap().expect("the watch goes on");
            let event: Value = serde_json::from_slice(&line).unwrap();
            assert_ne!(event["type"], "ERROR", "{event}");
            if event["object"]["metadata"]["name"] == fault {
                break;
            }
        }
    }
}

#[tokio::test]
async fn clients_hear_in_time_that_etcd_is_away_and_their_watches_go_on() {
    tokio::join!(
        clients_hear_in_time_that_it_is_away("3.6"),
        clients_hear_in_time_that_it_is_away("3.5")
    );
}

/// What an old revision is answered with: a list at it, and a watch from it.
async fn answers_to_the_past(client: &Client) -> [Value; 2] {
    let list = format!("{MAPS}?resourceVersion=2&resourceVersionMatch=Exact");
    let list = client.send(&Outgoing::new("GET", &list)).await.unwrap();
    let watch = format!("{MAPS}?watch=1&resourceVersion=2");
    let (head, mut watch) = client.open(&Outgoing::new("GET", &watch)).await.unwrap();
    let line = tokio::time::timeout(ANSWERED, watch.line()).await;
    let line = line.expect("the watch says nothing").unwrap().unwrap();
    let event: Value = serde_json::from_slice(&line).unwrap();
    [
        json!([list.status(), list.json()["reason"]]),
        json!([
            head.status,
            event["type"],
            event["object"]["code"],
            event["object"]["reason"]
        ]),
    ]
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
    let ours = ours.await;
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

    // It remembers what it has seen itself, also of before.
    plane.server("real").kill();
    plane.server("real").restart().await;
    let by_ours = answers_to_the_past(&ours.client("admin")).await;
    let by_real = answers_to_the_past(&plane.server("real").client("admin")).await;
    assert_eq!(by_ours, by_real);
    let gone = json!([[410, "Expired"], [200, "ERROR", 410, "Expired"]]);
    assert_eq!(json!(by_ours), gone);

    plane.server("real").kill();
    let now = compactions(&store).await;
    until("ours goes on", || async {
        compactions(&store).await >= now + ROUNDS
    })
    .await;
}
