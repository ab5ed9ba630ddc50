//! Any bytes as the documents of several servers: reading must not panic, what was read must read the same again,
//! and merging must not depend on the order of the servers.
//!
//! `cargo +nightly fuzz run discovery` from `crates/peerage-core`. Recorded documents are good seeds: unpack
//! `tests/data/*.gz` into the corpus folder, separated by zero bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::discovery::{
    DiscoveryVersion, read_api_resources, read_api_versions, read_core, read_groups,
    read_legacy_group, read_legacy_groups,
};
use peerage_core::merge::{ListSource, merge_lists};

fuzz_target!(|input: &[u8]| {
    let mut lists = Vec::new();
    for bytes in input.split(|byte| *byte == 0) {
        let _ = (read_core(bytes).is_ok(), read_api_versions(bytes).is_ok());
        let _ = (
            read_legacy_groups(bytes).is_ok(),
            read_legacy_group(bytes).is_ok(),
        );
        let _ = read_api_resources(bytes).is_ok();
        if let Ok(list) = read_groups(bytes) {
            let again = read_groups(&list.to_json(DiscoveryVersion::V2));
            assert_eq!(again.ok().as_ref(), Some(&list));
            lists.push(list);
        }
    }
    let mut sources: Vec<_> = lists
        .iter()
        .map(|list| ListSource { list, held: false })
        .collect();
    let merged = merge_lists(&sources);
    sources.reverse();
    assert_eq!(merge_lists(&sources), merged);
});
