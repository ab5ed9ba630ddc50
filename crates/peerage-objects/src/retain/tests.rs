use super::*;
use crate::schema::examples::{Examples, examples};
use crate::schema::{decode, decode_over};
use proptest::prelude::*;
use serde_json::json;

fn write(stored: &Value, sent: &Value) -> (Value, Vec<String>) {
    let e = examples();
    let decoded = decode_over(&e.types, e.deployment, &Node::from_value(sent), stored).unwrap();
    (decoded.value, decoded.strict)
}

fn pod(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

#[test]
fn omitted_fields_stay_while_their_parent_does() {
    let stored =
        json!({"odd": 1, "spec": {"replicas": 1, "new": {"a": 1}, "strategy": {"newer": true}}});
    let (value, strict) = write(&stored, &json!({"spec": {"replicas": 2}}));
    assert_eq!(
        value,
        json!({"odd": 1, "spec": {"replicas": 2, "new": {"a": 1}}})
    );
    assert!(strict.is_empty());
}

#[test]
fn repeated_fields_stay_and_changed_ones_are_unknown() {
    let stored = json!({"spec": {"new": {"a": 1}, "old": 2}});
    let (value, strict) = write(
        &stored,
        &json!({"spec": {"new": {"a": 1}, "old": 3, "third": 4}}),
    );
    assert_eq!(value, stored);
    assert_eq!(
        strict,
        ["unknown field \"spec.old\"", "unknown field \"spec.third\""]
    );
}

#[test]
fn elements_are_found_by_their_keys() {
    let stored = pod(json!({"containers": [
        {"name": "one", "new": 1, "ports": [{"containerPort": 80, "protocol": "TCP", "deep": 1}]},
        {"name": "two", "new": 2},
    ]}));
    let sent = pod(json!({"containers": [
        {"name": "three"}, {"name": "two"}, {"name": "one", "ports": [{"containerPort": 80}]},
    ]}));
    let (value, strict) = write(&stored, &sent);
    assert_eq!(
        value,
        pod(json!({"containers": [
            {"name": "three"}, {"name": "two", "new": 2},
            {"name": "one", "new": 1, "ports": [{"containerPort": 80, "deep": 1}]},
        ]}))
    );
    assert!(strict.is_empty());
}

#[test]
fn an_atomic_list_keeps_its_fields_until_it_changes() {
    let stored = pod(json!({"tolerations": [{"key": "a", "new": 1}, {"key": "b", "new": 2}]}));
    let same = pod(json!({"tolerations": [{"key": "a"}, {"key": "b"}]}));
    assert_eq!(write(&stored, &same), (stored.clone(), vec![]));

    let changed =
        pod(json!({"tolerations": [{"key": "b", "new": 2}, {"key": "a"}, {"key": "c", "new": 3}]}));
    let (value, strict) = write(&stored, &changed);
    assert_eq!(
        value,
        pod(json!({"tolerations": [{"key": "b", "new": 2}, {"key": "a"}, {"key": "c"}]}))
    );
    assert_eq!(
        strict,
        ["unknown field \"spec.template.spec.tolerations[2].new\""]
    );
}

#[test]
fn an_atomic_struct_keeps_its_fields_until_it_changes() {
    let stored = json!({"spec": {"selector": {"matchLabels": {"a": "b"}, "new": 1}}});
    let sent = |label: &str| json!({"spec": {"selector": {"matchLabels": {"a": label}}}});
    assert_eq!(write(&stored, &sent("b")).0, stored);
    assert_eq!(write(&stored, &sent("c")).0, sent("c"));
}

#[test]
fn unknown_fields_have_paths() {
    let e = examples();
    let stored = pod(json!({"containers": [{"name": "a", "x": 1}], "y": 1}));
    let found = unknown_fields(&e.types, e.deployment, &stored, 9);
    assert_eq!(
        found,
        ["spec.template.spec.containers[0].x", "spec.template.spec.y"]
    );
    assert!(!has_unknown(
        &e.types,
        e.deployment,
        &pod(json!({"containers": []}))
    ));
}

/// Objects with some unknown fields (`u1`, `u2`) beside known ones.
fn stored() -> impl Strategy<Value = Value> {
    let odd = proptest::option::of(0..3i64);
    let container =
        ("[ab]", odd.clone(), proptest::option::of("[xy]")).prop_map(|(name, odd, image)| {
            let mut value = json!({"name": name});
            if let Some(odd) = odd {
                value["u1"] = json!(odd);
            }
            if let Some(image) = image {
                value["image"] = json!(image);
            }
            value
        });
    let containers =
        proptest::collection::vec(container, 0..3).prop_filter("unique names", |list| {
            list.iter()
                .enumerate()
                .all(|(at, c)| list[..at].iter().all(|d| d["name"] != c["name"]))
        });
    let toleration = ("[ab]", odd.clone()).prop_map(|(key, odd)| match odd {
        Some(odd) => json!({"key": key, "u1": odd}),
        None => json!({"key": key}),
    });
    let tolerations = proptest::collection::vec(toleration, 0..3);
    (containers, tolerations, odd).prop_map(|(containers, tolerations, odd)| {
        let mut spec = json!({});
        if !containers.is_empty() {
            spec["containers"] = Value::from(containers);
        }
        if !tolerations.is_empty() {
            spec["tolerations"] = Value::from(tolerations);
        }
        if let Some(odd) = odd {
            spec["u2"] = json!({"deep": odd});
        }
        pod(spec)
    })
}

fn known(e: &Examples, value: &Value) -> Value {
    decode(&e.types, e.deployment, &Node::from_value(value))
        .unwrap()
        .value
}

proptest! {
    #[test]
    fn writing_back_what_was_read_changes_nothing(stored in stored()) {
        prop_assert_eq!(write(&stored, &stored), (stored.clone(), vec![]));
    }

    #[test]
    fn writing_back_what_an_older_client_keeps_changes_nothing(stored in stored()) {
        let e = examples();
        prop_assert_eq!(write(&stored, &known(&e, &stored)), (stored.clone(), vec![]));
    }

    #[test]
    fn what_is_known_becomes_what_was_sent(stored in stored(), sent in stored()) {
        let e = examples();
        let (value, _) = write(&stored, &sent);
        prop_assert_eq!(known(&e, &value), known(&e, &sent));
    }
}
