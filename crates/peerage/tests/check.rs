//! `peerage check` as a shell sees it, against servers of two versions on one store: that all is well, and each thing
//! that goes wrong.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use peerage_apiserver::server_id;
use peerage_http::Pem;
use peerage_testkit::cluster::{knows_peer_apis, until};
use peerage_testkit::odd::{self, Odd, shared_pair};
use peerage_testkit::pki::Pki;
use peerage_testkit::process::{GatewayProcess, ServerProcess, ServerSpec, StoreProcess};
use peerage_testkit::wire::{Client, Outgoing};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

fn executable() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_peerage"))
}

fn check(pki: &Pki, user: &str, urls: &[String], words: &[&str]) -> Command {
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.file(name).display());
    let mut command = Command::new(executable());
    command
        .arg("check")
        .args(urls)
        .args(words)
        .arg("--kubeconfig=/there/is/none")
        .arg(file("certificate-authority", "ca.crt"))
        .arg(file("client-certificate", &format!("{user}.crt")))
        .arg(file("client-key", &format!("{user}.key")))
        .env_remove("KUBECONFIG")
        .kill_on_drop(true);
    command
}

/// What came of a check.
struct Checked {
    code: Option<i32>,
    items: Vec<Value>,
    text: String,
}

async fn checked(pki: &Pki, user: &str, urls: &[String], words: &[&str]) -> Checked {
    let words = [words, &["--output=json"]].concat();
    let output = check(pki, user, urls, &words).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}"));
    Checked {
        code: output.status.code(),
        items: report["items"].as_array().unwrap().clone(),
        text,
    }
}

impl Checked {
    /// The items that turned out in this way, as `check of subject: what it says`.
    fn of(&self, verdict: &str) -> Vec<String> {
        let text = |item: &Value, key: &str| item[key].as_str().unwrap().to_owned();
        let items = self.items.iter().filter(|it| it["verdict"] == verdict);
        items
            .map(|it| {
                let (check, subject) = (text(it, "check"), text(it, "subject"));
                format!("{check} of {subject}: {}", text(it, "says"))
            })
            .collect()
    }

    /// Exactly these turned out in this way.
    fn assert(&self, verdict: &str, expected: &[&str]) {
        let found = self.of(verdict);
        let all = expected
            .iter()
            .all(|it| found.iter().any(|found| found.starts_with(it)));
        assert!(
            all && found.len() == expected.len(),
            "{verdict}: {found:#?}, expected {expected:#?}\n{}",
            self.text
        );
    }
}

/// Two servers that know each other.
struct Pair {
    pki: Pki,
    _store: StoreProcess,
    old: ServerProcess,
    new: ServerProcess,
}

impl Pair {
    async fn start(directory: &Path) -> Self {
        let pki = Pki::create(directory);
        let store = StoreProcess::start(executable(), "memory").await;
        let server = |name: &str, version: &str| ServerSpec::peer(name, version, &store.url);
        let (old, new) = (server("old", "1.36"), server("new", "1.37"));
        let (old, new) = tokio::join!(
            ServerProcess::start(executable(), &pki, &old),
            ServerProcess::start(executable(), &pki, &new),
        );
        knows_peer_apis(&old.client("admin")).await;
        Self {
            pki,
            _store: store,
            old,
            new,
        }
    }

    fn urls(&self) -> Vec<String> {
        [&self.old, &self.new]
            .map(|it| format!("https://{}", it.address))
            .to_vec()
    }

    async fn check(&self, user: &str, words: &[&str]) -> Checked {
        checked(&self.pki, user, &self.urls(), words).await
    }

    fn name(server: &ServerProcess) -> String {
        server.address.to_string()
    }
}

#[tokio::test]
async fn a_pair_passes_and_what_breaks_is_found() {
    let temp = tempfile::tempdir().unwrap();
    let pair = Pair::start(temp.path()).await;
    all_is_well(&pair).await;
    what_one_may_not_read_is_a_warning(&pair).await;
    records_are_judged(&pair).await;
    what_is_printed_knows_the_servers(&pair).await;
    let old = Pair::name(&pair.old);
    let urls = pair.urls();
    let Pair { pki, new, .. } = pair;
    a_server_that_dies_is_told_while_watching(&pki, &urls, new).await;

    let after = checked(&pki, "admin", &urls, &[]).await;
    assert_eq!(after.code, Some(2), "{}", after.text);
    let failed = after.of("fail");
    assert!(
        failed
            .iter()
            .any(|it| it.starts_with(&format!("reachable of {}", &urls[1]["https://".len()..]))),
        "{failed:#?}"
    );
    assert!(
        failed
            .iter()
            .any(|it| it.starts_with("peer-port of new at ")),
        "{failed:#?}"
    );
    assert!(
        !failed.iter().any(|it| it.contains(&format!("of {old}"))),
        "{failed:#?}"
    );
}

async fn all_is_well(pair: &Pair) {
    let file = |flag: &str, name: &str| format!("--{flag}={}", pair.pki.file(name).display());
    let certificate = file("proxy-client-cert-file", "front-proxy-client.crt");
    let key = file("proxy-client-key-file", "front-proxy-client.key");
    let found = pair.check("admin", &[&certificate, &key]).await;
    found.assert("fail", &[]);
    found.assert("warn", &[]);
    found.assert("skip", &["flags of "]);
    assert_eq!(found.code, Some(0));
    let passed = found.of("pass");
    let old = Pair::name(&pair.old);
    for expected in [
        format!("proxy of {old}: on"),
        format!("front-proxy of {old}: answers its discovery to a peer"),
        "front-proxy of front-proxy-client: allowed".to_owned(),
        format!("only-some-serve of : {old} lacks "),
        format!("merged-view of {old}: it shows all "),
        "merged-view of : the same document everywhere".to_owned(),
        format!("openapi of {old}: hides nothing"),
        "read-through of : of APIs that only some serve, 0 objects and ".to_owned(),
        "host-names of : 2 servers".to_owned(),
    ] {
        assert!(
            passed.iter().any(|it| it.starts_with(&expected)),
            "{expected}: {passed:#?}"
        );
    }

    // An object of what only the newer has is read as well.
    let migration = json!({"apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}}});
    let path = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
    created(&pair.old.client("admin"), path, &migration).await;
    let found = pair.check("admin", &[]).await;
    let passed = found.of("pass");
    let read = "read-through of : of APIs that only some serve, 1 objects and ";
    let is_read = |it: &String| it.starts_with(read) && it.contains(&format!("{path}/m,"));
    assert!(passed.iter().any(is_read), "{passed:#?}");
}

async fn created(client: &Client, path: &str, object: &Value) {
    let request = Outgoing::new("POST", path).json("application/json", object);
    let answer = client.send(&request).await.unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.in_words());
}

async fn what_one_may_not_read_is_a_warning(pair: &Pair) {
    let found = pair.check("alice", &[]).await;
    assert_eq!(found.code, Some(1), "{}", found.text);
    found.assert("fail", &[]);
    let warned = found.of("warn");
    for expected in ["rerouted of ", "identity-lease of ", "front-proxy of "] {
        assert!(
            warned
                .iter()
                .any(|it| it.starts_with(expected) && it.contains("may not be read (403)")),
            "{expected}: {warned:#?}"
        );
    }
    let fixes: Vec<_> = found
        .items
        .iter()
        .filter_map(|it| it["fix"].as_str())
        .collect();
    assert!(
        fixes
            .iter()
            .any(|it| it.contains("list leases.coordination.k8s.io in the namespace kube-system")),
        "{fixes:#?}"
    );
}

fn lease(name: &str, hostname: &str, address: &str, renewed: Timestamp) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name,
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": hostname},
            "annotations": {"kubernetes.io/peer-advertise-address": address}},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 3600,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()}})
}

async fn records_are_judged(pair: &Pair) {
    let admin = pair.new.client("admin");
    let now = Timestamp::now();
    let long_ago = Timestamp::from_second(now.as_second() - 600).unwrap();
    // A port that nobody listens on: it was free a moment ago.
    let dead = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let dead = dead.to_string();
    let in_a_minute = Timestamp::from_second(now.as_second() + 60).unwrap();
    for (lease, verdict, expected) in [
        (
            lease(&server_id("dead"), "dead", &dead, in_a_minute),
            "fail",
            format!("peer-port of dead at {dead}: cannot connect"),
        ),
        (
            lease(&server_id("gone"), "gone", &dead, long_ago),
            "warn",
            "identity-lease of gone: not renewed for ".to_owned(),
        ),
        (
            lease("apiserver-double", "old", &dead, long_ago),
            "fail",
            "identity-lease of apiserver-double: the host name old is also that of".to_owned(),
        ),
        (
            lease(&server_id("wrong"), "wrong", "0.0.0.0:6443", in_a_minute),
            "fail",
            "identity-lease of wrong: its address 0.0.0.0:6443 is every address".to_owned(),
        ),
        (
            lease(
                &server_id("copied"),
                "copied",
                &Pair::name(&pair.new),
                in_a_minute,
            ),
            "fail",
            "identity-lease of copied: its address".to_owned(),
        ),
    ] {
        created(&admin, LEASES, &lease).await;
        let found = pair.check("admin", &[]).await;
        let of = found.of(verdict);
        assert!(
            of.iter().any(|it| it.starts_with(&expected)),
            "{expected}: {}",
            found.text
        );
        assert_eq!(
            found.code,
            Some(if found.of("fail").is_empty() { 1 } else { 2 })
        );
        let name = lease["metadata"]["name"].as_str().unwrap();
        let path = format!("{LEASES}/{name}");
        let answer = admin.send(&Outgoing::new("DELETE", &path)).await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.in_words());
    }
    until("the forged peers are forgotten", || async {
        pair.check("admin", &[]).await.code == Some(0)
    })
    .await;
}

async fn what_is_printed_knows_the_servers(pair: &Pair) {
    let output = check(
        &pair.pki,
        "admin",
        &pair.urls(),
        &["--print=network-policy"],
    )
    .output()
    .await
    .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for server in [&pair.old, &pair.new] {
        assert!(
            shown.contains(&format!("port: {}", server.address.port())),
            "{shown}"
        );
    }
}

/// `check --watch` without a terminal.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(mut command: Command) -> Self {
        command.args([
            "--watch",
            "--interval=100ms",
            "--timeout=5s",
            "--exit-with-stdin",
        ]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn wait_for(&mut self, text: &str) -> String {
        let found = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                let line = self.lines.next_line().await.unwrap();
                let line = line.unwrap_or_else(|| panic!("it ended without {text:?}"));
                if line.contains(text) {
                    return line;
                }
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("no line with {text:?}"))
    }

    async fn stop(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        let ended = tokio::time::timeout(Duration::from_secs(60), self.child.wait());
        ended.await.unwrap().unwrap().code()
    }
}

async fn a_server_that_dies_is_told_while_watching(pki: &Pki, urls: &[String], new: ServerProcess) {
    let mut watching = Watching::start(check(pki, "admin", urls, &[]));
    watching.wait_for("pass: ").await;
    let name = new.address.to_string();
    new.process.kill();
    let line = watching
        .wait_for(&format!("pass -> fail reachable of {name}"))
        .await;
    assert!(line.contains("cannot connect"), "{line}");
    assert_eq!(watching.stop().await, Some(2));
}

#[tokio::test]
async fn servers_without_a_proxy_fail_where_it_would_be_needed() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let store = StoreProcess::start(executable(), "memory").await;
    let spec = |name: &str, version: &str| ServerSpec {
        proxy: false,
        ..ServerSpec::peer(name, version, &store.url)
    };
    let old = ServerProcess::start(executable(), &pki, &spec("old", "1.36")).await;
    let new = ServerProcess::start(executable(), &pki, &spec("new", "1.37")).await;
    let urls = [&old, &new].map(|it| format!("https://{}", it.address));
    let found = checked(&pki, "admin", &urls, &[]).await;
    assert_eq!(found.code, Some(2));
    let failed = found.of("fail");
    for expected in [
        format!("proxy of {}: off", old.address),
        format!("merged-view of {}: it hides ", old.address),
        "read-through of /apis/".to_owned(),
    ] {
        assert!(
            failed.iter().any(|it| it.starts_with(&expected)),
            "{expected}: {failed:#?}"
        );
    }
}

#[tokio::test]
async fn a_gateway_is_known_for_one_by_whoever_asks() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let spec = ServerSpec::peer("old", "1.36", "");
    let spec = ServerSpec {
        store: None,
        ..spec
    };
    let server = ServerProcess::start(executable(), &pki, &spec).await;
    let gateway = GatewayProcess::start(executable(), &pki, server.address).await;
    let url = format!("https://{}", gateway.address);
    // It names the server that answered to the administrator alone.
    for (user, says) in [
        ("alice", "a gateway"),
        ("admin", "a gateway (this was answered by "),
    ] {
        let found = checked(&pki, user, std::slice::from_ref(&url), &[]).await;
        let expected = format!("proxy of {}: {says}", &url["https://".len()..]);
        let passed = found.of("pass");
        let found = passed.iter().find(|it| it.starts_with(&expected));
        let found = found.unwrap_or_else(|| panic!("{expected}: {passed:#?}"));
        assert_eq!(found.ends_with("a gateway"), user == "alice", "{found}");
    }
    let own = format!("https://{}", server.address);
    let found = checked(&pki, "admin", &[own], &[]).await;
    let expected = format!("proxy of {}: on (Peerage's)", server.address);
    assert!(found.of("pass").contains(&expected), "{}", found.text);
}

/// A server that answers everything with the same, by a clock of its own.
async fn fake(pair: (Pem, Pem), ahead: i64) -> Odd {
    Odd::with(pair, move |_| {
        let now = Timestamp::from_second(Timestamp::now().as_second() + ahead).unwrap();
        let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let mut answer = odd::text(StatusCode::OK, "{\"gitVersion\": \"v1.37.2\"}");
        odd::set(&mut answer, "date", &date);
        Some(answer)
    })
    .await
}

#[tokio::test]
async fn a_clock_that_is_wrong_and_a_certificate_that_has_ended_are_found() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let late = fake(shared_pair(&pki), -300).await;
    let found = checked(&pki, "admin", std::slice::from_ref(&late.url), &[]).await;
    let failed = found.of("fail");
    let clock = format!("clock of {}: at least 29", late.address);
    assert!(
        failed
            .iter()
            .any(|it| it.starts_with(&clock) && it.contains("behind")),
        "{failed:#?}"
    );

    let (certificate, key) = ended(&pki);
    let pair = (Pem::bytes(certificate), Pem::bytes(key));
    let past = fake(pair, 0).await;
    let found = checked(&pki, "admin", std::slice::from_ref(&past.url), &[]).await;
    assert_eq!(found.code, Some(2));
    let failed = found.of("fail");
    let name = past.address;
    assert!(
        failed
            .iter()
            .any(|it| it.starts_with(&format!("certificate of {name}: it ended 2021-01-01"))),
        "{failed:#?}"
    );
    assert!(
        failed
            .iter()
            .any(|it| it.starts_with(&format!("reachable of {name}: "))),
        "{failed:#?}"
    );
}

#[tokio::test]
async fn what_is_printed_is_made_up_of_no_server_that_does_not_answer() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    // A port that was free a moment ago and has nobody.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    drop(listener);
    let kubeconfig = pki.file("kubeconfig");
    let contexts = "current-context: a\ncontexts:\n- {name: a, context: {cluster: a, user: a}}\n";
    let cluster = format!(
        "clusters:\n- name: a\n  cluster: {{server: '{url}', certificate-authority: ca.crt}}\n"
    );
    let user = "users:\n- {name: a, user: {token: t}}\n";
    std::fs::write(&kubeconfig, format!("{contexts}{cluster}{user}")).unwrap();
    let printing = |what: &str| {
        let mut command = Command::new(executable());
        command.arg("check").arg(format!("--print={what}"));
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command
    };
    let manifest = pki.file("kube-apiserver.yaml");
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"command": ["kube-apiserver"]}]}});
    std::fs::write(&manifest, pod.to_string()).unwrap();
    let mut with_file = printing("kubeadm");
    with_file.arg(format!("--manifest={}", manifest.display()));
    for (mut command, code) in [
        (check(&pki, "admin", &[url], &["--print=static-pod"]), 3),
        (printing("static-pod"), 3),
        (printing("kubeadm"), 3),
        (with_file, 0),
    ] {
        let output = command.output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {error}");
        let says = "none of the servers answers";
        assert_eq!(error.contains(says), code == 3, "{error}");
        assert_eq!(output.stdout.is_empty(), code == 3);
    }
}

#[tokio::test]
async fn a_watch_as_json_is_a_document_in_each_line() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let fake = fake(shared_pair(&pki), 0).await;
    let urls = std::slice::from_ref(&fake.url);
    let words = ["--output=json", "--only-problems"];
    let mut watching = Watching::start(check(&pki, "admin", urls, &words));
    for _ in 0..2 {
        let report: Value = serde_json::from_str(&watching.wait_for("").await).unwrap();
        let items = report["items"].as_array().unwrap();
        assert!(!items.is_empty() && items.iter().all(|it| it["verdict"] != "pass"));
    }
    watching.stop().await;
}

/// A serving certificate of the authority that has ended, and its key.
fn ended(pki: &Pki) -> (String, String) {
    let read = |name: &str| std::fs::read_to_string(pki.file(name)).unwrap();
    let authority = rcgen::KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.crt"), authority).unwrap();
    let names = vec!["kubernetes.default.svc".to_owned(), "127.0.0.1".to_owned()];
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, &issuer).unwrap();
    (signed.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_command_line_that_is_wrong_is_told_from_a_check_that_fails() {
    for (words, code, expected) in [
        (&["--kubeconfig=/there/is/none"][..], 3, "/there/is/none"),
        (
            &["https://127.0.0.1:1", "--kubeconfig=/there/is/none"],
            2,
            "--certificate-authority",
        ),
        (
            &["--manifest=/there/is/none", "--print=kubeadm"],
            3,
            "/there/is/none",
        ),
        (
            &["127.0.0.1:21000", "--print=static-pod"],
            2,
            "write https://127.0.0.1:21000",
        ),
        (&["127.0.0.1:21000"], 2, "write https://127.0.0.1:21000"),
        (&["http://127.0.0.1:1"], 2, "write https://127.0.0.1:1"),
        (&["--print=nothing"], 2, "network-policy"),
        (
            &["--print=kubeadm", "--output=json"],
            2,
            "cannot be used with",
        ),
        (
            &["--print=kubeadm", "--only-problems"],
            2,
            "cannot be used with",
        ),
        (&["--timeout=0s"], 2, "more than 0"),
    ] {
        let output = Command::new(executable())
            .arg("check")
            .args(words)
            .env_remove("KUBECONFIG")
            .output()
            .await
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}
