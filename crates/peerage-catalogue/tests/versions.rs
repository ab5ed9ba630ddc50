//! Every version in the binary loads, in every set of APIs, and is whole.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use peerage_catalogue::{Catalogue, RuntimeConfig, version_text, versions};

fn load(version: &str, config: &str) -> Catalogue {
    Catalogue::load(version, &RuntimeConfig::parse(config).unwrap()).unwrap()
}

#[test]
fn there_are_five_versions_and_they_are_small() {
    assert_eq!(versions(), ["1.33", "1.34", "1.35", "1.36", "1.37"]);
    let size: usize = versions()
        .iter()
        .map(|v| version_text(v).unwrap().len())
        .sum();
    assert!(size < 1 << 20, "{size}");
}

#[test]
fn every_resource_has_what_the_verbs_need() {
    for version in versions() {
        let start = Instant::now();
        let catalogue = load(version, "api/all");
        println!("{version}: {:?}", start.elapsed());
        for r in catalogue.resources() {
            let name = format!("{version} {}/{}", r.api_version(), r.plural);
            assert!(r.type_id.is_some(), "{name} has a schema");
            assert!(!r.singular.is_empty(), "{name} has a singular name");
            assert_eq!(
                r.has_verb("watch"),
                r.storage.is_some(),
                "{name} is stored if it can be watched"
            );
            assert_eq!(
                r.has_verb("list"),
                r.list_type_id.is_some(),
                "{name} has a list type"
            );
            assert_eq!(
                r.has_verb("list"),
                !r.columns.is_empty(),
                "{name} has columns"
            );
            let found = catalogue.resource(&r.group, &r.version, &r.plural).unwrap();
            assert_eq!(found.kind, r.kind, "{name}");
            assert_eq!(
                catalogue
                    .kind(&r.group, &r.version, &r.kind)
                    .unwrap()
                    .plural,
                r.plural
            );
        }
    }
}

#[test]
fn a_fresh_cluster_has_the_objects_of_its_version() {
    for (version, services) in [("1.33", 20), ("1.37", 22)] {
        let objects = load(version, "").bootstrap("2026-01-02T03:04:05Z").unwrap();
        let count = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).count();
        assert_eq!(count("APIService"), services);
        assert_eq!(count("Namespace"), 4);
        assert_eq!(objects[0]["kind"], "Namespace");
        let last = objects.last().unwrap();
        assert_eq!(
            last["status"]["conditions"][0]["lastTransitionTime"],
            "2026-01-02T03:04:05Z"
        );
        assert!(
            !serde_json::to_string(&objects)
                .unwrap()
                .contains("lastTransitionTime\":\"\"")
        );
    }
}

#[test]
fn the_version_document_is_that_of_the_version() {
    let catalogue = load("1.37", "");
    let json = serde_json::to_string(catalogue.version_info()).unwrap();
    assert!(json.starts_with(
        "{\"major\":\"1\",\"minor\":\"37\",\"emulationMajor\":\"1\",\"emulationMinor\":\"37\",\
         \"minCompatibilityMajor\":\"1\",\"minCompatibilityMinor\":\"36\",\"gitVersion\":\"v1.37.2+peerage\",\"gitCommit\":\""
    ), "{json}");
    assert!(json.contains("\"goVersion\":\"rustc 1."), "{json}");
}

#[test]
fn an_unknown_version_or_group_is_refused_by_name() {
    let error = Catalogue::load("1.99", &RuntimeConfig::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no catalogue of Kubernetes 1.99; there is 1.33, 1.34, 1.35, 1.36, 1.37"
    );
    let config = RuntimeConfig::parse("nosuch.io/v1").unwrap();
    let error = Catalogue::load("1.37", &config).unwrap_err();
    assert_eq!(
        error.to_string(),
        "runtime-config: the catalogue of Kubernetes 1.37 has no API group nosuch.io"
    );
}

#[test]
fn runtime_config_turns_versions_and_resources_on_and_off() {
    let catalogue = load("1.37", "");
    assert!(
        catalogue
            .resource("resource.k8s.io", "v1beta1", "resourceclaims")
            .is_none()
    );
    let catalogue = load("1.37", "resource.k8s.io/v1beta1,apps/v1/daemonsets=false");
    assert!(
        catalogue
            .resource("resource.k8s.io", "v1beta1", "resourceclaims")
            .is_some()
    );
    assert!(catalogue.resource("apps", "v1", "daemonsets").is_none());
    assert!(catalogue.resource("apps", "v1", "deployments").is_some());
}
