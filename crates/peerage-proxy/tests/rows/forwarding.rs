//! A request on its way to a peer, and its answer on its way back.

use http::StatusCode;
use peerage_http::body;

use super::support::world::{admin, as_user, request, request_with_body, with};
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

fn values(seen: &Seen, name: &str) -> Vec<String> {
    let all = seen.headers.get_all(name).iter();
    all.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
        .collect()
}

/// kubernetes/kubernetes#14193.
#[tokio::test]
async fn row_10_the_request_target_travels_byte_for_byte() {
    let (world, peer) = pair().await;
    let targets = [
        "/apis/new.example.com/v1/namespaces/n/widgets/a%20b%2Fc%25d%3Fe/?watch=&z=1&a=%20+x&a=%41&b;c=2&bad=%zz&q&limit=5",
        "/apis/new.example.com/v1/namespaces/n/widgets//x/../y/",
        "/apis/new.example.com/v1/namespaces/n/widgets/~!$&'()*+,;=:@",
        "/apis/new.example.com/v1/namespaces/n/widgets/w?fieldSelector=metadata.name%3Dx&&=&?",
        "/apis/new.example.com/v1/widgets?",
    ];
    for target in targets {
        assert_eq!(world.get(target).await.status, 200, "{target}");
    }
    let seen: Vec<String> = peer.requests().into_iter().map(|s| s.target).collect();
    assert_eq!(seen, targets);
}

/// kubernetes/kubernetes#14193: method and body go through as they are.
#[tokio::test]
async fn any_method_and_body_reach_the_peer_as_they_are() {
    let (world, peer) = pair().await;
    peer.on_request(|request| async move {
        use http_body_util::BodyExt;
        let bytes = request.into_body().collect().await.unwrap().to_bytes();
        response(StatusCode::CREATED, &[("etag", "\"7\"")], bytes.to_vec())
    });
    let large = "x".repeat(3 << 20);
    let post = request_with_body("POST", WIDGETS, body::full(large.clone()));
    let answer = world.send(post).await;
    assert_eq!((answer.status, answer.text() == large), (201, true));
    assert_eq!(answer.header("etag").as_deref(), Some("\"7\""));
    for method in ["DELETE", "PATCH", "PUT"] {
        let target = "/apis/new.example.com/v1/namespaces/n/widgets/w";
        assert_eq!(
            world.send(request(method, target)).await.status,
            201,
            "{method}"
        );
        assert_eq!(peer.requests().last().unwrap().method.as_str(), method);
    }
}

#[tokio::test]
async fn the_peer_learns_who_asks_from_where_and_by_which_name() {
    let (world, peer) = pair().await;
    let asked = with(request("GET", WIDGETS), "host", "api.example.com:6443");
    let asked = with(asked, "authorization", "Bearer secret");
    let asked = with(asked, "x-remote-group", "system:masters");
    let asked = with(asked, "x-forwarded-for", "198.51.100.9");
    let asked = with(asked, "connection", "x-remote-user, keep-alive");
    let asked = with(asked, "x-custom", "a");
    let asked = with(asked, "x-custom", "b");
    world.send(asked).await;
    let seen = peer.requests().pop().unwrap();
    for (name, expected) in [
        ("x-remote-user", &["jane"][..]),
        ("x-remote-uid", &["uid 77"]),
        ("x-remote-group", &["b,c \"q\"", "system:authenticated"]),
        ("x-remote-extra-acme.com%2fproject", &["one", "two, three"]),
        ("x-kubernetes-peer-proxied", &["true"]),
        ("x-forwarded-for", &["198.51.100.9, 192.0.2.7"]),
        ("x-forwarded-host", &["api.example.com:6443"]),
        ("x-forwarded-proto", &["https"]),
        ("x-forwarded-uri", &[WIDGETS]),
        ("x-peerage-peer", &["apiserver-local"]),
        ("x-peerage-reason", &["group"]),
        ("x-custom", &["a", "b"]),
        ("authorization", &[]),
        ("connection", &[]),
    ] {
        assert_eq!(values(&seen, name), expected, "{name}");
    }
}

/// projectcapsule/capsule-proxy#118, rancher/rancher#16297.
#[tokio::test]
async fn a_user_in_very_many_groups_arrives_whole() {
    let (world, peer) = pair().await;
    let mut user = admin();
    user.groups = (0..1000)
        .map(|n| format!("CN=group {n},OU=a b,DC=example,DC=com and more of it"))
        .collect();
    let answer = world
        .send(as_user(request("GET", WIDGETS), user.clone()))
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(values(&peer.requests()[0], "x-remote-group"), user.groups);
}

/// The client cannot tell that there was a proxy.
#[tokio::test]
async fn every_status_of_a_peer_comes_back_as_it_is() {
    let (world, peer) = pair().await;
    for code in [
        200, 201, 202, 204, 301, 304, 307, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429,
        500, 502, 503, 504,
    ] {
        peer.on_request(move |_| async move {
            let body = if matches!(code, 204 | 304) {
                ""
            } else {
                "{\"kind\":\"Status\"}"
            };
            let headers = [
                ("retry-after", "7"),
                ("warning", "299 - \"a\""),
                ("warning", "299 - \"b\""),
                ("x-other", "1"),
            ];
            response(StatusCode::from_u16(code).unwrap(), &headers, body)
        });
        let answer = world.get(WIDGETS).await;
        assert_eq!(answer.status, code);
        assert_eq!(answer.header("retry-after").as_deref(), Some("7"));
        assert_eq!(answer.headers.get_all("warning").iter().count(), 2);
        assert_eq!(answer.header("x-other").as_deref(), Some("1"));
        if !matches!(code, 204 | 304) {
            assert_eq!(answer.text(), "{\"kind\":\"Status\"}");
        }
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_clients_fault() {
    let (world, peer) = pair().await;
    peer.on_request(|request| async move {
        let _ = http_body_util::BodyExt::collect(request.into_body()).await;
        text(StatusCode::OK, "never")
    });
    let (mut sender, broken) = peerage_http::channel(4);
    sender.send_data("{".into()).await.unwrap();
    sender.abort("the client is gone".into());
    let answer = world.send(request_with_body("POST", WIDGETS, broken)).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.header("retry-after").is_none());
    assert!(answer.text().contains("broke off"), "{}", answer.text());
    assert_no_failure(&world);
    assert_eq!(world.get(WIDGETS).await.status, 200);
}

/// What no connection to a server carries is not held against one, and another is not tried.
#[tokio::test]
async fn what_is_not_sent_on_is_the_clients_fault_too() {
    let (world, peer) = pair().await;
    let answer = world.send(request("CONNECT", WIDGETS)).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("of this kind"), "{}", answer.text());
    assert!(peer.requests().is_empty());
    assert_no_failure(&world);
}

fn assert_no_failure(world: &World) {
    let metrics = world.metrics();
    assert!(!metrics.contains(r#"outcome="failed""#), "{metrics}");
}

/// A peer that dies while it says which 404 it means has said nothing.
#[tokio::test]
async fn row_07_a_404_that_breaks_off_is_no_404() {
    let pki = Pki::new();
    let dies = RawPeer::start(&pki, |_, mut wire| async move {
        wire.write("HTTP/1.1 404 Not Found\r\ncontent-length: 19\r\n\r\n404 p")
            .await;
        wire.close().await;
        None
    })
    .await;
    let world = World::start(pki, vec![live("apiserver-new", dies.address)]);
    world.until_state("apiserver-new", "serving").await;
    let post = request_with_body("POST", WIDGETS, body::full("{}"));
    let answer = world.send(post).await;
    answer.assert_retryable();
    assert!(!answer.text().contains("404"), "{}", answer.text());
}

/// What the client gets, by what the peer does and what the client accepts.
#[tokio::test]
async fn row_07_transport_errors_are_a_status_in_the_clients_media_type_with_retry_after() {
    let pki = Pki::new();
    let resets = RawPeer::start(&pki, |_, wire| async move {
        drop(wire);
        None
    })
    .await;
    let nonsense = RawPeer::start(&pki, |_, mut wire| async move {
        wire.write("SSH-2.0-OpenSSH_9.9\r\n\r\n").await;
        wire.close().await;
        None
    })
    .await;
    for address in [resets.address, nonsense.address] {
        let world = World::start(pki.clone(), vec![live("apiserver-new", address)]);
        world.until_state("apiserver-new", "serving").await;
        for (accept, kind) in [
            ("application/json", "application/json"),
            ("*/*", "application/json"),
            ("application/yaml", "application/yaml"),
            (
                "application/vnd.kubernetes.protobuf",
                "application/vnd.kubernetes.protobuf",
            ),
            (
                "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
                "application/json",
            ),
            ("text/html", "application/json"),
        ] {
            // A write, since a read would be tried again until the breaker opens.
            let post = with(
                request_with_body("POST", WIDGETS, body::full("{}")),
                "accept",
                accept,
            );
            let answer = world.send(post).await;
            assert_eq!(answer.status, 503, "{accept}");
            assert_eq!(
                answer.header("content-type").as_deref(),
                Some(kind),
                "{accept}"
            );
            assert_eq!(
                answer.header("retry-after").as_deref(),
                Some("1"),
                "{accept}"
            );
            assert!(
                answer.text().contains("ServiceUnavailable"),
                "{}",
                answer.text()
            );
            world.until_state("apiserver-new", "serving").await;
        }
    }
}

/// KEP-4020.
#[tokio::test]
async fn a_peer_without_the_expected_name_is_never_sent_a_request_and_says_why() {
    let pki = Pki::new();
    let alpn = ["h2", "http/1.1"];
    let peer = FakePeer::start_with(
        &pki,
        "apiserver-new",
        &documents::core(),
        &documents::new(),
        &alpn,
        "localhost",
    )
    .await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world
        .until("the reason is shown", |d| {
            d.peers
                .iter()
                .any(|p| p.error.as_ref().is_some_and(|e| e.reason == "tls_name"))
        })
        .await;
    assert!(peer.polls().is_empty() && peer.requests().is_empty());
    world.get(WIDGETS).await.assert_retryable();
}

#[tokio::test]
async fn row_13_each_header_comes_once_and_the_peer_is_named_to_masters() {
    let (world, peer) = pair().await;
    peer.on_request(|_| async {
        let twice = [
            ("audit-id", "a"),
            ("audit-id", "a"),
            ("cache-control", "no-cache, private"),
            ("cache-control", "no-cache, private"),
            ("x-kubernetes-pf-flowschema-uid", "f"),
            ("x-kubernetes-pf-flowschema-uid", "f"),
            ("x-peerage-peer", "somebody"),
        ];
        response(StatusCode::OK, &twice, "{}")
    });
    let plain = world.get(WIDGETS).await;
    for name in [
        "audit-id",
        "cache-control",
        "x-kubernetes-pf-flowschema-uid",
    ] {
        assert_eq!(plain.headers.get_all(name).iter().count(), 1, "{name}");
    }
    assert_eq!(plain.header("x-peerage-peer"), None);
    let master = world.send(as_user(request("GET", WIDGETS), admin())).await;
    assert_eq!(
        master.header("x-peerage-peer").as_deref(),
        Some("apiserver-new")
    );
}

/// Nothing is followed; what the peer says goes to the client as it is.
#[tokio::test]
async fn row_22_location_and_links_pass_unchanged_and_are_not_followed() {
    let (world, peer) = pair().await;
    for (code, location) in [
        (201, "/apis/new.example.com/v1/widgets/elsewhere?x=1"),
        (307, "/apis/new.example.com/v1/widgets/elsewhere"),
        (201, "https://elsewhere.example.com/"),
    ] {
        peer.on_request(move |_| async move {
            let headers = [("location", location), ("content-type", "text/html")];
            response(
                StatusCode::from_u16(code).unwrap(),
                &headers,
                "<a href=\"/x\">x</a>",
            )
        });
        let before = peer.requests().len();
        let answer = world.get(WIDGETS).await;
        assert_eq!(answer.status, code);
        assert_eq!(answer.header("location").as_deref(), Some(location));
        assert_eq!(answer.text(), "<a href=\"/x\">x</a>");
        assert_eq!(peer.requests().len(), before + 1);
    }
}

/// CVE-2022-3172: whoever asks is not sent away with their credentials.
#[tokio::test]
async fn a_redirect_to_another_host_is_neither_followed_nor_passed_on() {
    let (world, peer) = pair().await;
    let elsewhere = "https://elsewhere.example.com/";
    peer.on_request(move |_| async move {
        response(
            StatusCode::TEMPORARY_REDIRECT,
            &[("location", elsewhere)],
            "",
        )
    });
    let answer = world.get(WIDGETS).await;
    assert_eq!((answer.status, answer.header("location")), (503, None));
    assert_eq!(answer.json()["kind"], "Status");
    assert_eq!(peer.requests().len(), 1);
    let proxied = world.get(&format!("{WIDGETS}/a/proxy/login")).await;
    assert_eq!(proxied.header("location").as_deref(), Some(elsewhere));
}

#[tokio::test]
async fn row_16_an_interim_answer_leaves_the_final_one_intact() {
    let pki = Pki::new();
    let peer = RawPeer::start(&pki, |head, mut wire| async move {
        assert!(!head.to_ascii_lowercase().contains("expect:"), "{head}");
        wire.write("HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n").await;
        wire.write("HTTP/1.1 100 Continue\r\n\r\n").await;
        let body = "{\"kind\":\"Status\",\"code\":422}";
        let length = body.len();
        wire.write(&format!("HTTP/1.1 422 Unprocessable Entity\r\nContent-Type: application/json\r\nWarning: 299 - \"w\"\r\nContent-Length: {length}\r\n\r\n{body}")).await;
        Some(wire)
    })
    .await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let mut put = request("PUT", "/apis/new.example.com/v1/namespaces/n/widgets/w");
    put = with(put, "expect", "100-continue");
    let answer = world.send(put).await;
    assert_eq!(answer.status, 422);
    assert_eq!(
        answer.header("content-type").as_deref(),
        Some("application/json")
    );
    assert_eq!(answer.header("warning").as_deref(), Some("299 - \"w\""));
    assert_eq!(answer.header("link"), None);
    assert_eq!(answer.json()["code"], 422);
}
