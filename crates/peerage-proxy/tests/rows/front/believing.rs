//! What a front believes of servers, and what it tells them of users, until they have shown otherwise.

use super::*;

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

/// Before a newer server and an older one that lists what only the newer serves.
async fn before_one_that_lists_too_much() -> (Gateway, FakePeer, FakePeer) {
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
    (gateway, newer, older)
}

#[tokio::test]
async fn a_server_that_lists_what_others_serve_is_found_out() {
    let (gateway, _newer, _older) = before_one_that_lists_too_much().await;
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
    let (gateway, _newer, older) = before_one_that_lists_too_much().await;
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
