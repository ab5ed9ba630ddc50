//! Clients that want to be somebody else, or to bring the server down, over real connections.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use peerage_testkit::server::{TestServer, TestServerOptions};
use peerage_testkit::wire::{Answer, Client, Outgoing};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn server() -> TestServer {
    TestServer::start(TestServerOptions::new("1.37")).await
}

fn client(server: &TestServer, user: &str) -> Client {
    Client::new(server.address(), server.pki(), user)
}

fn review() -> Outgoing {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    Outgoing::new("POST", REVIEW).json("application/json", &body)
}

fn with(mut request: Outgoing, headers: &[(&str, &str)]) -> Outgoing {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request
}

async fn get(client: &Client, target: &str) -> Answer {
    client.send(&Outgoing::new("GET", target)).await.unwrap()
}

/// Who the server takes the sender for, without what names the certificate.
fn identity(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 201, "{}", answer.in_words());
    let mut info = answer.json()["status"]["userInfo"].clone();
    let extra = info["extra"].as_object().cloned().unwrap_or_default();
    let left: Vec<_> = extra
        .keys()
        .filter(|k| *k != "authentication.kubernetes.io/credential-id")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    info.as_object_mut().unwrap().remove("extra");
    info
}

/// Every spelling of the headers by which a front proxy names a user.
const SPOOFS: [&[(&str, &str)]; 10] = [
    &[
        ("X-Remote-User", "admin"),
        ("X-Remote-Group", "system:masters"),
    ],
    &[
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
    ],
    &[
        ("X-REMOTE-USER", "admin"),
        ("X-REMOTE-GROUP", "system:masters"),
    ],
    &[
        ("X_Remote_User", "admin"),
        ("X_Remote_Group", "system:masters"),
    ],
    &[
        ("X-Remote_User", "admin"),
        ("X_Remote-Group", "system:masters"),
    ],
    &[
        ("X-Remote-User", "alice"),
        ("X-Remote-User", "admin"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "system:masters"),
    ],
    &[
        ("X-Remote-Uid", "0"),
        ("X-Remote-Extra-Scopes", "all"),
        ("X-Remote-Extra-%61", "b"),
    ],
    &[
        ("X-Kubernetes-Peer-Proxied", "true"),
        ("X-Remote-User", "admin"),
        ("X-Remote-Group", "system:masters"),
    ],
    &[("Connection", "X-Remote-User"), ("X-Remote-User", "admin")],
    &[
        ("Impersonate_User", "admin"),
        ("Impersonate_Group", "system:masters"),
    ],
];

#[tokio::test(flavor = "multi_thread")]
async fn spoofed_identity_headers_never_change_who_the_caller_is() {
    let server = server().await;
    let alice = client(&server, "alice");
    let nobody = client(&server, "anonymous");
    for headers in SPOOFS {
        let answer = alice.send(&with(review(), headers)).await.unwrap();
        let expected = json!({ "username": "alice", "groups": ["devs", "system:authenticated"] });
        assert_eq!(identity(&answer), expected, "{headers:?}");
        let answer = nobody.send(&with(review(), headers)).await.unwrap();
        assert_eq!(answer.status(), 403, "{headers:?}");
        let text = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(text.contains(r#"User "system:anonymous""#), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_proxy_names_users_and_is_nobody_itself() {
    let server = server().await;
    let proxy = client(&server, "front-proxy-client");
    let named = [
        ("X-Remote-User", "bob"),
        ("X-Remote-Group", "crew"),
        ("X-Remote-Group", "a, b"),
    ];
    let answer = proxy.send(&with(review(), &named)).await.unwrap();
    let groups = ["crew", "a, b", "system:authenticated"];
    assert_eq!(
        identity(&answer),
        json!({ "username": "bob", "groups": groups })
    );
    // Its certificate is not signed for users, so without a name it is not let in at all.
    let answer = proxy.send(&review()).await.unwrap();
    assert_eq!(answer.status(), 401, "{}", answer.in_words());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_header_counts_only_on_a_front_proxys_connection() {
    let server = server().await;
    let guarded = with(
        Outgoing::get_as("/apis", "application/json"),
        &[
            ("X-Kubernetes-Peer-Proxied", "true"),
            ("X-Remote-User", "admin"),
            ("X-Remote-Group", "system:masters"),
        ],
    );
    // A verified peer is told which server answers; nobody else is.
    let told = |answer: &Answer| answer.head.header("X-Peerage-Peer").is_some();
    for user in ["admin", "alice"] {
        let answer = client(&server, user).send(&guarded).await.unwrap();
        assert_eq!(answer.status(), 200, "{user}");
        assert!(!told(&answer), "{user}");
    }
    let proxy = client(&server, "front-proxy-client");
    assert!(told(&proxy.send(&guarded).await.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_is_authorized_like_everything_else() {
    let server = server().await;
    let (nobody, alice) = (client(&server, "anonymous"), client(&server, "alice"));
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/openapi/v2",
        "/openapi/v3",
    ] {
        assert_eq!(get(&nobody, path).await.status(), 403, "{path}");
        assert_eq!(get(&alice, path).await.status(), 200, "{path}");
    }
    for path in [
        "/",
        "/metrics",
        "/debug/peers",
        "/statusz",
        "/openid/v1/jwks",
    ] {
        assert_eq!(get(&nobody, path).await.status(), 403, "{path}");
        assert_eq!(get(&alice, path).await.status(), 403, "{path}");
    }
    for path in ["/version", "/healthz", "/livez", "/readyz"] {
        assert_eq!(get(&nobody, path).await.status(), 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acting_as_somebody_takes_a_right_to_all_that_is_asked_for() {
    let server = server().await;
    let (admin, alice) = (client(&server, "admin"), client(&server, "alice"));
    let masters = [
        ("Impersonate-User", "x"),
        ("Impersonate-Group", "system:masters"),
    ];
    assert_eq!(
        alice
            .send(&with(review(), &masters))
            .await
            .unwrap()
            .status(),
        403
    );
    let answer = admin.send(&with(review(), &masters)).await.unwrap();
    let groups = ["system:masters", "system:authenticated"];
    assert_eq!(
        identity(&answer),
        json!({ "username": "x", "groups": groups })
    );
    for headers in [
        [("Impersonate-Group", "system:masters")],
        [("Impersonate-Uid", "1")],
        [("Impersonate-Extra-Scopes", "all")],
    ] {
        for user in [&admin, &alice] {
            let answer = user.send(&with(review(), &headers)).await.unwrap();
            assert_eq!(answer.status(), 400, "{headers:?}");
        }
    }
    // Of several names the first counts, for the check and for the act.
    let twice = [("Impersonate-User", "bob"), ("Impersonate-User", "admin")];
    let answer = admin.send(&with(review(), &twice)).await.unwrap();
    assert_eq!(identity(&answer)["username"], "bob");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_413_and_one_within_is_read() {
    let mut options = TestServerOptions::new("1.37");
    options.limits.body = 10_000;
    let server = TestServer::start(options).await;
    let admin = client(&server, "admin");
    let target = "/api/v1/namespaces/default/configmaps";
    for (length, expected) in [(9_000, 201), (11_000, 413)] {
        let body = json!({ "metadata": { "name": format!("l{length}") }, "data": { "k": "x".repeat(length) } });
        let request = Outgoing::new("POST", target).json("application/json", &body);
        let answer = admin.send(&request).await.unwrap();
        assert_eq!(answer.status(), expected, "{}", answer.in_words());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_headers_is_refused_and_the_server_goes_on() {
    let server = server().await;
    let admin = client(&server, "admin");
    let mut many = Outgoing::new("GET", "/version");
    for n in 0..5_000 {
        many = many.header(&format!("X-Flood-{n}"), "y");
    }
    let long = Outgoing::new("GET", "/version").header("X-Long", &"y".repeat(4 << 20));
    for request in [many, long] {
        // It may close while the client still writes; then there is no answer to read.
        if let Ok(answer) = admin.send(&request).await {
            assert!(matches!(answer.status(), 400 | 431), "{}", answer.status());
        }
        assert_eq!(get(&admin, "/version").await.status(), 200);
    }
}

/// Panics so far, in whatever task.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Bytes that a request line or header may hold without ending it.
fn odd(letters: &'static str) -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "default",
        "configmaps",
        "pods",
        "watch",
        "proxy",
        "status",
        "..",
        ".",
        "",
        "%2F",
        "%",
        "%zz",
        "%00",
        "openapi",
        "v3",
        "*",
        "\u{fffd}",
        "x?y=z",
        "a;b",
        "log",
        "scale",
    ]);
    let part = prop_oneof![3 => known.prop_map(str::to_owned), 1 => letters];
    prop::collection::vec(part, 0..7).prop_map(|parts| parts.join("/"))
}

fn hostile() -> impl Strategy<Value = Outgoing> {
    let methods = prop::sample::select(vec![
        "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "X",
    ]);
    let queries = prop::collection::vec(
        "(watch|limit|continue|resourceVersion|fieldSelector|labelSelector|timeout|pretty|dryRun|exclude|hash|[a-z%]{0,4})(=[ -~&&[^ #]]{0,12})?",
        0..4,
    );
    let headers = prop::collection::vec(
        (
            prop::sample::select(vec![
                "Accept",
                "Content-Type",
                "If-None-Match",
                "Accept-Encoding",
                "Authorization",
                "Impersonate-User",
                "Impersonate-Extra-%",
                "Impersonate-Group",
                "X-Remote-User",
                "Audit-ID",
                "Range",
                "X-Forwarded-For",
            ]),
            "[ -~\u{e0}-\u{ff}]{0,24}",
        ),
        0..5,
    );
    let body = prop::option::of(prop_oneof![
        Just("{}".to_owned()),
        Just("null".to_owned()),
        "[ -~]{0,40}"
    ]);
    (methods, odd("[!-~&&[^?#]]{1,8}"), queries, headers, body).prop_map(
        |(method, path, queries, headers, body)| {
            let query = if queries.is_empty() {
                String::new()
            } else {
                format!("?{}", queries.join("&"))
            };
            let mut request = Outgoing::new(method, &format!("/{path}{query}"));
            for (name, value) in headers {
                request = request.header(name, &value);
            }
            // A watch would go on for ever.
            request.target = request.target.replace("watch", "watsch");
            request.body = body.map(String::into_bytes);
            request
        },
    )
}

#[test]
fn nothing_panics_on_hostile_paths_queries_headers_and_bodies() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(info);
    }));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(server());
    let admin = client(&server, "admin");
    let config = Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&hostile(), |request| {
        let answer = runtime.block_on(admin.send(&request));
        if let Ok(answer) = &answer {
            prop_assert!((200..600).contains(&answer.status()), "{request:?}");
        }
        prop_assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{:?}", request);
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(runtime.block_on(get(&admin, "/readyz")).status(), 200);
}
