//! Whether somebody may read discovery: how often servers are asked, how soon a change of rights is noticed, and what
//! tokens cost that nobody knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, ControlPlane, Gateway, RunningGateway};
use peerage_testkit::wire::{AGGREGATED, Outgoing};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::gateway::GATEWAYS;
use crate::ours::start;
use crate::versions;

/// Gateways beside the older server and over both.
async fn both(plane: &ControlPlane, flags: &[&str]) -> [(&'static str, RunningGateway); 2] {
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let (sidecar, balancer) = tokio::join!(
        start(plane, Gateway::beside(older).peer(newer).flags(flags)),
        start(plane, Gateway::balancing(&[older, newer]).flags(flags)),
    );
    [("sidecar", sidecar), ("balancer", balancer)]
}

/// What a user agent asked the servers, by their audit logs: how often each question. One more than once went to a second
/// server because the first was too slow, as any read may.
fn asked(plane: &ControlPlane, agent: &str) -> BTreeMap<String, usize> {
    let servers = ["older", "newer"].map(|name| plane.server(name));
    let events = servers.iter().flat_map(|server| server.audit_with(agent));
    let mut questions = BTreeMap::new();
    for event in events.filter(|event| event["userAgent"] == agent) {
        let id = event["auditID"].as_str().unwrap().to_owned();
        *questions.entry(id).or_default() += 1;
    }
    questions
}

fn apis(agent: &str) -> Outgoing {
    Outgoing::get_as("/apis", AGGREGATED).header("User-Agent", agent)
}

#[tokio::test]
async fn without_a_remembered_time_each_request_costs_a_server_a_question() {
    let gateways = GATEWAYS.get().await;
    for (name, gateway) in both(&gateways.plane, &["--discovery-authorization-ttl=0"]).await {
        let agent = format!("each-time/{name}");
        let alice = gateway.client("alice");
        for round in 0..20 {
            let mut ask = apis(&agent);
            if round % 2 == 1 {
                ask = Outgoing::new("GET", "/openapi/v3").header("User-Agent", &agent);
            }
            let answer = alice.send(&ask).await.unwrap();
            assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
        }
        until("all questions are audited", || {
            std::future::ready(asked(&gateways.plane, &agent).len() >= 20)
        })
        .await;
        assert_eq!(asked(&gateways.plane, &agent).len(), 20, "{name}");
        println!("{name}: 20 requests, 20 questions");
    }
}

/// What is given as `--discovery-authorization-ttl`.
const REMEMBERED: Duration = Duration::from_secs(4);
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Who may read discovery, as Kubernetes comes.
fn binding() -> Value {
    let rbac = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "system:discovery"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:discovery"},
        "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:authenticated"}],
    })
}

async fn status(way: &Apiserver) -> u16 {
    let answer = way.client("alice").send(&apis("rights")).await.unwrap();
    answer.status()
}

/// Waits until each server says this to whom the binding is about.
async fn all_say(servers: [&Apiserver; 2], expected: u16) {
    for server in servers {
        let what = format!("{} says {expected}", server.name());
        until(&what, || async { status(server).await == expected }).await;
    }
}

/// Asks until it is refused, and checks that it is so in time; when that was.
async fn noticed(name: &str, gateway: &Apiserver, taken: Instant) -> Duration {
    loop {
        let asked = taken.elapsed();
        match status(gateway).await {
            403 => {
                assert_eq!(status(gateway).await, 403, "{name}: it stays so");
                return asked;
            }
            200 => assert!(asked <= REMEMBERED, "{name}: yes after {asked:?}"),
            other => panic!("{name}: {other}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_right_that_is_taken_away_counts_no_longer_than_it_is_remembered() {
    let plane = versions::pair_without_own_proxies().await;
    let servers = ["older", "newer"].map(|name| plane.server(name));
    let (at_once, later) = tokio::join!(
        both(&plane, &["--discovery-authorization-ttl=0"]),
        both(&plane, &["--discovery-authorization-ttl=4s"]),
    );
    for (name, gateway) in at_once.iter().chain(&later) {
        assert_eq!(status(gateway).await, 200, "{name}");
    }
    let admin = servers[1].client("admin");
    let delete = Outgoing::new("DELETE", &format!("{BINDINGS}/system:discovery"));
    assert_eq!(admin.send(&delete).await.unwrap().status(), 200);
    all_say(servers, 403).await;
    // Every yes is older than this.
    let taken = Instant::now();
    for (name, gateway) in &at_once {
        assert_eq!(status(gateway).await, 403, "{name}");
    }
    let [(sidecar, beside), (balancer, before)] = &later;
    let noticed = tokio::join!(
        noticed(sidecar, beside, taken),
        noticed(balancer, before, taken)
    );
    println!("noticed after {noticed:?}");

    // A no is not remembered at all.
    servers[0].create(BINDINGS, &binding()).await;
    all_say(servers, 200).await;
    for (name, gateway) in at_once.iter().chain(&later) {
        assert_eq!(status(gateway).await, 200, "{name}");
    }
}

#[tokio::test]
async fn a_flood_of_tokens_that_nobody_knows_costs_the_servers_a_bounded_rate() {
    const TOKENS: usize = 3000;
    let gateways = GATEWAYS.get().await;
    for (name, gateway) in both(&gateways.plane, &[]).await {
        let agent = format!("flood/{name}");
        let known = apis("before").header("Authorization", "Bearer bobs-token");
        let answer = gateway.client("anonymous").send(&known).await.unwrap();
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());

        let started = Instant::now();
        let next = Arc::new(AtomicUsize::new(0));
        let mut flood = Vec::new();
        for _ in 0..4 {
            let connection = gateway.multiplexed("anonymous").await;
            for _ in 0..12 {
                let (connection, next, ask) = (connection.clone(), next.clone(), apis(&agent));
                flood.push(tokio::spawn(async move {
                    let mut limited = 0;
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= TOKENS {
                            return limited;
                        }
                        let token = format!("Bearer unknown-{number}");
                        let ask = ask.clone().header("Authorization", &token);
                        let answer = connection.send(&ask).await.unwrap();
                        match answer.status() {
                            401 => {}
                            429 => {
                                assert!(answer.head.header("retry-after").is_some());
                                limited += 1;
                            }
                            other => panic!("{other}: {}", answer.in_words()),
                        }
                    }
                }));
            }
        }
        // Who is known is not held up, by certificate or by a token that was let in.
        let others = Outgoing::new("GET", "/openapi/v3");
        let token = others.clone().header("Authorization", "Bearer bobs-token");
        for (user, ask) in [("alice", others), ("anonymous", token)] {
            let answer = gateway.client(user).send(&ask).await.unwrap();
            assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
        }
        let mut limited = 0;
        for task in flood {
            limited += task.await.unwrap();
        }
        let took = started.elapsed();
        until("the last question is audited", || {
            std::future::ready(asked(&gateways.plane, &agent).len() >= TOKENS - limited)
        })
        .await;
        let questions = asked(&gateways.plane, &agent);
        assert_eq!(questions.len(), TOKENS - limited, "{name}");
        let asked: usize = questions.values().sum();
        // Bursts of 200, and 50 a second.
        let most = 200 + 50 * (took.as_secs() as usize + 1);
        println!("{name}: {TOKENS} tokens in {took:?}: {asked} questions, {limited} put off");
        assert!(limited > 0 && asked <= most, "{name}: {asked} > {most}");
    }
}
