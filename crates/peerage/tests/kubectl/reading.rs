//! What is asked for: discovery, explanations, objects in every form, watches.

use peerage_testkit::kubectl::Kubectl;

use crate::MIGRATION;

pub(crate) async fn discovery(kubectl: &Kubectl) {
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

pub(crate) async fn explanations(kubectl: &Kubectl) {
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

pub(crate) async fn output_forms(kubectl: &Kubectl) {
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

pub(crate) async fn watching(kubectl: &Kubectl) {
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

pub(crate) async fn describing(kubectl: &Kubectl) {
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
