//! What creates and updates do to an object before it is validated.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use peerage_catalogue::{Catalogue, Create, Resource, RuntimeConfig};
use peerage_core::User;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:00:00Z";

/// A create by nobody in particular.
fn by(now: &str) -> Create<'_> {
    static NOBODY: LazyLock<User> = LazyLock::new(User::default);
    Create { now, user: &NOBODY }
}

fn catalogue() -> Catalogue {
    Catalogue::load("1.37", &RuntimeConfig::default()).unwrap()
}

fn resource<'c>(catalogue: &'c Catalogue, group: &str, plural: &str) -> &'c Resource {
    catalogue.resource(group, "v1", plural).unwrap()
}

fn created(catalogue: &Catalogue, resource: &Resource, mut object: Value) -> Value {
    catalogue.apply_defaults(resource, &mut object);
    catalogue.prepare_create(resource, &mut object, &by(NOW));
    object
}

fn updated(catalogue: &Catalogue, resource: &Resource, mut new: Value, old: &Value) -> Value {
    catalogue.apply_defaults(resource, &mut new);
    catalogue.prepare_update(resource, &mut new, old);
    new
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"a": "b"}},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        },
        "status": {"replicas": 7},
    })
}

#[test]
fn generation_counts_changes_of_what_is_wanted() {
    let catalogue = catalogue();
    let r = resource(&catalogue, "apps", "deployments");
    let old = created(&catalogue, r, deployment());
    assert_eq!(old["metadata"]["generation"], 1);
    for (pointer, value, generation) in [
        ("/metadata/labels/a", json!("c"), 1),
        ("/status", json!({"replicas": 9}), 1),
        ("/metadata/generation", json!(77), 1),
        ("/spec/replicas", json!(5), 2),
        ("/spec/template/spec/containers/0/image", json!("i:2"), 2),
    ] {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        let new = updated(&catalogue, r, new, &old);
        assert_eq!(new["metadata"]["generation"], generation, "{pointer}");
        assert_eq!(
            new["status"], old["status"],
            "the main resource does not write the status"
        );
    }
    let mut annotated = old.clone();
    annotated["metadata"]["annotations"] = json!({"x": "y"});
    let annotated = updated(&catalogue, r, annotated, &old);
    assert_eq!(
        annotated["metadata"]["generation"], 2,
        "a deployment's annotations count"
    );
}

#[test]
fn the_labels_of_an_endpoint_slice_count() {
    let catalogue = catalogue();
    let r = resource(&catalogue, "discovery.k8s.io", "endpointslices");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}],
    });
    let old = created(&catalogue, r, slice);
    for (field, generation) in [("labels", 2), ("annotations", 1)] {
        let mut new = old.clone();
        new["metadata"][field] = json!({"x": "y"});
        let new = updated(&catalogue, r, new, &old);
        assert_eq!(new["metadata"]["generation"], generation, "{field}");
    }
}

#[test]
fn a_status_write_changes_the_status_and_nothing_that_is_wanted() {
    let catalogue = catalogue();
    let r = resource(&catalogue, "apps", "deployments");
    let old = created(&catalogue, r, deployment());
    assert_eq!(old["status"], json!({}), "a create starts without");
    let mut new = old.clone();
    new["status"] = json!({"replicas": 3});
    new["spec"]["replicas"] = json!(9);
    new["metadata"]["labels"]["a"] = json!("z");
    new["metadata"]["annotations"] = json!({"x": "y"});
    catalogue.prepare_status_update(r, &mut new, &old);
    assert_eq!(new["status"], json!({"replicas": 3}));
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(new["metadata"]["labels"], old["metadata"]["labels"]);
    assert_eq!(new["metadata"]["annotations"], json!({"x": "y"}));
    assert_eq!(new["metadata"]["generation"], 1);
}

#[test]
fn kinds_start_with_the_status_that_is_theirs() {
    let catalogue = catalogue();
    for (plural, kind, wanted) in [
        ("namespaces", "Namespace", json!({"phase": "Active"})),
        (
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            json!({"phase": "Pending"}),
        ),
        ("services", "Service", json!({"loadBalancer": {}})),
    ] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "status": {"phase": "Odd"}});
        let object = created(&catalogue, resource(&catalogue, "", plural), object);
        assert_eq!(object["status"], wanted, "{kind}");
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"phase": "Kept"}});
    let node = created(&catalogue, resource(&catalogue, "", "nodes"), node);
    assert_eq!(node["status"]["phase"], "Kept", "nodes bring theirs");
}

#[test]
fn protected_kinds_get_their_finalizers_once() {
    let catalogue = catalogue();
    let r = resource(&catalogue, "", "persistentvolumeclaims");
    let finalizers = json!(["kubernetes.io/pvc-protection"]);
    for given in [
        json!({"name": "c"}),
        json!({"name": "c", "finalizers": finalizers}),
    ] {
        let object =
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": given});
        assert_eq!(
            created(&catalogue, r, object)["metadata"]["finalizers"],
            finalizers
        );
    }
    let r = resource(&catalogue, "", "namespaces");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let old = created(&catalogue, r, object.clone());
    assert_eq!(old["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        updated(&catalogue, r, object, &old)["spec"],
        old["spec"],
        "only `finalize` takes it away"
    );
}

#[test]
fn a_pod_goes_at_once_unless_a_node_has_to_end_it() {
    let catalogue = catalogue();
    let pods = resource(&catalogue, "", "pods");
    let pod = |node: &str, phase: &str, grace: Value| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": grace}, "status": {"phase": phase}});
    for (object, requested, wanted) in [
        (pod("", "Pending", json!(30)), None, 0),
        (pod("n", "Running", json!(45)), None, 45),
        (pod("n", "Running", json!(null)), None, 30),
        (pod("n", "Running", json!(45)), Some(5), 5),
        (pod("n", "Running", json!(45)), Some(0), 0),
        (pod("n", "Running", json!(45)), Some(-3), 1),
        (pod("n", "Succeeded", json!(45)), None, 0),
    ] {
        assert_eq!(
            catalogue.grace_seconds(pods, &object, requested),
            Some(wanted),
            "{object}"
        );
    }
    let maps = resource(&catalogue, "", "configmaps");
    assert_eq!(catalogue.grace_seconds(maps, &json!({}), Some(30)), None);
}

#[test]
fn field_selectors_are_those_of_the_kind_and_refused_in_its_words() {
    let catalogue = catalogue();
    let pods = &resource(&catalogue, "", "pods").rules;
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "x"}, "status": {}});
    for (label, value) in [
        ("metadata.name", Some("p")),
        ("metadata.namespace", Some("n")),
        ("spec.nodeName", Some("x")),
        ("spec.hostNetwork", Some("false")),
        ("status.podIP", Some("")),
        ("spec.containers", None),
    ] {
        assert_eq!(pods.selectable(label, &pod).as_deref(), value, "{label}");
        assert_eq!(pods.is_selectable(label), value.is_some(), "{label}");
    }
    for (group, plural, text) in [
        ("", "pods", "field label not supported: x"),
        (
            "",
            "configmaps",
            "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("batch", "jobs", "field label \"x\" not supported for Job"),
    ] {
        let r = resource(&catalogue, group, plural);
        assert_eq!(r.rules.selector_error_text("x", &r.kind), text);
    }
}

#[test]
fn defaults_done_twice_are_done_once() {
    let catalogue = catalogue();
    let r = resource(&catalogue, "apps", "deployments");
    let once = created(&catalogue, r, deployment());
    let mut twice = once.clone();
    catalogue.apply_defaults(r, &mut twice);
    assert_eq!(once, twice);
}

#[test]
fn rules_of_a_later_version_are_not_those_of_an_earlier_one() {
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {}});
    for (version, wanted) in [
        ("1.36", json!({"partition": 0})),
        ("1.37", json!({"partition": 0, "maxUnavailable": 1})),
    ] {
        let catalogue = Catalogue::load(version, &RuntimeConfig::default()).unwrap();
        let object = created(
            &catalogue,
            resource(&catalogue, "apps", "statefulsets"),
            set.clone(),
        );
        assert_eq!(
            object["spec"]["updateStrategy"]["rollingUpdate"], wanted,
            "{version}"
        );
    }
}

#[test]
fn a_migration_without_a_resource_is_refused_in_one_sentence() {
    let catalogue = catalogue();
    let r = resource(
        &catalogue,
        "storagemigration.k8s.io",
        "storageversionmigrations",
    );
    for spec in [
        json!({}),
        json!({"resource": {}}),
        json!({"resource": {"group": "apps"}}),
    ] {
        let object = json!({
            "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
            "metadata": {"name": "m"}, "spec": spec,
        });
        let errors = catalogue.validate(r, &created(&catalogue, r, object), None);
        let lines: Vec<String> = errors.iter().map(|e| e.line()).collect();
        assert_eq!(
            lines,
            ["spec.resource.resource: Required value: resource is required to be set"]
        );
    }
}

#[test]
fn a_taint_keeps_its_time_and_a_new_one_gets_it() {
    let catalogue = catalogue();
    let r = resource(&catalogue, "resource.k8s.io", "devicetaintrules");
    let rule = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "t"},
        "spec": {"taint": {"key": "k", "effect": "NoSchedule"}},
    });
    let old = created(&catalogue, r, rule.clone());
    assert_eq!(old["spec"]["taint"]["timeAdded"], NOW);
    let new = updated(&catalogue, r, rule, &old);
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(new["metadata"]["generation"], 1);
}

#[test]
fn an_update_that_has_not_been_defaulted_counts_the_same() {
    let catalogue = catalogue();
    let r = resource(&catalogue, "apps", "deployments");
    let mut old = deployment();
    catalogue.prepare_create(r, &mut old, &by(NOW));
    catalogue.apply_defaults(r, &mut old);
    let old: Value = serde_json::from_str(&old.to_string()).unwrap();
    let mut new = deployment();
    new["metadata"]["labels"] = json!({"x": "y"});
    new["metadata"]["generation"] = json!(1);
    catalogue.prepare_update(r, &mut new, &old);
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(new["metadata"]["generation"], 1);
}

#[test]
fn an_empty_object_has_what_go_always_writes_and_no_defaults() {
    let catalogue = catalogue();
    let r = resource(&catalogue, "", "configmaps");
    let empty = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}});
    assert_eq!(catalogue.empty_object(r), empty);
    let r = resource(&catalogue, "apps", "deployments");
    let empty = catalogue.empty_object(r);
    assert_eq!(empty["spec"]["replicas"], Value::Null);
    assert_eq!(empty["spec"]["strategy"], json!({}));
    assert_eq!(empty["status"], json!({}));
}

#[test]
fn a_certificate_request_says_who_made_it_and_stays_what_it_was() {
    let catalogue = catalogue();
    let r = resource(
        &catalogue,
        "certificates.k8s.io",
        "certificatesigningrequests",
    );
    let user = User {
        name: "alice".to_owned(),
        groups: vec!["devs".to_owned()],
        ..User::default()
    };
    let mut object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c"},
        "spec": {"request": "YQ==", "signerName": "example.com/s", "usages": ["client auth"],
            "username": "eve", "uid": "1", "groups": ["system:masters"], "extra": {"a": ["b"]}},
    });
    let create = Create {
        now: NOW,
        user: &user,
    };
    catalogue.prepare_create(r, &mut object, &create);
    let spec = json!({"request": "YQ==", "signerName": "example.com/s", "usages": ["client auth"],
        "username": "alice", "groups": ["devs"]});
    assert_eq!(object["spec"], spec);

    let mut other = object.clone();
    other["spec"]["username"] = json!("eve");
    assert_eq!(updated(&catalogue, r, other, &object)["spec"], spec);
}
