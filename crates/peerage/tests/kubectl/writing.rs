//! What is written: created, applied, changed, waited for, allowed and deleted.

use peerage_testkit::kubectl::Kubectl;

use crate::{CONFIG_MAP, DEPLOYMENT, MIGRATION};

pub(crate) async fn creating_and_applying(kubectl: &Kubectl) {
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

pub(crate) async fn changing(kubectl: &Kubectl) {
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

pub(crate) async fn waiting(kubectl: &Kubectl) {
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

pub(crate) async fn rights(kubectl: &Kubectl) {
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

pub(crate) async fn deleting(kubectl: &Kubectl) {
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
