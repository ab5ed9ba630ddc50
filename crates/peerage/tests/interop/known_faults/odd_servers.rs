//! Faults that take a server that misbehaves: beside two real ones, behind a gateway beside the older and a balancer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use peerage_http::{Pem, testing::Authority};
use peerage_testkit::cluster::until;
use peerage_testkit::kube::RunningGateway;
use peerage_testkit::odd::{self, ODDITIES, Odd, group, list, resource, set, text};
use peerage_testkit::pki::SERVER_NAME;
use peerage_testkit::wire::{AGGREGATED, Outgoing, WireError};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{FRONTS, get, header, send, version};
use crate::versions::NEWER_ONLY;

/// What the gateway says of a server.
async fn peer(gateway: &RunningGateway, odd: &Odd) -> Value {
    let found = gateway.peer(&odd.address.to_string()).await;
    found.unwrap_or_default()
}

/// Whether a gateway counts that it refused a server for a reason.
async fn refused(gateway: &RunningGateway, odd: &Odd, reason: &str) -> bool {
    let counted = format!(
        "peerage_peer_errors_total{{peer=\"{}\",reason=\"{reason}\"}}",
        odd.address
    );
    gateway.own_metrics().await.contains(&counted)
}

/// Waits until a gateway has heard it.
pub(super) async fn serving(gateway: &RunningGateway, odd: &Odd) {
    until("the odd server serves", || async {
        let peer = peer(gateway, odd).await;
        peer["state"] == "serving"
    })
    .await;
}

/// kubernetes/kubernetes#118361, #119840: a resource without a kind breaks clients; #117571, #117562: parameters of a media
/// type in another order, or more of them; #122333, #133495: one server's stale view of a version makes it stale for all.
#[tokio::test]
async fn documents_of_odd_servers_are_read_and_one_current_view_is_enough() {
    let fronts = FRONTS.get().await;
    let _changed = fronts.served.write().await;
    let newer = fronts.plane.server("newer");
    let apis = || {
        let mut odd = group("odd.example.com", "v1", &["oddities"]);
        let resources = odd["versions"][0]["resources"].as_array_mut().unwrap();
        let mut without = resource("nameless", json!("X"));
        without.as_object_mut().unwrap().remove("responseKind");
        resources.extend([resource("nulls", Value::Null), without]);
        list(&[odd, group("halfdead.example.com", "v1", &["things"])])
    };
    let odd = Odd::start(fronts.plane.pki(), move |request| match request.uri.path() {
        "/apis" => {
            let mut answer = odd::document(&apis());
            let reordered = "application/json; charset=utf-8; as=APIGroupDiscoveryList; v=v2; g=apidiscovery.k8s.io";
            set(&mut answer, "content-type", reordered);
            Some(answer)
        }
        "/apis/odd.example.com/v1" => Some(odd::legacy_list("odd.example.com/v1", &["oddities", "nulls", "nameless"])),
        "/apis/halfdead.example.com/v1" => Some(odd::legacy_list("halfdead.example.com/v1", &["things"])),
        "/apis/halfdead.example.com/v1/things" => Some(text(StatusCode::OK, "{\"kind\":\"ThingList\"}")),
        _ => None,
    })
    .await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    newer
        .create(services, &super::discovery::dead("halfdead.example.com"))
        .await;
    for server in ["older", "newer"] {
        until("the servers list it as stale", || async {
            let document = get(fronts.plane.server(server), "/apis", AGGREGATED)
                .await
                .json();
            version(&document, "halfdead.example.com", "v1")
                .is_some_and(|it| it["freshness"] == "Stale")
        })
        .await;
    }
    for (name, gateway) in fronts.more(&[&format!("--peer={}", odd.url)]).await {
        serving(&gateway, &odd).await;
        let answer = get(&gateway, "/apis", AGGREGATED).await;
        assert_eq!(
            header(&answer, "content-type").as_deref(),
            Some(AGGREGATED),
            "{name}"
        );
        let document = answer.json();
        let resources = version(&document, "odd.example.com", "v1").unwrap()["resources"].clone();
        let resources = resources.as_array().unwrap();
        assert_eq!(resources.len(), 3, "{name}: {resources:?}");
        for resource in resources {
            assert!(resource["responseKind"].is_object(), "{name}: {resource}");
        }
        let half = version(&document, "halfdead.example.com", "v1").unwrap();
        assert_eq!(half["freshness"], "Current", "{name}: {half}");
        assert_eq!(half["resources"][0]["resource"], "things", "{name}");
        let called = get(
            &gateway,
            "/apis/halfdead.example.com/v1/things",
            "application/json",
        )
        .await;
        assert_eq!(called.status(), 200, "{name}: {}", called.in_words());
    }
    super::discovery::withdraw(
        &fronts,
        &format!("{services}/v1.halfdead.example.com"),
        "halfdead.example.com",
    )
    .await;
}

/// kubernetes-sigs/metrics-server#1868: a server that is well otherwise has documents of OpenAPI that are none.
#[tokio::test]
async fn odd_openapi_of_one_server_spoils_nobody_elses() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let mut odd = Vec::new();
    for document in [
        "",
        "[]",
        "\u{0}no JSON",
        r#"{"swagger": "2.0", "paths": {"/apis/odd.example.com/v1/oddities": {"get": "#,
        r#"{"swagger": 2, "openapi": [], "paths": [], "definitions": "none"}"#,
        r#"{"openapi": "3.0.0", "paths": {"apis/odd.example.com/v1": {"serverRelativeURL": "nowhere"}, "": null}}"#,
    ] {
        let answering = move |request: &http::request::Parts| {
            let is = request.uri.path().starts_with("/openapi/");
            is.then(|| {
                let mut answer = text(StatusCode::OK, document);
                set(&mut answer, "content-type", "application/json");
                answer
            })
        };
        odd.push(Odd::start(fronts.plane.pki(), answering).await);
    }
    let peers: Vec<String> = odd.iter().map(|it| format!("--peer={}", it.url)).collect();
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    for (name, gateway) in fronts.more(&peers).await {
        for one in &odd {
            serving(&gateway, one).await;
        }
        for (path, accept, has) in [
            ("/openapi/v2", "application/json", NEWER_ONLY),
            ("/openapi/v2", protobuf, "/apis/apps/v1/deployments"),
            (
                "/openapi/v3",
                "application/json",
                "apis/storagemigration.k8s.io/v1",
            ),
            (
                "/openapi/v3/apis/apps/v1",
                "application/json",
                "/apis/apps/v1/deployments",
            ),
        ] {
            let answer = get(&gateway, path, accept).await;
            assert_eq!(answer.status(), 200, "{name} {path}: {}", answer.in_words());
            let has_it = answer
                .body
                .windows(has.len())
                .any(|it| it == has.as_bytes());
            assert!(has_it, "{name} {path} as {accept}: {has} is missing");
        }
    }
}

/// kubernetes-sigs/cluster-api#2652, kubernetes/kubernetes#97294: a server without its store still takes connections.
/// kubernetes/kubernetes#127858: requests go to the one that died.
#[tokio::test]
async fn a_server_that_is_not_ready_is_asked_only_when_no_other_has_it() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let answering = |request: &http::request::Parts| {
        let is = request.uri.path() == ODDITIES;
        is.then(|| text(StatusCode::OK, "{\"kind\":\"OddList\"}"))
    };
    for writes in ["--writes=local", "--writes=newest"] {
        let well = Odd::start(fronts.plane.pki(), answering).await;
        let red = Odd::start(fronts.plane.pki(), answering).await;
        let peers = [&well, &red].map(|it| format!("--peer={}", it.url));
        let ways = fronts.more(&[&peers[0], &peers[1], writes]).await;
        for (_, gateway) in &ways {
            serving(gateway, &well).await;
            serving(gateway, &red).await;
        }
        red.set_ready(false);
        for (name, gateway) in &ways {
            until("it is known not to be ready", || async {
                peer(gateway, &red).await["ready"] == false
            })
            .await;
            let before = red.asked_by_clients().len();
            for method in ["GET", "POST"] {
                for _ in 0..20 {
                    let request = Outgoing::new(method, ODDITIES);
                    let answer = send(gateway, "admin", &request).await;
                    assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
                }
            }
            assert_eq!(red.asked_by_clients().len(), before, "{name}");
        }
        drop(well);
        for (name, gateway) in &ways {
            let mut unavailable = 0;
            for _ in 0..100 {
                let answer = get(gateway, ODDITIES, "application/json").await;
                match answer.status() {
                    200 => {}
                    503 => unavailable += 1,
                    other => panic!("{name}: {other}"),
                }
            }
            println!(
                "{name} {writes}: {unavailable} of 100 reads were 503 when one of two had just died"
            );
            assert!(unavailable < 5, "{name}");
        }
    }
}

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// Gives a file another content at once, as who rotates certificates does.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

async fn has_failed_to_reload(gateway: &RunningGateway) -> bool {
    let metrics = gateway.own_metrics().await;
    metrics.lines().any(|line| {
        line.starts_with("peerage_reloads_total")
            && line.contains("failure")
            && !line.ends_with(" 0")
    })
}

/// Whether a watch tells of an object of this name soon.
async fn is_told(lines: &mut mpsc::Receiver<Result<Vec<u8>, WireError>>, name: &str) -> bool {
    let told = async {
        while let Some(line) = lines.recv().await {
            if String::from_utf8_lossy(&line.unwrap()).contains(name) {
                return true;
            }
        }
        false
    };
    let told = tokio::time::timeout(Duration::from_secs(10), told).await;
    told.unwrap_or(false)
}

/// kube-rs/kube#1953: authorities that are read once, so that a rotation ends in refused handshakes.
/// KEP-4020, transport: a certificate without the name that is expected, and no word about it.
#[tokio::test]
async fn authorities_are_read_again_and_a_certificate_of_another_name_is_named() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let pki = fronts.plane.pki();
    let next = Authority::new("the next one");
    let pem = |text: &str| Pem::bytes(text.to_owned());
    let (rotated, strange) = (
        next.server("kube-apiserver", &[SERVER_NAME]),
        next.server("kube-apiserver", &["strange.example.com"]),
    );
    let well = |request: &http::request::Parts| {
        (request.uri.path() == ODDITIES).then(|| text(StatusCode::OK, "{\"kind\":\"OddList\"}"))
    };
    let rotated = Odd::with((pem(&rotated.certificate), pem(&rotated.key)), well).await;
    let strange = Odd::with((pem(&strange.certificate), pem(&strange.key)), well).await;
    let old = std::fs::read_to_string(pki.file("ca.crt")).unwrap();
    let file = fronts.plane.directory().join("rotating-ca.crt");
    let write = |text: &str| replace(&file, text);
    write(&old);
    let flags = [
        format!("--peer-ca-file={}", file.display()),
        format!("--peer={}", rotated.url),
        format!("--peer={}", strange.url),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let ways = fronts.more(&flags).await;
    let mut watches = Vec::new();
    for (name, gateway) in &ways {
        let watch = Outgoing::new("GET", &format!("{ACCOUNTS}?watch=true"));
        let (head, body) = gateway.client("admin").open(&watch).await.unwrap();
        assert_eq!(head.status, 200, "{name}");
        watches.push((name, body.lines()));
        for odd in [&rotated, &strange] {
            until("it is not believed", || refused(gateway, odd, "tls_issuer")).await;
        }
    }
    assert!(rotated.asked().is_empty() && strange.asked().is_empty());
    write(&(old.clone() + &next.certificate()));
    for (name, gateway) in &ways {
        serving(gateway, &rotated).await;
        let answer = get(gateway, ODDITIES, "application/json").await;
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
        // Its name is another matter than its authority, and is told as such.
        until("the other's name is told", || {
            refused(gateway, &strange, "tls_name")
        })
        .await;
    }
    assert!(strange.asked().is_empty(), "{:?}", strange.asked());
    // A file that is broken keeps what was read before, and is counted.
    write("nothing of use\n");
    for (name, gateway) in &ways {
        until("the broken file is counted", || {
            has_failed_to_reload(gateway)
        })
        .await;
        let answer = get(gateway, ODDITIES, "application/json").await;
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "after-rotation"}});
    fronts
        .plane
        .server("older")
        .create(ACCOUNTS, &account)
        .await;
    for (name, lines) in &mut watches {
        let seen = is_told(lines, "after-rotation").await;
        assert!(seen, "{name}: the watch did not outlive it");
    }
    let named = fronts.more(&["--peer-server-name=localhost"]).await;
    for (name, gateway) in &named {
        let answer = get(gateway, crate::versions::NEWER_ONLY, "application/json").await;
        assert_eq!(answer.status(), 200, "{name}: another name of theirs");
    }
}

/// What kube-apiserver's proxy did in its first releases: half a peer is kept as if it were whole, a core resource that only a
/// peer has is not found, and the second server's plain 404 becomes the client's.
#[tokio::test]
async fn half_an_answer_takes_nothing_away_and_a_listed_api_is_never_404() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let (broken, lost) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (is_broken, is_lost) = (broken.clone(), lost.clone());
    let odd = Odd::start(fronts.plane.pki(), move |request| {
        match request.uri.path() {
            "/api" if is_broken.load(Ordering::Relaxed) => {
                Some(text(StatusCode::INTERNAL_SERVER_ERROR, "no"))
            }
            "/api/v1/oddpods" => Some(text(StatusCode::OK, "{\"kind\":\"OddList\"}")),
            path if ODDITIES.strip_suffix("/oddities") == Some(path)
                && is_lost.load(Ordering::Relaxed) =>
            {
                Some(text(StatusCode::NOT_FOUND, "404 page not found\n"))
            }
            _ => None,
        }
    })
    .await;
    let ways = fronts.more(&[&format!("--peer={}", odd.url)]).await;
    let core = |gateway| get(gateway, "/api/v1/oddpods", "application/json");
    for (name, gateway) in &ways {
        serving(gateway, &odd).await;
        let listed = get(gateway, "/api/v1", "application/json").await.json();
        assert!(listed.to_string().contains("\"oddpods\""), "{name}");
        assert_eq!(core(gateway).await.status(), 200, "{name}");
    }
    // It answers 404 to what it lists, and its own list of that group-version is gone too.
    lost.store(true, Ordering::Relaxed);
    for (name, gateway) in &ways {
        for _ in 0..5 {
            let answer = get(gateway, ODDITIES, "application/json").await;
            assert_eq!(answer.status(), 503, "{name}: {}", answer.in_words());
            assert!(header(&answer, "retry-after").is_some(), "{name}");
        }
    }
    broken.store(true, Ordering::Relaxed);
    for (name, gateway) in &ways {
        until("half an answer is counted", || async {
            !peer(gateway, &odd).await["error"].is_null()
        })
        .await;
        assert_eq!(core(gateway).await.status(), 200, "{name}");
        let listed = get(gateway, "/api/v1", "application/json").await.json();
        assert!(listed.to_string().contains("\"oddpods\""), "{name}");
    }
}
