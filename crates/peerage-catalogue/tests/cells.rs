//! The cells of tables are those that kube-apiserver and kubectl show.
#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use peerage_catalogue::{Catalogue, RuntimeConfig, versions};
use serde_json::{Value, json};

/// All objects here were made 34 seconds before.
const MADE: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-01-01T00:00:34Z";

fn cells(catalogue: &Catalogue, api_version: &str, kind: &str, object: Value) -> Vec<Value> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = catalogue.kind(group, version, kind).unwrap();
    let mut object = object;
    object["metadata"]["creationTimestamp"] = MADE.into();
    let now: Timestamp = NOW.parse().unwrap();
    resource
        .table_columns()
        .iter()
        .map(|c| c.cell.of(&object, now))
        .collect()
}

#[test]
fn the_most_used_kinds_show_what_kubectl_shows() {
    let catalogue = Catalogue::load("1.37", &RuntimeConfig::default()).unwrap();
    let named = |name: &str, rest: Value| {
        let mut object = json!({"metadata": {"name": name}});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        object
    };
    let template = json!({"spec": {"containers": [{"name": "web", "image": "r/web:1"}]}});
    let app = json!({"matchLabels": {"app": "web"}});
    for (api_version, kind, object, wanted) in [
        (
            "v1",
            "ConfigMap",
            named("c", json!({"data": {"a": "1"}, "binaryData": {"b": ""}})),
            json!(["c", 2, "34s"]),
        ),
        (
            "v1",
            "Secret",
            named("s", json!({"type": "Opaque", "data": {"a": ""}})),
            json!(["s", "Opaque", 1, "34s"]),
        ),
        (
            "v1",
            "Namespace",
            named("n", json!({"status": {"phase": "Active"}})),
            json!(["n", "Active", "34s"]),
        ),
        (
            "v1",
            "ServiceAccount",
            named("a", json!({})),
            json!(["a", "34s"]),
        ),
        (
            "v1",
            "Pod",
            named(
                "p",
                json!({"spec": {"nodeName": "n1", "containers": [{}]}, "status": {"phase": "Pending"}}),
            ),
            json!([
                "p", "0/1", "Pending", "0", "34s", "<none>", "n1", "<none>", "<none>"
            ]),
        ),
        (
            "v1",
            "Pod",
            named(
                "p",
                json!({
                    "spec": {"containers": [{}, {}]},
                    "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
                        {"ready": true, "restartCount": 2}, {"state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                    ]},
                }),
            ),
            json!([
                "p",
                "1/2",
                "CrashLoopBackOff",
                "2",
                "34s",
                "10.0.0.1",
                "<none>",
                "<none>",
                "<none>"
            ]),
        ),
        (
            "apps/v1",
            "Deployment",
            named(
                "web",
                json!({"spec": {"replicas": 3, "selector": app, "template": template}, "status": {}}),
            ),
            json!(["web", "0/3", 0, 0, "34s", "web", "r/web:1", "app=web"]),
        ),
        (
            "v1",
            "Service",
            named(
                "kubernetes",
                json!({"spec": {
                    "type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 443, "protocol": "TCP"}],
                }}),
            ),
            json!([
                "kubernetes",
                "ClusterIP",
                "10.0.0.1",
                "<none>",
                "443/TCP",
                "34s",
                "<none>"
            ]),
        ),
        (
            "v1",
            "Node",
            named("n", json!({"spec": {"unschedulable": true}, "status": {}})),
            json!([
                "n",
                "Unknown,SchedulingDisabled",
                "<none>",
                "34s",
                "",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]),
        ),
        (
            "batch/v1",
            "CronJob",
            named(
                "nightly",
                json!({"spec": {"schedule": "0 3 * * *", "suspend": false, "jobTemplate": {"spec": {"template": template}}}}),
            ),
            json!([
                "nightly",
                "0 3 * * *",
                "<none>",
                "False",
                0,
                "<none>",
                "34s",
                "web",
                "r/web:1",
                "<none>"
            ]),
        ),
        (
            "batch/v1",
            "Job",
            named(
                "once",
                json!({"spec": {"completions": 1, "selector": app, "template": template}, "status": {}}),
            ),
            json!([
                "once", "Running", "0/1", "", "34s", "web", "r/web:1", "app=web"
            ]),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            named(
                "reader",
                json!({
                    "roleRef": {"kind": "Role", "name": "reader"},
                    "subjects": [{"kind": "User", "name": "a"}, {"kind": "User", "name": "b"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
                }),
            ),
            json!(["reader", "Role/reader", "34s", "a, b", "", "n/s"]),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "Role",
            named("r", json!({})),
            json!(["r", MADE]),
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            named(
                "edge",
                json!({"spec": {"rules": [{"host": "example.org"}]}}),
            ),
            json!(["edge", "<none>", "example.org", "", "80", "34s"]),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            named(
                "web",
                json!({"spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 4,
                    "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}],
                }}),
            ),
            json!([
                "web",
                "Deployment/web",
                "cpu: <unknown>/50%",
                "1",
                4,
                0,
                "34s"
            ]),
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            named(
                "keep",
                json!({"spec": {"minAvailable": 1}, "status": {"disruptionsAllowed": 0}}),
            ),
            json!(["keep", "1", "N/A", 0, "34s"]),
        ),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            named(
                "slow",
                json!({
                    "metadata": {"name": "slow", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                    "provisioner": "e/d", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
                }),
            ),
            json!(["slow (default)", "e/d", "Delete", "Immediate", false, "34s"]),
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            named("high", json!({"value": 1000, "preemptionPolicy": "Never"})),
            json!(["high", 1000, false, "34s", "Never"]),
        ),
        (
            "apiregistration.k8s.io/v1",
            "APIService",
            named(
                "v1.x",
                json!({
                    "spec": {"service": {"namespace": "b", "name": "k"}},
                    "status": {"conditions": [{"type": "Available", "status": "False", "reason": "ServiceNotFound"}]},
                }),
            ),
            json!(["v1.x", "b/k", "False (ServiceNotFound)", "34s"]),
        ),
        (
            "v1",
            "ResourceQuota",
            named(
                "q",
                json!({"status": {"hard": {"pods": "100", "limits.cpu": "2"}, "used": {"pods": "4"}}}),
            ),
            json!(["q", "pods: 4/100", "limits.cpu: 0/2", "34s"]),
        ),
        (
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            named(
                "c",
                json!({"spec": {"signerName": "e/s", "username": "admin"}, "status": {}}),
            ),
            json!(["c", "34s", "e/s", "admin", "<none>", "Pending"]),
        ),
        (
            "storagemigration.k8s.io/v1",
            "StorageVersionMigration",
            named(
                "m",
                json!({"spec": {"resource": {"group": "apps", "resource": "deployments"}}}),
            ),
            json!(["m", "deployments.apps", "Unknown"]),
        ),
        (
            "v1",
            "Event",
            named(
                "e",
                json!({
                    "involvedObject": {"kind": "Pod", "name": "p"}, "lastTimestamp": MADE, "firstTimestamp": MADE,
                    "type": "Normal", "reason": "R", "message": "m", "source": {"component": "c", "host": "h"}, "count": 2,
                }),
            ),
            json!([
                "34s", "Normal", "R", "pod/p", "", "c, h", "m", "34s", 2, "e"
            ]),
        ),
    ] {
        assert_eq!(
            Value::Array(cells(&catalogue, api_version, kind, object)),
            wanted,
            "{kind}"
        );
    }
}

#[test]
fn an_empty_object_of_any_kind_has_a_cell_in_each_column() {
    let all = RuntimeConfig::parse("api/all").unwrap();
    for version in versions() {
        let catalogue = Catalogue::load(version, &all).unwrap();
        for r in catalogue.resources() {
            let cells = cells(
                &catalogue,
                &r.api_version(),
                &r.kind,
                json!({"metadata": {"name": "x"}}),
            );
            assert_eq!(cells.len(), r.columns.len(), "{version} {}", r.plural);
            assert!(
                cells.iter().all(|c| !c.is_null()),
                "{version} {} {cells:?}",
                r.plural
            );
        }
    }
}
