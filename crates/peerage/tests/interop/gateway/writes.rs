//! Which server a client's writes go to, and its reads after them; and that a gateway says so when it starts.

use std::collections::BTreeMap;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Gateway, RunningGateway};
use peerage_testkit::wire::Outgoing;
use serde_json::json;

use super::GATEWAYS;
use crate::ours::start;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A client: whose certificate it shows, and which token.
type Client = (String, Option<&'static str>);

/// Sends a request over HTTP/1.1 and over HTTP/2; under which ids the servers audit them.
async fn send(way: &RunningGateway, (user, token): &Client, request: &Outgoing) -> [String; 2] {
    let mut request = request.clone();
    if let Some(token) = token {
        request = request.header("Authorization", &format!("Bearer {token}"));
    }
    let first = way.client(user).send(&request).await.unwrap();
    let second = way.multiplexed(user).await.send(&request).await.unwrap();
    [first, second].map(|answer| {
        assert_eq!(answer.status(), 200, "{}", answer.in_words());
        answer.head.header("audit-id").unwrap().to_owned()
    })
}

/// How many of these requests each server answered, by their audit logs.
async fn answered<'a>(
    servers: [(&'a str, &Apiserver); 2],
    ids: &[String],
) -> BTreeMap<&'a str, usize> {
    let mut by = BTreeMap::new();
    until("each request is in an audit log", || {
        for (name, server) in servers {
            for event in server.audit() {
                let id = event["auditID"].as_str().unwrap_or_default().to_owned();
                by.insert(id, name);
            }
        }
        std::future::ready(ids.iter().all(|id| by.contains_key(id)))
    })
    .await;
    let mut counts = BTreeMap::new();
    for id in ids {
        *counts.entry(by[id]).or_default() += 1;
    }
    counts
}

async fn map(server: &Apiserver, name: &str) -> String {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    server.create(MAPS, &map).await;
    format!("{MAPS}/{name}")
}

fn patch(target: &str) -> Outgoing {
    let label = json!({"metadata": {"labels": {"seen": "yes"}}});
    Outgoing::new("PATCH", target).json("application/merge-patch+json", &label)
}

#[tokio::test]
async fn who_writes_by_way_of_the_newest_server_reads_from_it_too() {
    let gateways = GATEWAYS.get().await;
    let plane = &gateways.plane;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let servers = [("older", older), ("newer", newer)];
    let clients = |kind: &str| -> Vec<Client> {
        let names = (0..6).map(|number| format!("{kind}-{number}"));
        for name in names.clone() {
            plane.pki().client(&name, &name, &["system:masters"]);
        }
        names.map(|name| (name, None)).collect()
    };
    let newest = Gateway::beside(older)
        .peer(newer)
        .flags(&["--writes=newest"]);
    let sidecar = start(plane, newest).await;
    for (name, way) in [("sidecar", &sidecar), ("balancer", &gateways.balancer)] {
        let (mut writers, readers) = (clients("writer"), clients("reader"));
        writers.push(("anonymous".to_owned(), Some("roots-token")));
        let target = map(newer, &format!("read-back-{name}")).await;
        let reads = [
            Outgoing::new("GET", &target),
            Outgoing::new("GET", &format!("{MAPS}?limit=5")),
        ];
        let (mut before, mut writes, mut after, mut others) = (vec![], vec![], vec![], vec![]);
        for client in &writers {
            for read in &reads {
                before.extend(send(way, client, read).await);
            }
        }
        for client in &writers {
            writes.extend(send(way, client, &patch(&target)).await);
            for read in &reads {
                after.extend(send(way, client, read).await);
            }
        }
        for client in &readers {
            for read in &reads {
                others.extend(send(way, client, read).await);
            }
        }
        let [before, writes, after, others] = [
            answered(servers, &before).await,
            answered(servers, &writes).await,
            answered(servers, &after).await,
            answered(servers, &others).await,
        ];
        println!(
            "{name}: reads before {before:?}, writes {writes:?}, reads after {after:?}, of others {others:?}"
        );
        assert_eq!(writes, [("newer", 14)].into(), "{name}: writes");
        assert_eq!(after, [("newer", 28)].into(), "{name}: reads after them");
        // Without a write before they go where they would go anyway.
        for (what, reads) in [("before", &before), ("of others", &others)] {
            assert!(reads.contains_key("older"), "{name} {what}: {reads:?}");
            assert!(
                name == "balancer" || !reads.contains_key("newer"),
                "{name} {what}: {reads:?}"
            );
        }
    }
}

/// What a gateway has logged, whole.
fn log(gateway: &RunningGateway) -> String {
    std::fs::read_to_string(gateway.log_file()).unwrap()
}

#[tokio::test]
async fn a_gateway_says_when_it_starts_where_writes_go_and_what_that_costs() {
    let gateways = GATEWAYS.get().await;
    let plane = &gateways.plane;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let newest = Gateway::beside(older)
        .peer(newer)
        .flags(&["--writes=newest"]);
    let local = Gateway::balancing(&[older, newer]).flags(&["--writes=local"]);
    let (newest, local) = tokio::join!(start(plane, newest), start(plane, local));
    let beside = format!("beside {}", older.url());
    let costs = |policy: &str| match policy {
        "newest" => {
            "--writes=newest: what several servers serve is written through the newest that answers, so that no \
                     older one erases fields that only the newest knows; the newest carries all writes"
        }
        _ => {
            "--writes=local: a write goes to the server that any request would go to; an older server erases fields of \
              the object that only a newer one knows"
        }
    };
    for (name, way, kind, policy, by) in [
        (
            "sidecar",
            &gateways.sidecar,
            &*beside,
            "local",
            Some("older"),
        ),
        (
            "balancer",
            &gateways.balancer,
            "as a balancer",
            "newest",
            Some("newer"),
        ),
        (
            "sidecar that was told",
            &newest,
            &*beside,
            "newest",
            Some("newer"),
        ),
        (
            "balancer that was told",
            &local,
            "as a balancer",
            "local",
            None,
        ),
    ] {
        let log = log(way);
        let said: Vec<&str> = log
            .lines()
            .filter(|it| {
                ["newest", "local"]
                    .iter()
                    .any(|policy| it.contains(costs(policy)))
            })
            .collect();
        assert!(
            said.len() == 1 && said[0].ends_with(costs(policy)),
            "{name}: {said:?}"
        );
        assert!(said[0].contains(" INFO "), "{name}: {said:?}");
        let running = format!("running {kind}");
        assert!(log.lines().any(|it| it.contains(&running)), "{name}: {log}");
        println!("{name}: {}", said[0]);

        // And so it is.
        let target = map(newer, &format!("policy-{}", name.replace(' ', "-"))).await;
        let ids = send(way, &("admin".to_owned(), None), &patch(&target)).await;
        let by_whom = answered([("older", older), ("newer", newer)], &ids).await;
        if let Some(by) = by {
            assert_eq!(by_whom, [(by, 2)].into(), "{name}");
        }
    }
}
