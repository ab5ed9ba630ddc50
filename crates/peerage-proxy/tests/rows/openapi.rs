//! OpenAPI of the whole control plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::support::world::{request, with};
use super::support::*;

async fn pair() -> (World, FakePeer) {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    openapi(&peer);
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    (world, peer)
}

/// Gives the peer OpenAPI documents.
fn openapi(peer: &FakePeer) {
    peer.on_probe(|request| async move {
        let body = match request.uri().path() {
            "/openapi/v3" => {
                let entry = |path: &str| json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash=P")});
                let mut paths = serde_json::Map::new();
                for path in [
                    "api/v1",
                    "apis/apps/v1",
                    "apis/apps/v2",
                    "apis/new.example.com",
                    "apis/new.example.com/v1",
                    "version",
                ] {
                    paths.insert(path.to_owned(), entry(path));
                }
                paths.insert(
                    "apis/evil.example.com/v1".to_owned(),
                    json!({"serverRelativeURL": "https://evil.example.com/"}),
                );
                json!({ "paths": paths })
            }
            "/openapi/v2" => {
                json!({"swagger": "2.0", "paths": {"/peer": {}, "/local": {"peer": true}}, "definitions": {"Peer": {}}})
            }
            _ => return text(StatusCode::FORBIDDEN, "no"),
        };
        response(StatusCode::OK, &[], &body.to_string())
    });
}

#[tokio::test]
async fn row_02_openapi_describes_what_only_a_peer_has() {
    let (world, peer) = pair().await;
    peer.polled("/openapi/v3", 1).await;
    let index = loop {
        let index = world.get("/openapi/v3").await.json();
        if index["paths"].get("apis/apps/v2").is_some() {
            break index;
        }
        peer.polled(
            "/apis",
            peer.polls().iter().filter(|s| s.target == "/apis").count() + 1,
        )
        .await;
    };
    let url = |path: &str| {
        index["paths"][path]["serverRelativeURL"]
            .as_str()
            .map(str::to_owned)
    };
    for (path, expected) in [
        ("api/v1", Some("/openapi/v3/api/v1?hash=L")),
        ("apis/apps/v1", Some("/openapi/v3/apis/apps/v1?hash=P")),
        ("apis/apps/v2", Some("/openapi/v3/apis/apps/v2?hash=P")),
        (
            "apis/new.example.com/v1",
            Some("/openapi/v3/apis/new.example.com/v1?hash=P"),
        ),
        (
            "apis/new.example.com",
            Some("/openapi/v3/apis/new.example.com?hash=P"),
        ),
        ("version", None),
        ("apis/evil.example.com/v1", None),
    ] {
        assert_eq!(url(path).as_deref(), expected, "{path}");
    }
    for (target, who) in [
        (
            "/openapi/v3/apis/new.example.com/v1?hash=P",
            "apiserver-new",
        ),
        ("/openapi/v3/apis/apps/v1", "apiserver-new"),
        ("/openapi/v3/api/v1", "local"),
        ("/version", "local"),
    ] {
        assert_eq!(world.get(target).await.text(), who, "{target}");
    }
    let target = peer.requests()[0].target.clone();
    assert_eq!(target, "/openapi/v3/apis/new.example.com/v1?hash=P");

    let v2 = world.get("/openapi/v2").await;
    let tag = v2.header("etag").unwrap();
    let expected = json!({"swagger": "2.0", "paths": {"/local": {}, "/peer": {}}, "definitions": {"Local": {}, "Peer": {}}});
    assert_eq!(v2.json(), expected);
    let again = world
        .send(with(request("GET", "/openapi/v2"), "if-none-match", &tag))
        .await;
    assert_eq!((again.status, again.body.len()), (304, 0));

    let as_peer = world.get_as_peer("/openapi/v3", "*/*").await.json();
    assert_eq!(
        as_peer["paths"].as_object().unwrap().len(),
        2,
        "a peer gets the local index"
    );
}

/// kubernetes-sigs/metrics-server#1868, kubernetes/kubernetes#118881: a document that only an absent peer has is 503; one that this server has too is answered here.
#[tokio::test]
async fn row_02_openapi_of_an_absent_peer_is_503_and_never_takes_a_local_document_away() {
    let (world, peer) = pair().await;
    let only_there = "/openapi/v3/apis/new.example.com/v1";
    while world.get(only_there).await.text() != "apiserver-new" {
        let polls = peer.polls().iter().filter(|s| s.target == "/apis").count();
        peer.polled("/apis", polls + 1).await;
    }
    peer.kill();
    world.until_state("apiserver-new", "unreachable").await;
    world.get(only_there).await.assert_retryable();
    assert_eq!(world.get("/openapi/v3/apis/apps/v1").await.text(), "local");
    let index = world.get("/openapi/v3").await.json();
    let url = &index["paths"]["apis/apps/v1"]["serverRelativeURL"];
    assert_eq!(url, "/openapi/v3/apis/apps/v1?hash=L");
    assert!(
        index["paths"].get("apis/new.example.com/v1").is_some(),
        "still listed, as discovery lists it"
    );
    assert_eq!(
        world.get("/openapi/v2").await.json()["definitions"],
        json!({"Local": {}})
    );
}

/// A peer that alone serves and describes one group, and whose `/openapi/v2` hangs until it is told to answer.
async fn describes(pki: &Pki, id: &str, answers: Arc<AtomicBool>) -> FakePeer {
    let group_name = format!("{id}.example.com");
    let groups = apis(&[group(&group_name, &[("v1", &[resource("things", &[])])])]);
    let peer = FakePeer::start(pki, id, &documents::core(), &groups).await;
    let described = id.to_owned();
    peer.on_probe(move |request| {
        let (group, id, answers) = (group_name.clone(), described.clone(), answers.clone());
        async move {
            let path = format!("apis/{group}/v1");
            let body = match request.uri().path() {
                "/openapi/v3" => {
                    let url = format!("/openapi/v3/{path}?hash={id}");
                    json!({"paths": {path: {"serverRelativeURL": url}}})
                }
                "/openapi/v2" if !answers.load(Ordering::Relaxed) => std::future::pending().await,
                "/openapi/v2" => json!({"swagger": "2.0", "paths": {}, "definitions": {id: {}}}),
                _ => return text(StatusCode::FORBIDDEN, "no"),
            };
            response(StatusCode::OK, &[], &body.to_string())
        }
    });
    peer
}

/// One deadline for all, once; and what could not be had is had when it can be.
#[tokio::test]
async fn servers_whose_openapi_hangs_hold_up_one_request_once_and_are_asked_again_beside_the_others()
 {
    let pki = Pki::new();
    let (yes, later) = (
        Arc::new(AtomicBool::new(true)),
        Arc::<AtomicBool>::default(),
    );
    let good = describes(&pki, "good", yes).await;
    let mut hung = Vec::new();
    for id in ["hung-1", "hung-2", "hung-3"] {
        hung.push(describes(&pki, id, later.clone()).await);
    }
    let all = || hung.iter().chain([&good]);
    let mut builder = WorldBuilder {
        records: all().map(|it| live(&it.id, it.address)).collect(),
        ..WorldBuilder::default()
    };
    builder.options.poll.deadline = Duration::from_millis(500);
    let deadline = Duration::from_secs(2);
    let world = builder.start(pki);
    for peer in all() {
        let path = format!("apis/{}.example.com/v1", peer.id);
        while world.get("/openapi/v3").await.json()["paths"]
            .get(&path)
            .is_none()
        {
            let polls = peer.polls().iter().filter(|s| s.target == "/apis").count();
            peer.polled("/apis", polls + 1).await;
        }
    }
    let definitions = async || -> Vec<String> {
        let document: Value = world.get("/openapi/v2").await.json();
        let definitions = document["definitions"].as_object().unwrap();
        definitions.keys().cloned().collect()
    };
    let asked = |peer: &FakePeer| {
        let polls = peer.polls();
        polls.iter().filter(|s| s.target == "/openapi/v2").count()
    };
    let started = Instant::now();
    assert_eq!(definitions().await, ["Local", "good"]);
    let waited = started.elapsed();
    assert!(waited < deadline * 2, "{waited:?} for three that hang");
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(definitions().await, ["Local", "good"]);
    }
    let waited = started.elapsed();
    assert!(waited < deadline, "{waited:?} for twenty more requests");
    assert_eq!(asked(&good), 1, "nothing is read anew for each request");
    assert!(hung.iter().all(|it| asked(it) == 1));
    assert!(
        world
            .metrics()
            .contains(r#"peer="hung-1",reason="openapi""#)
    );

    later.store(true, Ordering::Relaxed);
    let polled = async {
        while definitions().await != ["Local", "good", "hung-1", "hung-2", "hung-3"] {
            let polls = good.polls().iter().filter(|s| s.target == "/apis").count();
            good.polled("/apis", polls + 1).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(30), polled).await;
    assert!(told.is_ok(), "they are asked again");
}

/// A server that has only just started may fail to say once what it describes.
#[tokio::test]
async fn an_index_that_could_not_be_read_once_is_asked_for_again_soon_and_that_is_counted() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let path = "apis/new.example.com/v1";
    let asked = Arc::new(AtomicUsize::new(0));
    peer.on_probe({
        let asked = asked.clone();
        move |request| {
            let is_index = request.uri().path() == "/openapi/v3";
            let first = is_index && asked.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                let url = format!("/openapi/v3/{path}?hash=P");
                let index = json!({"paths": {path: {"serverRelativeURL": url}}});
                match (is_index, first) {
                    (true, true) => text(StatusCode::SERVICE_UNAVAILABLE, "not yet"),
                    (true, false) => response(StatusCode::OK, &[], &index.to_string()),
                    _ => text(StatusCode::FORBIDDEN, "no"),
                }
            }
        }
    });
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let until_listed = async {
        while world.get("/openapi/v3").await.json()["paths"][path].is_null() {
            let polls = peer.polls().iter().filter(|s| s.target == "/apis").count();
            peer.polled("/apis", polls + 1).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(15), until_listed).await;
    assert!(
        told.is_ok(),
        "half of the time after which it is due anyway"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let counted = r#"peerage_peer_errors_total{peer="apiserver-new",reason="openapi"} 1"#;
    assert!(world.metrics().contains(counted), "{}", world.metrics());
}
