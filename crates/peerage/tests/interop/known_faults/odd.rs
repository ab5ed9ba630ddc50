//! A server that is made up: it says that it is well, lists an API of its own, and answers as a test wants.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use peerage_http::tls::ServerTlsOptions;
use peerage_http::{HttpService, Pem, Request, Response, Server, ServerOptions, ServerTls, body};
use peerage_testkit::pki::Pki;
use peerage_testkit::wire::AGGREGATED;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Where the API is that only such servers have.
pub(super) const ODDITIES: &str = "/apis/odd.example.com/v1/oddities";
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

/// One that runs.
pub(super) struct Odd {
    pub(super) url: String,
    pub(super) address: SocketAddr,
    shared: Arc<Told>,
    _stop: DropGuard,
}

/// What it was asked and says of itself.
struct Told {
    ready: AtomicBool,
    asked: Mutex<Vec<Asked>>,
    answer: Box<Answering>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The method and the target.
    pub(super) line: String,
    /// As whom, in the header of front proxies.
    pub(super) user: Option<String>,
}

impl Odd {
    /// With the certificate that all servers of a control plane have here.
    pub(super) async fn start(
        pki: &Pki,
        answer: impl Fn(&Parts) -> Option<Response> + Send + Sync + 'static,
    ) -> Odd {
        let pair = (
            Pem::file(pki.file("server.crt")),
            Pem::file(pki.file("server.key")),
        );
        Odd::with(pair, answer).await
    }

    /// With a certificate of its own. What a test does not answer is answered as a plain server would.
    pub(super) async fn with(
        (certificate, key): (Pem, Pem),
        answer: impl Fn(&Parts) -> Option<Response> + Send + Sync + 'static,
    ) -> Odd {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = ServerTls::load(ServerTlsOptions::new(certificate, key)).unwrap();
        let shared = Arc::new(Told {
            ready: AtomicBool::new(true),
            asked: Mutex::default(),
            answer: Box::new(answer),
        });
        let told = shared.clone();
        let service = HttpService::new(tower::service_fn(move |request: Request| {
            let answer = told.answer(&request.into_parts().0);
            async move { Ok::<_, Infallible>(answer) }
        }));
        let stop = CancellationToken::new();
        let options = ServerOptions::default();
        tokio::spawn(Server::serve(listener, tls, service, options, stop.clone()));
        Odd {
            url: format!("https://{address}"),
            address,
            shared,
            _stop: stop.drop_guard(),
        }
    }

    pub(super) fn set_ready(&self, ready: bool) {
        self.shared.ready.store(ready, Ordering::Relaxed);
    }

    /// What clients asked of it, the gateway's own questions left out.
    pub(super) fn asked_by_clients(&self) -> Vec<Asked> {
        let asked = self.asked().into_iter();
        asked
            .filter(|it| it.user.as_deref().is_some_and(|user| user == "admin"))
            .collect()
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
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
            "/apis" => document(&list(&[group("odd.example.com", "oddities")])),
            "/api/v1" => legacy_list("v1", &["oddpods"]),
            "/apis/odd.example.com/v1" => legacy_list("odd.example.com/v1", &["oddities"]),
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }
}

/// A group of version `v1` with one resource.
pub(super) fn group(name: &str, plural: &str) -> Value {
    json!({"metadata": {"name": name}, "versions": [
        {"version": "v1", "freshness": "Current", "resources": [resource(plural, json!("Odd"))]}]})
}

/// A resource with all verbs.
pub(super) fn resource(plural: &str, kind: Value) -> Value {
    let kind = match kind {
        Value::String(kind) => json!({"group": "", "version": "", "kind": kind}),
        other => other,
    };
    json!({"resource": plural, "responseKind": kind, "scope": "Cluster", "singularResource": "odd", "verbs": VERBS})
}

/// The legacy list of a version with these resources.
pub(super) fn legacy_list(version: &str, plurals: &[&str]) -> Response {
    let one = |plural: &&str| json!({"name": plural, "singularName": "odd", "namespaced": false, "kind": "Odd", "verbs": VERBS});
    let resources: Vec<_> = plurals.iter().map(one).collect();
    json_answer(
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}),
    )
}

/// An aggregated document of these groups.
pub(super) fn list(groups: &[Value]) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups})
}

/// An aggregated document as an answer.
pub(super) fn document(list: &Value) -> Response {
    let mut answer = text(StatusCode::OK, &list.to_string());
    set(&mut answer, "content-type", AGGREGATED);
    answer
}

fn json_answer(body: &Value) -> Response {
    let mut answer = text(StatusCode::OK, &body.to_string());
    set(&mut answer, "content-type", "application/json");
    answer
}

/// An answer with a body.
pub(super) fn text(status: StatusCode, text: &str) -> Response {
    let mut answer = Response::new(body::full(text.to_owned()));
    *answer.status_mut() = status;
    answer
}

/// Sets a header of an answer.
pub(super) fn set(answer: &mut Response, name: &'static str, value: &str) {
    let value = HeaderValue::from_str(value).unwrap();
    answer
        .headers_mut()
        .insert(HeaderName::from_static(name), value);
}
