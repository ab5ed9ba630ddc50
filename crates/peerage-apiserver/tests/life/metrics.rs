//! `docs/metrics.md` is what a server exposes, and files that change are taken over while it runs.

use peerage_testkit::documented_metrics::{Documented, in_sources};
use serde_json::json;

use super::support::{Mode, Site, Switch, until};

#[test]
fn every_metric_in_the_sources_is_documented_and_no_other() {
    assert_eq!(in_sources(), Documented::read().names());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_exposes_has_the_documented_types_and_labels() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let new = site.start(site.options("1.37", "new", store.clone())).await;
    let old = site.start(site.options("1.33", "old", store)).await;
    until("the old one forwards", || async {
        old.get("/apis/resource.k8s.io/v1/deviceclasses")
            .await
            .status()
            == 200
    })
    .await;
    old.get("/apis/nobody.example.com/v1/things").await;
    let documented = Documented::read();
    let mut seen = Vec::new();
    for server in [&old, &new] {
        let answer = server.get("/metrics").await;
        seen.extend(documented.check(&String::from_utf8(answer.body).unwrap()));
    }
    for name in [
        "peerage_peer_live",
        "apiserver_rerouted_request_total",
        "etcd_requests_total",
    ] {
        assert!(
            seen.iter().any(|it| it == name),
            "{name} is there: {seen:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_that_changes_is_taken_over_and_counted() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let tokens = site.pki.file("tokens.csv");
    std::fs::write(&tokens, "first,alice,1,\"system:masters\"\n").unwrap();
    let mut options = site.options("1.37", "a", store);
    options.authentication.token_file = Some(tokens.clone());
    let server = site.start(options).await;
    let client =
        peerage_testkit::wire::Client::new(server.running.address(), &site.pki, "anonymous");
    let ask = async |token: &str| {
        let request = peerage_testkit::wire::Outgoing::new("GET", "/api/v1/namespaces/default");
        let request = request.header("Authorization", &format!("Bearer {token}"));
        client.send(&request).await.unwrap().status()
    };
    assert_eq!((ask("first").await, ask("second").await), (200, 401));
    std::fs::write(&tokens, "second,alice,1,\"system:masters\"\n").unwrap();
    until("the new token counts", || async {
        ask("second").await == 200
    })
    .await;
    assert_eq!(ask("first").await, 401);
    let counted = server.get("/metrics").await;
    let text = String::from_utf8(counted.body).unwrap();
    assert!(
        text.contains("peerage_reloads_total{") && text.contains("result=\"success\""),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_events_have_the_objects_that_the_policy_asks_for() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let log = site.pki.file("audit.log");
    let mut options = site.options("1.37", "a", store);
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "RequestResponse", "resources": [{"group": "", "resources": ["configmaps"]}]},
        {"level": "Request", "resources": [{"group": "", "resources": ["secrets"]}]},
        {"level": "None"},
    ]});
    options.audit.policy = Some(peerage_core::audit::Policy::parse(policy).unwrap());
    options.audit.path = Some(log.clone());
    let server = site.start(options).await;
    let generated = json!({"metadata": {"generateName": "g-"}, "data": {"a": "b"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let created = server.send("POST", maps, &generated).await.json();
    server.get(&format!("{maps}/missing")).await;
    let secret = json!({"metadata": {"name": "s"}});
    server
        .send("POST", "/api/v1/namespaces/default/secrets", &secret)
        .await;
    server.running.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let [create, missing, secret] = &events[..] else {
        panic!("{text}");
    };
    assert_eq!(create["requestObject"], generated);
    assert_eq!(create["responseObject"], created);
    assert_eq!(create["objectRef"]["name"], created["metadata"]["name"]);
    assert_eq!(missing["responseStatus"]["reason"], "NotFound");
    assert_eq!(missing["responseStatus"]["code"], 404);
    assert_eq!(secret["requestObject"]["metadata"]["name"], "s");
    assert_eq!(secret.get("responseObject"), None);
}
