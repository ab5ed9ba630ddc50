//! Discovery and OpenAPI through `peerage gateway`: what the newer server would answer if it were alone, shown to those
//! only whom the servers let read it.

mod authorization;
mod compression;
mod nonsense;
mod profiles;

use std::path::Path;
use std::time::Duration;

use peerage_testkit::kube::RunningGateway;
use peerage_testkit::kubectl::{NEWEST, OLDEST};
use peerage_testkit::wire::{AGGREGATED, Answer, Client, Outgoing};
use serde_json::Value;

use crate::gateway::GATEWAYS;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Documents that a gateway has at hand, of every kind.
const PATHS: [&str; 10] = [
    "/api",
    "/api/",
    "/apis",
    "/apis/",
    "/api/v1",
    "/apis/apps",
    "/apis/apps/v1",
    "/apis/storagemigration.k8s.io/v1",
    "/openapi/v2",
    "/openapi/v3",
];

async fn get(client: &Client, target: &str, accept: &str) -> Answer {
    client
        .send(&Outgoing::get_as(target, accept))
        .await
        .unwrap()
}

fn header(answer: &Answer, name: &str) -> Option<String> {
    answer.head.header(name).map(str::to_owned)
}

#[tokio::test]
async fn discovery_is_shown_to_those_whom_the_servers_let_read_it() {
    let gateways = GATEWAYS.get().await;
    let newer = gateways.plane.server("newer");
    for (name, gateway) in gateways.each() {
        for path in PATHS.iter().chain(&["/openapi/v3/api/v1"]) {
            for (user, token, expected) in [
                ("admin", None, 200),
                ("alice", None, 200),
                ("anonymous", None, 403),
                ("anonymous", Some("bobs-token"), 200),
                ("anonymous", Some("nobodys"), 401),
            ] {
                let mut ask = Outgoing::new("GET", path);
                if let Some(token) = token {
                    ask = ask.header("Authorization", &format!("Bearer {token}"));
                }
                let answer = gateway.client(user).send(&ask).await.unwrap();
                let what = format!("{name} {path} {user} {token:?}: {}", answer.in_words());
                assert_eq!(answer.status(), expected, "{what}");
                if expected != 200 {
                    let alone = newer.client(user).send(&ask).await.unwrap();
                    assert_eq!(answer.body, alone.body, "{what}");
                }
            }
        }
        let nobody = Outgoing::new("GET", "/apis").header("Impersonate-User", "system:anonymous");
        let answer = gateway.client("admin").send(&nobody).await.unwrap();
        assert_eq!(answer.status(), 403, "{name}: {}", answer.in_words());
        for method in ["POST", "DELETE", "HEAD", "OPTIONS"] {
            let ask = Outgoing::new(method, "/apis");
            for user in ["admin", "alice", "anonymous"] {
                let answer = gateway.client(user).send(&ask).await.unwrap();
                let alone = newer.client(user).send(&ask).await.unwrap();
                let what = format!("{name} {method} {user}: {}", answer.in_words());
                assert_eq!(answer.status(), alone.status(), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_yes_is_remembered_for_its_time_and_costs_the_servers_nothing_meanwhile() {
    let gateways = GATEWAYS.get().await;
    let servers = ["older", "newer"].map(|name| gateways.plane.server(name));
    let asked = |token: &str| -> usize {
        let of = |event: &Value| {
            event["userAgent"] == token
                && event["requestURI"]
                    .as_str()
                    .is_some_and(|uri| uri == "/apis")
        };
        servers
            .iter()
            .map(|it| it.audit().iter().filter(|event| of(event)).count())
            .sum()
    };
    for (name, gateway) in gateways.each() {
        let agent = format!("counting/{name}");
        let ask = Outgoing::get_as("/apis", AGGREGATED).header("User-Agent", &agent);
        let started = std::time::Instant::now();
        let mut last = String::new();
        for _ in 0..100 {
            let answer = gateway.client("alice").send(&ask).await.unwrap();
            assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
            last = header(&answer, "audit-id").unwrap();
        }
        assert!(!last.is_empty());
        let most = 1 + started.elapsed().as_secs() as usize / 10;
        peerage_testkit::cluster::until("the question is in an audit log", || {
            std::future::ready(asked(&agent) > 0)
        })
        .await;
        assert!(asked(&agent) <= most, "{name}: {} > {most}", asked(&agent));
    }
}

/// Headers that say what a document is and how long it may be kept.
const SAID: [&str; 4] = ["content-type", "etag", "vary", "cache-control"];

#[tokio::test]
async fn every_accept_is_answered_as_the_newer_server_answers_it_alone() {
    let gateways = GATEWAYS.get().await;
    let nopeer = format!("{AGGREGATED};profile=nopeer");
    let protobuf = AGGREGATED.replace("application/json", PROTOBUF);
    let yaml = AGGREGATED.replace("application/json", "application/yaml");
    let beta = AGGREGATED.replace("v=v2", "v=v2beta1");
    let rows = [
        "",
        "*/*",
        "application/*",
        "application/json",
        "application/yaml",
        PROTOBUF,
        AGGREGATED,
        &yaml,
        &protobuf,
        &nopeer,
        &format!("{nopeer},{AGGREGATED}"),
        &format!("{AGGREGATED},{nopeer}"),
        &format!("application/json,{AGGREGATED};q=0.1"),
        &format!("{protobuf},{AGGREGATED},application/json"),
        &format!("{protobuf},{PROTOBUF};q=0.9,application/json;q=0.8"),
        &AGGREGATED.replace("application/json", "*/*"),
        &format!("{AGGREGATED},{beta},application/json"),
        "application/json;as=APIGroupDiscoveryList",
        "application/json;foo=bar",
        "application/json;q=0",
        "application/json;pretty=1",
        "text/html",
        "application/cbor",
    ];
    let newer = gateways.plane.server("newer").client("admin");
    let mut wrong = Vec::new();
    for (name, gateway) in gateways.each() {
        let client = gateway.client("admin");
        for path in PATHS.iter().filter(|path| !path.starts_with("/openapi")) {
            for accept in rows {
                // A sidecar's own document is the older server's.
                if name == "sidecar" && accept.starts_with(&*nopeer) {
                    continue;
                }
                let (ours, theirs) = (
                    get(&client, path, accept).await,
                    get(&newer, path, accept).await,
                );
                let said = |it: &Answer| SAID.map(|name| header(it, name));
                let mut differ = Vec::new();
                if ours.status() != theirs.status() {
                    differ.push(format!("{} / {}", ours.in_words(), theirs.in_words()));
                } else if said(&ours) != said(&theirs) {
                    differ.push(format!("{:?} / {:?}", said(&ours), said(&theirs)));
                } else if without_address(&ours) != without_address(&theirs) {
                    differ.push(first_difference(&ours.body, &theirs.body));
                }
                wrong.extend(
                    differ
                        .into_iter()
                        .map(|it| format!("{name} {path} {accept:?}: {it}")),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The newest servers have it no more; kubectl 1.26 to 1.29 asks for it and would else walk through all groups.
#[tokio::test]
async fn the_older_aggregated_form_is_answered_whatever_the_servers_have() {
    let gateways = GATEWAYS.get().await;
    let beta = AGGREGATED.replace("v=v2", "v=v2beta1");
    for (name, gateway) in gateways.each() {
        let client = gateway.client("admin");
        let answer = get(&client, "/apis", &format!("{beta},application/json")).await;
        assert_eq!(
            header(&answer, "content-type"),
            Some(beta.clone()),
            "{name}"
        );
        let current = get(&client, "/apis", AGGREGATED).await;
        assert_eq!(answer.json()["items"], current.json()["items"], "{name}");
    }
}

/// The body without the port that the legacy document of `/api` names.
fn without_address(answer: &Answer) -> Vec<u8> {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let Some((before, after)) = text.split_once("127.0.0.1:") else {
        return answer.body.clone();
    };
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}127.0.0.1{after}").into_bytes()
}

fn first_difference(ours: &[u8], theirs: &[u8]) -> String {
    let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
    let at = at.unwrap_or(ours.len().min(theirs.len()));
    let around = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(60)..(at + 60).min(bytes.len())];
        part.escape_ascii().to_string()
    };
    format!("at {at}: {} / {}", around(ours), around(theirs))
}

#[tokio::test]
async fn openapi_is_the_same_whichever_server_a_request_goes_to() {
    let gateways = GATEWAYS.get().await;
    let newer = gateways.plane.server("newer").client("admin");
    let alone = get(&newer, "/openapi/v3", "application/json").await;
    let mut seen = Vec::new();
    for (name, gateway) in gateways.each() {
        for round in 0..10 {
            // Every connection is a new client, so a balancer spreads them.
            let client = gateway.client(if round % 2 == 0 { "admin" } else { "alice" });
            let index = get(&client, "/openapi/v3", "application/json").await;
            assert_eq!(index.status(), 200, "{name}: {}", index.in_words());
            assert_eq!(
                header(&index, "content-type"),
                header(&alone, "content-type")
            );
            seen.push(index.body);
            let whole = get(&client, "/openapi/v2", "application/json").await;
            assert_eq!(whole.status(), 200, "{name}: {}", whole.in_words());
            let tag = header(&whole, "etag").unwrap();
            seen.push(tag.clone().into_bytes());
            let again =
                Outgoing::get_as("/openapi/v2", "application/json").header("If-None-Match", &tag);
            let again = client.send(&again).await.unwrap();
            assert_eq!((again.status(), again.body.len()), (304, 0), "{name}");
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2, "one index and one tag");
    let index: Value =
        serde_json::from_slice(seen.iter().max_by_key(|it| it.len()).unwrap()).unwrap();
    let paths = alone.json()["paths"].as_object().unwrap().clone();
    for (path, entry) in &paths {
        assert_eq!(&index["paths"][path], entry, "{path}");
    }
    for (name, gateway) in gateways.each() {
        for path in [
            "apis/storagemigration.k8s.io/v1",
            "apis/apps/v1",
            "api/v1",
            "version",
        ] {
            let target = paths[path]["serverRelativeURL"].as_str().unwrap();
            same_document(name, gateway, &newer, target).await;
        }
    }
}

/// A document, its conditional form, and what a hash does to it.
async fn same_document(name: &str, gateway: &RunningGateway, newer: &Client, target: &str) {
    let client = gateway.client("admin");
    let said = |it: &Answer| SAID.map(|name| header(it, name));
    let bare = target.split('?').next().unwrap();
    let stale = format!("{bare}?hash=0123");
    for target in [target, bare, &stale] {
        let (ours, theirs) = (
            get(&client, target, "application/json").await,
            get(newer, target, "application/json").await,
        );
        assert_eq!(ours.status(), theirs.status(), "{name} {target}");
        assert_eq!(said(&ours), said(&theirs), "{name} {target}");
        assert_eq!(header(&ours, "location"), header(&theirs, "location"));
        let lasts = |it: &Answer| header(it, "expires").map(|it| it[..16].to_owned());
        assert_eq!(lasts(&ours), lasts(&theirs), "{name} {target}");
        assert!(ours.body == theirs.body, "{name} {target}");
        if let Some(tag) = header(&ours, "etag") {
            let ask = Outgoing::get_as(target, "application/json").header("If-None-Match", &tag);
            let (ours, theirs) = (
                client.send(&ask).await.unwrap(),
                newer.send(&ask).await.unwrap(),
            );
            assert_eq!(ours.status(), theirs.status(), "{name} {target}");
        }
    }
}

#[tokio::test]
async fn version_2_of_openapi_in_protobuf_is_one_servers_own() {
    let gateways = GATEWAYS.get().await;
    let newer = gateways.plane.server("newer").client("admin");
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let alone = get(&newer, "/openapi/v2", accept).await;
    for (name, gateway) in gateways.each() {
        for _ in 0..5 {
            let answer = get(&gateway.client("admin"), "/openapi/v2", accept).await;
            assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
            assert_eq!(
                header(&answer, "content-type"),
                header(&alone, "content-type")
            );
            assert_eq!(header(&answer, "etag"), header(&alone, "etag"), "{name}");
            assert!(answer.body == alone.body, "{name}");
        }
    }
}

#[tokio::test]
async fn kubectl_old_and_new_lists_and_explains_what_only_the_newer_server_has() {
    let gateways = GATEWAYS.get().await;
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    for (name, gateway) in gateways.each() {
        for package in [NEWEST, OLDEST] {
            let kubectl = gateways
                .plane
                .kubectl(package, &cache, &gateway.url())
                .await;
            let said =
                tokio::time::timeout(Duration::from_secs(60), kubectl.run(&["api-resources"]));
            said.await.unwrap().has(&[
                "storageversionmigrations",
                "storagemigration.k8s.io/v1",
                "deployments",
                "pods",
            ]);
            let said = kubectl
                .run(&["explain", "storageversionmigrations.spec"])
                .await;
            said.has(&["KIND:", "StorageVersionMigration", "resource"]);
            let said = kubectl.run(&["api-versions"]).await;
            said.has(&["storagemigration.k8s.io/v1", "apps/v1"]);
            println!("{name} {package:?}: well");
        }
    }
}
