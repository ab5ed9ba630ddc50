//! `docs/metrics.md` is what a server exposes, and files that change are taken over while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::support::{Mode, Site, Switch, until};

type Documented = BTreeMap<String, (String, BTreeSet<String>)>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Name, type and labels of each row.
fn documented() -> Documented {
    let text = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let labels = cells[2].split(", ").filter(|l| !l.is_empty());
        let labels = labels.map(|l| l.trim_matches('`').to_owned()).collect();
        (
            cells[0].trim_matches('`').to_owned(),
            (cells[1].to_owned(), labels),
        )
    })
    .collect()
}

/// The names of metrics in the sources of the crates that a server is made of.
fn in_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for name in ["http", "auth", "proxy", "apiserver"] {
        collect(
            &root().join(format!("crates/peerage-{name}/src")),
            &mut names,
        );
    }
    names
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    const FAMILIES: [&str; 6] = [
        "apiserver_",
        "aggregator_",
        "etcd_",
        "kubernetes_",
        "peerage_",
        "process_",
    ];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for literal in text.split('"').skip(1) {
            let plain = literal.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            if plain && FAMILIES.iter().any(|f| literal.starts_with(f)) && !literal.ends_with('_') {
                names.insert(literal.to_owned());
            }
        }
    }
}

#[test]
fn every_metric_in_the_sources_is_documented_and_no_other() {
    let documented: BTreeSet<String> = documented().into_keys().collect();
    // A counter of the process is also written without the suffix that the encoder adds.
    let sources: BTreeSet<String> = in_sources()
        .into_iter()
        .filter(|n| documented.contains(n) || !documented.contains(&format!("{n}_total")))
        .collect();
    assert_eq!(sources, documented);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_exposes_has_the_documented_types_and_labels() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let new = site.start(site.options("1.37", "new", store.clone())).await;
    let old = site.start(site.options("1.33", "old", store)).await;
    until("the old one forwards", || async {
        old.get("/apis/resource.k8s.io/v1/deviceclasses")
            .await
            .status()
            == 200
    })
    .await;
    old.get("/apis/nobody.example.com/v1/things").await;
    let documented = documented();
    let mut seen = BTreeSet::new();
    for server in [&old, &new] {
        let answer = server.get("/metrics").await;
        check(
            &String::from_utf8(answer.body).unwrap(),
            &documented,
            &mut seen,
        );
    }
    for name in [
        "peerage_peer_live",
        "apiserver_rerouted_request_total",
        "etcd_requests_total",
    ] {
        assert!(seen.contains(name), "{name} is there: {seen:?}");
    }
}

fn check(text: &str, documented: &Documented, seen: &mut BTreeSet<String>) {
    let mut types = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let known = documented.get(name);
            assert_eq!(
                known.map(|k| k.0.as_str()),
                Some(kind),
                "{name} is not as documented"
            );
            types.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let parts = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|s| name.strip_suffix(s));
            let name = parts.filter(|n| types.contains_key(*n)).unwrap_or(name);
            let found = labels(line);
            assert_eq!(found, documented[name].1, "{line}");
            seen.insert(name.to_owned());
        }
    }
}

/// The names of a line's labels, without that of a bucket's bound.
fn labels(line: &str) -> BTreeSet<String> {
    let Some((_, rest)) = line.split_once('{') else {
        return BTreeSet::new();
    };
    let inner = rest.rsplit_once('}').unwrap().0;
    let names = inner.split("\",").filter_map(|pair| pair.split_once('='));
    names
        .map(|(name, _)| name.to_owned())
        .filter(|name| name != "le")
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_that_changes_is_taken_over_and_counted() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let tokens = site.pki.file("tokens.csv");
    std::fs::write(&tokens, "first,alice,1,\"system:masters\"\n").unwrap();
    let mut options = site.options("1.37", "a", store);
    options.authentication.token_file = Some(tokens.clone());
    let server = site.start(options).await;
    let client =
        peerage_testkit::wire::Client::new(server.running.address(), &site.pki, "anonymous");
    let ask = async |token: &str| {
        let request = peerage_testkit::wire::Outgoing::new("GET", "/api/v1/namespaces/default");
        let request = request.header("Authorization", &format!("Bearer {token}"));
        client.send(&request).await.unwrap().status()
    };
    assert_eq!((ask("first").await, ask("second").await), (200, 401));
    std::fs::write(&tokens, "second,alice,1,\"system:masters\"\n").unwrap();
    until("the new token counts", || async {
        ask("second").await == 200
    })
    .await;
    assert_eq!(ask("first").await, 401);
    let counted = server.get("/metrics").await;
    let text = String::from_utf8(counted.body).unwrap();
    assert!(
        text.contains("peerage_reloads_total{") && text.contains("result=\"success\""),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_events_have_the_objects_that_the_policy_asks_for() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let log = site.pki.file("audit.log");
    let mut options = site.options("1.37", "a", store);
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "RequestResponse", "resources": [{"group": "", "resources": ["configmaps"]}]},
        {"level": "Request", "resources": [{"group": "", "resources": ["secrets"]}]},
        {"level": "None"},
    ]});
    options.audit.policy = Some(peerage_core::audit::Policy::parse(policy).unwrap());
    options.audit.path = Some(log.clone());
    let server = site.start(options).await;
    let generated = json!({"metadata": {"generateName": "g-"}, "data": {"a": "b"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let created = server.send("POST", maps, &generated).await.json();
    server.get(&format!("{maps}/missing")).await;
    let secret = json!({"metadata": {"name": "s"}});
    server
        .send("POST", "/api/v1/namespaces/default/secrets", &secret)
        .await;
    server.running.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let [create, missing, secret] = &events[..] else {
        panic!("{text}");
    };
    assert_eq!(create["requestObject"], generated);
    assert_eq!(create["responseObject"], created);
    assert_eq!(create["objectRef"]["name"], created["metadata"]["name"]);
    assert_eq!(missing["responseStatus"]["reason"], "NotFound");
    assert_eq!(missing["responseStatus"]["code"], 404);
    assert_eq!(secret["requestObject"]["metadata"]["name"], "s");
    assert_eq!(secret.get("responseObject"), None);
}
