//! Objects of one version seen as another.
#![allow(clippy::unwrap_used)]

use peerage_catalogue::convert::convert;
use peerage_catalogue::{Catalogue, GroupVersionKind, RuntimeConfig, versions};
use serde_json::{Value, json};

fn to(kind: &str, object: &Value) -> Value {
    convert(&GroupVersionKind::read(kind).unwrap(), object.clone())
}

/// There, and back again.
fn both_ways(from: &str, object: &Value, kind: &str, wanted: &Value) {
    assert_eq!(to(kind, object), *wanted);
    assert_eq!(to(from, wanted), *object, "and back");
}

#[test]
fn kinds_that_differ_in_name_only_change_their_api_version() {
    let object =
        json!({"apiVersion": "networking.k8s.io/v1beta1", "kind": "IPAddress", "spec": {"x": 1}});
    let wanted =
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "spec": {"x": 1}});
    both_ways(
        "networking.k8s.io/v1beta1/IPAddress",
        &object,
        "networking.k8s.io/v1/IPAddress",
        &wanted,
    );
    let mut class = json!({"apiVersion": "storage.k8s.io/v1beta1", "kind": "VolumeAttributesClass", "driverName": "d"});
    let stored = to("storage.k8s.io/v1/VolumeAttributesClass", &class);
    class["apiVersion"] = "storage.k8s.io/v1".into();
    assert_eq!(stored, class);
}

#[test]
fn events_of_both_groups_are_the_same_event() {
    let core = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod"}, "message": "m", "source": {"component": "c"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "eventTime": null,
        "count": 2, "reason": "R", "type": "Normal", "reportingComponent": "", "reportingInstance": "",
    });
    let newer = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Pod"}, "note": "m", "deprecatedSource": {"component": "c"},
        "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": "2026-01-01T00:00:00Z",
        "eventTime": null, "deprecatedCount": 2, "reason": "R", "type": "Normal",
    });
    both_ways("v1/Event", &core, "events.k8s.io/v1/Event", &newer);
}

#[test]
fn an_autoscaler_by_processor_use_reads_in_both_versions() {
    let old = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 4, "targetCPUUtilizationPercentage": 80},
        "status": {"currentReplicas": 0, "desiredReplicas": 0},
    });
    let new = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 4, "metrics": [{
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]},
        "status": {"desiredReplicas": 0},
    });
    both_ways(
        "autoscaling/v1/HorizontalPodAutoscaler",
        &old,
        "autoscaling/v2/HorizontalPodAutoscaler",
        &new,
    );
}

#[test]
fn what_the_old_autoscaler_does_not_know_is_in_annotations_as_kube_apiserver_writes_them() {
    let new = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {
            "maxReplicas": 4,
            "metrics": [{"type": "Resource", "resource": {
                "name": "memory", "target": {"type": "AverageValue", "averageValue": "100Mi"},
            }}],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                    {"type": "Pods", "value": 4, "periodSeconds": 15},
                ]},
                "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
            },
        },
        "status": {"desiredReplicas": 0},
    });
    let old = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "annotations": {
            "autoscaling.alpha.kubernetes.io/metrics":
                "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"100Mi\"}}]",
            "autoscaling.alpha.kubernetes.io/behavior":
                "{\"ScaleUp\":{\"StabilizationWindowSeconds\":0,\"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\"Pods\",\
                 \"Value\":4,\"PeriodSeconds\":15}],\"Tolerance\":null},\"ScaleDown\":{\"StabilizationWindowSeconds\":null,\
                 \"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\"Pods\",\"Value\":1,\"PeriodSeconds\":60}],\"Tolerance\":null}}",
        }},
        "spec": {"maxReplicas": 4},
        "status": {"currentReplicas": 0, "desiredReplicas": 0},
    });
    both_ways(
        "autoscaling/v2/HorizontalPodAutoscaler",
        &new,
        "autoscaling/v1/HorizontalPodAutoscaler",
        &old,
    );
}

#[test]
fn device_requests_of_claims_and_templates_move_into_exactly() {
    let requests = |r: Value| json!({"devices": {"requests": [r, {"name": "b", "firstAvailable": [{"name": "c"}]}]}});
    let flat = requests(json!({"name": "a", "deviceClassName": "x", "count": 2}));
    let nested = requests(json!({"name": "a", "exactly": {"deviceClassName": "x", "count": 2}}));
    let claim = |version: &str, spec: &Value| json!({"apiVersion": version, "kind": "ResourceClaim", "spec": spec});
    let template = |version: &str, spec: &Value| json!({"apiVersion": version, "kind": "ResourceClaimTemplate", "spec": {"spec": spec}});
    for newer in ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"] {
        let old = "resource.k8s.io/v1beta1";
        both_ways(
            &format!("{old}/ResourceClaim"),
            &claim(old, &flat),
            &format!("{newer}/ResourceClaim"),
            &claim(newer, &nested),
        );
        both_ways(
            &format!("{old}/ResourceClaimTemplate"),
            &template(old, &flat),
            &format!("{newer}/ResourceClaimTemplate"),
            &template(newer, &nested),
        );
    }
}

#[test]
fn devices_of_slices_move_out_of_basic() {
    let old = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice", "spec": {
        "devices": [{"name": "a", "basic": {"attributes": {"x": {"int": 1}}}}],
    }});
    let new = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {
        "devices": [{"name": "a", "attributes": {"x": {"int": 1}}}],
    }});
    both_ways(
        "resource.k8s.io/v1beta1/ResourceSlice",
        &old,
        "resource.k8s.io/v1/ResourceSlice",
        &new,
    );
}

#[test]
fn a_definition_is_stored_with_what_its_versions_share_at_the_top() {
    let version = |name: &str, extra: Value| {
        let mut v =
            json!({"name": name, "served": true, "storage": name == "v1", "schema": {"s": 1}});
        v.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        v
    };
    let served = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
            "group": "g",
            "versions": [version("v1", json!({"subresources": {"status": {}}})), version("v2", json!({}))],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]}},
        },
    });
    let stored = to(
        "apiextensions.k8s.io/v1beta1/CustomResourceDefinition",
        &served,
    );
    assert_eq!(stored["spec"]["version"], "v1");
    assert_eq!(stored["spec"]["validation"], json!({"s": 1}));
    assert_eq!(
        stored["spec"]["versions"][0]["subresources"],
        json!({"status": {}})
    );
    assert_eq!(
        stored["spec"]["conversion"]["webhookClientConfig"],
        json!({"url": "u"})
    );
    assert_eq!(
        to("apiextensions.k8s.io/v1/CustomResourceDefinition", &stored),
        served
    );
}

#[test]
fn what_one_version_of_kubernetes_stores_every_other_reads() {
    let all = RuntimeConfig::parse("api/all=true").unwrap();
    let catalogues: Vec<_> = versions()
        .iter()
        .map(|v| Catalogue::load(v, &all).unwrap())
        .collect();
    for writer in &catalogues {
        for resource in writer.resources().iter().filter(|r| r.storage.is_some()) {
            let object = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind, "metadata": {"name": "x"}});
            let stored = writer.to_stored(resource, object);
            for reader in &catalogues {
                let Some(own) =
                    reader.resource(&resource.group, &resource.version, &resource.plural)
                else {
                    continue;
                };
                let key = |r: &peerage_catalogue::Resource| r.storage.as_ref().unwrap().key.clone();
                assert_eq!(
                    key(own),
                    key(resource),
                    "{} is stored in one place",
                    resource.plural
                );
                let read = reader.from_stored(own, stored.clone());
                assert_eq!(read["apiVersion"], own.api_version());
                assert_eq!(read["metadata"]["name"], "x");
            }
        }
    }
}
