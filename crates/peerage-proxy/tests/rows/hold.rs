//! What is remembered of a peer that is away, and for how long.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::StatusCode;
use peerage_proxy::{Clock, DebugPeers, MAX_PEERS, PeerRecord};

use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A clock that a test turns.
#[derive(Clone)]
struct Hands(Arc<Mutex<SystemTime>>);

impl Hands {
    fn new() -> Hands {
        Hands(Arc::new(Mutex::new(SystemTime::now())))
    }

    fn clock(&self) -> Clock {
        let hands = self.0.clone();
        Clock::new(move || *hands.lock().unwrap())
    }

    fn turn(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }

    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }
}

async fn pair(hands: &Hands) -> (World, FakePeer, PeerRecord) {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let record = live("apiserver-new", peer.address);
    let mut builder = WorldBuilder {
        records: vec![record.clone()],
        ..WorldBuilder::default()
    };
    builder.options.clock = hands.clock();
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    (world, peer, record)
}

async fn freshness(world: &World) -> Option<String> {
    let list = world.get_accepting("/apis", AGGREGATED).await.json();
    let items = list["items"].as_array().unwrap().clone();
    let group = items
        .into_iter()
        .find(|g| g["metadata"]["name"] == "new.example.com")?;
    Some(
        group["versions"][0]["freshness"]
            .as_str()
            .unwrap()
            .to_owned(),
    )
}

/// Discovery and requests agree while the peer is held, and when it is forgotten.
async fn assert_held_then_forgotten(world: &World, hands: &Hands, left: Duration) {
    assert_eq!(freshness(world).await.as_deref(), Some("Stale"));
    world.get(WIDGETS).await.assert_retryable();
    assert_eq!(world.get("/apis/new.example.com/v1").await.status, 503);
    hands.turn(left);
    world.records.send_modify(|_| {});
    world.until("it is forgotten", |d| d.peers.is_empty()).await;
    assert_eq!(freshness(world).await, None);
    assert_eq!(world.get(WIDGETS).await.status, 404);
}

#[tokio::test]
async fn row_05_a_crashed_peers_apis_are_stale_and_503_until_the_hold_time_ends() {
    let hands = Hands::new();
    let (world, _peer, mut record) = pair(&hands).await;
    assert_eq!(freshness(&world).await.as_deref(), Some("Current"));
    record.endpoint_live = false;
    record.address = None;
    world.set_records(vec![record]);
    world.until_state("apiserver-new", "crashed").await;
    assert_held_then_forgotten(&world, &hands, Duration::from_secs(600)).await;
}

/// kube-apiserver answers before it has found its custom resources and aggregated APIs.
#[tokio::test]
async fn what_a_server_does_not_list_while_it_starts_is_away_until_it_is_ready() {
    let (world, peer, _) = pair(&Hands::new()).await;
    peer.set_ready(StatusCode::INTERNAL_SERVER_ERROR);
    lists_other_apis(&world, &peer).await;
    world.until_answered(WIDGETS, 503).await.assert_retryable();
    assert_eq!(freshness(&world).await.as_deref(), Some("Stale"));
    // More is news at once.
    assert_eq!(world.get(MORE).await.text(), "apiserver-new");
    let metrics = world.metrics();
    let counted = metrics
        .lines()
        .find(|it| it.contains(r#"reason="starting""#));
    assert!(counted.is_some_and(|it| it.ends_with(" 1")), "{metrics}");

    peer.set_ready(StatusCode::OK);
    world.until_answered(WIDGETS, 404).await;
    world.until("it has started", has_started).await;
    assert_eq!(world.get(MORE).await.text(), "apiserver-new");
    assert_eq!(freshness(&world).await, None);
}

#[tokio::test]
async fn a_server_that_is_never_ready_is_believed_once_the_hold_time_is_over() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-new", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.hold = Duration::from_secs(4);
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    peer.set_ready(StatusCode::INTERNAL_SERVER_ERROR);
    lists_other_apis(&world, &peer).await;
    world.until_answered(WIDGETS, 503).await.assert_retryable();
    world.until_answered(WIDGETS, 404).await;
    world.until("it is believed", has_started).await;
    assert_eq!(world.get(MORE).await.text(), "apiserver-new");
}

const MORE: &str = "/apis/more.example.com/v1/things";

/// Has the server list something else than before, and waits until it is taken for one that starts.
async fn lists_other_apis(world: &World, peer: &FakePeer) {
    let other = documents::group(
        "more.example.com",
        &[("v1", &[documents::resource("things", &[])])],
    );
    peer.set_apis(Document::of(&documents::apis(&[other])));
    world
        .until("it is taken for one that starts", |debug| {
            debug.peers.iter().any(|it| it.starting && !it.ready)
        })
        .await;
}

fn has_started(debug: &DebugPeers) -> bool {
    debug.peers.iter().all(|it| !it.starting)
}

#[tokio::test]
async fn row_19_a_peer_that_leaves_cleanly_is_held_as_long_as_it_asked_for() {
    let hands = Hands::new();
    let (world, _peer, mut record) = pair(&hands).await;
    record.endpoint_live = false;
    record.address = None;
    let mut farewell = lease("apiserver-new");
    farewell.renew_time = Some(hands.now());
    farewell.hold = Some(Duration::from_secs(300));
    record.identity_lease = Some(farewell);
    world.set_records(vec![record]);
    world.until_state("apiserver-new", "left").await;
    hands.turn(Duration::from_secs(299));
    assert_held_then_forgotten(&world, &hands, Duration::from_secs(2)).await;
}

/// Addresses come and go: what was counted of those that are gone is not told for ever.
#[tokio::test]
async fn the_series_of_a_peer_go_when_it_is_forgotten() {
    let hands = Hands::new();
    let (world, peer, _) = pair(&hands).await;
    world.get(WIDGETS).await;
    peer.kill();
    world.until_state("apiserver-new", "unreachable").await;
    let told = r#"peer="apiserver-new""#;
    assert!(world.metrics().contains(told));
    world.set_records(Vec::new());
    world.until_state("apiserver-new", "left").await;
    assert!(world.metrics().contains(told), "it may come back");
    hands.turn(Duration::from_secs(601));
    world.records.send_modify(|_| {});
    world.until("it is forgotten", |d| d.peers.is_empty()).await;
    let metrics = world.metrics();
    assert!(!metrics.contains(told), "{metrics}");
}

/// A kube-apiserver that stops deletes both its Lease and its endpoint key.
#[tokio::test]
async fn row_18_and_19_after_the_last_peer_has_left_discovery_and_routing_agree() {
    let hands = Hands::new();
    let (world, _peer, _) = pair(&hands).await;
    world.set_records(Vec::new());
    world.until_state("apiserver-new", "left").await;
    assert_held_then_forgotten(&world, &hands, Duration::from_secs(601)).await;
}

#[tokio::test]
async fn row_19_through_a_restart_of_the_only_server_no_request_is_404() {
    let hands = Hands::new();
    let (world, peer, record) = pair(&hands).await;
    peer.kill();
    world.set_records(Vec::new());
    world.until_state("apiserver-new", "left").await;
    assert_eq!(world.get(WIDGETS).await.status, 503);

    let mut starting = record.clone();
    starting.endpoint_live = false;
    starting.address = None;
    let mut again = lease("apiserver-new");
    again.holder = "apiserver-new_2".into();
    starting.identity_lease = Some(again.clone());
    world.set_records(vec![starting]);
    world.until_state("apiserver-new", "crashed").await;
    assert_eq!(world.get(WIDGETS).await.status, 503);

    let back = FakePeer::start(
        &world.pki,
        "apiserver-new",
        &documents::core(),
        &documents::new(),
    )
    .await;
    let mut record = live("apiserver-new", back.address);
    record.identity_lease = Some(again);
    world.set_records(vec![record]);
    world.until_state("apiserver-new", "serving").await;
    assert_eq!(world.get(WIDGETS).await.status, 200);
    assert_eq!(freshness(&world).await.as_deref(), Some("Current"));
}

#[tokio::test]
async fn row_19_a_server_that_has_not_heard_of_all_peers_says_503() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    peer.set_api(Document::Status(500));
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "unheard").await;
    for target in [
        "/apis/nosuch.example.com/v1/things",
        "/apis/nosuch.example.com",
        "/apis/nosuch.example.com/v1",
    ] {
        world.get(target).await.assert_retryable();
    }
    assert_eq!(
        world.get("/apis/apps/v1/deployments").await.text(),
        "local",
        "what is served here is"
    );
    peer.set_api(Document::of(&documents::core()));
    world.until_state("apiserver-new", "serving").await;
    assert_eq!(
        world.get("/apis/nosuch.example.com/v1/things").await.status,
        404
    );
}

#[tokio::test]
async fn an_identity_that_never_gets_an_endpoint_is_waited_for_only_so_long() {
    let hands = Hands::new();
    let pki = Pki::new();
    let mut builder = WorldBuilder::default();
    builder.options.clock = hands.clock();
    let mut record = live("apiserver-ghost", ([127, 0, 0, 1], 1).into());
    record.endpoint_live = false;
    record.address = None;
    builder.records = vec![record.clone()];
    let world = builder.start(pki);
    world
        .get("/apis/nosuch.example.com/v1/things")
        .await
        .assert_retryable();
    hands.turn(Duration::from_secs(31));
    let mut renewed = lease("apiserver-ghost");
    renewed.renew_time = Some(hands.now());
    record.identity_lease = Some(renewed);
    world.set_records(vec![record]);
    world.until("it is given up", |d| d.peers.is_empty()).await;
    assert_eq!(
        world.get("/apis/nosuch.example.com/v1/things").await.status,
        404
    );
}

/// Too many peers: the first of the list count, whoever is gone makes room, and it is the same each time.
#[tokio::test]
async fn of_too_many_peers_the_first_of_the_list_count_and_those_that_are_gone_make_room() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let record = |number: usize| live(&format!("apiserver-{number:03}"), address);
    let ids = |numbers: std::ops::Range<usize>| -> Vec<String> {
        numbers.map(|it| format!("apiserver-{it:03}")).collect()
    };
    let known = |debug: &DebugPeers| -> Vec<String> {
        debug.peers.iter().map(|it| it.id.clone()).collect()
    };
    let mut builder = WorldBuilder {
        records: (0..MAX_PEERS + 7).map(record).collect(),
        ..WorldBuilder::default()
    };
    builder.options.poll.retry = Duration::from_secs(3600);
    builder.options.poll.retry_cap = Duration::from_secs(3600);
    let world = builder.start(Pki::new());
    assert_eq!(known(&world.proxy.debug()), ids(0..MAX_PEERS));
    // Five go, and are remembered, until five others are there.
    world.set_records((5..MAX_PEERS).map(record).collect());
    world
        .until("five are gone", |debug| {
            debug.peers.iter().filter(|it| it.state == "left").count() == 5
        })
        .await;
    assert_eq!(known(&world.proxy.debug()), ids(0..MAX_PEERS));
    world.set_records((5..MAX_PEERS + 7).map(record).collect());
    world
        .until("others are there", |debug| {
            known(debug) == ids(5..MAX_PEERS + 5)
        })
        .await;
}
