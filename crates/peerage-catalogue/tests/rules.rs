//! The table of rules names only what there is, and does what kube-apiserver did.
#![allow(clippy::unwrap_used)]

use std::io::Read as _;
use std::sync::{Arc, LazyLock};

use peerage_catalogue::{Catalogue, Create, Resource, RuntimeConfig, rules, versions};
use peerage_core::User;
use peerage_objects::json::Node;
use peerage_objects::schema::decode;
use serde_json::{Map, Value};

/// A create by nobody in particular.
fn by(now: &str) -> Create<'_> {
    static NOBODY: LazyLock<User> = LazyLock::new(User::default);
    Create { now, user: &NOBODY }
}

#[test]
fn every_kind_type_field_and_function_of_the_table_is_there() {
    let all = RuntimeConfig::parse("api/all=true").unwrap();
    let catalogues: Vec<_> = versions()
        .iter()
        .map(|v| Catalogue::load(v, &all).unwrap())
        .collect();
    assert_eq!(rules::unknown(&catalogues).unwrap(), Vec::<String>::new());
}

/// What the server puts that no rule of a kind says: its own bookkeeping, and what admission and allocation add.
fn strip(object: &mut Value, resource: &Resource) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "namespace",
        "selfLink",
        "deletionGracePeriodSeconds",
    ] {
        metadata.remove(field);
    }
    let paths: &[&str] = match &*resource.kind {
        "Pod" => &[
            "spec.tolerations",
            "spec.priority",
            "spec.preemptionPolicy",
            "spec.serviceAccount",
            "spec.serviceAccountName",
        ],
        "Service" => &[
            "spec.clusterIP",
            "spec.clusterIPs",
            "spec.ipFamilies",
            "spec.ipFamilyPolicy",
            "spec.healthCheckNodePort",
        ],
        _ => &[],
    };
    for path in paths {
        rules::FieldPath::read(path).unwrap().remove(object);
    }
    if &*resource.kind == "Pod" {
        without_token_volume(&mut object["spec"]);
    }
    let ports = object
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}

/// Takes away the volume that the ServiceAccount admission adds.
fn without_token_volume(spec: &mut Value) {
    let named = |v: &Value| {
        v["name"]
            .as_str()
            .is_some_and(|n| n.starts_with("kube-api-access-"))
    };
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            retain(container.as_object_mut().unwrap(), "volumeMounts", |v| {
                !named(v)
            });
        }
    }
    retain(spec.as_object_mut().unwrap(), "volumes", |v| !named(v));
}

fn retain(fields: &mut Map<String, Value>, name: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(Value::Array(list)) = fields.get_mut(name) {
        list.retain(keep);
        if list.is_empty() {
            fields.remove(name);
        }
    }
}

/// Steps that need more than the object: limits of its namespace, the user who asks.
const ELSEWHERE: [&str; 2] = [
    "create pod that gets limits from the limit range",
    "create certificate request",
];

#[test]
fn created_objects_are_what_the_server_stored() {
    let catalogue = Catalogue::load("1.37", &RuntimeConfig::default()).unwrap();
    let mut wrong = 0;
    for line in recorded("defaults").lines() {
        let step: Value = serde_json::from_str(line).unwrap();
        let mut stored = step["stored"].clone();
        let text = |field: &str| stored[field].as_str().unwrap().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let Some(resource) = catalogue.kind(group, version, &kind) else {
            panic!("{api_version} {kind}");
        };
        let request = Node::from_value(&step["request"]);
        let type_id = resource.type_id.unwrap();
        let mut object = decode(catalogue.types(), type_id, &request).unwrap().value;
        object["metadata"]["uid"] = stored["metadata"]["uid"].clone();
        catalogue.apply_defaults(resource, &mut object);
        catalogue.prepare_create(resource, &mut object, &by("<time>"));
        strip(&mut object, resource);
        strip(&mut stored, resource);
        let mut out = Vec::new();
        diff("", &object, &stored, &mut out);
        let name = step["name"].as_str().unwrap().trim_matches('"');
        if !out.is_empty() && !ELSEWHERE.contains(&name) {
            wrong += 1;
            println!("## {} ({kind})", step["name"]);
            out.iter().for_each(|l| println!("    {l}"));
        }
    }
    assert_eq!(wrong, 0);
}

fn recorded(name: &str) -> String {
    let path = format!("{}/tests/data/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Where two values differ, ours first.
fn diff(path: &str, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for name in names {
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => diff(&format!("{path}.{name}"), a, b, out),
                    (a, b) => out.push(format!("{path}.{name}: {a:?} / {b:?}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                diff(&format!("{path}[{at}]"), a, b, out);
            }
        }
        // What the recorder masked.
        (_, Value::String(b)) if b.starts_with('<') && b.ends_with('>') => {}
        (a, b) if a != b => out.push(format!("{path}: {a} / {b}")),
        _ => {}
    }
}

/// The resource of an object, by its own words.
fn resource_of<'c>(catalogue: &'c Catalogue, object: &Value) -> Option<&'c Arc<Resource>> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion")
        .rsplit_once('/')
        .unwrap_or(("", text("apiVersion")));
    catalogue.kind(group, version, text("kind"))
}

#[test]
fn what_the_server_took_or_made_itself_is_valid() {
    for version in versions() {
        let catalogue = Catalogue::load(version, &RuntimeConfig::default()).unwrap();
        for object in catalogue.bootstrap("2026-01-01T00:00:00Z").unwrap() {
            let resource = resource_of(&catalogue, &object).unwrap();
            let errors = catalogue.validate(resource, &object, Some(&object));
            assert_eq!(errors, [], "{version} {object}");
        }
    }
    let catalogue = Catalogue::load("1.37", &RuntimeConfig::default()).unwrap();
    for line in recorded("defaults").lines() {
        let line = line.replace("<suffix>", "abcde");
        let stored = &serde_json::from_str::<Value>(&line).unwrap()["stored"];
        let resource = resource_of(&catalogue, stored).unwrap();
        assert_eq!(catalogue.validate(resource, stored, None), [], "{stored}");
        assert_eq!(
            catalogue.validate(resource, stored, Some(stored)),
            [],
            "{stored}"
        );
    }
}

#[test]
fn errors_are_those_of_the_server() {
    let catalogue = Catalogue::load("1.37", &RuntimeConfig::default()).unwrap();
    let (mut wrong, mut all, mut found) = (0, 0, 0);
    for line in recorded("validation").lines() {
        let step: Value = serde_json::from_str(line).unwrap();
        let Some(resource) = resource_of(&catalogue, &step["request"]) else {
            continue;
        };
        let node = Node::from_value(&step["request"]);
        let Ok(decoded) = decode(catalogue.types(), resource.type_id.unwrap(), &node) else {
            continue;
        };
        let mut object = decoded.value;
        catalogue.apply_defaults(resource, &mut object);
        catalogue.prepare_create(resource, &mut object, &by("2026-01-01T00:00:00Z"));
        let causes = step["causes"].as_array().unwrap();
        let errors = catalogue.validate(resource, &object, None);
        all += causes.len();
        for error in &errors {
            let own = serde_json::json!([error.reason, error.field, error.message]);
            if causes.contains(&own) {
                found += 1;
            } else {
                wrong += 1;
                println!("{}: {own}", step["name"]);
            }
        }
    }
    assert_eq!(wrong, 0);
    assert!(found >= 100, "{found} of {all}");
}
