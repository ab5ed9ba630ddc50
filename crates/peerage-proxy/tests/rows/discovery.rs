//! Documents of the whole control plane.

use serde_json::Value;

use super::support::world::{local_apis, request, with};
use super::support::*;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const NOPEER: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";

fn group_names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|g| g["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// One row per document that is merged, with what only the peer has in it.
#[tokio::test]
async fn row_02_every_discovery_document_shows_what_any_server_serves() {
    let (world, _peer) = pair().await;
    let aggregated = world.get_accepting("/apis", V2).await;
    assert_eq!(aggregated.header("content-type").as_deref(), Some(V2));
    assert_eq!(group_names(&aggregated.json()), ["apps", "new.example.com"]);
    let apps = &aggregated.json()["items"][0];
    let versions: Vec<&str> = apps["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["version"].as_str().unwrap())
        .collect();
    assert_eq!(versions, ["v2", "v1"]);

    let own = world.get_accepting("/apis", NOPEER).await;
    assert_eq!(group_names(&own.json()), ["apps"]);

    let legacy = world.get("/apis").await.json();
    assert_eq!(legacy["kind"], "APIGroupList");
    assert_eq!(legacy["groups"][1]["name"], "new.example.com");
    let group = world.get("/apis/apps").await.json();
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let list = world.get("/apis/new.example.com/v1").await.json();
    assert_eq!(list["resources"][0]["name"], "widgets");
    assert_eq!(list["resources"][1]["name"], "widgets/status");
    let list = world.get("/apis/apps/v1/").await.json();
    let names: Vec<&str> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"deployments/boost") && names.contains(&"fleets"));
    assert_eq!(world.get("/api").await.json()["kind"], "APIVersions");
    let core = world.get_accepting("/api", V2).await.json();
    assert_eq!(core["items"][0]["versions"][0]["version"], "v1");
    assert_eq!(world.get("/api/v1").await.json()["groupVersion"], "v1");
}

/// The core group of a peer is found too.
#[tokio::test]
async fn row_02_a_core_resource_that_only_a_peer_has_is_listed_and_served() {
    let pki = Pki::new();
    let more = api(&[
        resource("pods", &[("log", &["get"]), ("resize", &["patch"])]),
        resource("podgroups", &[]),
    ]);
    let peer = FakePeer::start(&pki, "apiserver-new", &more, &documents::old()).await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let list = world.get("/api/v1").await.text();
    assert!(list.contains("podgroups") && list.contains("pods/resize"));
    assert_eq!(world.get("/api/v1/podgroups").await.text(), "apiserver-new");
    let resize = request("PATCH", "/api/v1/namespaces/n/pods/p/resize");
    assert_eq!(world.send(resize).await.text(), "apiserver-new");
}

/// The same set of servers looks the same from each of them.
#[tokio::test]
async fn row_11_every_server_answers_the_same_bytes_and_tag() {
    let pki = Pki::new();
    let old = FakePeer::start(&pki, "apiserver-old", &documents::core(), &documents::old()).await;
    let new = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let from_old = WorldBuilder {
        records: vec![live("apiserver-new", new.address)],
        ..WorldBuilder::default()
    }
    .start(pki.clone());
    let from_new = WorldBuilder {
        apis: documents::new(),
        records: vec![live("apiserver-old", old.address)],
        ..WorldBuilder::default()
    }
    .start(pki);
    from_old.until_state("apiserver-new", "serving").await;
    from_new.until_state("apiserver-old", "serving").await;
    for (target, accept) in [
        ("/apis", V2),
        ("/api", V2),
        ("/apis", "application/json"),
        ("/apis/apps", "application/json"),
        ("/apis/apps/v1", "application/json"),
        ("/apis/apps/v2", "application/json"),
    ] {
        let one = from_old.get_accepting(target, accept).await;
        let other = from_new.get_accepting(target, accept).await;
        assert_eq!(one.status, 200, "{target}");
        assert_eq!(one.text(), other.text(), "{target}");
        assert_eq!(one.header("etag"), other.header("etag"), "{target}");
    }
}

/// kubernetes/kubernetes#44957, and upstream's TestEtagMatching, TestEtagNonMatching, TestEtagOutdated.
#[tokio::test]
async fn aggregated_documents_have_exact_tags_and_legacy_ones_have_none() {
    let (world, peer) = pair().await;
    let first = world.get_accepting("/apis", V2).await;
    let tag = first.header("etag").unwrap();
    assert_eq!(tag.len(), 130);
    assert_eq!(first.header("vary").as_deref(), Some("Accept"));
    assert_eq!(first.header("cache-control").as_deref(), Some("public"));
    let ask = |tag: &str| {
        with(
            with(request("GET", "/apis"), "accept", V2),
            "if-none-match",
            tag,
        )
    };
    let same = world.send(ask(&tag)).await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert_eq!(same.header("etag"), Some(tag.clone()));
    assert_eq!(same.header("content-type"), None);
    for other in [
        format!("W/{tag}"),
        format!("\"x\", {tag}"),
        "*".to_owned(),
        tag.trim_matches('"').to_owned(),
    ] {
        assert_eq!(world.send(ask(&other)).await.status, 200, "{other}");
    }
    let legacy = world.get("/apis").await;
    assert_eq!(legacy.header("etag"), None);
    assert_eq!(
        legacy.header("cache-control").as_deref(),
        Some("no-cache, private")
    );

    peer.set_apis(Document::of(&documents::old()));
    world
        .until("the peer has less", |d| d.peers[0].only_here.is_empty())
        .await;
    let changed = world.send(ask(&tag)).await;
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(tag));
}

#[tokio::test]
async fn documents_come_as_yaml_or_indented() {
    let (world, _peer) = pair().await;
    let yaml = world
        .get_accepting("/apis/new.example.com", "application/yaml")
        .await;
    assert_eq!(
        yaml.header("content-type").as_deref(),
        Some("application/yaml")
    );
    let expected = "apiVersion: v1\nkind: APIGroup\nname: new.example.com\npreferredVersion:\n  groupVersion: new.example.com/v1\n  version: v1\nversions:\n- groupVersion: new.example.com/v1\n  version: v1\n";
    assert_eq!(yaml.text(), expected);
    let pretty = world.get("/apis/new.example.com?pretty=true").await.text();
    assert!(
        pretty.starts_with("{\n  \"kind\": \"APIGroup\",\n"),
        "{pretty}"
    );
    assert!(!pretty.ends_with('\n'));
    let curl = with(request("GET", "/apis/apps"), "user-agent", "curl/8");
    assert!(world.send(curl).await.text().contains("\n  "));
    let compact = world.get("/apis/apps").await.text();
    assert!(compact.ends_with("}\n") && !compact.contains("\n "));
}

#[tokio::test]
async fn discovery_is_refused_as_kubernetes_refuses_it() {
    let (world, _peer) = pair().await;
    for (method, target, accept, status, reason) in [
        ("GET", "/apis", "text/html", 406, "NotAcceptable"),
        ("GET", "/apis/", V2, 406, "NotAcceptable"),
        ("GET", "/api", "text/html", 406, "NotAcceptable"),
        (
            "POST",
            "/api/v1",
            "application/json",
            405,
            "MethodNotAllowed",
        ),
        (
            "POST",
            "/apis/apps/v1",
            "application/json",
            405,
            "MethodNotAllowed",
        ),
        (
            "DELETE",
            "/api",
            "application/json",
            405,
            "MethodNotAllowed",
        ),
    ] {
        let answer = world
            .send(with(request(method, target), "accept", accept))
            .await;
        assert_eq!(
            (answer.status, answer.json()["reason"].as_str()),
            (status, Some(reason)),
            "{method} {target}"
        );
    }
    for target in [
        "/apis/nosuch.example.com",
        "/apis/apps/v7",
        "/api/v2",
        "/api//v1",
    ] {
        let answer = world.get(target).await;
        assert_eq!(
            answer.text(),
            "404 page not found\n",
            "the local chain has the words: {target}"
        );
    }
    let post = world.send(request("POST", "/apis/apps")).await;
    assert_eq!(post.status, 200, "not routed by method");
}

#[tokio::test]
async fn row_21_a_verified_peer_gets_the_local_document_whatever_it_asks() {
    let (world, _peer) = pair().await;
    let own = world.get_accepting("/apis", NOPEER).await;
    for accept in [V2, NOPEER] {
        let answer = world.get_as_peer("/apis", accept).await;
        assert_eq!(answer.text(), own.text());
        assert_eq!(answer.header("etag"), own.header("etag"));
    }
    let legacy = world.get_as_peer("/apis", "application/json").await.json();
    assert_eq!(legacy["groups"].as_array().unwrap().len(), 1);
    assert_eq!(
        world
            .get_as_peer("/apis/new.example.com", "*/*")
            .await
            .status,
        404
    );
    assert_eq!(
        world
            .get_as_peer("/apis/new.example.com/v1", "*/*")
            .await
            .status,
        404
    );
}

/// kubernetes/kubernetes#71754.
#[tokio::test]
async fn a_thousand_discovery_requests_open_no_connection_to_a_peer() {
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &documents::new()).await;
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-new", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.poll.interval = std::time::Duration::from_secs(3600);
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    let before = peer.polls().len() + peer.requests().len();
    for _ in 0..1000 {
        assert_eq!(world.get_accepting("/apis", V2).await.status, 200);
    }
    // The round that made it known may have asked for the OpenAPI index after that.
    assert!(peer.polls().len() + peer.requests().len() <= before + 1);
}

/// A change that comes while a document is built is not lost.
#[tokio::test]
async fn a_change_of_the_local_documents_is_shown_with_the_next_request_after_it() {
    let (world, _peer) = pair().await;
    let mut more = documents::old();
    let groups = more["items"].as_array_mut().unwrap();
    groups.push(group(
        "crd.example.com",
        &[("v1", &[resource("gadgets", &[])])],
    ));
    let mut views = world.proxy.views();
    world
        .local
        .send_replace(local_apis(&documents::core(), &more));
    views
        .wait_for(|_| {
            let view = world.proxy.view();
            view.local_documents()
                .is_some_and(|d| d.apis().items.len() == 2)
        })
        .await
        .unwrap();
    let names = group_names(&world.get_accepting("/apis", V2).await.json());
    assert!(names.contains(&"crd.example.com".to_owned()), "{names:?}");
}

/// What is listed as current can be called, through whichever server.
#[tokio::test]
async fn nothing_is_listed_that_cannot_be_called() {
    let (world, _peer) = pair().await;
    let list = world.get_accepting("/apis", V2).await.json();
    let mut calls = 0;
    for group in list["items"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let base = format!(
                "/apis/{}/{}",
                group["metadata"]["name"].as_str().unwrap(),
                version["version"].as_str().unwrap()
            );
            for resource in version["resources"].as_array().unwrap() {
                let name = resource["resource"].as_str().unwrap();
                let mut targets = vec![
                    format!("{base}/{name}"),
                    format!("{base}/namespaces/n/{name}/x"),
                ];
                for sub in resource["subresources"].as_array().into_iter().flatten() {
                    targets.push(format!(
                        "{base}/namespaces/n/{name}/x/{}",
                        sub["subresource"].as_str().unwrap()
                    ));
                }
                for target in targets {
                    assert_eq!(world.get(&target).await.status, 200, "{target}");
                    calls += 1;
                }
            }
        }
    }
    assert!(calls > 8);
}

/// kubernetes/kubernetes#128402: under constant change every answer is one complete state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_sees_one_complete_view_while_documents_change() {
    let version = |name: &str| {
        let marked = |group_name: &str| group(group_name, &[(name, &[resource("things", &[])])]);
        apis(&[marked("first.example.com"), marked("last.example.com")])
    };
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "apiserver-new", &documents::core(), &version("v1")).await;
    let mut builder = WorldBuilder {
        records: vec![live("apiserver-new", peer.address)],
        ..WorldBuilder::default()
    };
    builder.options.poll.interval = std::time::Duration::from_millis(2);
    let world = builder.start(pki);
    world.until_state("apiserver-new", "serving").await;
    let mut seen = std::collections::BTreeSet::new();
    let begun = std::time::Instant::now();
    let mut round = 0;
    while round < 100 || seen.len() < 2 {
        assert!(begun.elapsed().as_secs() < 20, "the documents do change");
        round += 1;
        let now = if round % 2 == 0 { "v2" } else { "v1" };
        peer.set_apis(Document::of(&version(now)));
        tokio::task::yield_now().await;
        for _ in 0..5 {
            let list = world.get_accepting("/apis", V2).await.json();
            let versions: Vec<String> = list["items"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|g| g["metadata"]["name"] != "apps")
                .map(|g| g["versions"].to_string())
                .collect();
            assert_eq!(versions.len(), 2);
            assert_eq!(
                versions[0], versions[1],
                "half of one view, half of another"
            );
            seen.insert(versions[0].clone());
        }
    }
}
