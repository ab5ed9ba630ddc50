//! Tests of the verbs as a whole: a server without sockets, authentication and peers, over a memory store.

mod lifecycle;
mod lists;
mod odd_requests;
mod one_verb;
mod services;
mod unreadable;
mod updates;
mod versions;
mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, StatusCode, header};
use http_body_util::BodyExt as _;
use peerage_catalogue::{Catalogue, RuntimeConfig};
use peerage_core::{Exclusions, RequestInfo, User};
use peerage_http::Request;
use peerage_http::metrics::Registry as Metrics;
use peerage_proxy::{PeerProxy, ProxyOptions};
use peerage_store::Store;
use peerage_store::memory::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::Service as _;

use crate::api::Api;
use crate::authz::{Authorizer, RbacKinds};
use crate::bootstrap::{Bootstrap, Facts};
use crate::cache::Cache;
use crate::event_leases::EventLeases;
use crate::health::Health;
use crate::local::{Local, Process};
use crate::openapi::OpenApi;
use crate::options::{AuthorizationMode, Limits};
use crate::resources::Resources;

const ROOT: &str = "/registry";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server of one version; several may share a store.
struct Server {
    local: Local,
    proxy: PeerProxy,
    store: Arc<dyn Store>,
    _stop: DropGuard,
}

/// An answer.
#[derive(Debug)]
struct Answer {
    code: StatusCode,
    body: Value,
}

impl Answer {
    /// The body of a success.
    #[track_caller]
    fn ok(self) -> Value {
        assert!(self.code.is_success(), "{self:?}");
        self.body
    }

    /// Code and message of a failure.
    fn refusal(&self) -> (u16, &str) {
        (
            self.code.as_u16(),
            self.body["message"].as_str().unwrap_or_default(),
        )
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

impl Server {
    async fn new() -> Self {
        Self::of("1.37", memory()).await
    }

    async fn of(version: &str, store: Arc<dyn Store>) -> Self {
        let catalogue = Catalogue::load(version, &RuntimeConfig::default()).unwrap();
        Self::serving(catalogue, store).await
    }

    async fn serving(catalogue: Catalogue, store: Arc<dyn Store>) -> Self {
        let catalogue = Arc::new(catalogue);
        let stop = CancellationToken::new();
        let prefixes = Resources::prefixes(&catalogue, ROOT);
        let prefixes = prefixes.into_iter().map(|(at, stored)| (at, Some(stored)));
        let patience = Duration::from_secs(10);
        let prefix = format!("{ROOT}/");
        let cache = Cache::start(store.clone(), &prefix, prefixes, patience, stop.clone());
        cache.ready().await;
        let bootstrap = Bootstrap {
            store: &*store,
            cache: &cache,
            catalogue: &catalogue,
            root: ROOT,
            facts: &Facts::default(),
        };
        bootstrap.ensure().await;
        let own = Arc::new(crate::discovery::local(
            &catalogue,
            &Arc::from("apiserver-test"),
            "127.0.0.1:1",
        ));
        let proxy = PeerProxy::start(
            ProxyOptions::default(),
            watch::channel(Arc::from([])).1,
            watch::channel(own).1,
            watch::channel(Arc::new(Exclusions::default())).1,
        );
        let api = Arc::new(Api {
            resources: Resources::new(&catalogue, ROOT, &cache),
            cache,
            store: store.clone(),
            authenticator: Arc::new(peerage_auth::Authenticator::load(Default::default()).unwrap()),
            authorizer: Arc::new(Authorizer::new(
                AuthorizationMode::AlwaysAllow,
                RbacKinds {
                    cluster_roles: Arc::default(),
                    roles: Arc::default(),
                    cluster_role_bindings: Arc::default(),
                    role_bindings: Arc::default(),
                },
            )),
            health: Arc::new(Health::default()),
            metrics: Metrics::default(),
            openapi: OpenApi::new(catalogue.clone(), false),
            catalogue,
            proxy: proxy.clone(),
            limits: Limits::default(),
            event_leases: EventLeases::new(Duration::from_secs(3_600)),
            process: Process::new(BTreeMap::new()),
            serves_pages: false,
            issuer: None,
            stopping: stop.clone(),
        });
        Self {
            local: Local::new(api),
            proxy,
            store,
            _stop: stop.drop_guard(),
        }
    }

    async fn respond(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> peerage_http::Response {
        let info = RequestInfo::parse(method.as_str(), path)
            .unwrap()
            .into_owned();
        let mut request = Request::new(peerage_http::full(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        headers.insert(header::ACCEPT, header::HeaderValue::from_static(JSON));
        request.extensions_mut().insert(Arc::new(info));
        let user = User::new("tester", ["system:masters"]);
        request.extensions_mut().insert(Arc::new(user));
        self.local.clone().call(request).await.unwrap()
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Answer {
        let response = self.respond(method, path, content_type, body.into()).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            code,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, JSON, "").await
    }

    async fn create(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, JSON, body.to_string()).await
    }

    async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, JSON, body.to_string()).await
    }

    async fn merge(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, MERGE, body.to_string())
            .await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, JSON, "").await
    }

    /// The store's revision.
    async fn revision(&self) -> i64 {
        self.store.status().await.unwrap().revision
    }

    /// Opens a watch.
    async fn watch(&self, path: &str) -> Frames {
        let response = self.respond(Method::GET, path, JSON, Bytes::new()).await;
        assert!(response.status().is_success(), "{}", response.status());
        Frames {
            body: response.into_body().into_data_stream().boxed_local(),
            text: Vec::new(),
        }
    }
}

/// The frames of a watch.
struct Frames {
    body: futures::stream::LocalBoxStream<'static, Result<Bytes, peerage_http::BoxError>>,
    text: Vec<u8>,
}

impl Frames {
    /// The next frame; none at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            self.text.extend(self.body.next().await?.unwrap());
        }
    }

    /// Type and name of the next frame.
    async fn shown(&mut self) -> (String, String) {
        let frame = self.next().await.unwrap();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        (
            text(&frame["type"]),
            text(&frame["object"]["metadata"]["name"]),
        )
    }
}

fn config_map(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn version_of(object: &Value) -> i64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}
