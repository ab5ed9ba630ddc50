//! Kubernetes' own cases for its peer proxy, retyped as data: each row names the test and case it comes from.
//!
//! `Differs` rows are cases that Peerage deliberately answers otherwise.

use std::net::SocketAddr;

use peerage_core::Exclusion;
use serde_json::{Value, json};

use super::support::*;

/// Nobody listens at the reserved port 1 of loopback.
fn dead() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

/// `peerproxy_handler_test.go`: TestPeerProxy.
#[tokio::test]
async fn upstream_test_peer_proxy() {
    enum Peer {
        None,
        Serving,
        WithoutEndpoint,
        Unreachable,
        WithoutEndpointAndUnreachable,
    }
    const LOCAL: &str = "/apis/apps/v1/deployments";
    const ELSEWHERE: &str = "/apis/new.example.com/v1/widgets";
    let rows = [
        (
            "allow non resource requests",
            "/crd/foo/bar/baz",
            Peer::Serving,
            false,
            200,
            "local",
        ),
        (
            "allow if already proxied once",
            LOCAL,
            Peer::Serving,
            true,
            200,
            "local",
        ),
        // Differs: before the first sync the answer is 503, not the local 404.
        (
            "allow if unsynced informers",
            ELSEWHERE,
            Peer::Unreachable,
            false,
            503,
            "",
        ),
        (
            "Serve locally if serviceable",
            LOCAL,
            Peer::Serving,
            false,
            200,
            "local",
        ),
        (
            "200 if no appropriate peers found, serve locally",
            "/apis/apps/v1/other",
            Peer::None,
            false,
            200,
            "local",
        ),
        (
            "503 if no endpoint fetched from lease",
            ELSEWHERE,
            Peer::WithoutEndpoint,
            false,
            503,
            "",
        ),
        (
            "503 unreachable peer bind address",
            ELSEWHERE,
            Peer::Unreachable,
            false,
            503,
            "",
        ),
        (
            "503 if one apiserver's endpoint lease wasnt found but another valid (unreachable) apiserver was found",
            ELSEWHERE,
            Peer::WithoutEndpointAndUnreachable,
            false,
            503,
            "",
        ),
    ];
    for (case, target, kind, guarded, status, body) in rows {
        let pki = Pki::new();
        let peer =
            FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
        let mut without = live("apiserver-without", dead());
        without.endpoint_live = false;
        without.address = None;
        let records = match kind {
            Peer::None => vec![],
            Peer::Serving => vec![live("apiserver-new", peer.address)],
            Peer::WithoutEndpoint => vec![without],
            Peer::Unreachable => vec![live("apiserver-new", dead())],
            Peer::WithoutEndpointAndUnreachable => vec![without, live("apiserver-new", dead())],
        };
        let world = World::start(pki, records);
        if matches!(kind, Peer::Serving) {
            world.until_state("apiserver-new", "serving").await;
        }
        let answer = if guarded {
            world.get_as_peer(target, "*/*").await
        } else {
            world.get(target).await
        };
        assert_eq!(answer.status, status, "{case}");
        if status == 503 {
            answer.assert_retryable();
            let counted = "apiserver_peer_proxy_errors_total{type=\"endpoint_resolution\"";
            assert!(world.metrics().contains(counted), "{case}");
        } else {
            assert_eq!(answer.text(), body, "{case}");
        }
    }
}

/// `peerproxy_handler_test.go`: TestGetPeerResources.
#[tokio::test]
async fn upstream_test_get_peer_resources() {
    let pki = Pki::new();
    let one = FakePeer::start(
        &pki,
        "apiserver-1",
        &documents::core(),
        &apis(&[
            group("b", &[("v1", &[resource("bs", &[])])]),
            group("a", &[("v1", &[resource("as", &[])])]),
        ]),
    )
    .await;
    let two = FakePeer::start(
        &pki,
        "apiserver-2",
        &documents::core(),
        &apis(&[group("c", &[("v1", &[resource("cs", &[])])])]),
    )
    .await;
    let empty: Vec<String> = vec![];
    let rows = [
        ("empty peer cache", vec![], empty.clone()),
        (
            "peer cache with local server, should be skipped",
            vec![live("apiserver-local", one.address)],
            empty,
        ),
        (
            "peer cache with multiple peers",
            vec![
                live("apiserver-1", one.address),
                live("apiserver-2", two.address),
            ],
            vec!["b".to_owned(), "a".to_owned(), "c".to_owned()],
        ),
    ];
    for (case, records, groups) in rows {
        let world = World::start(pki.clone(), records.clone());
        for record in &records {
            if &*record.id != "apiserver-local" {
                world.until_state(&record.id, "serving").await;
            }
        }
        let found: Vec<String> = world
            .proxy
            .view()
            .peers()
            .flat_map(|(peer, _)| peer.documents.as_ref().unwrap().apis().items)
            .map(|group| group.name().to_owned())
            .collect();
        assert_eq!(found, groups, "{case}");
    }
}

/// `peer_discovery_test.go`: TestRunPeerDiscoveryCacheSync.
#[tokio::test]
async fn upstream_test_run_peer_discovery_cache_sync() {
    let pki = Pki::new();
    let one = FakePeer::start(&pki, "apiserver-1", &documents::core(), &documents::new()).await;
    let two = FakePeer::start(&pki, "apiserver-2", &documents::core(), &documents::old()).await;
    let world = World::start(pki, vec![live("apiserver-1", one.address)]);
    world.until_state("apiserver-1", "serving").await; // single remote server

    world.set_records(vec![
        live("apiserver-1", one.address),
        live("apiserver-2", two.address),
    ]);
    world.until_state("apiserver-2", "serving").await; // multiple remote servers

    let mut updated = live("apiserver-1", one.address);
    updated.identity_lease.as_mut().unwrap().holder = "apiserver-1_again".into();
    let polls = one.polls().iter().filter(|s| s.target == "/apis").count();
    world.set_records(vec![updated, live("apiserver-2", two.address)]);
    one.polled("/apis", polls + 1).await; // lease update
    world.until_state("apiserver-1", "serving").await;

    // lease deletion. Differs: what it served is remembered for the hold time.
    world.set_records(vec![live("apiserver-2", two.address)]);
    world.until_state("apiserver-1", "left").await;
    world
        .get("/apis/new.example.com/v1/widgets")
        .await
        .assert_retryable();
}

/// `peer_discovery_test.go`: TestPeerDiscoveryMetrics.
#[tokio::test]
async fn upstream_test_peer_discovery_metrics() {
    let pki = Pki::new();
    let mut nowhere = live("apiserver-1", dead());
    nowhere.address = None;
    let world = World::start(pki.clone(), vec![nowhere]);
    let resolution = "apiserver_peer_discovery_sync_errors_total{type=\"hostport_resolution\"} 1";
    assert!(
        world.metrics().contains(resolution),
        "hostport resolution error"
    );

    let peer = FakePeer::start(&pki, "apiserver-1", &documents::core(), &documents::new()).await;
    peer.set_api(Document::Status(500));
    peer.set_apis(Document::Status(500));
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-1", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.poll.retry = std::time::Duration::from_secs(3600);
    builder.options.poll.retry_cap = std::time::Duration::from_secs(3600);
    let world = builder.start(pki);
    world
        .until("both have failed", |d| {
            d.peers.first().is_some_and(|p| {
                p.error
                    .as_ref()
                    .is_some_and(|e| e.message.contains("/apis ") || e.message.contains("/apis:"))
            })
        })
        .await;
    let fetch = "apiserver_peer_discovery_sync_errors_total{type=\"fetch_discovery\"}";
    let line = world
        .metrics()
        .lines()
        .find(|l| l.starts_with(fetch))
        .unwrap()
        .to_owned();
    let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    // The change of the peer's record may have hurried a second round.
    assert!(count == 2 || count == 4, "fetch discovery error: {line}");
}

/// `gv_exclusion_manager_test.go`: TestGetExclusionSet, TestFilterPeerDiscoveryCache, TestFilterPeerCacheEntry,
/// TestFilterGroupDiscovery. Differs: by resource, and without a grace period, so TestReapExpiredGVs and the rows
/// with recently deleted definitions have no counterpart: a deleted definition ends its exclusion at once.
#[tokio::test]
async fn upstream_test_exclusions() {
    type Listed = &'static [(&'static str, bool)];
    let rows: &[(&str, Vec<Exclusion>, Listed)] = &[
        (
            "empty exclusion no changes",
            vec![],
            &[("new.example.com", true), ("apps", true)],
        ),
        (
            "filter active GVs",
            vec![Exclusion::version("new.example.com", "v1")],
            &[("new.example.com", false), ("apps", true)],
        ),
        (
            "no changes when exclusion doesn't match",
            vec![Exclusion::version("other.example.com", "v1")],
            &[("new.example.com", true)],
        ),
        (
            "partial version exclusion",
            vec![Exclusion::version("new.example.com", "v2")],
            &[("new.example.com", true)],
        ),
        (
            "all versions excluded",
            vec![Exclusion::resource("new.example.com", "v1", "widgets")],
            &[("new.example.com", false), ("apps", true)],
        ),
    ];
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    for (case, exclusions, expected) in rows {
        let wanted: std::collections::BTreeSet<_> = exclusions.iter().cloned().collect();
        world.exclude(exclusions.clone());
        let in_force = || {
            let view = world.proxy.view();
            let excluded = view.exclusions();
            wanted.is_empty() == excluded.is_empty()
                && wanted.iter().all(|e| {
                    excluded.covers(&e.group, &e.version, e.resource.as_deref().unwrap_or("x"))
                })
        };
        world.proxy.views().wait_for(|_| in_force()).await.unwrap();
        let list = world.get_accepting("/apis", V2).await.json();
        for (name, listed) in *expected {
            let found = list["items"]
                .as_array()
                .unwrap()
                .iter()
                .any(|g| g["metadata"]["name"] == *name);
            assert_eq!(found, *listed, "{case}: {name}");
        }
    }
}

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|g| g["metadata"]["name"].as_str().unwrap())
        .collect()
}

/// `peer_aggregated_handler_test.go`: TestPeerAggregatedDiscovery, TestFetchFromCache.
#[tokio::test]
async fn upstream_test_peer_aggregated_discovery() {
    let rows: &[(&str, bool, &str, &[&str])] = &[
        (
            "Peer aggregated discovery disabled (should get local discovery)",
            false,
            V2,
            &["apps"],
        ),
        (
            "Peer provider nil (should get local discovery)",
            false,
            V2,
            &["apps"],
        ),
        (
            "Request without profile (should default to peer-aggregated)",
            true,
            V2,
            &["apps", "new.example.com"],
        ),
        (
            "Request with unknown profile (should default to peer-aggregated)",
            true,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=foo",
            &["apps", "new.example.com"],
        ),
        (
            "Request with profile=nopeer (should get no-peer discovery)",
            true,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer",
            &["apps"],
        ),
    ];
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    for (case, with_peers, accept, groups) in rows {
        let builder = WorldBuilder {
            records: vec![live("apiserver-new", peer.address)],
            with_peers: *with_peers,
            ..WorldBuilder::default()
        };
        let world = builder.start(pki.clone());
        if *with_peers {
            world.until_state("apiserver-new", "serving").await;
        }
        let answer = world.get_accepting("/apis", accept).await;
        assert_eq!(names(&answer.json()), *groups, "{case}");
        assert!(answer.header("etag").is_some(), "{case}");
    }
}

/// `metrics_test.go`: TestPeerAggregatedDiscoveryMetrics.
#[tokio::test]
async fn upstream_test_peer_aggregated_discovery_metrics() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    for _ in 0..3 {
        world.get_accepting("/apis", V2).await;
    }
    for _ in 0..2 {
        world
            .get_accepting("/apis", &format!("{V2};profile=nopeer"))
            .await;
    }
    let metrics = world.metrics();
    for line in [
        "aggregator_discovery_peer_aggregated_cache_misses_total 1",
        "aggregator_discovery_peer_aggregated_cache_hits_total 2",
        "aggregator_discovery_nopeer_requests_total 2",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

/// `wrapper_test.go`: TestAggregationEnabled, as far as the kinds of answers go.
#[tokio::test]
async fn upstream_test_aggregation_enabled() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let nopeer = format!("{V2};profile=nopeer");
    let rows = [
        ("", "APIGroupList", 2),
        ("application/json", "APIGroupList", 2),
        ("*/*", "APIGroupList", 2),
        ("application/json;foo=bar", "APIGroupList", 2),
        (V2, "APIGroupDiscoveryList", 2),
        (
            &format!("application/json,{V2};q=0.1"),
            "APIGroupDiscoveryList",
            2,
        ),
        (&format!("{V2};foo=bar"), "APIGroupDiscoveryList", 2),
        (&format!("{V2};profile=foo"), "APIGroupDiscoveryList", 2),
        (&nopeer, "APIGroupDiscoveryList", 1),
        (&format!("{nopeer},{V2}"), "APIGroupDiscoveryList", 1),
        (&format!("{V2},{nopeer}"), "APIGroupDiscoveryList", 2),
        (
            "*/*;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "APIGroupDiscoveryList",
            2,
        ),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
            "APIGroupList",
            2,
        ),
        (
            "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            "APIGroupList",
            2,
        ),
    ];
    for (accept, kind, groups) in rows {
        let list = world.get_accepting("/apis", accept).await.json();
        assert_eq!(list["kind"], kind, "{accept}");
        let found = list
            .get("items")
            .or(list.get("groups"))
            .unwrap_or(&json!([]))
            .as_array()
            .unwrap()
            .len();
        assert_eq!(found, groups, "{accept}");
    }
}
