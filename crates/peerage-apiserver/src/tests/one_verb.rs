//! The catalogue is the one place that says what is served: a verb taken out of its text is gone from discovery,
//! `route()`, what the handlers allow and OpenAPI.

use peerage_catalogue::{version_text, versions};
use peerage_core::route::LocalReason;
use peerage_core::{Route, Rules, route};
use tower::Layer as _;

use super::*;

/// A server of the newest version; its config maps lack a verb that they have in Kubernetes.
async fn server(without: Option<&str>) -> Server {
    let texts: Vec<String> = versions()
        .iter()
        .map(|version| edited(&version_text(version).unwrap(), without))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let catalogue = Catalogue::from_texts(&texts, &RuntimeConfig::default()).unwrap();
    let server = Server::serving(catalogue, memory()).await;
    let mut views = server.proxy.views();
    while !server.proxy.view().synced() {
        views.changed().await.unwrap();
    }
    server
}

fn edited(text: &str, without: Option<&str>) -> String {
    let config_maps = |line: &&str| line.starts_with("resource v1/configmaps ConfigMap");
    let lines = text.lines().map(|line| match without {
        Some(verb) if config_maps(&line) => line.replace(&format!("{verb},"), "") + "\n",
        _ => format!("{line}\n"),
    });
    lines.collect()
}

impl Server {
    /// The verbs of config maps in the proxy's discovery document.
    async fn discovered(&self) -> Vec<String> {
        let mut request = Request::new(peerage_http::empty());
        *request.uri_mut() = "/api/v1".parse().unwrap();
        let mut service = self.proxy.layer().layer(self.local.clone());
        let response = service.call(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        let resources = list["resources"].as_array().unwrap();
        let found = resources.iter().find(|r| r["name"] == "configmaps");
        serde_json::from_value(found.unwrap()["verbs"].clone()).unwrap()
    }

    /// Whether `route()` finds that this server lists what is asked for; otherwise nobody has more than it.
    fn is_listed(&self, method: &str, path: &str) -> bool {
        let info = RequestInfo::parse(method, path).unwrap();
        match route(&info, &self.proxy.view(), &Rules::default()) {
            Route::Local(LocalReason::Served) => true,
            Route::Local(LocalReason::NobodyHasMore) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Whether OpenAPI has an operation for the method on config maps, by the document's path.
    async fn described(&self, document: &str, method: &str) -> bool {
        let document = self.get(document).await.ok();
        let operations = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps"];
        assert!(operations["get"].is_object());
        operations[method].is_object()
    }
}

#[tokio::test]
async fn a_verb_that_the_catalogue_lacks_is_gone_everywhere() {
    for (verb, method) in [
        ("deletecollection", Method::DELETE),
        ("create", Method::POST),
    ] {
        for without in [None, Some(verb)] {
            let (server, there) = (server(without).await, without.is_none());
            let verbs = server.discovered().await;
            assert!(verbs.contains(&"list".to_owned()));
            assert_eq!(verbs.contains(&verb.to_owned()), there, "{verb}");
            assert_eq!(server.is_listed(method.as_str(), CONFIG_MAPS), there);
            let body = config_map("a").to_string();
            let answer = server.send(method.clone(), CONFIG_MAPS, JSON, body).await;
            assert_eq!(answer.code.is_success(), there, "{answer:?}");
            let text = "the server does not allow this method on the requested resource";
            assert!(there || answer.refusal() == (405, text), "{answer:?}");
            let operation = method.as_str().to_ascii_lowercase();
            for document in ["/openapi/v3/api/v1", "/openapi/v2"] {
                assert_eq!(server.described(document, &operation).await, there);
            }
        }
    }
}
