//! The discovery documents that the catalogue rebuilds are those that servers of each version sent, byte for byte.
#![allow(clippy::unwrap_used)]

use std::io::Read as _;

use peerage_catalogue::{Catalogue, RuntimeConfig, version_text, versions};
use peerage_core::discovery::{ApiVersions, DiscoveryVersion};
use serde::Serialize;

/// What a server sent: path and document.
fn recorded(name: &str) -> Vec<(String, String)> {
    let path = format!("{}/tests/data/{name}.txt.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(path, document)| (path.to_owned(), document.to_owned()))
        .collect()
}

fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).unwrap()
}

/// The document of a path, from the catalogue.
fn rebuilt(catalogue: &Catalogue, path: &str) -> String {
    let v2 = DiscoveryVersion::V2;
    let core = catalogue.core_discovery();
    let groups = catalogue.groups_discovery();
    let hashes = catalogue.storage_version_hashes();
    let parts: Vec<&str> = path.split('/').collect();
    let (group, version) = match parts[..] {
        ["aggregated-api"] => {
            return String::from_utf8(core.to_json(v2))
                .unwrap()
                .trim()
                .to_owned();
        }
        ["aggregated-apis"] => {
            return String::from_utf8(groups.to_json(v2))
                .unwrap()
                .trim()
                .to_owned();
        }
        ["", "api"] => return json(&ApiVersions::new(vec!["v1".to_owned()], "ADDRESS")),
        ["", "apis"] => return json(&groups.to_legacy()),
        ["", "apis", group] => {
            return json(&groups.group(group).unwrap().to_legacy().into_document());
        }
        ["", "api", version] => (&core.items[0], version),
        ["", "apis", group, version] => (groups.group(group).unwrap(), version),
        _ => panic!("{path}"),
    };
    let list = group.version(version).unwrap();
    let group_version = path
        .trim_start_matches("/apis/")
        .trim_start_matches("/api/");
    json(&group.to_legacy_resources(list, |r| hashes.get(group_version, r)))
}

fn check(name: &str, catalogue: &Catalogue) {
    for (path, document) in recorded(name) {
        let mut wanted = document;
        if path == "/api" {
            let address = wanted.find("\"serverAddress\":\"").unwrap() + 17;
            let end = wanted[address..].find('"').unwrap() + address;
            wanted.replace_range(address..end, "ADDRESS");
        }
        assert_eq!(rebuilt(catalogue, &path), wanted, "{name} {path}");
    }
}

#[test]
fn every_document_of_every_version_is_rebuilt_byte_for_byte() {
    for version in versions() {
        check(
            version,
            &Catalogue::load(version, &RuntimeConfig::default()).unwrap(),
        );
    }
}

#[test]
fn every_document_of_every_version_with_all_apis_is_rebuilt_byte_for_byte() {
    let all = RuntimeConfig::parse("api/all=true").unwrap();
    for version in versions().iter().skip(1) {
        check(
            &format!("{version}-all"),
            &Catalogue::load(version, &all).unwrap(),
        );
    }
}

#[test]
fn a_verb_taken_out_of_the_catalogue_is_gone_from_discovery() {
    let texts: Vec<String> = versions()
        .iter()
        .map(|v| version_text(v).unwrap())
        .collect();
    let line = "resource v1/configmaps ConfigMap";
    let without: Vec<String> = texts
        .iter()
        .map(|text| {
            let lines = text.lines().map(|l| match l.starts_with(line) {
                true => l.replace(",deletecollection", ""),
                false => l.to_owned(),
            });
            lines.collect::<Vec<_>>().join("\n")
        })
        .collect();
    let load = |texts: &[String]| {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        Catalogue::from_texts(&texts, &RuntimeConfig::default()).unwrap()
    };
    let (before, after) = (load(&texts), load(&without));
    for path in ["aggregated-api", "/api/v1"] {
        let (old, new) = (rebuilt(&before, path), rebuilt(&after, path));
        assert_eq!(
            old.matches("deletecollection").count(),
            new.matches("deletecollection").count() + 1
        );
        assert_eq!(old.len(), new.len() + "\"deletecollection\",".len());
    }
    assert!(
        !after
            .resource("", "v1", "configmaps")
            .unwrap()
            .has_verb("deletecollection")
    );
    assert_eq!(
        rebuilt(&before, "aggregated-apis"),
        rebuilt(&after, "aggregated-apis")
    );
}
