//! How peers' documents are kept up to date, and what a bad one does.

use std::time::Duration;

use serde_json::json;

use super::support::world::request;
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

#[tokio::test]
async fn row_04_documents_are_asked_for_conditionally_and_changes_are_seen_without_any_event() {
    let (world, peer) = pair().await;
    peer.polled("/apis", 3).await;
    let polls = peer.polls();
    let first = polls.iter().find(|s| s.target == "/apis").unwrap();
    assert!(!first.headers.contains_key("if-none-match"));
    let later = polls.iter().filter(|s| s.target == "/apis").nth(2).unwrap();
    assert!(later.headers.contains_key("if-none-match"));

    let mut more = documents::new();
    more["items"].as_array_mut().unwrap().push(group(
        "late.example.com",
        &[("v1", &[resource("latecomers", &[])])],
    ));
    peer.set_apis(Document::of(&more));
    world
        .until("the new group is known", |d| {
            d.peers[0]
                .only_here
                .iter()
                .any(|api| api == "late.example.com/v1 latecomers")
        })
        .await;
    assert_eq!(
        world
            .get("/apis/late.example.com/v1/latecomers")
            .await
            .text(),
        "apiserver-new"
    );
}

/// What Kubernetes' servers put into a discovery fetch, so that they answer it.
#[tokio::test]
async fn a_discovery_fetch_looks_like_one_of_kubernetes_servers() {
    let (_world, peer) = pair().await;
    let polls = peer.polls();
    let seen = polls.iter().find(|s| s.target == "/apis").unwrap();
    let field = |name: &str| {
        let values = seen.headers.get_all(name).iter();
        values
            .map(|v| v.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        field("accept"),
        [
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        ]
    );
    assert_eq!(field("x-remote-user"), ["system:apiserver"]);
    assert_eq!(field("x-remote-uid"), ["system:apiserver"]);
    assert_eq!(field("x-remote-group"), ["system:authenticated"]);
    assert_eq!(field("x-kubernetes-peer-proxied"), ["true"]);
    assert_eq!(seen.version, http::Version::HTTP_2);
}

fn raw(body: impl Into<Vec<u8>>) -> Document {
    Document::Raw {
        body: body.into(),
        content_type: "application/json".to_owned(),
    }
}

fn bad_documents() -> Vec<(&'static str, Document, &'static str)> {
    let cut = documents::new().to_string();
    let doubled = apis(&[group("a", &[]), group("a", &[])]);
    vec![
        ("no body", raw(""), "malformed"),
        ("no list", raw("{}"), "wrong_kind"),
        ("null", raw("null"), "malformed"),
        ("a list", raw("[]"), "wrong_kind"),
        ("an empty list", raw(apis(&[]).to_string()), "empty"),
        (
            "a login page",
            raw("<html><body>Sign in</body></html>"),
            "malformed",
        ),
        (
            "garbage bytes",
            raw(vec![0, 159, 146, 150, 1, 2, 3]),
            "malformed",
        ),
        ("cut off", raw(cut[..cut.len() / 2].to_owned()), "malformed"),
        (
            "another kind",
            raw(json!({"kind": "Status", "apiVersion": "v1", "status": "Failure"}).to_string()),
            "wrong_kind",
        ),
        (
            "a legacy list",
            raw(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}).to_string()),
            "wrong_kind",
        ),
        ("a group twice", raw(doubled.to_string()), "duplicate"),
        (
            "a group with a path for a name",
            raw(apis(&[group("../x", &[("v1", &[])])]).to_string()),
            "bad_name",
        ),
        (
            "wrong types",
            raw(
                r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":7}"#,
            ),
            "malformed",
        ),
        ("too large", raw(vec![b' '; 2 << 20]), "too_large"),
        ("a redirect", Document::Status(302), "redirect"),
        ("not authenticated", Document::Status(401), "refused"),
        ("forbidden", Document::Status(403), "refused"),
        ("not found", Document::Status(404), "status"),
        ("its own fault", Document::Status(500), "status"),
        ("not now", Document::Status(503), "status"),
        (
            "nothing new, unasked",
            Document::Status(304),
            "not_modified",
        ),
        ("silence", Document::Silence, "deadline"),
    ]
}

/// Bad documents of every kind, and the 60 MB that a kube-apiserver reads.
#[tokio::test]
async fn row_06_twenty_kinds_of_bad_documents_change_nothing_and_are_counted_by_reason() {
    let mut kinds = 0;
    for (what, document, reason) in bad_documents() {
        let pki = Pki::new();
        let peer =
            FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
        let mut builder = WorldBuilder {
            records: vec![live("apiserver-new", peer.address)],
            ..WorldBuilder::default()
        };
        if reason == "deadline" {
            builder.options.poll.deadline = std::time::Duration::from_millis(300);
        }
        let world = builder.start(pki);
        world.until_state("apiserver-new", "serving").await;
        if reason == "not_modified" {
            // 304 is an answer to a condition; without a tag there is none.
            peer.set_apis(raw(documents::new().to_string()));
            let asks_plainly =
                |s: &Seen| s.target == "/apis" && !s.headers.contains_key("if-none-match");
            while peer.polls().iter().filter(|s| asks_plainly(s)).count() < 2 {
                let seen = peer.polls().iter().filter(|s| s.target == "/apis").count();
                peer.polled("/apis", seen + 1).await;
            }
        }
        peer.set_apis(document);
        world
            .until(what, |d| {
                d.peers[0]
                    .error
                    .as_ref()
                    .is_some_and(|e| e.reason == reason || e.reason == "body")
            })
            .await;
        let answer = world.get(WIDGETS).await;
        if reason == "deadline" {
            assert!(
                matches!(answer.status, 200 | 503),
                "{what}: {}",
                answer.status
            );
        } else {
            assert_eq!(
                (answer.status, answer.text().as_str()),
                (200, "apiserver-new"),
                "{what}"
            );
        }
        let counted =
            format!("peerage_peer_errors_total{{peer=\"apiserver-new\",reason=\"{reason}\"}}");
        assert!(
            world.metrics().contains(&counted),
            "{what}: {counted}\n{}",
            world.metrics()
        );
        kinds += 1;
    }
    assert!(kinds >= 20);
}

/// Half an answer counts as none.
#[tokio::test]
async fn row_04_half_an_answer_counts_as_none() {
    let (world, peer) = pair().await;
    peer.set_api(Document::Status(500));
    let mut more = documents::new();
    more["items"].as_array_mut().unwrap().push(group(
        "late.example.com",
        &[("v1", &[resource("latecomers", &[])])],
    ));
    peer.set_apis(Document::of(&more));
    world
        .until("the failure is noticed", |d| d.peers[0].error.is_some())
        .await;
    assert_eq!(
        world.get(WIDGETS).await.text(),
        "apiserver-new",
        "the last good documents stay"
    );
    assert_eq!(
        world
            .get("/apis/late.example.com/v1/latecomers")
            .await
            .status,
        404,
        "and nothing half is taken"
    );
    peer.set_api(Document::of(&documents::core()));
    world
        .until("both are good again", |d| {
            d.peers[0].only_here.len() >= 4 && d.peers[0].error.is_none()
        })
        .await;
}

#[tokio::test]
async fn row_06_a_silent_peer_delays_nobody_else() {
    let pki = Pki::new();
    let silent = FakePeer::start(
        &pki,
        "apiserver-silent",
        &documents::core(),
        &documents::old(),
    )
    .await;
    silent.set_api(Document::Silence);
    silent.set_apis(Document::Silence);
    let world = World::start(pki, vec![live("apiserver-silent", silent.address)]);
    silent.polled("/api", 1).await;
    let peer = FakePeer::start(
        &world.pki,
        "apiserver-new",
        &documents::core(),
        &documents::new(),
    )
    .await;
    world.set_records(vec![
        live("apiserver-silent", silent.address),
        live("apiserver-new", peer.address),
    ]);
    world.until_state("apiserver-new", "serving").await;
    assert_eq!(world.get(WIDGETS).await.text(), "apiserver-new");
}

#[tokio::test]
async fn documents_can_be_asked_for_on_demand() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-new", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.poll.interval = std::time::Duration::from_secs(3600);
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    assert!(peer.polls().iter().filter(|s| s.target == "/apis").count() <= 2);
    let before = peer.polls().iter().filter(|s| s.target == "/apis").count();
    world.proxy.refresh();
    peer.polled("/apis", before + 1).await;
}

/// An address that comes late is used when it comes.
#[tokio::test]
async fn a_peer_whose_address_comes_late_is_used_when_it_does() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let mut starting = live("apiserver-new", peer.address);
    starting.endpoint_live = false;
    starting.address = None;
    let world = World::start(pki, vec![starting]);
    world.until_state("apiserver-new", "starting").await;
    world.get(WIDGETS).await.assert_retryable();
    world.set_records(vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    assert_eq!(world.get(WIDGETS).await.text(), "apiserver-new");
}

#[tokio::test]
async fn row_21_a_peer_that_answers_merged_documents_is_detected_and_not_sent_what_it_lacks() {
    let pki = Pki::new();
    let merged = FakePeer::start(
        &pki,
        "apiserver-merged",
        &documents::core(),
        &documents::new(),
    )
    .await;
    merged.on_probe(|request| async move {
        if request.uri().path() == "/apis/apps/v1" {
            let own = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [
                {"name": "deployments", "singularName": "", "namespaced": true, "kind": "X", "verbs": ["get"]}]});
            return response(http::StatusCode::OK, &[], &own.to_string());
        }
        text(http::StatusCode::NOT_FOUND, "404 page not found\n")
    });
    let honest =
        FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(
        pki,
        vec![
            live("apiserver-merged", merged.address),
            live("apiserver-new", honest.address),
        ],
    );
    world.until_state("apiserver-merged", "serving").await;
    world.until_state("apiserver-new", "serving").await;
    world
        .until("it is said", |d| {
            d.peers
                .iter()
                .any(|p| p.id == "apiserver-merged" && p.not_its_own == 3)
        })
        .await;
    for _ in 0..20 {
        assert_eq!(world.get(WIDGETS).await.text(), "apiserver-new");
        assert_eq!(
            world.get("/apis/apps/v1/fleets").await.text(),
            "apiserver-new"
        );
    }
    assert!(world.metrics().contains("reason=\"merged_documents\""));
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REGISTRATIONS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// A server that is asked only when there is reason to, and often for as long as there is.
async fn seldom_asked(local: &serde_json::Value, there: &serde_json::Value) -> (World, FakePeer) {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "new", &documents::core(), there).await;
    let mut builder = WorldBuilder {
        apis: local.clone(),
        records: vec![live("new", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.poll.interval = Duration::from_secs(600);
    builder.options.poll.changing = Duration::from_secs(600);
    let world = builder.start(pki);
    world.until_state("new", "serving").await;
    (world, peer)
}

fn defines(name: &str, resource_name: &str) -> serde_json::Value {
    group(name, &[("v1", &[resource(resource_name, &[])])])
}

/// How often the server was asked for its groups.
fn polls(peer: &FakePeer) -> usize {
    let polls = peer.polls();
    polls.iter().filter(|it| it.target == "/apis").count()
}

/// A custom resource is there soon after its definition, whoever took that and although rounds are far apart.
#[tokio::test]
async fn servers_are_asked_at_once_and_often_when_a_request_has_changed_which_apis_there_are() {
    let local = apis(&[defines("apiextensions.k8s.io", "customresourcedefinitions")]);
    let there = apis(&[defines("apiregistration.k8s.io", "apiservices")]);
    for (writes, reads) in [(DEFINITIONS, REGISTRATIONS), (REGISTRATIONS, DEFINITIONS)] {
        let (world, peer) = seldom_asked(&local, &there).await;
        for harmless in [
            ("GET", reads),
            ("GET", writes),
            ("POST", "/api/v1/namespaces/a/pods"),
        ] {
            let answer = world.send(request(harmless.0, harmless.1)).await;
            assert_eq!(answer.status, 200, "{harmless:?}");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(polls(&peer), 1, "nothing has changed");

        assert_eq!(world.send(request("DELETE", writes)).await.status, 200);
        peer.polled("/apis", 4).await;
        let late = [
            defines("apiregistration.k8s.io", "apiservices"),
            defines("late.example.com", "latecomers"),
        ];
        peer.set_apis(Document::of(&apis(&late)));
        let answer = world.until_answered("/apis/late.example.com/v1/latecomers", 200);
        assert_eq!(answer.await.text(), "new");
    }
}

/// What failed has changed nothing.
#[tokio::test]
async fn a_definition_that_was_refused_has_nobody_asked() {
    let there = apis(&[defines("apiregistration.k8s.io", "apiservices")]);
    let (world, peer) = seldom_asked(&documents::old(), &there).await;
    peer.on_request(|_| async { text(http::StatusCode::CONFLICT, "no") });
    assert_eq!(
        world.send(request("DELETE", REGISTRATIONS)).await.status,
        409
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(polls(&peer), 1);
}
