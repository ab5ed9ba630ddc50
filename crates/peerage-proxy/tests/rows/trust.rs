//! Who may say that a request was sent on already.

use peerage_auth::VerifiedPeer;

use super::support::world::{request, with};
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

/// An ordinary client cannot switch routing off for itself.
#[tokio::test]
async fn row_09_the_guard_of_an_ordinary_client_changes_nothing() {
    let (world, peer) = pair().await;
    for value in ["true", "false", "TRUE", "", "x"] {
        let asked = with(request("GET", WIDGETS), "x-kubernetes-peer-proxied", value);
        let asked = with(asked, "x-kubernetes-peer-proxied", "true");
        assert_eq!(world.send(asked).await.text(), "apiserver-new");
        let seen = peer.requests().pop().unwrap();
        let guards: Vec<_> = seen
            .headers
            .get_all("x-kubernetes-peer-proxied")
            .iter()
            .collect();
        assert_eq!(guards, ["true"], "set, not added");
    }
    let local = with(
        request("GET", "/apis/apps/v1/deployments"),
        "x-kubernetes-peer-proxied",
        "true",
    );
    world.send(local).await;
    assert!(
        !world
            .last_local_headers()
            .contains_key("x-kubernetes-peer-proxied")
    );
    assert!(
        world
            .metrics()
            .contains("peerage_proxy_guard_ignored_total 6")
    );
}

/// kubernetes/enhancements#4015: whatever a verified peer sends is answered here or refused, and never sent on.
#[tokio::test]
async fn row_09_a_verified_peers_request_makes_no_further_hop() {
    let (world, peer) = pair().await;
    assert_eq!(
        world
            .get_as_peer("/apis/apps/v1/deployments", "*/*")
            .await
            .text(),
        "local"
    );
    let elsewhere = world.get_as_peer(WIDGETS, "*/*").await;
    elsewhere.assert_retryable();
    assert_eq!(
        elsewhere.header("x-peerage-stale-view").as_deref(),
        Some("true")
    );
    let nowhere = world
        .get_as_peer("/apis/nosuch.example.com/v1/things", "*/*")
        .await;
    assert_eq!(nowhere.status, 404);
    assert_eq!(
        nowhere.header("x-peerage-stale-view").as_deref(),
        Some("true")
    );
    assert!(peer.requests().is_empty());
    assert!(
        world
            .metrics()
            .contains("peerage_proxy_refused_hops_total 1")
    );
}

/// kubernetes/enhancements#4015: two servers that each believe that the other has it.
#[tokio::test]
async fn row_09_between_two_servers_with_wrong_beliefs_there_is_one_hop_and_503() {
    let (world, peer) = pair().await;
    let there = std::sync::Arc::new(std::sync::Mutex::new(peerage_http::HttpService::new(
        world.service(),
    )));
    peer.on_request(move |seen| {
        let mut sent_on = request("GET", seen.uri().path());
        sent_on.extensions_mut().insert(VerifiedPeer);
        let answer = tower::Service::call(&mut *there.lock().unwrap(), sent_on);
        async move {
            let answer = answer.await.unwrap();
            let (head, body) = answer.into_parts();
            let bytes = http_body_util::BodyExt::collect(body)
                .await
                .unwrap()
                .to_bytes();
            let mut back = response(head.status, &[], bytes.to_vec());
            *back.headers_mut() = head.headers;
            back
        }
    });
    let answer = world.get(WIDGETS).await;
    answer.assert_retryable();
    assert_eq!(
        answer.header("x-peerage-stale-view"),
        None,
        "that is between servers"
    );
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn a_request_without_a_user_is_never_sent_anywhere() {
    let (world, peer) = pair().await;
    let mut nobody = request("GET", WIDGETS);
    nobody.extensions_mut().clear();
    let answer = world.send(nobody).await;
    assert_eq!(
        (answer.status, answer.json()["reason"].as_str()),
        (500, Some("InternalError"))
    );
    assert!(peer.requests().is_empty());
}

/// A server whose old address now belongs to itself (or to a balancer in front of it) is no peer.
#[tokio::test]
async fn row_09_a_server_that_asks_itself_notices() {
    let pki = Pki::new();
    let peer = FakePeer::start(
        &pki,
        "apiserver-other",
        &documents::core(),
        &documents::new(),
    )
    .await;
    peer.name_itself("apiserver-local");
    let world = World::start(pki, vec![live("apiserver-other", peer.address)]);
    world
        .until("it is noticed", |d| {
            d.peers
                .iter()
                .any(|p| p.error.as_ref().is_some_and(|e| e.reason == "oneself"))
        })
        .await;
    let own = world.get_as_peer("/apis", "application/json").await;
    assert_eq!(
        own.header("x-peerage-peer").as_deref(),
        Some("apiserver-local")
    );
    let client = world.get("/apis").await;
    assert_eq!(client.header("x-peerage-peer"), None);
    world.get(WIDGETS).await.assert_retryable();
}
