//! Pods and what they are made of: containers' images, volumes, resources, the class of service.

use peerage_objects::field::{self, FieldError};
use serde_json::{Map, Value, json};

use super::{Create, Fields, made, object, set_default, text};

/// The defaults that pods have and pod templates have not.
pub(super) fn pod(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    set_default(spec, "enableServiceLinks", true);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            requests_from_limits(container);
            if host_network {
                host_ports(container);
            }
        }
    }
}

/// What has a limit and no request requests its limit.
fn requests_from_limits(container: &mut Fields) {
    let Some(resources) = object(container, "resources") else {
        return;
    };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    if let Some(requests) = made(resources, "requests") {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn host_ports(container: &mut Fields) {
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(number) = port.get("containerPort").cloned() {
            let unset = port.get("hostPort").is_none_or(|p| p.as_i64() == Some(0));
            if unset {
                port.insert("hostPort".to_owned(), number);
            }
        }
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; both are shown.
pub(super) fn service_account(spec: &mut Fields) {
    let new = text(spec, "serviceAccountName");
    let old = text(spec, "serviceAccount");
    let name = if new.is_empty() { old } else { new }.to_owned();
    if !name.is_empty() {
        spec.insert("serviceAccountName".to_owned(), name.clone().into());
        spec.insert("serviceAccount".to_owned(), name.into());
    }
}

/// An image by the tag `latest`, or by no tag, is always pulled.
pub(super) fn image_pull_policy(container: &mut Fields) {
    let policy = pull_policy(text(container, "image"));
    set_default(container, "imagePullPolicy", policy);
}

/// As [`image_pull_policy`], for an image that is a volume.
pub(super) fn image_volume_pull_policy(source: &mut Fields) {
    let policy = pull_policy(text(source, "reference"));
    set_default(source, "pullPolicy", policy);
}

fn pull_policy(image: &str) -> &'static str {
    let has_digest = image.contains('@');
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.split_once(':') {
        _ if has_digest => "IfNotPresent",
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

/// A volume without a source is an empty directory.
pub(super) fn volume_source(volume: &mut Fields) {
    if volume
        .iter()
        .all(|(name, value)| name == "name" || value.is_null())
    {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
}

/// Less than no time at all is one second.
pub(super) fn positive_grace(spec: &mut Fields) {
    let name = "terminationGracePeriodSeconds";
    if spec
        .get(name)
        .and_then(Value::as_i64)
        .is_some_and(|s| s < 0)
    {
        spec.insert(name.to_owned(), json!(1));
    }
}

/// A claim's `dataSource` and `dataSourceRef` name the same thing.
pub(super) fn claim_data_source(spec: &mut Fields) {
    let source = spec.get("dataSource").filter(|v| v.is_object()).cloned();
    let reference = spec.get("dataSourceRef").filter(|v| v.is_object()).cloned();
    match (source, reference) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if reference.get("namespace").is_none_or(Value::is_null) => {
            spec.insert("dataSource".to_owned(), reference);
        }
        _ => {}
    }
}

/// The class of service that a pod's requests and limits make.
pub(super) fn qos(pod: &mut Value, _: &Create<'_>) {
    let class = quality_of_service(pod.get("spec").unwrap_or(&Value::Null));
    if let Some(status) = pod.as_object_mut().and_then(|p| made(p, "status")) {
        status.insert("qosClass".to_owned(), class.into());
    }
}

/// A pod with scheduling gates says that it waits for them.
pub(super) fn scheduling_gates(pod: &mut Value, create: &Create<'_>) {
    let gates = pod
        .pointer("/spec/schedulingGates")
        .and_then(Value::as_array);
    if gates.is_none_or(Vec::is_empty) {
        return;
    }
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastTransitionTime": create.now,
    });
    if let Some(status) = pod.as_object_mut().and_then(|p| made(p, "status")) {
        status.insert("conditions".to_owned(), json!([condition]));
    }
}

fn quality_of_service(spec: &Value) -> &'static str {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| spec.get(list)?.as_array())
        .flatten();
    let (mut any, mut guaranteed) = (false, true);
    for container in containers {
        let side = |name: &str| -> Map<String, Value> {
            let resources = container.get("resources").and_then(|r| r.get(name));
            let all = resources
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            all.into_iter()
                .filter(|(name, v)| {
                    matches!(&**name, "cpu" | "memory")
                        && !matches!(v, Value::String(t) if t == "0")
                })
                .collect()
        };
        let (requests, limits) = (side("requests"), side("limits"));
        any |= !requests.is_empty() || !limits.is_empty();
        guaranteed &= limits.len() == 2 && (requests.is_empty() || requests == limits);
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// What is mounted must be a volume of the pod.
pub(super) fn check_mounts(
    path: &str,
    spec: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let list = |holder: &Value, name: &str| -> Vec<Value> {
        holder
            .get(name)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let spec = Value::Object(spec.clone());
    let volumes = list(&spec, "volumes");
    // A stateful set's claims become volumes of its pods.
    if path.ends_with("template.spec") {
        return;
    }
    for kind in ["initContainers", "containers"] {
        for (at, container) in list(&spec, kind).iter().enumerate() {
            let place = field::index(&field::child(path, kind), at);
            let mounts = list(container, "volumeMounts");
            for (at, mount) in mounts.iter().enumerate() {
                let place = field::index(&field::child(&place, "volumeMounts"), at);
                if !volumes.iter().any(|v| v["name"] == mount["name"]) {
                    errors.push(FieldError::not_found(
                        field::child(&place, "name"),
                        &mount["name"],
                    ));
                }
                if mounts[..at]
                    .iter()
                    .any(|m| m["mountPath"] == mount["mountPath"])
                {
                    let place = field::child(&place, "mountPath");
                    errors.push(FieldError::invalid(
                        place,
                        &mount["mountPath"],
                        "must be unique",
                    ));
                }
            }
        }
    }
}

/// An environment variable has a name without `=`, and a value or a source of one.
pub(super) fn check_env(
    path: &str,
    var: &Fields,
    _: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(var, "name");
    if name.contains('=') || !name.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid(
            field::child(path, "name"),
            name,
            detail,
        ));
    }
    if !text(var, "value").is_empty() && var.get("valueFrom").is_some_and(Value::is_object) {
        let detail = "may not be specified when `value` is not empty";
        errors.push(FieldError::invalid(
            field::child(path, "valueFrom"),
            "",
            detail,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_and_untagged_images_are_always_pulled() {
        for (image, policy) in [
            ("x", "Always"),
            ("reg.example/x:latest", "Always"),
            ("reg.example:5000/x", "Always"),
            ("reg.example:5000/x:v2", "IfNotPresent"),
            ("x@sha256:00", "IfNotPresent"),
            ("x:latest@sha256:00", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn the_class_of_service_follows_requests_and_limits() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, class) in [
            (json!({}), "BestEffort"),
            (json!({"limits": full}), "Guaranteed"),
            (json!({"limits": full, "requests": full}), "Guaranteed"),
            (json!({"limits": {"cpu": "1"}}), "Burstable"),
            (json!({"requests": full}), "Burstable"),
            (
                json!({"requests": {"ephemeral-storage": "1Gi"}}),
                "BestEffort",
            ),
        ] {
            let spec = json!({"containers": [{"resources": resources}]});
            assert_eq!(quality_of_service(&spec), class, "{spec}");
        }
    }
}
