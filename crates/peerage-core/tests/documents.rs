//! Discovery documents, read and written: against documents that real kube-apiservers sent, and against answers
//! that no working server sends.

#![allow(clippy::unwrap_used)]

mod common;

use common::{groups, recorded, recorded_core, recorded_documents, recorded_groups, spelled};
use peerage_core::discovery::*;
use peerage_core::view::{LocalApis, Lookup, PeerView, ViewInputs, ViewScope};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const VERSIONS: [&str; 5] = ["1.31", "1.33", "1.34", "1.37", "1.37-all"];

#[test]
fn a_recorded_document_is_written_as_it_was_read() {
    for version in VERSIONS {
        let name = format!("{version}-aggregated-apis");
        let written = recorded_groups(version).to_json(DiscoveryVersion::V2);
        assert_eq!(written, recorded(&name), "{name}");
        let name = format!("{version}-aggregated-api");
        let written = recorded_core(version).to_json(DiscoveryVersion::V2);
        assert_eq!(written, recorded(&name), "{name}");
    }
    let name = "1.31-aggregated-apis-v2beta1";
    let list = read_groups(&recorded(name)).unwrap();
    assert_eq!(list.to_json(DiscoveryVersion::V2Beta1), recorded(name));
}

#[test]
fn the_entity_tag_is_the_one_that_kube_apiserver_sent() {
    // As seen from v1.37.2 with the default APIs.
    let list = recorded_groups("1.37");
    assert!(list.etag().starts_with("\"C1F1010597FE58AB"));
    let view = view_of("1.37");
    let rendered = view.aggregated_apis(ViewScope::Local, DiscoveryVersion::V2);
    assert_eq!(rendered.etag, Some(list.etag()));
    let beta = view.aggregated_apis(ViewScope::Local, DiscoveryVersion::V2Beta1);
    assert_eq!(beta.etag, rendered.etag);
    assert_ne!(beta.bytes, rendered.bytes);
}

fn view_of(version: &str) -> PeerView {
    let legacy: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&recorded(&format!("{version}-legacy"))).unwrap();
    let mut hashes = StorageVersionHashes::default();
    for (path, body) in &legacy {
        if body["kind"] == "APIResourceList" {
            let list = read_api_resources(body.to_string().as_bytes());
            hashes.insert_all(&list.unwrap_or_else(|error| panic!("{path}: {error}")));
        }
    }
    let documents = recorded_documents(version).as_ref().clone();
    let address = &legacy["/api"]["serverAddressByClientCIDRs"][0]["serverAddress"];
    PeerView::build(ViewInputs {
        local: LocalApis {
            id: "a".into(),
            documents: Some(Arc::new(documents.with_hashes(Arc::new(hashes)))),
            server_address: address.as_str().unwrap().into(),
            is_front: false,
        },
        synced: true,
        ..ViewInputs::default()
    })
}

/// Legacy documents were recorded as one JSON object by path, so its values are compared byte for byte.
#[test]
fn legacy_documents_made_from_aggregated_ones_are_those_that_the_server_sent() {
    for version in VERSIONS {
        let recorded = recorded(&format!("{version}-legacy"));
        let legacy: BTreeMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_slice(&recorded).unwrap();
        let view = view_of(version);
        for scope in [ViewScope::Local, ViewScope::Merged] {
            for (path, expected) in &legacy {
                let parts: Vec<&str> = path.split('/').skip(1).collect();
                let found = match parts[..] {
                    ["api"] => Lookup::Found(view.legacy_versions(scope)),
                    ["api", core] => view.legacy_resources(scope, "", core),
                    ["apis"] => Lookup::Found(view.legacy_groups(scope)),
                    ["apis", group] => view.legacy_group(scope, group),
                    ["apis", group, version] => view.legacy_resources(scope, group, version),
                    _ => panic!("{path}"),
                };
                let Lookup::Found(rendered) = found else {
                    panic!("{version} {path}: {found:?}");
                };
                let body = String::from_utf8_lossy(&rendered.bytes);
                assert_eq!(body.trim_end(), expected.get(), "{version} {path}");
                assert!(body.ends_with('\n'));
                assert_eq!(rendered.etag, None);
            }
        }
    }
}

#[test]
fn an_aggregated_document_made_from_legacy_ones_is_the_one_that_the_server_sent() {
    for version in VERSIONS {
        let legacy: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&recorded(&format!("{version}-legacy"))).unwrap();
        let list = read_legacy_groups(legacy["/apis"].to_string().as_bytes()).unwrap();
        let resources: Vec<ApiResourceList> = legacy
            .values()
            .filter(|body| body["kind"] == "APIResourceList")
            .map(|body| read_api_resources(body.to_string().as_bytes()).unwrap())
            .collect();
        let made = from_legacy(&list.groups, &resources);
        let mut sent = recorded_groups(version);
        for group in &mut sent.items {
            Arc::make_mut(group).metadata.creation_timestamp_null = false;
        }
        assert_eq!(made, sent, "{version}");
        let core = read_api_versions(legacy["/api"].to_string().as_bytes()).unwrap();
        let mut sent = recorded_core(version);
        Arc::make_mut(&mut sent.items[0])
            .metadata
            .creation_timestamp_null = false;
        assert_eq!(
            from_legacy(&[core.to_group()], &resources),
            sent,
            "{version}"
        );
    }
}

#[test]
fn a_version_whose_legacy_list_could_not_be_read_is_stale() {
    let apps = ApiGroup {
        kind: String::new(),
        api_version: String::new(),
        name: "apps".into(),
        versions: vec![GroupVersionForDiscovery::new("apps", "v1")],
        preferred_version: GroupVersionForDiscovery::new("apps", "v1"),
    };
    assert_eq!(from_legacy(&[apps], &[]), groups("apps/v1!"));
}

#[test]
fn stale_versions_are_preferred_only_when_all_are() {
    for (listed, preferred) in [
        ("g/v2!; g/v1: a", "v1"),
        ("g/v2: a; g/v1: a", "v2"),
        ("g/v2!; g/v1!", "v2"),
    ] {
        let group = groups(listed).items[0].to_legacy();
        assert_eq!(group.preferred_version.version, preferred, "{listed}");
    }
}

#[test]
fn what_is_missing_null_unknown_or_in_another_order_is_read() {
    let bytes = br#"{
        "items": [
            {"versions": [{"freshness": "Current", "resources": [
                {"verbs": ["get"], "resource": "foos", "responseKind": null, "scope": "Namespaced", "new": {"x": [1]}},
                {"resource": "bars", "verbs": null, "shortNames": null, "subresources": [{"subresource": "status"}]},
                {"resource": "bazes", "scope": "Galactic"}
            ], "version": "v1"}, {"version": "v2", "resources": null, "freshness": "Ripe"}],
             "metadata": {"creationTimestamp": null, "name": "g", "labels": {}}},
            {"metadata": {"name": "h"}}
        ],
        "metadata": {"resourceVersion": "1"}, "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList"
    }"#;
    let list = read_groups(bytes).unwrap();
    let expected = concat!(
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":["#,
        r#"{"metadata":{"name":"g","creationTimestamp":null},"versions":[{"version":"v1","resources":["#,
        r#"{"resource":"foos","scope":"Namespaced","singularResource":"","verbs":["get"]},"#,
        r#"{"resource":"bars","scope":"Cluster","singularResource":"","verbs":null,"#,
        r#""subresources":[{"subresource":"status","verbs":null}]},"#,
        r#"{"resource":"bazes","scope":"Galactic","singularResource":"","verbs":null}],"#,
        r#""freshness":"Current"},{"version":"v2"}]},{"metadata":{"name":"h"}}]}"#,
        "\n"
    );
    let written = list.to_json(DiscoveryVersion::V2);
    assert_eq!(String::from_utf8(written).unwrap(), expected);
}

#[test]
fn what_no_working_server_sends_is_an_error_with_its_reason() {
    let head = r#""kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2""#;
    let of = |items: &str| format!("{{{head},\"items\":{items}}}");
    let group = |versions: &str| {
        of(&format!(
            r#"[{{"metadata":{{"name":"g"}},"versions":{versions}}}]"#
        ))
    };
    let many_verbs = format!("[{}]", vec![r#""get""#; 300].join(","));
    let many_groups: Vec<String> = (0..10_001)
        .map(|n| format!(r#"{{"metadata":{{"name":"g{n}"}}}}"#))
        .collect();
    let cases: Vec<(String, &str)> = vec![
        (String::new(), "malformed"),
        ("null".into(), "malformed"),
        ("[]".into(), "wrong_kind"),
        ("<html>".into(), "malformed"),
        (of(r#"[{"metadata":{"name":"g"}"#), "malformed"),
        (of(r#"[{"metadata":{"name":7}}]"#), "malformed"),
        ("[".repeat(100_000), "malformed"),
        ("{}".into(), "wrong_kind"),
        (
            r#"{"kind":"Status","apiVersion":"v1","items":[]}"#.into(),
            "wrong_kind",
        ),
        (
            r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v3","items":[]}"#
                .into(),
            "wrong_kind",
        ),
        (format!("{{{head}}}"), "empty"),
        (of("null"), "empty"),
        (of("[]"), "empty"),
        (of("[{}]"), "bad_name"),
        (of(r#"[{"metadata":{"name":"a/b"}}]"#), "bad_name"),
        (of(r#"[{"metadata":{"name":"a b"}}]"#), "bad_name"),
        (of(r#"[{"metadata":{"name":"a\nb"}}]"#), "bad_name"),
        (
            of(&format!(
                r#"[{{"metadata":{{"name":"{}"}}}}]"#,
                "x".repeat(300)
            )),
            "bad_name",
        ),
        (
            of(r#"[{"metadata":{"name":"g"}},{"metadata":{"name":"g"}}]"#),
            "duplicate",
        ),
        (of(&format!("[{}]", many_groups.join(","))), "too_many"),
        (group(r#"[{"version":""}]"#), "bad_name"),
        (group(r#"[{"version":"v1"},{"version":"v1"}]"#), "duplicate"),
        (
            group(r#"[{"version":"v1","resources":[{"resource":""}]}]"#),
            "bad_name",
        ),
        (
            group(r#"[{"version":"v1","resources":[{"resource":"a"},{"resource":"a"}]}]"#),
            "duplicate",
        ),
        (
            group(&format!(
                r#"[{{"version":"v1","resources":[{{"resource":"a","verbs":{many_verbs}}}]}}]"#
            )),
            "too_many",
        ),
        (
            group(r#"[{"version":"v1","resources":[{"resource":"a","subresources":[{}]}]}]"#),
            "bad_name",
        ),
    ];
    for (body, reason) in cases {
        let start: String = body.chars().take(120).collect();
        let error = read_groups(body.as_bytes()).expect_err(&start);
        assert_eq!(error.reason(), reason, "{start}: {error}");
        assert!(error.to_string().len() < 400, "{error}");
    }
}

/// Whoever may make custom resources may choose these, and must not take the rest of discovery away with it.
#[test]
fn what_the_author_of_a_custom_resource_overdoes_costs_nothing_else() {
    let words: Vec<_> = (0..3000).map(|n| format!("w{n}")).collect();
    let words = serde_json::to_string(&words).unwrap();
    let versions: Vec<_> = (0..300)
        .map(|n| {
            format!(
                r#"{{"version":"v{n}","resources":[{{"resource":"a","categories":{words},"shortNames":{words}}}]}}"#
            )
        })
        .collect();
    let body = format!(
        r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
            {{"metadata":{{"name":"large.example.com"}},"versions":[{}]}}]}}"#,
        versions.join(",")
    );
    let list = read_groups(body.as_bytes()).unwrap();
    let group = list.group("large.example.com").unwrap();
    assert_eq!(group.versions.len(), 300);
    let resource = group.versions[299].resource("a").unwrap();
    assert_eq!(
        (resource.categories.len(), resource.short_names.len()),
        (256, 256)
    );
    let legacy = format!(
        r#"{{"kind":"APIResourceList","groupVersion":"large.example.com/v1","resources":[{{"name":"a","kind":"A","verbs":["get"],"categories":{words}}}]}}"#
    );
    let list = read_api_resources(legacy.as_bytes()).unwrap();
    assert_eq!(list.resources[0].categories.len(), 256);
}

#[test]
fn the_core_document_has_one_group_without_a_name() {
    let head = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":"#;
    for (items, reason) in [
        ("[]", "empty"),
        ("[{}]", "empty"),
        (
            r#"[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]"#,
            "bad_name",
        ),
        (
            r#"[{"versions":[{"version":"v1"}]},{"versions":[{"version":"v1"}]}]"#,
            "duplicate",
        ),
    ] {
        let error = read_core(format!("{head}{items}}}").as_bytes()).unwrap_err();
        assert_eq!(error.reason(), reason, "{items}");
    }
}

#[test]
fn legacy_documents_that_cannot_be_true_are_errors() {
    type Read = fn(&[u8]) -> Option<&'static str>;
    let versions: Read = |it| read_api_versions(it).err().map(|error| error.reason());
    let list: Read = |it| read_legacy_groups(it).err().map(|error| error.reason());
    let group: Read = |it| read_legacy_group(it).err().map(|error| error.reason());
    let resources: Read = |it| read_api_resources(it).err().map(|error| error.reason());
    for (read, body, reason) in [
        (
            versions,
            r#"{"kind":"APIVersions","versions":["v1"]}"#,
            None,
        ),
        (
            versions,
            r#"{"kind":"APIVersions","versions":null}"#,
            Some("empty"),
        ),
        (
            versions,
            r#"{"kind":"APIGroupList","versions":["v1"]}"#,
            Some("wrong_kind"),
        ),
        (
            list,
            r#"{"kind":"APIGroupList","groups":[{"name":"g","versions":[{"version":"v1"}]}]}"#,
            None,
        ),
        (
            list,
            r#"{"kind":"APIGroupList","groups":[]}"#,
            Some("empty"),
        ),
        (
            list,
            r#"{"kind":"APIGroupList","groups":[{"name":""}]}"#,
            Some("bad_name"),
        ),
        (
            list,
            r#"{"kind":"APIGroupList","groups":[{"name":"g"},{"name":"g"}]}"#,
            Some("duplicate"),
        ),
        (
            group,
            r#"{"kind":"APIGroup","apiVersion":"v1","name":"g","versions":[]}"#,
            None,
        ),
        (
            group,
            r#"{"kind":"APIGroup","apiVersion":"v2","name":"g"}"#,
            Some("wrong_kind"),
        ),
        (
            resources,
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[]}"#,
            None,
        ),
        (
            resources,
            r#"{"kind":"APIResourceList","resources":[{"name":"a/"}]}"#,
            Some("bad_name"),
        ),
        (
            resources,
            r#"{"kind":"APIResourceList","resources":[{"name":"a/b/c"}]}"#,
            Some("bad_name"),
        ),
        (
            resources,
            r#"{"kind":"Status","code":404}"#,
            Some("wrong_kind"),
        ),
        (resources, "oops", Some("malformed")),
    ] {
        assert_eq!(read(body.as_bytes()), reason, "{body}");
    }
}

#[test]
fn a_parent_that_has_only_subresources_is_none_in_legacy_documents() {
    let scale = ApiResource {
        name: "things/scale".into(),
        namespaced: true,
        group: "autoscaling".into(),
        version: "v1".into(),
        kind: "Scale".into(),
        verbs: vec!["get".into()],
        ..ApiResource::default()
    };
    let list = ApiResourceList {
        kind: ApiResourceList::KIND.into(),
        api_version: "v1".into(),
        group_version: "g/v1".into(),
        resources: vec![scale],
    };
    let group = ApiGroup {
        kind: String::new(),
        api_version: String::new(),
        name: "g".into(),
        versions: vec![GroupVersionForDiscovery::new("g", "v1")],
        preferred_version: GroupVersionForDiscovery::new("g", "v1"),
    };
    let made = from_legacy(&[group], std::slice::from_ref(&list));
    let parent = &made.items[0].versions[0].resources[0];
    assert_eq!(parent.response_kind, Some(ResponseKind::default()));
    assert!(parent.verbs.is_empty());
    let back = made.items[0].to_legacy_resources(&made.items[0].versions[0], |_| None);
    assert_eq!(back, list);
}

#[test]
fn custom_resources_spell_their_kind_out_in_aggregated_documents_only() {
    let mut list = groups("g/v1: foos foos/status");
    let group = Arc::make_mut(&mut list.items[0]);
    let resource = Arc::make_mut(&mut group.versions[0].resources[0]);
    let kind = |kind: &str| {
        Some(ResponseKind {
            group: "g".into(),
            version: "v1".into(),
            kind: kind.into(),
        })
    };
    resource.response_kind = kind("Foo");
    resource.subresources[0].response_kind = kind("Foo");
    let legacy = list.items[0].to_legacy_resources(&list.items[0].versions[0], |_| None);
    for it in &legacy.resources {
        assert_eq!((&*it.group, &*it.version, &*it.kind), ("", "", "Foo"));
    }
}

#[test]
fn the_test_notation_says_what_it_reads() {
    let text = "v1: pods[get,list] pods/log; apps/v1: deployments; g/v2!; g/v1: a a/b[create,get]";
    assert_eq!(spelled(&groups(text)), text);
}

/// How a recorded document is damaged: at a place, by cutting, by another byte, or by a piece of itself.
#[derive(Debug, Clone)]
enum Damage {
    Cut(usize),
    Byte(usize, u8),
    Repeat(usize, usize),
    Swap(&'static str, &'static str),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<usize>().prop_map(Damage::Cut),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        (any::<usize>(), 0..200_usize).prop_map(|(at, length)| Damage::Repeat(at, length)),
        proptest::sample::select(vec![
            Damage::Swap("\"v1\"", "\"\""),
            Damage::Swap("\"v1\"", "null"),
            Damage::Swap("\"get\"", "{}"),
            Damage::Swap("\"verbs\"", "\"resource\""),
            Damage::Swap("Current", "Stale"),
            Damage::Swap("[", "[["),
            Damage::Swap("{\"group\"", "null,{\"group\""),
            Damage::Swap("\"name\":\"apps\"", "\"name\":\"batch\""),
        ]),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let end = bytes.len().max(1);
        match *damage {
            Damage::Cut(at) => bytes.truncate(at % end),
            Damage::Byte(at, byte) => {
                if let Some(place) = bytes.get_mut(at % end) {
                    *place = byte;
                }
            }
            Damage::Repeat(at, length) => {
                let from = at % end;
                let to = (from + length).min(bytes.len());
                let piece = bytes[from.min(to)..to].to_vec();
                bytes.splice(from.min(to)..from.min(to), piece);
            }
            Damage::Swap(from, to) => {
                let text = String::from_utf8_lossy(&bytes).replacen(from, to, 3);
                bytes = text.into_bytes();
            }
        }
    }
    bytes
}

proptest! {
    #[test]
    fn a_damaged_document_is_an_error_or_reads_the_same_twice(
        damages in proptest::collection::vec(any_damage(), 1..4)
    ) {
        let groups = damaged(recorded("1.34-aggregated-apis"), &damages);
        if let Ok(list) = read_groups(&groups) {
            let again = read_groups(&list.to_json(DiscoveryVersion::V2));
            prop_assert_eq!(again.ok(), Some(list));
        }
        let core = damaged(recorded("1.34-aggregated-api"), &damages);
        if let Ok(list) = read_core(&core) {
            let again = read_core(&list.to_json(DiscoveryVersion::V2));
            prop_assert_eq!(again.ok(), Some(list));
        }
    }
}
