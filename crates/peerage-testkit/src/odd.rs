//! A server that is made up: it says that it is well, lists an API of its own, and answers as a test wants.
//!
//! [`serve`] is less: what answers as a function says, and nothing by itself.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use peerage_http::tls::ServerTlsOptions;
use peerage_http::{HttpService, Pem, Request, Response, Server, ServerOptions, ServerTls, body};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::pki::Pki;
use crate::wire::AGGREGATED;

/// Where the API is that only such servers have.
pub const ODDITIES: &str = "/apis/odd.example.com/v1/oddities";
const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

type Answering = dyn Fn(&Parts) -> Option<Response> + Send + Sync;

/// One that runs, until it is dropped.
pub struct Odd {
    /// `https://` and where it listens.
    pub url: String,
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Told>,
    _stop: DropGuard,
}

/// The certificate and the key that all servers of a control plane have here.
pub fn shared_pair(pki: &Pki) -> (Pem, Pem) {
    let file = |name: &str| Pem::file(pki.file(name));
    (file("server.crt"), file("server.key"))
}

/// Answers all requests, whose bodies are not read, as a function says, with a certificate and its key; where it listens,
/// and what stops it when it is dropped.
pub async fn serve<F: Future<Output = Response> + Send + 'static>(
    (certificate, key): (Pem, Pem),
    answer: impl Fn(Parts) -> F + Clone + Send + Sync + 'static,
) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = ServerTls::load(ServerTlsOptions::new(certificate, key)).unwrap();
    let service = HttpService::new(tower::service_fn(move |request: Request| {
        let answer = answer(request.into_parts().0);
        async move { Ok::<_, Infallible>(answer.await) }
    }));
    let stop = CancellationToken::new();
    let options = ServerOptions::default();
    tokio::spawn(Server::serve(listener, tls, service, options, stop.clone()));
    (address, stop.drop_guard())
}

/// What it was asked and says of itself.
struct Told {
    ready: AtomicBool,
    asked: Mutex<Vec<Asked>>,
    answer: Box<Answering>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method and the target.
    pub line: String,
    /// As whom, in the header of front proxies.
    pub user: Option<String>,
}

impl Odd {
    /// With the certificate that all servers of a control plane have here.
    pub async fn start(
        pki: &Pki,
        answer: impl Fn(&Parts) -> Option<Response> + Send + Sync + 'static,
    ) -> Odd {
        Odd::with(shared_pair(pki), answer).await
    }

    /// With a certificate of its own. What a test does not answer is answered as a plain server would.
    pub async fn with(
        pair: (Pem, Pem),
        answer: impl Fn(&Parts) -> Option<Response> + Send + Sync + 'static,
    ) -> Odd {
        let shared = Arc::new(Told {
            ready: AtomicBool::new(true),
            asked: Mutex::default(),
            answer: Box::new(answer),
        });
        let told = shared.clone();
        let (address, stop) = serve(pair, move |request| {
            std::future::ready(told.answer(&request))
        })
        .await;
        Odd {
            url: format!("https://{address}"),
            address,
            shared,
            _stop: stop,
        }
    }

    /// Whether it says that it is ready.
    pub fn set_ready(&self, ready: bool) {
        self.shared.ready.store(ready, Ordering::Relaxed);
    }

    /// What clients asked of it, the gateway's own questions left out.
    pub fn asked_by_clients(&self) -> Vec<Asked> {
        let asked = self.asked().into_iter();
        asked
            .filter(|it| it.user.as_deref().is_some_and(|user| user == "admin"))
            .collect()
    }

    /// What it was asked.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }
}

impl Told {
    fn answer(&self, parts: &Parts) -> Response {
        let user = parts.headers.get("x-remote-user");
        self.asked.lock().unwrap().push(Asked {
            line: format!("{} {}", parts.method, parts.uri),
            user: user.map(|it| it.to_str().unwrap().to_owned()),
        });
        if let Some(answer) = (self.answer)(parts) {
            return answer;
        }
        match parts.uri.path() {
            "/readyz" if self.ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ok"),
            "/readyz" => text(StatusCode::INTERNAL_SERVER_ERROR, "etcd failed"),
            "/version" => {
                json_answer(&json!({"major": "1", "minor": "30", "gitVersion": "v1.30.0"}))
            }
            "/api" => document(&list(&[json!({"metadata": {}, "versions": [
                {"version": "v1", "freshness": "Current", "resources": [resource("oddpods", json!("Odd"))]}]})])),
            "/apis" => document(&list(&[group("odd.example.com", "v1", &["oddities"])])),
            "/api/v1" => legacy_list("v1", &["oddpods"]),
            "/apis/odd.example.com/v1" => legacy_list("odd.example.com/v1", &["oddities"]),
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }
}

/// A group of one version with these resources.
pub fn group(name: &str, version: &str, plurals: &[&str]) -> Value {
    let resources = plurals.iter().map(|plural| resource(plural, json!("Odd")));
    let resources: Vec<Value> = resources.collect();
    json!({"metadata": {"name": name}, "versions": [
        {"version": version, "freshness": "Current", "resources": resources}]})
}

/// A resource with all verbs.
pub fn resource(plural: &str, kind: Value) -> Value {
    let kind = match kind {
        Value::String(kind) => json!({"group": "", "version": "", "kind": kind}),
        other => other,
    };
    json!({"resource": plural, "responseKind": kind, "scope": "Cluster", "singularResource": "odd", "verbs": VERBS})
}

/// The legacy list of a version with these resources.
pub fn legacy_list(version: &str, plurals: &[&str]) -> Response {
    let one = |plural: &&str| json!({"name": plural, "singularName": "odd", "namespaced": false, "kind": "Odd", "verbs": VERBS});
    let resources: Vec<_> = plurals.iter().map(one).collect();
    json_answer(
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}),
    )
}

/// An aggregated document of these groups.
pub fn list(groups: &[Value]) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups})
}

/// An aggregated document as an answer.
pub fn document(list: &Value) -> Response {
    let mut answer = text(StatusCode::OK, &list.to_string());
    set(&mut answer, "content-type", AGGREGATED);
    answer
}

/// JSON as an answer.
pub fn json_answer(body: &Value) -> Response {
    let mut answer = text(StatusCode::OK, &body.to_string());
    set(&mut answer, "content-type", "application/json");
    answer
}

/// An answer with a body.
pub fn text(status: StatusCode, text: &str) -> Response {
    let mut answer = Response::new(body::full(text.to_owned()));
    *answer.status_mut() = status;
    answer
}

/// Sets a header of an answer.
pub fn set(answer: &mut Response, name: &'static str, value: &str) {
    let value = HeaderValue::from_str(value).unwrap();
    answer
        .headers_mut()
        .insert(HeaderName::from_static(name), value);
}
