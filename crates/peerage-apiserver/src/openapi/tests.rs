//! The types of each document are those that a kube-apiserver's document held.

use std::io::Read as _;

use peerage_catalogue::RuntimeConfig;
use serde_json::Value;

use super::*;

/// `recorded` has a line for each document: its path, and the names of its types.
fn check(version: &str, config: &str, recorded: &str) {
    let path = format!("{}/tests/data/{recorded}", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let catalogue = Catalogue::load(version, &RuntimeConfig::parse(config).unwrap()).unwrap();
    let openapi = OpenApi::new(Arc::new(catalogue), false);
    for line in text.lines() {
        let (path, types) = line.split_once(' ').unwrap();
        let document: Value =
            serde_json::from_slice(&openapi.v3(path).unwrap().json().unwrap()).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut names: Vec<&str> = schemas.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            types.split(',').collect::<Vec<_>>(),
            "{version} {path}"
        );
    }
}

#[test]
fn each_document_holds_the_types_that_its_operations_need() {
    check("1.33", "", "openapi-1.33.txt.gz");
    check("1.37", "api/all", "openapi-1.37-all.txt.gz");
}
