//! An etcd of three members, of which one after the other is killed, stopped and paused, also the leader: `peerage
//! apiserver` goes on meanwhile, nothing that was acknowledged is lost, and no watch has a gap. And a gateway that learns of
//! servers from it.
//!
//! What has to hold is `peerage_testkit::simulation`'s head. `PEERAGE_SEED` repeats a run that failed.

use std::time::{Duration, Instant};

use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_store::StoreExt as _;
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Etcd, EtcdCluster, Gateway};
use peerage_testkit::pki::Pki;
use peerage_testkit::simulation::{self, traffic};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::ours::executable;
use crate::sources::until_serving;
use crate::versions;

/// What happens to a member.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Stop,
    Pause,
}

/// Which one.
#[derive(Debug, Clone, Copy)]
enum Who {
    Leader,
    Another,
}

async fn choose<'e>(etcd: &'e EtcdCluster, who: Who, random: &mut StdRng) -> &'e Etcd {
    let leader = etcd.leader().await;
    match who {
        Who::Leader => leader,
        Who::Another => {
            let others = etcd.members().iter();
            let others: Vec<_> = others
                .filter(|it| it.address() != leader.address())
                .collect();
            others[random.random_range(0..others.len())]
        }
    }
}

/// One member is away, until clients have got on without it.
async fn disturb(
    etcd: &EtcdCluster,
    fault: Fault,
    who: Who,
    shared: &simulation::Shared,
    random: &mut StdRng,
) {
    let member = choose(etcd, who, random).await;
    let since = Instant::now();
    match fault {
        Fault::Kill => member.kill(),
        Fault::Stop => drop(member.stop().await),
        Fault::Pause => member.pause(),
    }
    goes_on(shared).await;
    eprintln!(
        "measured: {fault:?} {who:?}: clients went on within {:?}",
        since.elapsed()
    );
    match fault {
        Fault::Pause => member.resume(),
        Fault::Kill | Fault::Stop => member.restart().await,
    }
    traffic(shared).await;
}

/// Waits until clients have been answered as they should be, many times.
async fn goes_on(shared: &simulation::Shared) {
    let before = shared.answered();
    let enough = async || shared.answered() > before + 100;
    until("clients go on", enough).await;
}

/// Without a majority nobody is told anything wrong.
async fn majority_away(etcd: &EtcdCluster, shared: &simulation::Shared) {
    let (first, second) = (&etcd.members()[0], &etcd.members()[1]);
    let before = shared.told_to_wait();
    first.kill();
    second.kill();
    let told = async || shared.told_to_wait() > before;
    until("clients are told to come again", told).await;
    first.spawn();
    second.spawn();
    first.ready().await;
    second.ready().await;
    goes_on(shared).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_three_members_all_goes_on_whichever_is_away_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of("3.6")
        .start_cluster(3, &pki, directory.path())
        .await;
    let report = simulation::run_on(&etcd.urls(), executable(), async |shared, random| {
        let mut faults = [
            (Fault::Kill, Who::Leader),
            (Fault::Kill, Who::Another),
            (Fault::Stop, Who::Leader),
            (Fault::Pause, Who::Leader),
            (Fault::Pause, Who::Another),
        ];
        faults.shuffle(random);
        for (fault, who) in faults {
            disturb(&etcd, fault, who, shared, random).await;
        }
        majority_away(&etcd, shared).await;
    })
    .await;
    assert!(report.requests > 500, "{report:?}");
}

/// When a member is given up that says nothing, and what electing a leader and a busy machine may add.
const GIVEN_UP: Duration = Duration::from_secs(15);
const BUSY: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_member_that_hangs_is_given_up_for_another_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of("3.6")
        .start_cluster(3, &pki, directory.path())
        .await;
    let members = etcd.members();
    let store = EtcdStore::connect(EtcdOptions::new(members.iter().map(Etcd::url)));
    let store = store.await.unwrap();
    store.create("/a", "1", 0).await.unwrap();
    // The one that is named first is asked first.
    members[0].pause();
    let since = Instant::now();
    until("another is asked", || async {
        store.get("/a").await.is_ok()
    })
    .await;
    let took = since.elapsed();
    eprintln!("measured: another was asked after {took:?}");
    assert!(took < GIVEN_UP + BUSY, "{took:?}");
}

#[tokio::test]
async fn a_gateway_finds_servers_by_the_members_that_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let etcd = Etcd::of("3.6")
        .start_cluster(3, &pki, directory.path())
        .await;
    let urls = etcd.urls();
    let server = async |name: &str| {
        let spec = versions::kube_apiserver(&versions::newer()).named(name);
        spec.own_proxy().start(&pki, directory.path(), &urls).await
    };
    // The member that is named first is not there when the gateway starts.
    etcd.members()[0].kill();
    let one = server("one").await;
    let flag = format!("--etcd-servers={urls}");
    let gateway = Gateway::balancing(&[]).flags(&[&flag]);
    let gateway = gateway.start(executable(), &pki, directory.path()).await;
    until_serving(&gateway, &[&one]).await;
    // And then the one is away that it has used instead.
    etcd.members()[0].restart().await;
    etcd.members()[1].kill();
    let two = server("two").await;
    until_serving(&gateway, &[&one, &two]).await;
    let state = gateway.own_state().await;
    let sources = state["sources"].as_array().unwrap().iter();
    let source = sources.clone().find(|it| it["name"] == "etcd").unwrap();
    assert!(source["error"].is_null(), "{source:#}");
    two.kill();
    until_serving(&gateway, &[&one]).await;
}
