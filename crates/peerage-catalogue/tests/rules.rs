//! The table of rules names only what there is, and does what kube-apiserver did.
#![allow(clippy::unwrap_used)]

use peerage_catalogue::{Catalogue, RuntimeConfig, rules, versions};

#[test]
fn every_kind_type_field_and_function_of_the_table_is_there() {
    let all = RuntimeConfig::parse("api/all=true").unwrap();
    let catalogues: Vec<_> = versions()
        .iter()
        .map(|v| Catalogue::load(v, &all).unwrap())
        .collect();
    assert_eq!(rules::unknown(&catalogues).unwrap(), Vec::<String>::new());
}
