//! Discovery that leads nowhere: documents that name what the next request does not find.

use std::collections::BTreeSet;

use peerage_testkit::multiplex::Multiplexed;
use peerage_testkit::wire::{AGGREGATED, Answer, Outgoing};
use serde_json::{Value, json};

use super::{FRONTS, Fronts, get, groups};

/// kubernetes/kubernetes#96486: the list of groups names what the next request's server does not have.
#[tokio::test]
async fn every_step_of_two_hundred_walks_through_legacy_discovery_is_there() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    for (name, gateway) in [fronts.each()[0], fronts.each()[2]] {
        let walkers = (0..10).map(|number| async move {
            // Each walker is a client of its own, and half of them are somebody else.
            let user = if number % 2 == 0 { "admin" } else { "alice" };
            let way = gateway.multiplexed(user).await;
            let mut seen = BTreeSet::new();
            for _ in 0..10 {
                seen.insert(walk(name, &way).await);
            }
            seen
        });
        let seen = futures::future::join_all(walkers).await;
        let seen: BTreeSet<_> = seen.into_iter().flatten().collect();
        assert_eq!(seen.len(), 1, "{name}: walks differ");
        let all = seen.first().unwrap();
        assert!(all.iter().any(|it| it.starts_with("storagemigration")));
        assert!(all.len() > 100, "{name}: {}", all.len());
    }
}

/// All resources that the legacy documents lead to.
async fn walk(name: &str, way: &Multiplexed) -> Vec<String> {
    let mut resources = step(name, way, "/api/v1").await;
    let answer = ask(name, way, "/apis").await;
    for group in answer.json()["groups"].as_array().unwrap() {
        let group_name = group["name"].as_str().unwrap();
        let alone = ask(name, way, &format!("/apis/{group_name}")).await.json();
        assert_eq!(alone["versions"], group["versions"], "{name} {group_name}");
        for version in group["versions"].as_array().unwrap() {
            let target = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            resources.extend(step(name, way, &target).await);
        }
    }
    resources
}

/// A document that has to be there.
pub(super) async fn ask(name: &str, way: &Multiplexed, target: &str) -> Answer {
    let answer = way.send(&Outgoing::new("GET", target)).await.unwrap();
    assert_eq!(
        answer.status(),
        200,
        "{name} {target}: {}",
        answer.in_words()
    );
    answer
}

async fn step(name: &str, way: &Multiplexed, target: &str) -> Vec<String> {
    let list = ask(name, way, target).await.json();
    assert!(target.ends_with(list["groupVersion"].as_str().unwrap()));
    let resources = list["resources"].as_array().unwrap();
    let resources = resources.iter().map(|it| it["name"].as_str().unwrap());
    let short = target.trim_start_matches("/apis/");
    resources.map(|it| format!("{short}/{it}")).collect()
}

/// What kube-apiserver's merged documents promise and its proxy does not keep: verbs and subresources of a peer.
#[tokio::test]
async fn everything_that_is_listed_can_be_called() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    for (name, gateway) in fronts.each() {
        let mut promises = Vec::new();
        for path in ["/api", "/apis"] {
            promises.extend(promised(&get(gateway, path, AGGREGATED).await.json()));
        }
        assert!(promises.len() > 600, "{name}: {}", promises.len());
        let way = gateway.multiplexed("admin").await;
        for some in promises.chunks(16) {
            let calls = some.iter().map(|call| kept(&fronts, name, &way, call));
            futures::future::join_all(calls).await;
        }
        println!(
            "{name}: {} verbs of resources and subresources can be called",
            promises.len()
        );
    }
}

/// A request for each verb of each resource and subresource, which changes nothing.
fn promised(document: &Value) -> Vec<Outgoing> {
    let mut calls = Vec::new();
    for group in groups(document) {
        let group_name = group["metadata"]["name"].as_str();
        for version in group["versions"].as_array().unwrap() {
            let number = version["version"].as_str().unwrap();
            let root = match group_name {
                Some(name) => format!("/apis/{name}/{number}"),
                None => format!("/api/{number}"),
            };
            for resource in version["resources"].as_array().unwrap() {
                calls.extend(of_resource(&root, resource));
            }
        }
    }
    calls
}

fn of_resource(root: &str, resource: &Value) -> Vec<Outgoing> {
    let plural = resource["resource"].as_str().unwrap();
    let space = match resource["scope"] == "Namespaced" {
        true => "namespaces/nowhere-at-all/",
        false => "",
    };
    let collection = format!("{root}/{space}{plural}");
    let one = format!("{collection}/nothing-of-that-name");
    let verbs = |of: &Value| -> Vec<String> {
        let verbs = of["verbs"].as_array().into_iter().flatten();
        verbs.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut calls: Vec<_> = verbs(resource)
        .iter()
        .map(|verb| call(verb, &collection, &one))
        .collect();
    for subresource in resource["subresources"].as_array().into_iter().flatten() {
        let target = format!("{one}/{}", subresource["subresource"].as_str().unwrap());
        calls.extend(
            verbs(subresource)
                .iter()
                .map(|verb| call(verb, &target, &target)),
        );
    }
    calls
}

fn call(verb: &str, collection: &str, one: &str) -> Outgoing {
    let empty = json!({});
    let dry = |target: &str| format!("{target}?dryRun=All");
    match verb {
        "list" => Outgoing::new("GET", &format!("{collection}?limit=1")),
        "watch" => Outgoing::new("GET", &format!("{collection}?watch=true&timeoutSeconds=1")),
        "get" => Outgoing::new("GET", one),
        "create" => Outgoing::new("POST", &dry(collection)).json("application/json", &empty),
        "update" => Outgoing::new("PUT", &dry(one)).json("application/json", &empty),
        "patch" => Outgoing::new("PATCH", &dry(one)).json("application/merge-patch+json", &empty),
        "delete" => Outgoing::new("DELETE", &dry(one)),
        "deletecollection" => Outgoing::new("DELETE", &dry(collection)),
        other => panic!("what is the verb {other}?"),
    }
}

/// Neither 405 nor a 404 that speaks of the path instead of an object.
async fn kept(fronts: &Fronts, name: &str, way: &Multiplexed, call: &Outgoing) {
    let (head, body) = way.open(call).await.unwrap();
    let what = format!("{name}: {} {}: {}", call.method, call.target, head.status);
    assert!(head.status != 405, "{what}");
    if head.status >= 500 {
        // A service that is not there, of which a server says so.
        let alone = super::send(fronts.plane.server("newer"), "admin", call).await;
        assert_eq!(head.status, alone.status(), "{what}");
    }
    if head.status == 404 {
        let body = http_body_util::BodyExt::collect(body).await.unwrap();
        let status: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        let names = |of: &str| {
            let value = status["details"][of].as_str();
            value.is_some_and(|it| !it.is_empty())
        };
        assert!(names("name") || names("kind"), "{what}: {status}");
    }
}
