//! Two sides made by hand, and how they differ.

#![allow(clippy::unwrap_used)]

use super::*;
use peerage_core::discovery::{read_core, read_groups};
use serde_json::{Value, json};

fn resource(name: &str, verbs: &[&str], subresources: Value) -> Value {
    json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": name.to_uppercase()},
        "scope": "Cluster", "verbs": verbs, "subresources": subresources})
}

fn side(label: &str, release: &str, groups: Value) -> Inventory {
    let document = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": groups});
    Inventory {
        label: label.to_owned(),
        release: Release::parse(release),
        apis: Some(read_groups(document.to_string().as_bytes()).unwrap()),
        core: None,
    }
}

fn group(name: &str, versions: Value) -> Value {
    json!({"metadata": {"name": name}, "versions": versions})
}

fn words(comparison: &Comparison) -> Vec<String> {
    let words = |it: &Entry| {
        let name = [&it.group, &it.version, &it.resource, &it.subresource]
            .map(String::as_str)
            .join(" ");
        let removed = if it.removed { " removed" } else { "" };
        let verbs = it.verbs.join(",");
        format!(
            "{:?} {} {} {verbs}{removed}",
            it.only_in,
            it.what.word(),
            name.trim()
        )
    };
    comparison.differences.iter().map(words).collect()
}

#[test]
fn each_level_is_told_once_from_the_group_down() {
    let sub = |name: &str, verbs: &[&str]| json!({"subresource": name, "verbs": verbs});
    let a = side(
        "old",
        "1.35",
        json!([
            group(
                "gone",
                json!([{"version": "v1", "resources": [resource("x", &["get"], json!([sub("status", &["get"])]))]}])
            ),
            group(
                "kept",
                json!([{"version": "v1", "resources": [
                resource("y", &["get", "list"], json!([sub("scale", &["get"])]))]}])
            ),
        ]),
    );
    let b = side(
        "new",
        "1.37",
        json!([group(
            "kept",
            json!([
                {"version": "v2", "resources": [resource("y", &["get"], json!([]))]},
                {"version": "v1", "resources": [
                    resource("y", &["get", "patch"], json!([sub("scale", &["get", "patch"]), sub("status", &["get"])]))]},
            ])
        )]),
    );
    let none = |_: &str, _: &str| None;
    assert_eq!(
        words(&compare(&a, &b, &none)),
        [
            "A group gone  removed",
            "A version gone v1  removed",
            "A resource gone v1 x get removed",
            "A verbs kept v1 y list removed",
            "B verbs kept v1 y patch",
            "B verbs kept v1 y scale patch",
            "B subresource kept v1 y status get",
            "B version kept v2 ",
            "B resource kept v2 y get",
        ]
    );
    for side in [&a, &b] {
        assert!(compare(side, side, &none).differences.is_empty());
    }
}

#[test]
fn what_is_deprecated_where_it_is_served_is_named_with_who_serves_it() {
    let groups = json!([group(
        "resource.k8s.io",
        json!([{"version": "v1beta1", "resources": [
        {"resource": "deviceclasses", "responseKind": {"kind": "DeviceClass"}, "verbs": ["get"]},
        {"resource": "others", "responseKind": {"kind": "Other"}, "verbs": ["get"]}]}])
    )]);
    let warning = |api: &str, kind: &str| {
        (api == "resource.k8s.io/v1beta1" && kind == "Other").then(|| "do not".to_owned())
    };
    let compared = compare(
        &side("old", "1.34", groups.clone()),
        &side("new", "1.36", groups),
        &warning,
    );
    let rows: Vec<_> = compared
        .deprecated
        .iter()
        .map(|it| {
            (
                it.resource.as_str(),
                it.served_by.as_slice(),
                it.lifecycle.in_words(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            (
                "deviceclasses",
                &[Side::B][..],
                "deprecated since 1.35, gone in 1.38".to_owned()
            ),
            ("others", &[Side::A, Side::B], "do not".to_owned()),
        ]
    );
}

#[test]
fn what_one_side_does_not_tell_is_not_compared() {
    let a = side("saved", "", json!([group("g", json!([{"version": "v1"}]))]));
    let core = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [{"metadata": {}, "versions": [{"version": "v1"}]}]});
    let mut b = a.clone();
    b.core = Some(read_core(core.to_string().as_bytes()).unwrap());
    let compared = compare(&a, &b, &|_, _| None);
    assert!(compared.differences.is_empty());
    assert_eq!(compared.not_compared, ["/api: saved does not have it"]);
}
