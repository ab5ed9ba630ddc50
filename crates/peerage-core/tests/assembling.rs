//! A server's own document: which source counts, and the order. Each row names the upstream test of
//! `pkg/endpoints/discovery/aggregated/handler_test.go` that it re-types.

#![allow(clippy::unwrap_used)]

mod common;

use common::{groups, recorded_groups, spelled};
use peerage_core::discovery::assemble::assemble;
use peerage_core::discovery::*;
use proptest::prelude::*;

/// Reads `"source group/version: resources @group priority,version priority"`, several separated by `;`.
fn served(text: &str) -> Vec<ServedVersion> {
    let one = |item: &str| {
        let (source, rest) = item.trim().split_once(' ').unwrap();
        let (listed, priority) = rest.split_once('@').unwrap_or((rest, ""));
        let group = groups(listed).items.remove(0);
        let (source, default) = match source {
            "aggregated" => (Source::Aggregated, Priority::DEFAULT),
            "custom" => (Source::Custom, Priority::CUSTOM),
            _ => (Source::BuiltIn, Priority::DEFAULT),
        };
        let priority = match priority.trim().split_once(',') {
            Some((group, version)) => Priority {
                group: group.parse().unwrap(),
                version: version.parse().unwrap(),
            },
            None => default,
        };
        ServedVersion {
            group: group.name().into(),
            version: group.versions[0].clone(),
            priority,
            source,
        }
    };
    text.split(';').map(one).collect()
}

#[test]
fn sources_and_priorities_decide_what_is_listed_where() {
    for (upstream, text, expected) in [
        (
            "TestVersionSortingNoPriority",
            "builtin g/v1alpha1; builtin g/v2beta1; builtin g/v3alpha1; builtin g/v2; builtin g/v1",
            "g/v2; g/v1; g/v2beta1; g/v3alpha1; g/v1alpha1",
        ),
        (
            "TestVersionSortingWithPriority",
            "builtin default/v1 @1000,15; builtin apiregistration.k8s.io/v1 @20001,0; builtin g/v1 @1000,17; \
             builtin g/v2 @1000,15",
            "apiregistration.k8s.io/v1; default/v1; g/v1; g/v2",
        ),
        (
            "TestGroupVersionSortingConflictingPriority",
            "builtin default/v1 @1000,15; builtin high/v1 @10,15; builtin high/v2 @2000,10",
            "high/v1; high/v2; default/v1",
        ),
        (
            "TestStatelessGroupPriorityMinimum (the high version is there)",
            "builtin a/v1 @1000,1; builtin b/v1 @500,1; builtin b/v2 @2000,2",
            "b/v2; b/v1; a/v1",
        ),
        (
            "TestStatelessGroupPriorityMinimum (and is gone)",
            "builtin a/v1 @1000,1; builtin b/v1 @500,1",
            "a/v1; b/v1",
        ),
        (
            "TestSourcePrecedence",
            "custom g/v1: c; builtin g/v1: b; aggregated g/v1: a",
            "g/v1: a",
        ),
        (
            "TestSourcePrecedence (without the aggregated one)",
            "custom g/v1: c; builtin g/v1: b",
            "g/v1: b",
        ),
        (
            "TestSourcePrecedence (the priority that counts is the winner's)",
            "custom g/v1: c @9000,1; builtin g/v1: b @1,1; builtin h/v1",
            "h/v1; g/v1: b",
        ),
        (
            "TestMultipleSources",
            "custom g/v2: c; builtin g/v1: b",
            "g/v2: c; g/v1: b",
        ),
        (
            "(ties between groups)",
            "builtin b/v1; builtin a/v1",
            "a/v1; b/v1",
        ),
    ] {
        let expected = groups(expected);
        let mut given = served(text);
        for turn in 0..given.len() {
            given.rotate_left(1);
            let made = assemble(given.clone());
            assert_eq!(
                spelled(&made),
                spelled(&expected),
                "{upstream}, turn {turn}"
            );
        }
    }
}

#[test]
fn a_recorded_document_comes_out_of_its_own_priorities() {
    let recorded = recorded_groups("1.37-all");
    let mut given = Vec::new();
    for (place, group) in (0..).zip(&recorded.items) {
        for (inner, version) in (0..).zip(&group.versions) {
            given.push(ServedVersion {
                group: group.name().into(),
                version: version.clone(),
                priority: Priority {
                    group: 20_000 - place,
                    version: 100 - inner,
                },
                source: Source::BuiltIn,
            });
        }
    }
    given.reverse();
    assert_eq!(assemble(given), recorded);
}

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_matter(
        picks in proptest::collection::vec((0..3_usize, 0..3_usize, 0..3_usize), 0..8), turn in 0..8_usize
    ) {
        let source = |n: usize| ["aggregated", "builtin", "custom"][n];
        let mut seen = std::collections::HashSet::new();
        let mut given: Vec<ServedVersion> = picks
            .into_iter()
            .filter(|pick| seen.insert(*pick))
            .flat_map(|(n, group, version)| served(&format!("{} g{group}/v{version}: {}", source(n), source(n))))
            .collect();
        let made = assemble(given.clone());
        let turn = turn % given.len().max(1);
        given.rotate_left(turn);
        prop_assert_eq!(&assemble(given.clone()), &made);
        given.reverse();
        prop_assert_eq!(&assemble(given), &made);
    }
}
