//! Which server answers.

use peerage_core::Exclusion;

use super::support::*;

#[tokio::test]
async fn row_01_a_subresource_and_a_verb_that_only_a_peer_has_go_to_the_peer() {
    let (world, _peer) = pair().await;
    let base = "/apis/apps/v1/namespaces/n/deployments/d";
    for (target, who) in [
        (base.to_owned(), "local"),
        (format!("{base}/status"), "local"),
        (format!("{base}/boost"), "apiserver-new"),
        (
            "/apis/apps/v1/namespaces/n/fleets/f".to_owned(),
            "apiserver-new",
        ),
        ("/apis/apps/v2/deployments".to_owned(), "apiserver-new"),
        (
            "/apis/new.example.com/v1/widgets".to_owned(),
            "apiserver-new",
        ),
        ("/api/v1/namespaces/n/pods/p/log".to_owned(), "local"),
    ] {
        let answer = world.get(&target).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, who),
            "{target}"
        );
    }
}

/// The order in which a server looks at itself, at its peers, and gives up.
#[tokio::test]
async fn what_nobody_serves_gets_the_local_404_and_no_connection_to_anyone() {
    let (world, peer) = pair().await;
    for target in [
        "/apis/nosuch.example.com/v1/things",
        "/apis/new.example.com/v1/things",
        "/apis/new.example.com/v2/widgets",
    ] {
        let answer = world.get(target).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (404, "404 page not found\n")
        );
    }
    assert!(peer.requests().is_empty());
    assert!(world.metrics().contains("peerage_proxy_unknown_total 3"));
}

#[tokio::test]
async fn row_12_a_definition_in_the_store_takes_its_resource_and_nothing_else() {
    let (world, _peer) = pair().await;
    let crd = Exclusion::resource("apps", "v1", "fleets");
    world.exclude(vec![crd]);
    let mut views = world.proxy.views();
    views
        .wait_for(|_| {
            world
                .proxy
                .view()
                .exclusions()
                .covers("apps", "v1", "fleets")
        })
        .await
        .unwrap();
    assert_eq!(
        world.get("/apis/apps/v1/fleets").await.text(),
        "local",
        "a custom resource is served by every server"
    );
    assert_eq!(
        world.get("/apis/apps/v2/deployments").await.text(),
        "apiserver-new"
    );
    let boost = "/apis/apps/v1/namespaces/n/deployments/d/boost";
    assert_eq!(
        world.get(boost).await.text(),
        "apiserver-new",
        "the group-version is not taken whole"
    );

    world.exclude(Vec::new());
    views
        .wait_for(|_| world.proxy.view().exclusions().is_empty())
        .await
        .unwrap();
    assert_eq!(
        world.get("/apis/apps/v1/fleets").await.text(),
        "apiserver-new",
        "it ends with its definition"
    );
}

#[tokio::test]
async fn row_23_a_bad_record_costs_nothing() {
    let (world, peer) = pair().await;
    let good = live("apiserver-new", peer.address);
    let mut nowhere = live("apiserver-nowhere", peer.address);
    nowhere.address = None;
    let own = live("apiserver-local", peer.address);
    let mut empty = live("", peer.address);
    empty.identity_lease = None;
    world.set_records(vec![nowhere, own, empty, good.clone(), good]);
    world
        .until("the stray record is known", |debug| {
            debug.peers.iter().any(|p| p.id == "apiserver-nowhere")
        })
        .await;
    assert_eq!(
        world.get("/apis/new.example.com/v1/widgets").await.text(),
        "apiserver-new"
    );
    let ids: Vec<String> = world
        .proxy
        .debug()
        .peers
        .into_iter()
        .map(|p| p.id)
        .collect();
    assert_eq!(ids, ["apiserver-new", "apiserver-nowhere"]);
    assert!(
        world
            .metrics()
            .contains("apiserver_peer_discovery_sync_errors_total{type=\"hostport_resolution\"}")
    );
}

#[tokio::test]
async fn row_14_without_a_peer_ca_everything_is_local() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let builder = WorldBuilder {
        records: vec![live("apiserver-new", peer.address)],
        with_peers: false,
        ..WorldBuilder::default()
    };
    let world = builder.start(pki);
    assert_eq!(
        world.get("/apis/new.example.com/v1/widgets").await.status,
        404
    );
    let list = world.get("/apis").await.json();
    assert_eq!(list["groups"].as_array().unwrap().len(), 1);
    assert!(!world.proxy.debug().enabled);
    assert!(peer.polls().is_empty());
}

#[tokio::test]
async fn the_tasks_live_as_long_as_a_service_that_needs_them_and_no_longer() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let service = world.service();
    let mut views = world.proxy.views();
    drop(world);
    let polls = peer.polls().iter().filter(|s| s.target == "/apis").count();
    peer.polled("/apis", polls + 2).await;
    drop(service);
    while views.changed().await.is_ok() {}
}
