//! Faults of discovery: documents that differ, flip or let one broken API spoil the others.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, RunningGateway};
use peerage_testkit::kubectl::{NEWEST, OLDEST};
use peerage_testkit::wire::{AGGREGATED, Outgoing};
use serde_json::{Value, json};

use super::walks::ask;
use super::{FRONTS, Fronts, delete, get, groups, header, version};
use crate::versions::NEWER_ONLY;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const APISERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// A definition of a custom resource `plural.group`, version `v1`.
fn definition(group: &str, plural: &str) -> Value {
    let kind = plural.to_uppercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {
            "api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// Waits until each of these lists a version as current.
async fn listed(ways: &[&Apiserver], group: &str) {
    for way in ways {
        until(&format!("{} lists {group}", way.name()), || async {
            let document = get(way, "/apis", AGGREGATED).await.json();
            version(&document, group, "v1").is_some_and(|it| it["freshness"] == "Current")
        })
        .await;
    }
}

/// Takes a definition or an APIService away and waits until nobody lists its group.
pub(super) async fn withdraw(fronts: &Fronts, target: &str, group: &str) {
    delete(fronts.plane.server("newer"), target).await;
    for way in all(fronts) {
        until(&format!("{} does not list {group}", way.name()), || async {
            let document = get(way, "/apis", AGGREGATED).await.json();
            groups(&document).all(|it| it["metadata"]["name"] != group)
        })
        .await;
    }
}

fn all(fronts: &Fronts) -> [&Apiserver; 3] {
    fronts.each().map(|(_, gateway)| &gateway.server)
}

/// kubernetes/kubernetes#113861: what is listed of one group ends in an error about others.
#[tokio::test]
async fn kubectl_lists_an_unrelated_group_without_a_word_about_others() {
    let fronts = FRONTS.get().await;
    let _changed = fronts.served.write().await;
    let newer = fronts.plane.server("newer");
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    newer
        .create(DEFINITIONS, &definition("unrelated.example.com", "lamps"))
        .await;
    listed(&all(&fronts), "unrelated.example.com").await;
    for (name, gateway) in fronts.each() {
        for package in [NEWEST, OLDEST] {
            let kubectl = fronts.plane.kubectl(package, &cache, &gateway.url()).await;
            let words = ["api-resources", "--api-group=unrelated.example.com"];
            let said = kubectl.run(&words).await;
            assert_eq!(
                (said.code, said.err.as_str()),
                (0, ""),
                "{name} {package:?}"
            );
            said.has(&["lamps", "unrelated.example.com/v1"]);
        }
    }
    withdraw(
        &fronts,
        &format!("{DEFINITIONS}/lamps.unrelated.example.com"),
        "unrelated.example.com",
    )
    .await;
}

/// kubernetes/kubernetes#44957, #96430: no entity tag, or one that says nothing; and gateways that differ.
#[tokio::test]
async fn all_gateways_answer_the_same_bytes_under_the_same_tag_and_change_together() {
    let fronts = FRONTS.get().await;
    let _changed = fronts.served.write().await;
    let before = same_everywhere(&fronts).await;
    let newer = fronts.plane.server("newer");
    newer
        .create(DEFINITIONS, &definition("late.example.com", "lates"))
        .await;
    let begun = Instant::now();
    // Until both servers serve it, who is only asked for one may rightly say something else.
    for server in ["older", "newer"] {
        listed(&[fronts.plane.server(server)], "late.example.com").await;
    }
    let served = Instant::now();
    listed(&all(&fronts), "late.example.com").await;
    let tag_of = |gateway: &RunningGateway| {
        let client = gateway.client("admin");
        async move {
            let answer = client.send(&Outgoing::get_as("/apis", AGGREGATED)).await;
            header(&answer.unwrap(), "etag")
        }
    };
    until("all have one tag", || async {
        let [a, b, c] = fronts.each().map(|(_, gateway)| tag_of(gateway));
        let (a, b, c) = tokio::join!(a, b, c);
        a == b && b == c
    })
    .await;
    let (known, all) = (served.elapsed(), begun.elapsed());
    println!(
        "measured: a new group is everywhere {known:?} after it is served, {all:?} after it was made"
    );
    assert!(known < Duration::from_secs(5), "{known:?}");
    let after = same_everywhere(&fronts).await;
    assert_ne!(before, after, "a new group and the old tag");
    withdraw(
        &fronts,
        &format!("{DEFINITIONS}/lates.late.example.com"),
        "late.example.com",
    )
    .await;
}

/// The tag of `/apis`, which all have.
async fn same_everywhere(fronts: &Fronts) -> String {
    let beta = AGGREGATED.replace("v=v2", "v=v2beta1");
    let mut tag = String::new();
    for (target, accept) in [
        ("/api", AGGREGATED),
        ("/apis", &beta),
        ("/apis", "application/json"),
        ("/api/v1", "application/json"),
        ("/apis/apps", "application/json"),
        ("/apis/storage.k8s.io/v1", "application/json"),
        ("/apis", AGGREGATED),
    ] {
        let mut answers = Vec::new();
        for (name, gateway) in fronts.each() {
            let answer = get(gateway, target, accept).await;
            assert_eq!(answer.status(), 200, "{name} {target}");
            let vary = header(&answer, "vary");
            assert!(
                accept == "application/json" || vary.as_deref() == Some("Accept"),
                "{name} {target}: {vary:?}"
            );
            answers.push((name, header(&answer, "etag"), answer.body));
        }
        let (_, first_tag, first) = &answers[0];
        for (name, its_tag, body) in &answers {
            assert_eq!(its_tag, first_tag, "{name} {target} {accept}");
            assert!(body == first, "{name} {target} {accept}: other bytes");
        }
        let Some(first_tag) = first_tag else { continue };
        for (name, gateway) in fronts.each() {
            let ask = Outgoing::get_as(target, accept).header("If-None-Match", first_tag);
            let answer = super::send(gateway, "alice", &ask).await;
            assert_eq!(
                (answer.status(), answer.body.len()),
                (304, 0),
                "{name} {target}"
            );
        }
        first_tag.clone_into(&mut tag);
    }
    tag
}

/// antrea-io/antrea#494, kubestellar/kubeflex#160, KusionStack/rollout#163, kubernetes/kubernetes#115303: one dead API turns
/// all of discovery red, or is missing as if it were not registered.
#[tokio::test]
async fn a_dead_aggregated_api_is_stale_and_spoils_no_other() {
    let fronts = FRONTS.get().await;
    let _changed = fronts.served.write().await;
    let newer = fronts.plane.server("newer");
    let before = get(&fronts.balancer, "/apis", AGGREGATED).await.json();
    newer.create(APISERVICES, &dead("dead.example.com")).await;
    for (name, gateway) in fronts.each() {
        until(&format!("{name}: it is listed"), || async {
            let document = get(gateway, "/apis", AGGREGATED).await.json();
            version(&document, "dead.example.com", "v1").is_some()
        })
        .await;
        let document = get(gateway, "/apis", AGGREGATED).await.json();
        let it = version(&document, "dead.example.com", "v1").unwrap();
        assert_eq!(it["freshness"], "Stale", "{name}: {it}");
        let others: Vec<_> = groups(&document)
            .filter(|it| it["metadata"]["name"] != "dead.example.com")
            .collect();
        assert_eq!(others, groups(&before).collect::<Vec<_>>(), "{name}");
        let legacy = |path: &'static str| get(gateway, path, "application/json");
        let gone = legacy("/apis/dead.example.com/v1").await;
        assert_eq!(gone.status(), 503, "{name}: {}", gone.in_words());
        for path in [
            "/apis",
            "/apis/apps/v1",
            "/apis/storagemigration.k8s.io/v1",
            "/api/v1",
            "/openapi/v2",
            "/openapi/v3",
        ] {
            assert_eq!(legacy(path).await.status(), 200, "{name} {path}");
        }
        let called = legacy("/apis/dead.example.com/v1/things").await;
        assert_eq!(called.status(), 503, "{name}: {}", called.in_words());
    }
    withdraw(
        &fronts,
        &format!("{APISERVICES}/v1.dead.example.com"),
        "dead.example.com",
    )
    .await;
}

/// An aggregated API whose service is not there.
pub(super) fn dead(group: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1.{group}")},
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "not-there"},
        },
    })
}

/// kubernetes/kubernetes#118881, #119839: a document that alternates between servers of different schemas.
#[tokio::test]
async fn a_document_that_servers_have_different_versions_of_does_not_alternate() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let mut seen = BTreeSet::new();
    for (name, gateway) in fronts.each() {
        for user in ["admin", "alice"] {
            let way = gateway.multiplexed(user).await;
            for _ in 0..50 {
                let answer = ask(name, &way, "/openapi/v3/api/v1").await;
                seen.insert((header(&answer, "etag").unwrap(), answer.body));
            }
        }
    }
    assert_eq!(
        seen.len(),
        1,
        "{:?}",
        seen.iter().map(|it| &it.0).collect::<Vec<_>>()
    );
}

/// What kube-apiserver's exclusions by whole group-version do: a custom resource hides a peer's built-in one.
#[tokio::test]
async fn a_custom_resource_hides_no_built_in_one_of_another_server_in_its_group_version() {
    let fronts = FRONTS.get().await;
    let _changed = fronts.served.write().await;
    let older = fronts.plane.server("older");
    let group = "storagemigration.k8s.io";
    older
        .create(DEFINITIONS, &definition(group, "herons"))
        .await;
    let herons = format!("/apis/{group}/v1/herons");
    older.serves(&herons).await;
    for (name, gateway) in fronts.each() {
        until(&format!("{name}: both are listed"), || async {
            let document = get(gateway, "/apis", AGGREGATED).await.json();
            let resources = version(&document, group, "v1").unwrap()["resources"].clone();
            let has = |plural: &str| {
                let mut resources = resources.as_array().unwrap().iter();
                resources.any(|it| it["resource"] == plural)
            };
            has("herons") && has("storageversionmigrations")
        })
        .await;
        for target in [NEWER_ONLY, &herons] {
            for _ in 0..5 {
                let answer = get(gateway, target, "application/json").await;
                assert_eq!(
                    answer.status(),
                    200,
                    "{name} {target}: {}",
                    answer.in_words()
                );
            }
        }
    }
    delete(older, &format!("{DEFINITIONS}/herons.{group}")).await;
    for (name, gateway) in fronts.each() {
        until(&format!("{name}: it is gone"), || async {
            get(gateway, &herons, "application/json").await.status() == 404
        })
        .await;
        let answer = get(gateway, NEWER_ONLY, "application/json").await;
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
    }
}

/// kubernetes/kubernetes#71754: anonymous requests for discovery are passed on to the servers, each.
#[tokio::test]
async fn a_thousand_anonymous_requests_for_discovery_cost_the_servers_a_bounded_rate() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    for (name, gateway) in fronts.each() {
        let agent = format!("anonymous/{}", name.replace(' ', "-"));
        let begun = Instant::now();
        let way = gateway.multiplexed("anonymous").await;
        let ask = Outgoing::get_as("/apis", AGGREGATED).header("User-Agent", &agent);
        let mut refused = 0;
        for _ in 0..1000 {
            let answer = way.send(&ask).await.unwrap();
            assert!(
                matches!(answer.status(), 403 | 429),
                "{name}: {}",
                answer.in_words()
            );
            refused += usize::from(answer.status() == 403);
        }
        let took = begun.elapsed();
        let asked = asked_by(&fronts, &agent, refused).await;
        // Twenty at once, and ten a second; a server that declines one has it asked of another.
        let most = 30 + 10 * (took.as_secs() as usize + 1);
        println!(
            "{name}: 1000 anonymous requests in {took:?}, {refused} refused by a server, which audited {asked}"
        );
        assert!(asked <= most, "{name}: {asked} in {took:?}");
    }
}

/// How many requests of an agent the servers have audited, as soon as they have as many as are known to have come.
async fn asked_by(fronts: &Fronts, agent: &str, least: usize) -> usize {
    let count = || {
        let servers = ["older", "newer"].map(|name| fronts.plane.server(name).audit_with(agent));
        servers.iter().map(Vec::len).sum()
    };
    until("the servers have audited it", || {
        std::future::ready(count() >= least)
    })
    .await;
    count()
}

/// kubernetes/kubernetes#133644: who reads discovery lets go of answers before their end, which servers log as errors.
#[tokio::test]
async fn what_gateways_ask_for_themselves_they_read_to_the_end() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    for server in ["older", "newer"] {
        let server = fronts.plane.server(server);
        until("gateways have asked it for a while", || {
            let asked = server.audit_with("\"system:apiserver\"");
            let asked = asked.iter().filter(|it| it["requestURI"] == "/apis");
            std::future::ready(asked.count() >= 9)
        })
        .await;
        let log = std::fs::read_to_string(server.log_file()).unwrap();
        let broken: Vec<_> = log
            .lines()
            .filter(|line| line.contains("abort"))
            .filter(|line| line.contains("URI=\"/api\"") || line.contains("URI=\"/apis\""))
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}
