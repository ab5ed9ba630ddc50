//! The chain around a service that shows what reaches it.

use std::net::SocketAddr;
use std::sync::Mutex;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use peerage_auth::AuthenticatorOptions;
use peerage_core::User;
use tokio::sync::Notify;

use super::*;
use crate::authz::{Mode, RbacKinds};

type Seen = Arc<Mutex<Vec<(HeaderMap, Arc<User>)>>>;

/// A chain that lets everybody do everything, with two users known by their tokens, `root` and `bob`.
fn chain(mode: Mode, inner: HttpService) -> Chain {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), "r,root,1,system:masters\nb,bob,2,devs\n").unwrap();
    let options = AuthenticatorOptions {
        token_file: Some(tokens.path().to_owned()),
        anonymous: true,
        ..AuthenticatorOptions::default()
    };
    let kinds = RbacKinds {
        cluster_roles: Arc::default(),
        roles: Arc::default(),
        cluster_role_bindings: Arc::default(),
        role_bindings: Arc::default(),
    };
    let shared = Shared {
        authenticator: Arc::new(Authenticator::load(options).unwrap()),
        authorizer: Arc::new(Authorizer::new(mode, kinds)),
        audit: AuditLog::off(),
        inflight: Inflight::new(2, 1),
        metrics: RequestMetrics::new(&peerage_http::metrics::Registry::default()),
        request_timeout: Duration::from_secs(60),
        constrained_impersonation: true,
    };
    Chain::new(Arc::new(shared), inner)
}

/// A service that notes the headers and the user of each request.
fn noting() -> (HttpService, Seen) {
    let seen = Seen::default();
    let notes = seen.clone();
    let service = tower::service_fn(move |request: Request| {
        let user = request.extensions().get::<Arc<User>>().unwrap().clone();
        notes
            .lock()
            .unwrap()
            .push((request.headers().clone(), user));
        async { Ok(Response::new(peerage_http::empty())) }
    });
    (HttpService::new(service), seen)
}

fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Request {
    let mut builder = http::Request::builder().method(method).uri(target);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let mut request = builder.body(peerage_http::empty()).unwrap();
    let local: SocketAddr = ([127, 0, 0, 1], 1).into();
    request.extensions_mut().insert(ConnInfo {
        remote: local,
        local,
        tls: None,
    });
    request
}

async fn ask(chain: &Chain, request: Request) -> Response {
    chain.clone().call(request).await.unwrap()
}

#[tokio::test]
async fn no_credential_identity_or_impersonation_header_reaches_what_is_behind() {
    let (inner, seen) = noting();
    let chain = chain(Mode::AlwaysAllow, inner);
    let headers = [
        ("authorization", "Bearer r"),
        ("impersonate-user", "bob"),
        ("impersonate-group", "devs"),
        ("impersonate-uid", "7"),
        ("impersonate-extra-scopes", "view"),
        ("impersonate_user", "root"),
        ("impersonate-nonsense", "x"),
        ("x-remote-user", "root"),
        ("x_remote_group", "system:masters"),
        ("x-remote-extra-a", "b"),
        ("x-kept", "yes"),
    ];
    let answer = ask(&chain, request("GET", "/api/v1/pods", &headers)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let seen = seen.lock().unwrap();
    let (left, user) = &seen[0];
    let names: Vec<&str> = left.keys().map(|n| n.as_str()).collect();
    assert_eq!(names, ["x-kept"]);
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("bob", "7"));
    assert_eq!(user.groups, ["devs", "system:authenticated"]);
}

#[tokio::test]
async fn empty_impersonation_headers_are_removed_and_change_nobody() {
    let (inner, seen) = noting();
    let chain = chain(Mode::AlwaysAllow, inner);
    let headers = [("authorization", "Bearer b"), ("impersonate-user", "")];
    ask(&chain, request("GET", "/api/v1/pods", &headers)).await;
    let seen = seen.lock().unwrap();
    assert!(seen[0].0.is_empty());
    assert_eq!(seen[0].1.name, "bob");
}

#[tokio::test]
async fn unknown_tokens_are_401_and_no_credentials_are_anonymous() {
    let (inner, seen) = noting();
    let chain = chain(Mode::AlwaysAllow, inner);
    for (line, code) in [
        ("Bearer nobody", 401),
        ("bearer nobody", 401),
        ("Bearer ", 200),
        ("Basic cjpy", 200),
        ("Token r", 200),
    ] {
        let headers = [("authorization", line)];
        let answer = ask(&chain, request("GET", "/version", &headers)).await;
        assert_eq!(answer.status().as_u16(), code, "{line:?}");
    }
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|(_, user)| user.is_anonymous()));
}

#[tokio::test]
async fn a_flood_gets_429_while_health_and_administrators_are_still_answered() {
    let entered = Arc::new(tokio::sync::Semaphore::new(0));
    let go_on = Arc::new(Notify::new());
    let (into, out) = (entered.clone(), go_on.clone());
    let slow = HttpService::new(tower::service_fn(move |request: Request| {
        let (into, out) = (into.clone(), out.clone());
        async move {
            if request.uri().path() == "/api/v1/pods" {
                into.add_permits(1);
                out.notified().await;
            }
            Ok(Response::new(peerage_http::empty()))
        }
    }));
    let chain = chain(Mode::AlwaysAllow, slow);
    let bob = [("authorization", "Bearer b")];
    let held: Vec<_> = (0..2)
        .map(|_| {
            let chain = chain.clone();
            tokio::spawn(async move {
                let bob = [("authorization", "Bearer b")];
                ask(&chain, request("GET", "/api/v1/pods", &bob)).await
            })
        })
        .collect();
    let _ = entered.acquire_many(2).await.unwrap();
    let refused = ask(&chain, request("GET", "/api/v1/nodes", &bob)).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[RETRY_AFTER], "1");
    // Writes have places of their own; checks and administrators need none.
    let root = [("authorization", "Bearer r")];
    for (method, target, who) in [
        ("POST", "/api/v1/nodes", &bob),
        ("GET", "/readyz", &bob),
        ("GET", "/livez/ping", &bob),
        ("GET", "/api/v1/nodes", &root),
    ] {
        let answer = ask(&chain, request(method, target, who)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{method} {target}");
    }
    let lookalike = ask(&chain, request("GET", "/readyzzz", &bob)).await;
    assert_eq!(lookalike.status(), StatusCode::TOO_MANY_REQUESTS);
    go_on.notify_waiters();
    for request in held {
        assert_eq!(request.await.unwrap().status(), StatusCode::OK);
    }
    let again = ask(&chain, request("GET", "/api/v1/nodes", &bob)).await;
    assert_eq!(again.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_ended_at_its_own_or_the_servers_time() {
    let never = HttpService::new(tower::service_fn(|_: Request| {
        std::future::pending::<Result<Response, Infallible>>()
    }));
    let chain = chain(Mode::AlwaysAllow, never);
    for (target, seconds) in [
        ("/api/v1/pods", 60),
        ("/api/v1/pods?timeout=5s", 5),
        ("/api/v1/pods?timeout=5h", 60),
    ] {
        let begun = tokio::time::Instant::now();
        let answer = ask(&chain, request("GET", target, &[])).await;
        assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT, "{target}");
        assert_eq!(begun.elapsed().as_secs(), seconds, "{target}");
    }
    let bad = ask(&chain, request("GET", "/api/v1/pods?timeout=soon", &[])).await;
    assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn without_roles_nobody_but_the_masters_does_anything() {
    let (inner, _) = noting();
    let chain = chain(Mode::Rbac, inner);
    for (token, code) in [("r", 200), ("b", 403)] {
        let line = format!("Bearer {token}");
        for target in [
            "/api",
            "/apis",
            "/version",
            "/healthz",
            "/api/v1/pods",
            "/nowhere",
        ] {
            let headers = [("authorization", line.as_str())];
            let answer = ask(&chain, request("GET", target, &headers)).await;
            assert_eq!(answer.status().as_u16(), code, "{token} {target}");
        }
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_read_is_the_clients_fault_and_reaches_nobody() {
    let (inner, seen) = noting();
    let chain = chain(Mode::AlwaysAllow, inner);
    for (target, code) in [
        ("/api/v1/namespaces/%zz/pods", StatusCode::BAD_REQUEST),
        ("/api/v1/pods/%", StatusCode::BAD_REQUEST),
        ("/api/v1/watch", StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        let answer = ask(&chain, request("GET", target, &[])).await;
        assert_eq!(answer.status(), code, "{target}");
    }
    assert!(seen.lock().unwrap().is_empty());
}
