//! Conditional requests on discovery and OpenAPI, as kube-apiserver 1.37 answers them.

#![allow(clippy::unwrap_used)]

use peerage_testkit::server::{TestServer, TestServerOptions};
use peerage_testkit::wire::{AGGREGATED, Answer, Client, Outgoing};

const JSON: &str = "application/json";

async fn client() -> (TestServer, Client) {
    let server = TestServer::start(TestServerOptions::new("1.37")).await;
    let client = Client::new(server.address(), server.pki(), "admin");
    (server, client)
}

async fn ask(client: &Client, target: &str, accept: &str, tag: Option<&str>) -> Answer {
    let mut request = Outgoing::get_as(target, accept);
    if let Some(tag) = tag {
        request = request.header("If-None-Match", tag);
    }
    client.send(&request).await.unwrap()
}

/// The tag in each of the forms that a client may send it in.
fn forms(tag: &str) -> [String; 5] {
    [
        tag.to_owned(),
        format!("W/{tag}"),
        format!("\"x\", {tag}"),
        "*".to_owned(),
        tag.trim_matches('"').to_owned(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_discovery_knows_its_own_tag_in_one_form_only() {
    let (_server, client) = client().await;
    for path in ["/api", "/apis"] {
        let whole = ask(&client, path, AGGREGATED, None).await;
        let tag = whole.head.header("ETag").unwrap().to_owned();
        assert_eq!(tag.len(), 130, "{tag}");
        assert_eq!(whole.head.header("Cache-Control"), Some("public"));
        assert_eq!(whole.head.header("Vary"), Some("Accept"));
        for (form, code) in forms(&tag).iter().zip([304, 200, 200, 200, 200]) {
            let answer = ask(&client, path, AGGREGATED, Some(form)).await;
            assert_eq!(answer.status(), code, "{path} {form}");
            if code == 304 {
                assert!(answer.body.is_empty());
                assert_eq!(answer.head.header("ETag"), Some(&*tag));
                assert_eq!(answer.head.header("Cache-Control"), Some("public"));
                assert_eq!(answer.head.header("Vary"), Some("Accept"));
                assert_eq!(answer.head.header("Content-Type"), None);
            }
        }
        // The other document of the same path has no tag.
        let legacy = ask(&client, path, JSON, Some(&tag)).await;
        assert_eq!(legacy.status(), 200);
        assert_eq!(legacy.head.header("ETag"), None);
        let no_cache = Some("no-cache, private");
        assert_eq!(legacy.head.header("Cache-Control"), no_cache);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_knows_its_tag_weak_in_lists_and_as_a_star() {
    let (_server, client) = client().await;
    let index = ask(&client, "/openapi/v3", JSON, None).await.json();
    let hashed = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    for (target, cache) in [
        (hashed.as_str(), "public, immutable"),
        ("/openapi/v3/apis/apps/v1", "no-cache, private"),
        ("/openapi/v3/apis/apps", "no-cache, private"),
        ("/openapi/v2", "no-cache, private"),
    ] {
        let whole = ask(&client, target, JSON, None).await;
        assert_eq!(whole.status(), 200, "{target}");
        assert_eq!(whole.head.header("Cache-Control"), Some(cache), "{target}");
        let tag = whole.head.header("ETag").unwrap().to_owned();
        for (form, code) in forms(&tag).iter().zip([304, 304, 304, 304, 200]) {
            let answer = ask(&client, target, JSON, Some(form)).await;
            assert_eq!(answer.status(), code, "{target} {form}");
            assert_eq!(answer.body.is_empty(), code == 304);
        }
    }
    let star = ask(&client, "/openapi/v3", JSON, Some("*")).await;
    assert_eq!(star.status(), 304);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hash_that_is_not_the_documents_leads_to_the_one_that_is() {
    let (_server, client) = client().await;
    let wrong = ask(&client, "/openapi/v3/api/v1?hash=DEADBEEF", JSON, None).await;
    assert_eq!(wrong.status(), 301);
    assert!(wrong.body.is_empty());
    assert_eq!(wrong.head.header("Content-Type"), Some(JSON));
    let location = wrong.head.header("Location").unwrap().to_owned();
    let right = ask(&client, &location, JSON, None).await;
    assert_eq!(right.status(), 200);
    assert_eq!(right.head.header("ETag"), wrong.head.header("ETag"));
    assert!(right.head.header("Expires").unwrap().ends_with(" UTC"));
    let empty = ask(&client, "/openapi/v3/api/v1?hash=", JSON, None).await;
    assert_eq!(empty.status(), 200);
    assert_eq!(empty.head.header("Expires"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_lists_every_document_and_every_document_is_there() {
    let (_server, client) = client().await;
    let index = ask(&client, "/openapi/v3", JSON, None).await.json();
    let paths = index["paths"].as_object().unwrap();
    for known in [
        "api",
        "apis",
        "version",
        "api/v1",
        "apis/apps",
        "apis/apps/v1",
        "openid/v1/jwks",
    ] {
        assert!(paths.contains_key(known), "{known}");
    }
    for (path, entry) in paths {
        let target = entry["serverRelativeURL"].as_str().unwrap();
        let document = ask(&client, target, JSON, None).await;
        assert_eq!(document.status(), 200, "{path}");
        assert_eq!(document.json()["openapi"], "3.0.0", "{path}");
    }
}
