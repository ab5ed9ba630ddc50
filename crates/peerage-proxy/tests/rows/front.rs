//! A front: servers of any age behind it, and what a bad one does to the others.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use peerage_auth::VerifiedPeer;
use peerage_auth::identity_headers::Family;
use peerage_core::LocalApis;
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{ClientTls, Request};
use peerage_proxy::debug::DebugPeer;
use peerage_proxy::{
    Behind, DebugPeers, FrontOptions, PeerProxy, PeerRecord, ProxyService, Writes,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{Layer, ServiceExt};

use super::support::world::{request, with};
use super::support::*;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What goes to any of the servers that have it; a list would go to one for each client.
const WIDGET: &str = "/apis/new.example.com/v1/namespaces/a/widgets/w";

/// A front with these servers behind it.
struct Gateway {
    proxy: PeerProxy,
    service: ProxyService<Behind>,
    records: watch::Sender<Arc<[PeerRecord]>>,
}

impl Gateway {
    fn new(pki: &Pki, servers: &[&FakePeer], beside: Option<&FakePeer>) -> Gateway {
        Gateway::writing(pki, servers, beside, Writes::Local)
    }

    fn writing(
        pki: &Pki,
        servers: &[&FakePeer],
        beside: Option<&FakePeer>,
        writes: Writes,
    ) -> Gateway {
        let mut options = WorldBuilder::default().options;
        let mut tls = ClientTlsOptions::new(pki.ca());
        let passing = ClientTls::load(tls.clone()).unwrap();
        tls.identity = Some(pki.client("front-proxy-client").pems());
        options.tls = Some(ClientTls::load(tls).unwrap());
        options.poll.deadline = Duration::from_secs(2);
        options.front = Some(FrontOptions {
            beside: beside.map(|it| it.id.clone()),
            passing,
            zone: None,
            writes,
            bound: Default::default(),
            family: Family::FrontProxy,
        });
        let records = servers.iter().map(|it| record(&it.id, it));
        let (records, received) = watch::channel(records.collect());
        let local = LocalApis {
            id: "gateway".into(),
            is_front: true,
            ..LocalApis::default()
        };
        let (local, exclusions) = (Arc::new(local), Arc::default());
        let (local, exclusions) = (watch::channel(local).1, watch::channel(exclusions).1);
        let proxy = PeerProxy::start(options, received, local, exclusions);
        Gateway {
            service: proxy.layer().layer(proxy.behind()),
            proxy,
            records,
        }
    }

    /// Puts these servers behind it, under these IDs.
    fn list(&self, servers: &[(&str, &FakePeer)]) {
        let records = servers.iter().map(|(id, it)| record(id, it));
        self.records.send_replace(records.collect());
    }

    /// With everybody heard who can be.
    async fn ready(pki: &Pki, servers: &[&FakePeer], beside: Option<&FakePeer>) -> Gateway {
        let gateway = Gateway::new(pki, servers, beside);
        gateway.synced().await;
        gateway
    }

    async fn synced(&self) {
        let mut views = self.proxy.views();
        let wait = async {
            while !self.proxy.view().synced() {
                views.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(waited.is_ok(), "{:#?}", self.proxy.debug());
    }

    /// Waits until what is said of this server fits.
    async fn until(&self, id: &str, fits: impl Fn(&DebugPeer) -> bool) {
        let wait = async {
            let mut views = self.proxy.views();
            let fits = |debug: DebugPeers| debug.peers.iter().any(|it| it.id == id && fits(it));
            while !fits(self.proxy.debug()) {
                // Some of what is said changes without a new view.
                let _ = tokio::time::timeout(Duration::from_millis(20), views.changed()).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(waited.is_ok(), "{:#?}", self.proxy.debug());
    }

    async fn send(&self, request: Request) -> Answer {
        Answer::of(self.service.clone().oneshot(request).await.unwrap()).await
    }

    async fn get(&self, target: &str, accept: &str) -> Answer {
        self.send(with(request("GET", target), "accept", accept))
            .await
    }

    async fn groups(&self) -> Vec<String> {
        let list = self.get("/apis", V2).await.json();
        let items = list["items"].as_array().unwrap().clone();
        let name = |it: &Value| it["metadata"]["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect()
    }
}

fn record(id: &str, server: &FakePeer) -> PeerRecord {
    PeerRecord {
        identity_lease: None,
        ..live(id, server.address)
    }
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut text)
        .unwrap();
    text
}

fn raw(body: impl Into<Vec<u8>>) -> Document {
    Document::Raw {
        body: body.into(),
        content_type: "application/json".to_owned(),
    }
}

/// A server that knows legacy discovery only.
async fn legacy(pki: &Pki, id: &str, documents: &Value) -> FakePeer {
    let peer = FakePeer::start(pki, id, &documents["/api"], &documents["/apis"]).await;
    peer.set_api(raw(documents["/api"].to_string()));
    peer.set_apis(raw(documents["/apis"].to_string()));
    let documents = documents.clone();
    peer.on_probe(move |request| {
        let path = request.uri().path().to_owned();
        let answer = match documents.get(&path) {
            Some(document) => response(
                StatusCode::OK,
                &[("content-type", "application/json")],
                &document.to_string(),
            ),
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        };
        async move { answer }
    });
    peer
}

#[tokio::test]
async fn a_server_without_aggregated_discovery_is_read_through_its_lists_and_each_of_them_once() {
    let recorded = unpacked(include_bytes!(
        "../../../peerage-core/tests/data/1.31-legacy.json.gz"
    ));
    let recorded: Value = serde_json::from_slice(&recorded).unwrap();
    let mut documents = recorded.clone();
    // Another server's APIService: listed, but not served here.
    let ghost = json!({"groupVersion": "ghost.example.com/v1", "version": "v1"});
    let ghost =
        json!({"name": "ghost.example.com", "versions": [ghost], "preferredVersion": ghost});
    documents["/apis"]["groups"]
        .as_array_mut()
        .unwrap()
        .push(ghost);
    let pki = Pki::new();
    let peer = legacy(&pki, "old", &documents).await;
    let gateway = Gateway::ready(&pki, &[&peer], None).await;
    for (path, document) in recorded.as_object().unwrap() {
        let mut answer = gateway.get(path, "application/json").await.json();
        let mut document = document.clone();
        for it in [&mut answer, &mut document] {
            it["serverAddressByClientCIDRs"] = Value::Null;
        }
        assert_eq!(answer, document, "{path}");
    }
    let aggregated = unpacked(include_bytes!(
        "../../../peerage-core/tests/data/1.31-aggregated-apis.json.gz"
    ));
    let aggregated: Value = serde_json::from_slice(&aggregated).unwrap();
    let answer = gateway.get("/apis", V2).await.json();
    let shape = |list: &Value| -> Vec<String> {
        let mut lines = Vec::new();
        for group in list["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().unwrap() {
                    lines.push(format!(
                        "{} {} {} {} {} {}",
                        group["metadata"]["name"],
                        version["version"],
                        version["freshness"],
                        resource["resource"],
                        resource["verbs"],
                        resource["subresources"].as_array().map_or(0, Vec::len)
                    ));
                }
            }
        }
        lines
    };
    assert_eq!(shape(&answer), shape(&aggregated));
    peer.polled("/apis", 10).await;
    let lists: Vec<String> = peer.polls().iter().map(|it| it.target.clone()).collect();
    let lists: Vec<&String> = lists
        .iter()
        .filter(|it| it.matches('/').count() > 2)
        .collect();
    let once: HashSet<&&String> = lists.iter().collect();
    assert_eq!(lists.len(), once.len(), "{lists:?}");
    assert!(once.len() > 20);
}

#[tokio::test]
async fn a_server_with_the_older_aggregated_form_is_read_in_it() {
    let read = |bytes: &[u8]| -> Value { serde_json::from_slice(&unpacked(bytes)).unwrap() };
    let core = read(include_bytes!(
        "../../../peerage-core/tests/data/1.31-aggregated-api.json.gz"
    ));
    let beta = read(include_bytes!(
        "../../../peerage-core/tests/data/1.31-aggregated-apis-v2beta1.json.gz"
    ));
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "beta", &core, &beta).await;
    let gateway = Gateway::ready(&pki, &[&peer], None).await;
    assert_eq!(
        gateway.get("/apis", V2).await.json()["items"],
        beta["items"]
    );
    let polls = peer.polls();
    let ask = polls.iter().find(|it| it.target == "/apis").unwrap();
    let accept = ask.headers["accept"].to_str().unwrap();
    let places = [
        "v=v2;as=APIGroupDiscoveryList;profile=nopeer",
        "v=v2beta1;",
        ",application/json",
    ];
    let places = places.map(|it| accept.rfind(it).unwrap());
    assert!(places.is_sorted(), "{accept}");
}

/// What a front asks every server at the same time as one of these, it must still get from the others.
#[tokio::test]
async fn a_server_that_answers_nonsense_costs_nobody_else_anything() {
    let whole = documents::new().to_string();
    let bad = [
        ("nothing", raw("")),
        ("an empty object", raw("{}")),
        ("garbage", raw(vec![0, 159, 146, 150])),
        ("half a document", raw(whole[..whole.len() / 2].to_owned())),
        ("an empty list", raw(apis(&[]).to_string())),
        (
            "an empty legacy list",
            raw(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#),
        ),
        ("more than is read", raw(vec![b' '; 2 << 20])),
        ("a redirect", Document::Status(302)),
        ("its own fault", Document::Status(500)),
        ("silence", Document::Silence),
    ];
    for (what, document) in bad {
        let pki = Pki::new();
        let good = FakePeer::start(&pki, "good", &documents::core(), &documents::old()).await;
        let odd = FakePeer::start(&pki, "odd", &documents::core(), &documents::new()).await;
        odd.set_apis(document.clone());
        // From the start: the others' clients wait for a few rounds at most.
        let gateway = Gateway::ready(&pki, &[&good, &odd], None).await;
        assert_eq!(gateway.groups().await, ["apps"], "{what}");
        let served = gateway
            .get("/apis/apps/v1/namespaces/a/deployments", "*/*")
            .await;
        assert_eq!(served.text(), "good", "{what}");
        // What the odd one may have is not known, which is not the same as nowhere.
        let unsure = gateway.get("/apis/new.example.com/v1/widgets", "*/*").await;
        unsure.assert_retryable();

        // Once it has said something good, later: that stays.
        odd.set_apis(Document::of(&documents::new()));
        let mut views = gateway.proxy.views();
        while gateway.groups().await != ["apps", "new.example.com"] {
            views.changed().await.unwrap();
        }
        odd.set_apis(document);
        let seen = odd.polls().iter().filter(|it| it.target == "/apis").count();
        odd.polled("/apis", seen + 2).await;
        assert_eq!(
            gateway.groups().await,
            ["apps", "new.example.com"],
            "{what}"
        );
        let served = gateway
            .get("/apis/apps/v1/namespaces/a/deployments", "*/*")
            .await;
        assert!(
            matches!(&*served.text(), "good" | "odd"),
            "{what}: {}",
            served.text()
        );
    }
}

/// Anybody may ask for anything: what no server lists is no label.
#[tokio::test]
async fn names_that_clients_make_up_are_counted_without_them() {
    let mut documents = documents::new();
    let mut down = group("down.example.com", &[("v1", &[])]);
    down["versions"][0]["freshness"] = "Stale".into();
    documents["items"].as_array_mut().unwrap().push(down);
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "server", &documents::core(), &documents).await;
    let gateway = Gateway::ready(&pki, &[&peer], None).await;
    peer.on_request(|_| async { text(StatusCode::NOT_FOUND, "{}") });
    let made_up = [
        "/apis/madeup.example.com/v1/things",
        "/apis/down.example.com/v1/madeup",
        "/api/v1/namespaces/a/madeup",
    ];
    for target in made_up {
        assert_eq!(gateway.get(target, "*/*").await.status, 404, "{target}");
    }
    assert_eq!(
        gateway.get("/api/v1/pods", "*/*").await.status,
        404,
        "listed"
    );
    peer.on_request(|_| std::future::pending());
    for target in made_up {
        let hasty = format!("{target}?timeout=1ms");
        assert_eq!(gateway.get(&hasty, "*/*").await.status, 504, "{target}");
    }
    let registry = peerage_http::metrics::Registry::default();
    gateway.proxy.register_metrics(&registry);
    let counted = registry.text();
    assert!(!counted.contains("madeup"), "{counted}");
    let nameless = r#"group="",version="",resource="""#;
    for line in [
        format!("apiserver_rerouted_request_total{{code=\"404\",{nameless}}} 3"),
        format!("apiserver_peer_proxy_errors_total{{type=\"proxy_transport\",{nameless}}} 3"),
        r#"apiserver_rerouted_request_total{code="404",group="",version="v1",resource="pods"} 1"#
            .to_owned(),
    ] {
        assert!(counted.contains(&line), "{line} in {counted}");
    }
}

/// A client certificate that is no front-proxy certificate would make its user of everybody.
#[tokio::test]
async fn no_user_is_named_to_a_server_that_takes_each_for_another() {
    let pki = Pki::new();
    let good = FakePeer::start(&pki, "good", &documents::core(), &documents::new()).await;
    let wrong = FakePeer::start(&pki, "wrong", &documents::core(), &documents::new()).await;
    for (peer, name) in [(&good, "system:apiserver"), (&wrong, "kubernetes-admin")] {
        peer.on_probe(move |request| async move {
            match request.uri().path() {
                "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
                    let review = json!({"status": {"userInfo": {"username": name}}});
                    response(StatusCode::CREATED, &[], &review.to_string())
                }
                _ => text(StatusCode::FORBIDDEN, "no"),
            }
        });
    }
    let gateway = Gateway::ready(&pki, &[&good, &wrong], None).await;
    for _ in 0..20 {
        let answer = gateway.get(WIDGET, "*/*").await;
        assert_eq!(answer.text(), "good");
    }
    assert_eq!(wrong.requests().len(), 0);
    let debug = serde_json::to_value(gateway.proxy.debug()).unwrap();
    let peers = debug["peers"].as_array().unwrap();
    let wrong = peers.iter().find(|it| it["id"] == "wrong").unwrap();
    let why = wrong["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("\"kubernetes-admin\"") && why.contains("--proxy-client-cert-file"),
        "{why}"
    );
    assert_eq!(wrong["error"]["reason"], "disbelieved");
}

/// What is no answer to the question is no yes.
#[tokio::test]
async fn a_server_that_was_found_wrong_gets_no_user_before_it_has_said_better() {
    const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let pki = Pki::new();
    let good = FakePeer::start(&pki, "good", &documents::core(), &documents::new()).await;
    let wrong = FakePeer::start(&pki, "wrong", &documents::core(), &documents::new()).await;
    let says = |status: StatusCode, body: String| {
        wrong.on_probe(move |request| {
            let answer = match request.uri().path() {
                REVIEW => response(status, &[], &body),
                _ => text(StatusCode::FORBIDDEN, "no"),
            };
            async move { answer }
        });
    };
    let named = |name: &str| json!({"status": {"userInfo": {"username": name}}}).to_string();
    says(StatusCode::CREATED, named("kubernetes-admin"));
    let gateway = Gateway::ready(&pki, &[&good, &wrong], None).await;
    let forbidden = json!({"message": "User \"kubernetes-admin\" cannot create resource"});
    for (status, body) in [
        (StatusCode::CREATED, named("kubernetes-admin")),
        (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        (StatusCode::TOO_MANY_REQUESTS, String::new()),
        (StatusCode::UNAUTHORIZED, String::new()),
        (StatusCode::CREATED, "{".to_owned()),
        (StatusCode::FORBIDDEN, forbidden.to_string()),
    ] {
        let case = format!("{status} {body}");
        says(status, body);
        let asked = wrong
            .polls()
            .iter()
            .filter(|it| it.target == REVIEW)
            .count();
        // The one after the next began when the next had been judged.
        wrong.polled(REVIEW, asked + 2).await;
        for _ in 0..20 {
            let answer = gateway.get(WIDGET, "*/*").await;
            assert_eq!(answer.text(), "good", "{case}");
        }
        assert!(wrong.requests().is_empty(), "{case}");
    }
    says(StatusCode::CREATED, named("system:apiserver"));
    gateway.until("wrong", |it| it.error.is_none()).await;
    good.kill();
    gateway.until("good", |it| it.state == "unreachable").await;
    let answer = gateway.get(WIDGET, "*/*").await;
    assert_eq!(answer.text(), "wrong");
}

#[tokio::test]
async fn a_server_that_lists_what_others_serve_is_found_out() {
    let pki = Pki::new();
    let newer = FakePeer::start(&pki, "newer", &documents::core(), &documents::new()).await;
    let older = FakePeer::start(&pki, "older", &documents::core(), &documents::new()).await;
    older.on_probe(|request| {
        let answer = match request.uri().path() {
            "/apis/new.example.com/v1" => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            _ => text(StatusCode::FORBIDDEN, "no"),
        };
        async move { answer }
    });
    let gateway = Gateway::ready(&pki, &[&newer, &older], None).await;
    for _ in 0..20 {
        let answer = gateway.get("/apis/new.example.com/v1/widgets", "*/*").await;
        assert_eq!(answer.text(), "newer");
    }
    let registry = peerage_http::metrics::Registry::default();
    gateway.proxy.register_metrics(&registry);
    let counted = "peer=\"older\"";
    let merged = registry.text();
    let merged = merged
        .lines()
        .find(|it| it.contains("merged_documents") && it.contains(counted));
    assert!(merged.is_some_and(|it| !it.ends_with(" 0")), "{merged:?}");
}

/// One custom resource that comes or goes must not make all that was found out about the others forgotten.
#[tokio::test]
async fn what_was_found_out_about_one_group_outlives_a_change_of_another() {
    let pki = Pki::new();
    let newer = FakePeer::start(&pki, "newer", &documents::core(), &documents::new()).await;
    let older = FakePeer::start(&pki, "older", &documents::core(), &documents::new()).await;
    older.on_probe(|request| {
        let answer = match request.uri().path() {
            "/apis/new.example.com/v1" => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            _ => text(StatusCode::FORBIDDEN, "no"),
        };
        async move { answer }
    });
    let gateway = Gateway::ready(&pki, &[&newer, &older], None).await;
    for round in 1..4 {
        let mut more = documents::new();
        let name = format!("crd{round}.example.com");
        let added = group(&name, &[("v1", &[resource("things", &[])])]);
        more["items"].as_array_mut().unwrap().push(added);
        older.set_apis(Document::of(&more));
        let mut views = gateway.proxy.views();
        while !gateway.groups().await.contains(&name) {
            views.changed().await.unwrap();
        }
        for _ in 0..20 {
            let answer = gateway.get("/apis/new.example.com/v1/widgets", "*/*").await;
            assert_eq!(answer.text(), "newer", "after change {round}");
        }
        let seen = gateway.proxy.debug();
        let older = seen.peers.iter().find(|it| it.id == "older").unwrap();
        assert_eq!(older.not_its_own, 1, "after change {round}");
    }
}

/// Has the server say that it serves this version, or nothing.
fn serves(peer: &FakePeer, minor: Option<u32>) {
    peer.on_probe(move |request| {
        let answer = match (request.uri().path(), minor) {
            ("/version", Some(minor)) => {
                let version = json!({"major": "1", "minor": minor.to_string()});
                text(StatusCode::OK, &version.to_string())
            }
            _ => text(StatusCode::FORBIDDEN, "no"),
        };
        async move { answer }
    });
}

/// kubernetes/kubernetes#46073: the older one would erase what only the newest knows.
#[tokio::test]
async fn no_older_server_writes_while_the_version_of_another_that_could_is_not_known() {
    let pki = Pki::new();
    let newer = FakePeer::start(&pki, "newer", &documents::core(), &documents::new()).await;
    let older = FakePeer::start(&pki, "older", &documents::core(), &documents::old()).await;
    serves(&older, Some(35));
    serves(&newer, None);
    let gateway = Gateway::writing(&pki, &[&newer, &older], None, Writes::Newest);
    gateway.synced().await;
    gateway
        .until("older", |it| it.version.as_deref() == Some("1.35"))
        .await;
    gateway
        .until("newer", |it| it.version_error.is_some())
        .await;
    let write = || {
        let deployments = "/apis/apps/v1/namespaces/a/deployments";
        gateway.send(request("POST", deployments))
    };
    write().await.assert_retryable();
    assert!(newer.requests().is_empty() && older.requests().is_empty());
    let only_there = request("POST", "/apis/new.example.com/v1/widgets");
    assert_eq!(gateway.send(only_there).await.text(), "newer");
    let registry = peerage_http::metrics::Registry::default();
    gateway.proxy.register_metrics(&registry);
    let counted = registry.text();
    for line in [
        r#"peerage_peer_errors_total{peer="newer",reason="version"}"#,
        r#"peerage_proxy_refused_total{reason="version_unknown"} 1"#,
    ] {
        assert!(counted.contains(line), "{line} in {counted}");
    }

    serves(&newer, Some(37));
    gateway
        .until("newer", |it| it.version.as_deref() == Some("1.37"))
        .await;
    for _ in 0..10 {
        assert_eq!(write().await.text(), "newer");
    }
    // One that comes back is asked before it gets a request; a server that starts and cannot say it yet is taken for
    // what it was, since nothing newer can have been stored through it.
    newer.kill();
    gateway
        .until("newer", |it| {
            it.state == "unreachable" && it.version.as_deref() == Some("1.37")
        })
        .await;
}

/// A server that moved may have become older: it gets nothing as what it was before.
#[tokio::test]
async fn a_server_at_another_address_gets_no_request_before_it_was_asked_for_its_version() {
    let pki = Pki::new();
    let (core, old) = (documents::core(), documents::old());
    let moving = FakePeer::start(&pki, "moving", &core, &old).await;
    let other = FakePeer::start(&pki, "other", &core, &old).await;
    serves(&moving, Some(37));
    serves(&other, Some(36));
    let gateway = Gateway::writing(&pki, &[&moving, &other], None, Writes::Newest);
    gateway.synced().await;
    let says = |version: &'static str| {
        move |it: &DebugPeer| it.version.as_deref() == Some(version) && it.state == "serving"
    };
    gateway.until("moving", says("1.37")).await;
    gateway.until("other", says("1.36")).await;
    let write = || gateway.send(request("POST", "/apis/apps/v1/namespaces/a/deployments"));
    assert_eq!(write().await.text(), "moving");

    let moved = FakePeer::start(&pki, "moved", &core, &old).await;
    let (tell, told) = watch::channel(false);
    moved.on_probe(move |request| {
        let mut told = told.clone();
        async move {
            if request.uri().path() != "/version" {
                return text(StatusCode::FORBIDDEN, "no");
            }
            told.wait_for(|it| *it).await.unwrap();
            text(StatusCode::OK, r#"{"major":"1","minor":"35"}"#)
        }
    });
    gateway.list(&[("moving", &moved), ("other", &other)]);
    moved.polled("/version", 1).await;
    for _ in 0..10 {
        assert_eq!(write().await.text(), "other");
    }
    tell.send_replace(true);
    gateway.until("moving", says("1.35")).await;
    for _ in 0..10 {
        assert_eq!(write().await.text(), "other");
    }
    assert!(moved.requests().is_empty());
}

#[tokio::test]
async fn only_a_sidecar_has_documents_of_its_own() {
    let pki = Pki::new();
    let newer = FakePeer::start(&pki, "newer", &documents::core(), &documents::new()).await;
    let older = FakePeer::start(&pki, "older", &documents::core(), &documents::old()).await;
    let own = format!("{V2};profile=nopeer");
    for (beside, expected) in [(Some(&older), 1), (None, 2)] {
        let gateway = Gateway::ready(&pki, &[&newer, &older], beside).await;
        let asked = gateway.get("/apis", &own).await.json();
        assert_eq!(asked["items"].as_array().unwrap().len(), expected);
        let mut as_peer = with(request("GET", "/apis"), "accept", V2);
        as_peer.extensions_mut().insert(VerifiedPeer);
        let asked = gateway.send(as_peer).await.json();
        assert_eq!(asked["items"].as_array().unwrap().len(), expected);
        assert_eq!(gateway.groups().await.len(), 2);
    }
}

/// Who takes a sidecar for a server gets what the server beside it has, and nobody sends it on from there.
#[tokio::test]
async fn what_another_server_sent_is_handed_to_the_server_beside_and_to_no_other() {
    let pki = Pki::new();
    let newer = FakePeer::start(&pki, "newer", &documents::core(), &documents::new()).await;
    let older = FakePeer::start(&pki, "older", &documents::core(), &documents::old()).await;
    let widgets = "/apis/new.example.com/v1/widgets";
    let sent_on = |target: &str| {
        let mut request = with(request("GET", target), "x-kubernetes-peer-proxied", "true");
        request.extensions_mut().insert(VerifiedPeer);
        request
    };
    for (beside, has_it) in [(&newer, true), (&older, false)] {
        let gateway = Gateway::ready(&pki, &[&newer, &older], Some(beside)).await;
        let (before, others) = (newer.requests().len(), older.requests().len());
        let answer = gateway.send(sent_on(widgets)).await;
        if has_it {
            assert_eq!(answer.text(), "newer");
            let handed = newer.requests().pop().unwrap();
            assert_eq!(handed.headers["x-kubernetes-peer-proxied"], "true");
        } else {
            answer.assert_retryable();
            assert_eq!(newer.requests().len(), before, "sent on");
        }
        assert_eq!(older.requests().len(), others);
        let nowhere = gateway.send(sent_on("/apis/nowhere.example.com/v1/things"));
        nowhere.await;
        let asked = [&newer, &older].map(|it| it.requests().len());
        let local = [has_it, !has_it].map(usize::from);
        assert_eq!(
            asked,
            [before + local[0] + usize::from(has_it), others + local[1]],
            "the server beside alone says what nobody has"
        );
    }
}

/// Before all servers are heard there is no document that says of anything that it is not there.
#[tokio::test]
async fn until_all_servers_are_heard_discovery_is_not_partial() {
    let pki = Pki::new();
    let good = FakePeer::start(&pki, "good", &documents::core(), &documents::old()).await;
    let late = FakePeer::start(&pki, "late", &documents::core(), &documents::new()).await;
    late.set_apis(Document::Silence);
    let gateway = Gateway::new(&pki, &[&good, &late], None);
    let mut views = gateway.proxy.views();
    while gateway
        .proxy
        .view()
        .peer("good")
        .is_none_or(|it| it.documents.is_none())
    {
        views.changed().await.unwrap();
    }
    for path in [
        "/api",
        "/apis",
        "/apis/",
        "/apis/new.example.com",
        "/openapi/v3",
        "/openapi/v2",
    ] {
        gateway
            .get(path, "application/json")
            .await
            .assert_retryable();
    }
    let served = gateway
        .get("/apis/apps/v1/namespaces/a/deployments", "*/*")
        .await;
    assert_eq!(served.text(), "good", "what is known is served");
    late.set_apis(Document::of(&documents::new()));
    while !gateway.proxy.view().synced() {
        views.changed().await.unwrap();
    }
    assert_eq!(gateway.groups().await, ["apps", "new.example.com"]);
}
