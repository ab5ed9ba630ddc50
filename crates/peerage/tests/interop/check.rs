//! `peerage check` and `peerage diff` against real kube-apiservers of two versions: with the flags of their own proxy,
//! without them, and through gateways.

use peerage_testkit::cluster::serves_group;
use peerage_testkit::kube::{Backend, ControlPlane, Gateway};
use peerage_testkit::pki::Pki;
use serde_json::Value;
use tokio::process::Command;

use crate::ours::{self, executable};
use crate::versions;

mod printed;

/// Runs `peerage` with a server's certificates and reads what it prints as JSON; with the exit code.
async fn run(pki: &Pki, words: &[String]) -> (i32, Value) {
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.file(name).display());
    let output = Command::new(executable())
        .args(words)
        .args(["--output=json", "--kubeconfig=/there/is/none"])
        .arg(file("certificate-authority", "ca.crt"))
        .arg(file("client-certificate", "admin.crt"))
        .arg(file("client-key", "admin.key"))
        .env_remove("KUBECONFIG")
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}"));
    (output.status.code().unwrap(), value)
}

/// The items that turned out in this way, as `check of subject: what it says`.
fn items(report: &Value, verdict: &str) -> Vec<String> {
    let items = report["items"].as_array().unwrap().iter();
    let items = items.filter(|it| it["verdict"] == verdict);
    let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    items
        .map(|it| {
            let (check, subject) = (text(it, "check"), text(it, "subject"));
            format!("{check} of {subject}: {}", text(it, "says"))
        })
        .collect()
}

fn assert_has(found: &[String], expected: &str) {
    let has = found.iter().any(|it| it.starts_with(expected));
    assert!(has, "{expected}: {found:#?}");
}

fn words(first: &str, rest: &[String]) -> Vec<String> {
    std::iter::once(first.to_owned())
        .chain(rest.iter().cloned())
        .collect()
}

#[tokio::test]
async fn a_real_pair_with_its_own_proxy_works_and_is_told_what_that_leaves_out() {
    let spec = |version: String, name: &str| versions::kube_apiserver(&version).named(name);
    let plane = ControlPlane::on(Backend::Etcd("3.6"))
        .server(spec(versions::older(), "older").own_proxy())
        .server(spec(versions::newer(), "newer").own_proxy())
        .start()
        .await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    if versions::merges_discovery(&versions::older()) {
        serves_group(&older.client("admin"), "storagemigration.k8s.io").await;
    }
    let urls = [older.url(), newer.url()];

    let pki = plane.pki();
    let pair = [
        format!(
            "--proxy-client-cert-file={}",
            pki.file("front-proxy-client.crt").display()
        ),
        format!(
            "--proxy-client-key-file={}",
            pki.file("front-proxy-client.key").display()
        ),
    ];
    let all: Vec<String> = urls.iter().chain(&pair).cloned().collect();
    let (code, report) = run(pki, &words("check", &all)).await;
    let (passed, warned) = (items(&report, "pass"), items(&report, "warn"));
    if !versions::merges_discovery(&versions::older()) {
        assert_has(
            &warned,
            &format!("proxy of {}: on, but before 1.35", older.address()),
        );
        assert_has(&items(&report, "fail"), "merged-view of ");
        return;
    }
    assert!(items(&report, "fail").is_empty(), "{report:#}");
    assert_eq!(code, 1, "{report:#}");
    let (older_name, newer_name) = (older.address(), newer.address());
    for expected in [
        format!("proxy of {older_name}: on: the gate"),
        format!("proxy of {newer_name}: on: the gate"),
        format!("merged-view of {older_name}: it shows all "),
        "merged-view of : the same document everywhere".to_owned(),
        "identity-lease of older: renewed ".to_owned(),
        format!("peer-port of newer at {newer_name}: answers as kubernetes.default.svc"),
        format!("front-proxy of {older_name}: answers its discovery to a peer"),
        "read-through of : of APIs that only some serve, ".to_owned(),
    ] {
        assert_has(&passed, &expected);
    }
    // What Kubernetes' own proxy hides or gets wrong, measured.
    assert_has(&warned, &format!("openapi of {older_name}: hides "));
    assert_has(
        &warned,
        &format!("legacy-discovery of {older_name}: hides "),
    );
    assert_has(
        &warned,
        "subresources of : only some have storage.k8s.io/v1/csinodes/status",
    );

    // What each serves by itself, although they show the same.
    let (code, live) = run(pki, &words("diff", &urls)).await;
    assert_eq!(code, 1);
    let releases = [versions::older(), versions::newer()].map(|it| versions::number(&it));
    let (_, catalogued) = run(pki, &words("diff", &releases)).await;
    assert_eq!(live["differences"], catalogued["differences"]);
}

#[tokio::test]
async fn real_servers_without_the_flags_fail_until_a_gateway_stands_before_them() {
    let plane = versions::pair_without_own_proxies().await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    // As before an upgrade, when there is none but the older version.
    let (code, report) = run(plane.pki(), &words("check", &[older.url()])).await;
    assert!(items(&report, "fail").is_empty(), "{report:#}");
    assert_eq!(code, 1, "{report:#}");
    assert_has(
        &items(&report, "warn"),
        &format!("proxy of {}: the gate ", older.address()),
    );

    let (code, report) = run(plane.pki(), &words("check", &[older.url(), newer.url()])).await;
    assert_eq!(code, 2, "{report:#}");
    let failed = items(&report, "fail");
    let name = older.address();
    assert_has(
        &failed,
        &format!("proxy of {name}: the gate UnknownVersionInteroperabilityProxy is off"),
    );
    assert_has(&failed, &format!("merged-view of {name}: it hides "));
    // One item for all of them, since the cause is the same.
    assert_has(&failed, "read-through of /apis/");

    let pki = plane.pki();
    let at_older = Gateway::beside(older).peer(newer);
    let at_newer = Gateway::beside(newer).peer(older);
    let (at_older, at_newer) =
        tokio::join!(ours::start(&plane, at_older), ours::start(&plane, at_newer));
    serves_group(&at_older.client("admin"), "storagemigration.k8s.io").await;
    let admin = format!("--gateway=http://{}", at_older.admin);
    let servers = [older.url(), newer.url(), admin.clone()];
    let (code, report) = run(pki, &words("check", &servers)).await;
    assert!(items(&report, "fail").is_empty(), "{report:#}");
    assert!(code <= 1, "{report:#}");
    for server in [older, newer] {
        let expected = format!(
            "proxy of {}: clients come through the gateway",
            server.address()
        );
        assert_has(&items(&report, "pass"), &expected);
    }

    let all = [at_older.url(), at_newer.url(), admin];
    let (code, report) = run(pki, &words("check", &all)).await;
    assert!(items(&report, "fail").is_empty(), "{report:#}");
    assert!(code <= 1, "{report:#}");
    let passed = items(&report, "pass");
    let name = at_older.address();
    for expected in [
        format!("proxy of {name}: a gateway"),
        format!("openapi of {name}: hides nothing"),
        format!("legacy-discovery of {name}: hides nothing"),
        format!("ready of http://{}: /readyz is good", at_older.admin),
        "read-through of : of APIs that only some serve, ".to_owned(),
    ] {
        assert_has(&passed, &expected);
    }
}
