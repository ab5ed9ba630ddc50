//! The merged document: the order of names, what wins, and that nothing depends on who merges.

#![allow(clippy::unwrap_used)]

mod common;

use common::{groups, recorded, recorded_core, recorded_groups, spelled};
use peerage_core::compare_versions;
use peerage_core::discovery::*;
use peerage_core::merge::order::consensus;
use peerage_core::merge::{ListSource, merge_lists};
use proptest::prelude::*;
use std::sync::Arc;

fn merged(lists: &[&ApiGroupDiscoveryList]) -> ApiGroupDiscoveryList {
    let source = |list| ListSource { list, held: false };
    let sources: Vec<_> = lists.iter().map(|list| source(list)).collect();
    merge_lists(&sources)
}

/// Merges lists of documents that are separated by `|`; `~` before one marks a server that is away.
fn merged_text(text: &str) -> String {
    let lists: Vec<(ApiGroupDiscoveryList, bool)> = text
        .split('|')
        .map(str::trim)
        .map(|it| match it.strip_prefix('~') {
            Some(it) => (groups(it), true),
            None => (groups(it), false),
        })
        .collect();
    let sources: Vec<_> = lists
        .iter()
        .map(|(list, held)| ListSource { list, held: *held })
        .collect();
    let forward = spelled(&merge_lists(&sources));
    let backward: Vec<_> = sources.into_iter().rev().collect();
    assert_eq!(
        spelled(&merge_lists(&backward)),
        forward,
        "{text} backwards"
    );
    forward
}

/// The merge that two real servers answered (v1.37.2 emulating 1.34 and v1.37.2), and their entity tag.
#[test]
fn a_recorded_merge_is_reproduced_to_the_byte() {
    let (old, new) = (recorded_groups("1.34"), recorded_groups("1.37"));
    for lists in [[&old, &new], [&new, &old]] {
        let merged = merged(&lists);
        let bytes = merged.to_json(DiscoveryVersion::V2);
        assert_eq!(bytes, recorded("1.37-aggregated-apis"));
        assert!(merged.etag().starts_with("\"C1F1010597FE58AB"));
    }
}

#[test]
fn servers_of_all_recorded_versions_list_what_any_of_them_has() {
    let lists: Vec<_> = ["1.31", "1.33", "1.34", "1.37", "1.37-all"]
        .map(recorded_groups)
        .into();
    let all: Vec<_> = lists.iter().collect();
    let whole = merged(&all);
    for list in &lists {
        for group in &list.items {
            let found = whole.group(group.name()).unwrap();
            for version in &group.versions {
                let found = found.version(&version.version).unwrap();
                for resource in &version.resources {
                    let found = found.resource(&resource.resource).unwrap();
                    for verb in &resource.verbs {
                        assert!(found.verbs.contains(verb), "{verb} {}", resource.resource);
                    }
                }
            }
        }
    }
    let cores: Vec<_> = ["1.31", "1.37"].map(recorded_core).into();
    let core = merged(&[&cores[0], &cores[1]]);
    assert_eq!(core.items.len(), 1);
    assert_eq!(core.items[0].name(), "");
}

#[test]
fn the_null_timestamp_of_older_servers_is_written_only_when_all_write_it() {
    let (old, new) = (recorded_groups("1.33"), recorded_groups("1.34"));
    assert_eq!(merged(&[&old, &old]), old);
    let mixed = merged(&[&old, &new]);
    assert!(
        mixed
            .items
            .iter()
            .all(|it| !it.metadata.creation_timestamp_null)
    );
}

#[test]
fn names_are_put_in_one_order() {
    for (lists, expected) in [
        ("", ""),
        ("abc", "abc"),
        // Kubernetes' own examples, where no circle and no server name decides.
        ("abc bc", "abc"),
        ("ac bc", "abc"),
        ("ab ba", "ab"),
        ("abcd abcd axzd zy q", "abcqxzdy"),
        // A complete list keeps its order, whatever shorter ones say.
        ("zyx xz", "zyx"),
        ("zyx zyx xy y", "zyx"),
        // Two complete lists that differ are joined where they agree.
        ("abcd bacd", "abcd"),
        ("zabcy zbacy", "zabcy"),
        // A circle stays where it is; Kubernetes would sort everything: amnz.
        ("zam azn", "azmn"),
        // Inside a circle pairs on which all agree keep their order.
        ("zyxq xzp", "zyxpq"),
        ("cab bcq", "cabq"),
        // Nobody agrees on anything: by name.
        ("ab bc ca q", "abcq"),
        ("ba cb ac p", "abcp"),
        // The second mention of a name does not count.
        ("aba ca", "cab"),
    ] {
        let lists: Vec<Vec<&str>> = lists
            .split(' ')
            .map(|list| list.split("").filter(|name| !name.is_empty()).collect())
            .collect();
        assert_eq!(consensus(&lists, str::cmp).concat(), expected, "{lists:?}");
        let backwards: Vec<_> = lists.iter().rev().cloned().collect();
        assert_eq!(
            consensus(&backwards, str::cmp).concat(),
            expected,
            "{backwards:?}"
        );
    }
}

#[test]
fn versions_are_put_in_kubernetes_order_where_the_servers_leave_it_open() {
    for (lists, expected) in [
        ("v1 | v2", "v2 v1"),
        ("v1beta2 | v1beta1", "v1beta2 v1beta1"),
        ("v2 v1 | v3", "v3 v2 v1"),
        ("v2 v1 | v3alpha1 v1", "v2 v3alpha1 v1"),
        ("v1 v1beta1 | v1beta1", "v1 v1beta1"),
        ("v1beta1 | v1 v1beta1", "v1 v1beta1"),
        (
            "v10 | v2 | v1 | v11beta2 | v10beta3 | v3beta1 | v12alpha1 | v11alpha2 | foo1 | foo10",
            "v10 v2 v1 v11beta2 v10beta3 v3beta1 v12alpha1 v11alpha2 foo1 foo10",
        ),
        // What a server orders on purpose stays, unless another contradicts.
        ("v1beta1 v1 | v1beta1 v1", "v1beta1 v1"),
        ("v1beta1 v1 | v1 v1beta1", "v1 v1beta1"),
    ] {
        let lists: Vec<Vec<&str>> = lists
            .split('|')
            .map(|it| it.split_whitespace().collect())
            .collect();
        assert_eq!(
            consensus(&lists, compare_versions).join(" "),
            expected,
            "{lists:?}"
        );
    }
}

/// Each row names the upstream test that it re-types, or what it adds. Upstream: `TestMergeResources` and others in
/// `pkg/endpoints/discovery/aggregated/peer_aggregated_handler_test.go`.
#[test]
fn documents_are_merged_by_the_table() {
    for (upstream, documents, expected) in [
        ("no peers, just local resources", "g1/v1: r1", "g1/v1: r1"),
        (
            "peer adds no new g/v/r",
            "g1/v1: r1 | g1/v1: r1",
            "g1/v1: r1",
        ),
        (
            "peer adds a new resource to existing g/v",
            "g1/v1: r1 | g1/v1: r2",
            "g1/v1: r1 r2",
        ),
        // Differs: upstream lists v1, v2.
        (
            "peer adds a new version to existing group",
            "g1/v1: r1 | g1/v2: r1",
            "g1/v2: r1; g1/v1: r1",
        ),
        (
            "peer adds a completely new group",
            "g1/v1: r1 | g2/v1: r2",
            "g1/v1: r1; g2/v1: r2",
        ),
        (
            "peer has same data but different group order",
            "g1/v1: a; g2/v1: b | g2/v1: b; g1/v1: a",
            "g1/v1: a; g2/v1: b",
        ),
        (
            "deterministic merge (Server A's view)",
            "g1/v1: a; g3/v1: c | g2/v1: b; g3/v1: c",
            "g1/v1: a; g2/v1: b; g3/v1: c",
        ),
        (
            "deterministic merge (Server B's view)",
            "g2/v1: b; g3/v1: c | g1/v1: a; g3/v1: c",
            "g1/v1: a; g2/v1: b; g3/v1: c",
        ),
        (
            "peer adds a new verb to existing resource (triggers Case 2)",
            "g/v1: a[list,get] | g/v1: a[watch]",
            "g/v1: a[get,list,watch]",
        ),
        (
            "peer adds a new subresource to existing resource (triggers Case 2)",
            "g/v1: a a/status | g/v1: a a/scale",
            "g/v1: a a/scale a/status",
        ),
        (
            "empty local, non-empty peer (triggers Case 3)",
            " | g1/v1: a",
            "g1/v1: a",
        ),
        // What follows is not upstream's.
        ("current beats stale", "g/v1! | g/v1: a", "g/v1: a"),
        (
            "current beats stale: what only a stale list has cannot be called",
            "g/v1!: a b | g/v1: a",
            "g/v1: a",
        ),
        (
            "stale lists are joined when nobody is current",
            "g/v1!: a | g/v1!: b",
            "g/v1!: a b",
        ),
        (
            "a server that is away has only stale versions",
            "~g/v1: a | h/v1: b",
            "g/v1!: a; h/v1: b",
        ),
        (
            "what a server that is away had in a current version is listed on",
            "~g/v1: a b b/s | g/v1: a",
            "g/v1: a b b/s",
        ),
        (
            "but not what it listed as stale itself",
            "~g/v1!: a b | g/v1: a",
            "g/v1: a",
        ),
        ("a version without resources is listed", "g/v1 | ", "g/v1"),
        (
            "verbs keep their order where all agree",
            "g/v1: a[list,get] | g/v1: a[list,get]",
            "g/v1: a[list,get]",
        ),
        (
            "verbs of subresources are joined",
            "g/v1: a a/s[update] | g/v1: a a/s[get,patch]",
            "g/v1: a a/s[get,patch,update]",
        ),
        (
            "a complete document keeps its order",
            "z/v1: a; b/v1: a | b/v1: a",
            "z/v1: a; b/v1: a",
        ),
    ] {
        assert_eq!(merged_text(documents), expected, "{upstream}: {documents}");
    }
}

#[test]
fn a_group_without_versions_is_not_listed() {
    let empty = ApiGroupDiscoveryList {
        items: vec![Arc::new(ApiGroupDiscovery::new("g", Vec::new()))],
    };
    let other = groups("h/v1: a");
    assert_eq!(spelled(&merged(&[&empty, &other])), "h/v1: a");
    let full = groups("g/v1: a");
    assert_eq!(spelled(&merged(&[&empty, &full])), "g/v1: a");
}

#[test]
fn conflicting_descriptions_of_a_resource_are_settled_the_same_everywhere() {
    let describe = |kind: &str, short: &[&str], categories: &[&str], verbs: &[&str]| {
        let words = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let resource = ApiResourceDiscovery {
            resource: "a".into(),
            response_kind: (!kind.is_empty()).then(|| ResponseKind::of(kind)),
            verbs: words(verbs),
            short_names: words(short),
            categories: words(categories),
            ..ApiResourceDiscovery::default()
        };
        let version = ApiVersionDiscovery {
            version: "v1".into(),
            resources: vec![Arc::new(resource)],
            freshness: Freshness::Current,
        };
        ApiGroupDiscoveryList {
            items: vec![Arc::new(ApiGroupDiscovery::new("g", vec![version]))],
        }
    };
    let one = describe("One", &["o", "x"], &["all"], &["get"]);
    let two = describe("Two", &["y", "x"], &["all", "api"], &["get", "list"]);
    let none = describe("", &[], &[], &["get", "list", "watch"]);
    for lists in [
        [&one, &two, &none],
        [&none, &one, &two],
        [&two, &none, &one],
    ] {
        let merged = merged(&lists);
        let resource = &merged.items[0].versions[0].resources[0];
        assert_eq!(resource.response_kind, Some(ResponseKind::of("Two")));
        assert_eq!(resource.short_names, ["o", "y", "x"]);
        assert_eq!(resource.categories, ["all", "api"]);
        assert_eq!(resource.verbs, ["get", "list", "watch"]);
    }
}

/// Released clients (client-go 0.26.0 to 0.26.3) crash when the kind is missing.
#[test]
fn a_missing_kind_is_written_as_an_empty_one() {
    let mut list = groups("g/v1: a a/status");
    let group = Arc::make_mut(&mut list.items[0]);
    let resource = Arc::make_mut(&mut group.versions[0].resources[0]);
    resource.response_kind = None;
    resource.subresources[0].response_kind = None;
    for lists in [vec![&list], vec![&list, &list]] {
        let text = String::from_utf8(merged(&lists).to_json(DiscoveryVersion::V2)).unwrap();
        let empty = r#""responseKind":{"group":"","version":"","kind":""}"#;
        assert_eq!(text.matches(empty).count(), 2, "{text}");
    }
}

/// Lists of small documents over a few names, so that they overlap and contradict each other.
fn any_lists() -> impl Strategy<Value = Vec<(ApiGroupDiscoveryList, bool)>> {
    let verbs = proptest::sample::subsequence(vec!["get", "list", "watch"], 0..=3).prop_shuffle();
    let words = verbs.prop_map(|it| it.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    let subresource = (
        proptest::sample::select(vec!["status", "scale"]),
        words.clone(),
    )
        .prop_map(|(name, verbs)| ApiSubresourceDiscovery {
            subresource: name.into(),
            response_kind: None,
            accepted_types: Vec::new(),
            verbs,
        });
    let subresources = proptest::collection::vec(subresource, 0..=2);
    let kind = proptest::option::of(proptest::sample::select(vec!["A", "B", ""]));
    let resource = (words.clone(), words, subresources, kind, any::<bool>()).prop_map(
        |(verbs, short_names, mut subresources, kind, namespaced)| {
            subresources.dedup_by(|a, b| a.subresource == b.subresource);
            ApiResourceDiscovery {
                response_kind: kind.map(ResponseKind::of),
                scope: Scope::namespaced(namespaced),
                verbs,
                short_names,
                subresources,
                ..ApiResourceDiscovery::default()
            }
        },
    );
    let names = |names: Vec<&'static str>, most: usize| {
        proptest::sample::subsequence(names, 0..=most).prop_shuffle()
    };
    let version = (
        names(vec!["a", "b", "c"], 3),
        proptest::collection::vec(resource, 3),
        0..3_u8,
    )
        .prop_map(|(names, resources, freshness)| ApiVersionDiscovery {
            version: String::new(),
            resources: names
                .into_iter()
                .zip(resources)
                .map(|(name, it)| {
                    Arc::new(ApiResourceDiscovery {
                        resource: name.into(),
                        ..it
                    })
                })
                .collect(),
            freshness: [Freshness::Stale, Freshness::Current, Freshness::Unspecified]
                [usize::from(freshness)],
        });
    let group = (
        names(vec!["v1", "v2", "v1beta1"], 3),
        proptest::collection::vec(version, 3),
    )
        .prop_map(|(names, versions)| {
            let named = names.into_iter().zip(versions);
            named
                .map(|(name, it)| ApiVersionDiscovery {
                    version: name.into(),
                    ..it
                })
                .collect::<Vec<_>>()
        });
    let list = (
        names(vec!["g", "h", "i", "j"], 4),
        proptest::collection::vec(group, 4),
    )
        .prop_map(|(names, groups)| ApiGroupDiscoveryList {
            items: names
                .into_iter()
                .zip(groups)
                .map(|(name, versions)| Arc::new(ApiGroupDiscovery::new(name, versions)))
                .collect(),
        });
    proptest::collection::vec((list, proptest::bool::weighted(0.2)), 1..5)
}

fn merge(lists: &[(ApiGroupDiscoveryList, bool)]) -> ApiGroupDiscoveryList {
    let sources: Vec<_> = lists
        .iter()
        .map(|(list, held)| ListSource { list, held: *held })
        .collect();
    merge_lists(&sources)
}

proptest! {
    // Making these documents is slow without optimisation.
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn the_order_of_servers_does_not_matter(lists in any_lists(), seed in any::<u64>()) {
        let mut shuffled = lists.clone();
        let places = shuffled.len() as u64;
        for place in 0..places {
            let other = seed.rotate_left(u32::try_from(place).unwrap() * 7) % places;
            shuffled.swap(usize::try_from(place).unwrap(), usize::try_from(other).unwrap());
        }
        prop_assert_eq!(
            merge(&lists).to_json(DiscoveryVersion::V2),
            merge(&shuffled).to_json(DiscoveryVersion::V2)
        );
    }

    #[test]
    fn hearing_the_same_again_changes_nothing(lists in any_lists()) {
        let once = merge(&lists);
        let twice: Vec<_> = lists.iter().chain(&lists).cloned().collect();
        prop_assert_eq!(&merge(&twice), &once);
        prop_assert_eq!(&merge(&[(once.clone(), false)]), &once);
    }

    #[test]
    fn another_server_takes_nothing_away(lists in any_lists()) {
        let (_, fewer) = lists.split_last().unwrap();
        let (before, after) = (merge(fewer), merge(&lists));
        for group in &before.items {
            let found = after.group(group.name()).expect("the group");
            for version in &group.versions {
                let found = found.version(&version.version).expect("the version");
                prop_assert!(found.freshness >= version.freshness);
                if version.freshness.is_stale() {
                    continue;
                }
                for resource in &version.resources {
                    let found = found.resource(&resource.resource).expect("the resource");
                    for verb in &resource.verbs {
                        prop_assert!(found.verbs.contains(verb));
                    }
                    for it in &resource.subresources {
                        let same = found.subresources.iter().find(|other| other.subresource == it.subresource);
                        let verbs = &same.expect("the subresource").verbs;
                        prop_assert!(it.verbs.iter().all(|verb| verbs.contains(verb)));
                    }
                }
            }
        }
    }

}

proptest! {
    #[test]
    fn every_name_comes_once_and_in_the_same_place_for_all(
        lists in proptest::collection::vec(proptest::sample::subsequence((0..12_u8).collect::<Vec<_>>(), 0..12).prop_shuffle(), 1..6)
    ) {
        let names: Vec<String> = (0..12).map(|n| format!("n{n:02}")).collect();
        let lists: Vec<Vec<&str>> = lists
            .iter()
            .map(|list| list.iter().map(|n| names[usize::from(*n)].as_str()).collect())
            .collect();
        let order = consensus(&lists, str::cmp);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let mut all: Vec<&str> = lists.concat();
        all.sort_unstable();
        all.dedup();
        prop_assert_eq!(&sorted, &all);
        prop_assert_eq!(order.len(), all.len());
        let reversed: Vec<_> = lists.iter().rev().cloned().collect();
        prop_assert_eq!(&consensus(&reversed, str::cmp), &order);
        // Every pair that all lists have in the same order keeps it, unless one list is complete and has its way.
        let at = |list: &[&str], name: &str| list.iter().position(|it| *it == name);
        if lists.iter().all(|list| list.len() < all.len()) {
            for (x, y) in all.iter().flat_map(|x| all.iter().map(move |y| (x, y))) {
                let agreed = lists.iter().all(|list| at(list, x).is_some() && at(list, x) < at(list, y));
                prop_assert!(!agreed || at(&order, x) < at(&order, y), "{} {} in {:?}", x, y, order);
            }
        }
    }

    /// The order of Kubernetes' own algorithm, written down slowly, wherever no circle is in the way.
    #[test]
    fn without_contradictions_the_order_is_kubernetes_own(
        picks in proptest::collection::vec(proptest::sample::subsequence((0..10_usize).collect::<Vec<_>>(), 0..10), 1..5),
        names in Just((0..10).map(|n| format!("n{n}")).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let lists: Vec<Vec<&str>> = picks
            .iter()
            .map(|list| list.iter().map(|n| names[*n].as_str()).collect())
            .collect();
        prop_assert_eq!(consensus(&lists, str::cmp), kahn(&lists));
    }
}

/// Emits the smallest name before which no other has to come, again and again.
fn kahn<'a>(lists: &[Vec<&'a str>]) -> Vec<&'a str> {
    let mut left: Vec<&str> = lists.concat();
    left.sort_unstable();
    left.dedup();
    let mut order = Vec::new();
    while !left.is_empty() {
        let waits = |name: &str| {
            lists
                .iter()
                .flat_map(|list| list.windows(2))
                .any(|pair| pair[1] == name && left.contains(&pair[0]))
        };
        let next = left
            .iter()
            .position(|name| !waits(name))
            .expect("no circle");
        order.push(left.remove(next));
    }
    order
}
