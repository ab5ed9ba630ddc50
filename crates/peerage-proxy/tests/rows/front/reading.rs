//! Documents of servers of any age, and what a bad one costs the others.

use super::*;

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
        "../../../../peerage-core/tests/data/1.31-legacy.json.gz"
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
        "../../../../peerage-core/tests/data/1.31-aggregated-apis.json.gz"
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
        "../../../../peerage-core/tests/data/1.31-aggregated-api.json.gz"
    ));
    let beta = read(include_bytes!(
        "../../../../peerage-core/tests/data/1.31-aggregated-apis-v2beta1.json.gz"
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

/// Each list says in which version objects are stored, so a group that changes is read anew as a whole.
#[tokio::test]
async fn the_lists_of_a_group_are_read_again_when_another_version_of_it_goes() {
    const LISTS: &str = "/apis/stored.example.com/";
    let serves = |versions: &[&str]| {
        let things = [documents::resource("things", &[])];
        let versions: Vec<_> = versions.iter().map(|it| (*it, &things[..])).collect();
        documents::apis(&[documents::group("stored.example.com", &versions)])
    };
    let pki = Pki::new();
    let peer = FakePeer::start(&pki, "peer", &documents::core(), &serves(&["v2", "v1"])).await;
    let (stored, told) = watch::channel("v1's");
    peer.on_probe(move |request| {
        let stored = *told.borrow();
        let answer = match request.uri().path().strip_prefix(LISTS) {
            Some(version) => {
                let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
                    "groupVersion": format!("stored.example.com/{version}"), "resources": [
                    {"name": "things", "singularName": "", "namespaced": true, "kind": "X",
                        "verbs": documents::VERBS, "storageVersionHash": stored}]});
                response(StatusCode::OK, &[], &list.to_string())
            }
            None => text(StatusCode::FORBIDDEN, "no"),
        };
        async move { answer }
    });
    let gateway = Gateway::ready(&pki, &[&peer], None).await;
    let hash_becomes = async |expected: &str| {
        let mut views = gateway.proxy.views();
        let wait = async {
            loop {
                let list = gateway.get("/apis/stored.example.com/v2", "application/json");
                if list.await.json()["resources"][0]["storageVersionHash"] == expected {
                    return;
                }
                let _ = tokio::time::timeout(Duration::from_millis(20), views.changed()).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "it does not become {expected}");
    };
    hash_becomes("v1's").await;
    stored.send_replace("v2's");
    peer.set_apis(Document::of(&serves(&["v2"])));
    hash_becomes("v2's").await;
}
