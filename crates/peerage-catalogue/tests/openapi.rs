//! The types of each OpenAPI document are those that a server's document held.
#![allow(clippy::unwrap_used)]

use std::io::Read as _;

use peerage_catalogue::{Catalogue, KindList, RuntimeConfig};

fn check(version: &str, config: &str, name: &str) {
    let path = format!(
        "{}/tests/data/openapi-{name}.txt.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let catalogue = Catalogue::load(version, &RuntimeConfig::parse(config).unwrap()).unwrap();
    for line in text.lines() {
        let (path, types) = line.split_once(' ').unwrap();
        let parts: Vec<&str> = path.split('/').collect();
        let (group, version) = if parts[0] == "api" {
            ("", parts[1])
        } else {
            (parts[1], parts[2])
        };
        let ids = catalogue.document_types(group, version);
        let names: Vec<&str> = ids
            .iter()
            .filter_map(|id| catalogue.types().get(*id).name.as_deref())
            .collect();
        assert_eq!(names, types.split(',').collect::<Vec<_>>(), "{name} {path}");
    }
}

#[test]
fn each_document_holds_the_types_that_its_operations_need() {
    check("1.33", "", "1.33");
    check("1.37", "api/all", "1.37-all");
}

#[test]
fn kinds_are_found_by_type_and_types_by_kind() {
    let catalogue = Catalogue::load("1.37", &RuntimeConfig::default()).unwrap();
    let id = catalogue
        .type_by_name("io.k8s.api.apps.v1.Deployment")
        .unwrap();
    let Some(KindList::These(kinds)) = catalogue.kinds_of_type(id) else {
        panic!("a deployment is a kind");
    };
    assert_eq!(kinds[0].api_version(), "apps/v1");
    assert_eq!(catalogue.type_of_kind(&kinds[0]), Some(id));
    let options = catalogue
        .type_by_name("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
        .unwrap();
    assert_eq!(
        catalogue.kinds_of_type(options),
        Some(&KindList::OfDocument("DeleteOptions".to_owned()))
    );
}
