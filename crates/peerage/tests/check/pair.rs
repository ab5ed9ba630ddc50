//! A pair of servers that know each other: that all is well with it, and each thing that goes wrong.

use std::path::Path;

use jiff::Timestamp;
use peerage_apiserver::server_id;
use peerage_testkit::cluster::{knows_peer_apis, until};
use peerage_testkit::pki::Pki;
use peerage_testkit::process::{ServerProcess, ServerSpec, StoreProcess};
use peerage_testkit::wire::{Client, Outgoing};
use serde_json::{Value, json};

use crate::printing::what_is_printed_knows_the_servers;
use crate::watching::a_server_that_dies_is_told_while_watching;
use crate::{Checked, checked, executable};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Two servers that know each other.
pub(crate) struct Pair {
    pub(crate) pki: Pki,
    _store: StoreProcess,
    pub(crate) old: ServerProcess,
    pub(crate) new: ServerProcess,
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

    pub(crate) fn urls(&self) -> Vec<String> {
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
    // Its port and what others say of it are the same fault.
    assert_eq!(failed.len(), 1, "{failed:#?}");
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
    let read = "read-through of : of APIs that only some serve, 1 object and ";
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
