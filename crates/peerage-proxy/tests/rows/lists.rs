//! Legacy lists that lack something for a moment, and those that do for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use peerage_proxy::{DebugPeers, ProxyOptions};
use serde_json::{Value, json};

use super::identity::Balancer;
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

fn options() -> ProxyOptions {
    let mut options = WorldBuilder::default().options;
    options.poll.lists_again = Duration::from_millis(200);
    options
}

fn list_of(group_version: &str, resources: &[&str]) -> Value {
    let resource = |name: &&str| json!({"name": name, "singularName": "", "namespaced": true, "kind": "X", "verbs": ["get"]});
    let resources: Vec<Value> = resources.iter().map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

/// Waits until this path was asked for so often.
async fn polled(peer: &FakePeer, path: &str, times: usize) {
    let polled = tokio::time::timeout(Duration::from_secs(60), peer.polled(path, times)).await;
    assert!(polled.is_ok(), "{path} was not asked for {times} times");
}

/// How often this path was asked for.
fn asked(peer: &FakePeer, path: &str) -> usize {
    peer.polls().iter().filter(|it| it.target == path).count()
}

/// Whether requests are sent there for all that it lists.
fn is_whole(debug: &DebugPeers) -> bool {
    let peer = &debug.peers[0];
    let has = |name: &str| peer.only_here.iter().any(|api| api.ends_with(name));
    peer.not_its_own == 0 && has(" widgets") && has(" fleets")
}

/// A server whose lists of two group-versions lack something until it is told to.
fn lacks_until(peer: &FakePeer, installed: &Arc<AtomicBool>) {
    let installed = installed.clone();
    peer.on_probe(move |request| {
        let whole = installed.load(Ordering::Relaxed);
        let answer = match request.uri().path() {
            "/apis/new.example.com/v1" if whole => {
                Some(list_of("new.example.com/v1", &["widgets"]))
            }
            "/apis/apps/v1" if whole => Some(list_of("apps/v1", &["deployments", "fleets"])),
            "/apis/apps/v1" => Some(list_of("apps/v1", &["deployments"])),
            "/apis/apps/v2" => Some(list_of("apps/v2", &["deployments"])),
            "/api/v1" => Some(list_of("v1", &["pods", "pods/log"])),
            _ => None,
        };
        let answer = match answer {
            Some(list) => response(StatusCode::OK, &[], &list.to_string()),
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        };
        async move { answer }
    });
}

#[tokio::test]
async fn a_group_whose_list_was_404_or_lacked_something_for_a_moment_counts_as_soon_as_it_is_there()
{
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "server", &documents::core(), &documents::new()).await;
    let installed = Arc::new(AtomicBool::new(false));
    lacks_until(&peer, &installed);
    let records = vec![live("server", peer.address)];
    let balancer = Balancer::with(&pki, records, options());
    let lacking = |count: usize| move |it: &DebugPeers| it.peers[0].not_its_own == count;
    balancer.until("two are lacking", lacking(2)).await;
    // They are read again, and nothing else is.
    let seen = asked(&peer, "/apis/new.example.com/v1");
    polled(&peer, "/apis/new.example.com/v1", seen + 2).await;
    assert!(asked(&peer, "/apis/apps/v1") > 1);
    assert_eq!(asked(&peer, "/apis/apps/v2"), 1);
    assert_eq!(asked(&peer, "/api/v1"), 1);

    installed.store(true, Ordering::Relaxed);
    balancer.until("nothing is lacking", is_whole).await;
    assert_eq!(balancer.get(WIDGETS).await.text(), "server");
    assert_eq!(balancer.get("/apis/apps/v1/fleets").await.text(), "server");
    // Once they are whole they are left alone.
    let lists = || {
        let polls = peer.polls();
        polls
            .iter()
            .filter(|it| it.target.matches('/').count() > 2)
            .count()
    };
    let before = lists();
    let rounds = asked(&peer, "/readyz");
    polled(&peer, "/readyz", rounds + 15).await;
    assert_eq!(lists(), before);
}

#[tokio::test]
async fn a_peers_group_whose_list_was_404_for_a_moment_is_served_as_soon_as_it_is_there() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "server", &documents::core(), &documents::new()).await;
    let installed = Arc::new(AtomicBool::new(false));
    lacks_until(&peer, &installed);
    let builder = WorldBuilder {
        options: options(),
        records: vec![live("server", peer.address)],
        ..WorldBuilder::default()
    };
    let world = builder.start(pki);
    world
        .until("two are lacking", |it| it.peers[0].not_its_own == 2)
        .await;
    world.until_state("server", "serving").await;
    assert_eq!(world.get(WIDGETS).await.status, 404);
    installed.store(true, Ordering::Relaxed);
    world.until("nothing is lacking", is_whole).await;
    assert_eq!(world.get(WIDGETS).await.text(), "server");
}

const MANY: usize = 200;

/// A server that has none of the many groups that it lists, in the words of a status.
struct Merged {
    peer: FakePeer,
    status: Arc<AtomicU16>,
    /// The most lists that were asked for at a time.
    at_once: Arc<AtomicUsize>,
}

impl Merged {
    async fn start(pki: &Pki) -> Merged {
        let name = |number: usize| format!("g{number:03}.example.com");
        let things = |number| group(&name(number), &[("v1", &[resource("things", &[])])]);
        let groups: Vec<Value> = (0..MANY).map(things).collect();
        let peer = FakePeer::start(pki, "server", &documents::core(), &apis(&groups)).await;
        let (status, now) = (Arc::new(AtomicU16::new(404)), Arc::new(AtomicUsize::new(0)));
        let at_once = Arc::new(AtomicUsize::new(0));
        let known = (status.clone(), now, at_once.clone());
        peer.on_probe(move |request| {
            let (status, now, at_once) = known.clone();
            let is_list = request.uri().path().ends_with(".example.com/v1");
            async move {
                if is_list {
                    at_once.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::Relaxed);
                }
                let status = status.load(Ordering::Relaxed);
                text(StatusCode::from_u16(status).unwrap(), "no")
            }
        });
        Merged {
            peer,
            status,
            at_once,
        }
    }

    async fn found_out(&self, pki: &Pki, again: Duration) -> Balancer {
        let mut options = options();
        options.poll.lists_again = again;
        let balancer = Balancer::with(pki, vec![live("server", self.peer.address)], options);
        let all = |it: &DebugPeers| it.peers[0].not_its_own == MANY;
        balancer.until("all are lacking", all).await;
        balancer
    }

    /// The lists that were asked for in each round.
    fn rounds(&self) -> Vec<Vec<String>> {
        let mut rounds = Vec::new();
        for it in self.peer.polls() {
            match rounds.last_mut() {
                _ if it.target == "/readyz" => rounds.push(Vec::new()),
                Some(round) if it.target.ends_with(".example.com/v1") => round.push(it.target),
                _ => {}
            }
        }
        rounds
    }
}

/// A server that answers what others serve lacks most of it for ever.
#[tokio::test]
async fn of_many_lists_that_are_lacking_a_few_are_read_again_at_a_time_and_all_in_turn() {
    let pki = Pki::new();
    let merged = Merged::start(&pki).await;
    let _balancer = merged.found_out(&pki, Duration::from_millis(1)).await;
    polled(&merged.peer, "/apis/g000.example.com/v1", 3).await;
    let rounds = merged.rounds();
    let most = rounds[1..].iter().map(Vec::len).max();
    assert!(
        most.is_some_and(|most| (1..=32).contains(&most)),
        "{most:?}"
    );
    assert!(merged.at_once.load(Ordering::Relaxed) <= 8);
    // Nobody comes for the third time before everybody has come twice.
    let mut times: HashMap<&str, usize> = HashMap::new();
    for list in rounds.iter().flatten() {
        let count = times.entry(list).or_default();
        *count += 1;
        if *count == 3 {
            break;
        }
    }
    assert_eq!(times.len(), MANY);
    assert!(times.values().all(|count| *count >= 2), "{times:?}");
}

#[tokio::test]
async fn a_server_that_fails_to_answer_for_a_list_is_left_alone_for_a_while() {
    let pki = Pki::new();
    let merged = Merged::start(&pki).await;
    let again = Duration::from_secs(1);
    let balancer = merged.found_out(&pki, again).await;
    merged.status.store(503, Ordering::Relaxed);
    let (started, before) = (Instant::now(), merged.rounds());
    polled(&merged.peer, "/readyz", before.len() + 60).await;
    let after = merged.rounds();
    let count = |rounds: &[Vec<String>]| rounds.iter().map(Vec::len).sum::<usize>();
    let asked = count(&after) - count(&before);
    let passed = started.elapsed().as_secs_f64() / again.as_secs_f64();
    let most = 8 * (passed.ceil() as usize + 1);
    assert!((1..=most).contains(&asked), "{asked} of {most}");
    let not_own = balancer.proxy.debug().peers[0].not_its_own;
    assert_eq!(not_own, MANY, "what it did not say changes nothing");
}
