//! A server that is replaced by one of another version at the same address, within moments.
//!
//! Until it is asked again, the documents of the one before are in force. They may send requests to it in vain, but
//! nobody hears from it that an API does not exist which another server has.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use super::identity::{Balancer, Door};
use super::support::*;

const WIDGET: &str = "/apis/new.example.com/v1/namespaces/a/widgets/w";
const FLEET: &str = "/apis/apps/v1/namespaces/a/fleets/f";

/// Answers what it does not have as kube-apiserver does: another way for a group-version than for a resource.
fn is_older(peer: &FakePeer) {
    let unknown_path = || text(StatusCode::NOT_FOUND, "404 page not found\n");
    let has = |path: &str| path.starts_with("/api/v1") || path.contains("/deployments");
    peer.on_request(move |request| {
        let path = request.uri().path();
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "the server could not find the requested resource", "reason": "NotFound", "details": {}, "code": 404});
        let answer = match path {
            path if has(path) => text(StatusCode::OK, "older"),
            path if path.starts_with("/apis/apps/v1/") => {
                let json = [("content-type", "application/json")];
                response(StatusCode::NOT_FOUND, &json, &status.to_string())
            }
            _ => unknown_path(),
        };
        async move { answer }
    });
    peer.on_probe(move |request| {
        let own = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "singularName": "", "namespaced": true, "kind": "X", "verbs": ["get"]}]});
        let answer = match request.uri().path() {
            "/apis/apps/v1" => response(StatusCode::OK, &[], &own.to_string()),
            path if path.starts_with("/apis/") || path == "/version" => unknown_path(),
            _ => text(StatusCode::FORBIDDEN, "no"),
        };
        async move { answer }
    });
}

async fn start(pki: &Pki, id: &str, is_newer: bool) -> FakePeer {
    let apis = if is_newer {
        documents::new()
    } else {
        documents::old()
    };
    let peer = FakePeer::start(pki, id, &documents::core(), &apis).await;
    if !is_newer {
        is_older(&peer);
    }
    peer
}

#[tokio::test]
async fn what_a_server_that_was_rolled_back_does_not_have_any_more_is_served_by_another() {
    let pki = Pki::new();
    let (before, other) = (
        start(&pki, "before", true).await,
        start(&pki, "other", true).await,
    );
    let door = Door::to(before.address).await;
    let records = || vec![live("door", door.address), live("other", other.address)];
    let balancer = Balancer::start(&pki, records());
    balancer.until_serving(&["door", "other"]).await;
    let builder = WorldBuilder {
        records: records(),
        ..WorldBuilder::default()
    };
    let world = builder.start(pki);
    for id in ["door", "other"] {
        world.until_state(id, "serving").await;
    }

    // It does not answer for its documents yet, so those of the one before stay in force.
    let older = start(&world.pki, "older", false).await;
    older.set_apis(Document::Status(503));
    door.lead_to(older.address);
    drop(before);
    for target in [WIDGET, FLEET] {
        let asked = || {
            older
                .requests()
                .iter()
                .filter(|it| it.target == target)
                .count()
        };
        // What was found out by a client's request is remembered by each.
        let begun = std::time::Instant::now();
        while asked() < 2 && begun.elapsed() < Duration::from_secs(20) {
            let write = balancer.send("PUT", target).await;
            assert!(
                [200, 503].contains(&write.status),
                "PUT {target}: {}",
                write.text()
            );
            for answer in [balancer.get(target).await, world.get(target).await] {
                assert_eq!((answer.status, &*answer.text()), (200, "other"), "{target}");
            }
        }
        assert!(asked() > 0, "{target}");
    }
    // What is said of an object is passed on.
    let missing =
        r#"{"kind":"Status","message":"widgets \"w\" not found","reason":"NotFound","code":404}"#;
    other.on_request(move |_| async move { text(StatusCode::NOT_FOUND, missing) });
    let answer = balancer.get(WIDGET).await;
    assert_eq!((answer.status, &*answer.text()), (404, missing));
}

/// Rounds that come by themselves are an hour apart here.
fn rarely_asked(pki: &Pki, records: Vec<peerage_proxy::PeerRecord>) -> Balancer {
    let mut options = WorldBuilder::default().options;
    options.poll.interval = Duration::from_secs(3600);
    Balancer::with(pki, records, options)
}

#[tokio::test]
async fn what_only_the_new_version_has_is_served_as_soon_as_that_answers() {
    let pki = Pki::new();
    let (before, other) = (
        start(&pki, "before", false).await,
        start(&pki, "other", false).await,
    );
    let door = Door::to(before.address).await;
    let records = vec![live("door", door.address), live("other", other.address)];
    let balancer = rarely_asked(&pki, records);
    balancer.until_serving(&["door", "other"]).await;
    assert_eq!(balancer.get(WIDGET).await.status, 404);

    // First there is nothing where it was, as while a process is replaced.
    let after = start(&pki, "after", true).await;
    drop(before);
    let (nobody, address) = (
        std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        after.address,
    );
    door.lead_to(nobody.local_addr().unwrap());
    drop(nobody);
    let failing = |it: &peerage_proxy::DebugPeers| it.peers.iter().any(|it| it.error.is_some());
    balancer.until("it is missed", failing).await;
    door.lead_to(address);
    let has = |it: &peerage_proxy::DebugPeers| {
        let door = it.peers.iter().find(|it| it.id == "door").unwrap();
        door.only_here.iter().any(|api| api.contains("widgets"))
    };
    balancer.until("the new version is known", has).await;
    for target in [WIDGET, FLEET] {
        assert_eq!(balancer.get(target).await.text(), "after", "{target}");
    }
}

#[tokio::test]
async fn a_replacement_without_a_gap_is_noticed_by_the_connection_that_ended() {
    for to_newer in [true, false] {
        let pki = Pki::new();
        let before = start(&pki, "before", !to_newer).await;
        let after = start(&pki, "after", to_newer).await;
        let door = Door::to(before.address).await;
        let balancer = rarely_asked(&pki, vec![live("door", door.address)]);
        balancer.until_serving(&["door"]).await;
        let lists_widgets = |it: &peerage_proxy::DebugPeers| {
            it.peers[0]
                .only_here
                .iter()
                .any(|api| api.contains("widgets"))
        };
        assert_eq!(lists_widgets(&balancer.proxy.debug()), !to_newer);
        door.lead_to(after.address);
        let known = |it: &peerage_proxy::DebugPeers| lists_widgets(it) == to_newer;
        balancer.until("the other version is known", known).await;
        let answer = balancer.get(WIDGET).await;
        assert_eq!(
            answer.status,
            if to_newer { 200 } else { 404 },
            "{}",
            answer.text()
        );
    }
}
