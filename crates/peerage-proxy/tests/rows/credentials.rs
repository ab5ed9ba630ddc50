//! Which requests share a connection to a server behind a front. kube-apiserver closes one (GOAWAY) over which a request
//! of nobody it knows came, and turns away what else was on its way over it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use peerage_auth::PassedCredentials;
use peerage_http::Request;
use peerage_proxy::PeerRecord;
use tower::{Layer, ServiceExt};

use super::identity::Balancer;
use super::support::*;

const WIDGET: &str = "/apis/new.example.com/v1/namespaces/a/widgets/w";

/// A server that knows one token, behind a front.
struct Behind {
    balancer: Balancer,
    server: FakePeer,
    /// Whether it takes the good token for a bad one now.
    revoked: Arc<AtomicBool>,
}

impl Behind {
    async fn start() -> Behind {
        let pki = Pki::new();
        let server = FakePeer::start(&pki, "server", &documents::core(), &documents::new()).await;
        let record = PeerRecord {
            identity_lease: None,
            ..live("server", server.address)
        };
        let balancer = Balancer::start(&pki, vec![record]);
        balancer.until_serving(&["server"]).await;
        let revoked = Arc::new(AtomicBool::new(false));
        let refuses = revoked.clone();
        server.on_request(move |request| {
            let status = match request.headers().get("authorization") {
                // What is wrong with a parameter it says before it asks who that is.
                _ if request.uri().query() == Some("timeout=x") => StatusCode::BAD_REQUEST,
                None => StatusCode::FORBIDDEN,
                Some(it) if it == "Bearer good" && !refuses.load(Ordering::Relaxed) => {
                    StatusCode::OK
                }
                Some(it) if it.as_bytes().starts_with(b"Bearer") => StatusCode::UNAUTHORIZED,
                Some(_) => StatusCode::FORBIDDEN,
            };
            async move { text(status, "") }
        });
        Behind {
            balancer,
            server,
            revoked,
        }
    }

    async fn ask(&self, target: &str, authorization: Option<&str>) -> (u16, usize) {
        let status = ask(&self.balancer, target, authorization).await;
        (status, self.server.requests().last().unwrap().connection)
    }
}

async fn ask(balancer: &Balancer, target: &str, authorization: Option<&str>) -> u16 {
    let mut request = Request::new(peerage_http::empty());
    *request.uri_mut() = target.parse().unwrap();
    request.extensions_mut().insert(PassedCredentials);
    if let Some(it) = authorization {
        let headers = request.headers_mut();
        headers.insert("authorization", it.parse().unwrap());
    }
    let service = balancer.proxy.layer().layer(balancer.proxy.behind());
    Answer::of(service.oneshot(request).await.unwrap())
        .await
        .status
}

#[tokio::test]
async fn who_is_not_known_shares_no_connection_with_a_token_that_the_server_accepts() {
    let behind = Behind::start().await;
    let good = Some("Bearer good");
    let (mut known, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    // Nobody knows it yet.
    unknown.insert(behind.ask(WIDGET, good).await.1);
    for round in 0..5 {
        let others = [
            (None, WIDGET, 403),
            (Some("Bearer bad"), WIDGET, 401),
            (Some("Basic YTpi"), WIDGET, 403),
            (Some("Bearer  good"), WIDGET, 401),
            (Some("Bearer early"), "/version?timeout=x", 400),
            (Some("Bearer early"), WIDGET, 401),
            (Some(&*format!("Bearer {round}")), WIDGET, 401),
        ];
        for (authorization, target, status) in others {
            let (answered, connection) = behind.ask(target, authorization).await;
            assert_eq!(answered, status, "{authorization:?}");
            unknown.insert(connection);
            let (answered, connection) = behind.ask(WIDGET, good).await;
            assert_eq!(answered, 200);
            known.insert(connection);
        }
    }
    assert!(known.is_disjoint(&unknown), "{known:?} and {unknown:?}");
}

#[tokio::test]
async fn a_token_that_is_accepted_no_more_travels_apart_until_it_is_again() {
    let behind = Behind::start().await;
    let good = Some("Bearer good");
    let (_, apart) = behind.ask(WIDGET, good).await;
    let (_, shared) = behind.ask(WIDGET, good).await;
    assert_ne!(apart, shared);
    behind.revoked.store(true, Ordering::Relaxed);
    assert_eq!(behind.ask(WIDGET, good).await, (401, shared), "the news");
    assert_eq!(behind.ask(WIDGET, good).await, (401, apart));
    behind.revoked.store(false, Ordering::Relaxed);
    assert_eq!(behind.ask(WIDGET, good).await, (200, apart));
    assert_eq!(behind.ask(WIDGET, good).await, (200, shared));
}

/// A token that one server knows and the other does not costs the clients of that other server one connection, however
/// often it is used with both.
#[tokio::test]
async fn a_token_that_one_server_alone_accepts_travels_apart_to_the_other() {
    let pki = Pki::new();
    let things =
        |group_name: &str| apis(&[group(group_name, &[("v1", &[resource("things", &[])])])]);
    let mut servers = Vec::new();
    for (id, knows) in [
        ("a", &["Bearer good", "Bearer half"][..]),
        ("b", &["Bearer good"]),
    ] {
        let groups = things(&format!("{id}.example.com"));
        let server = FakePeer::start(&pki, id, &documents::core(), &groups).await;
        server.on_request(move |request| {
            let token = request.headers().get("authorization");
            let is_known = token.is_some_and(|token| knows.iter().any(|it| token == it));
            let status = match is_known {
                true => StatusCode::OK,
                false => StatusCode::UNAUTHORIZED,
            };
            async move { text(status, "") }
        });
        servers.push(server);
    }
    let record = |server: &FakePeer| PeerRecord {
        identity_lease: None,
        ..live(&server.id, server.address)
    };
    let balancer = Balancer::start(&pki, servers.iter().map(record).collect());
    balancer.until_serving(&["a", "b"]).await;
    let at = |id: &str| format!("/apis/{id}.example.com/v1/namespaces/x/things/y");
    let connection = || servers[1].requests().last().unwrap().connection;
    let (mut shared, mut costs) = (BTreeSet::new(), Vec::new());
    for _ in 0..5 {
        assert_eq!(ask(&balancer, &at("b"), Some("Bearer good")).await, 200);
        assert_eq!(ask(&balancer, &at("b"), Some("Bearer good")).await, 200);
        shared.insert(connection());
        assert_eq!(ask(&balancer, &at("a"), Some("Bearer half")).await, 200);
        assert_eq!(ask(&balancer, &at("b"), Some("Bearer half")).await, 401);
        costs.push(connection());
    }
    costs.retain(|it| shared.contains(it));
    assert_eq!(costs.len(), 1, "{costs:?} of {shared:?}");
}
