//! The view as a whole: discovery and routing cannot disagree, a view made from an earlier one is the same as one
//! made from nothing, and every server answers the same bytes.

#![allow(clippy::unwrap_used)]

mod common;

use common::{documents, exclusions, gone, groups, inputs, local, peer, spelled};
use peerage_core::discovery::{ApiGroupDiscoveryList, DiscoveryVersion, StorageVersionHashes};
use peerage_core::index::Target;
use peerage_core::route::{LocalReason, UnsureReason, route_target};
use peerage_core::view::*;
use peerage_core::{Route, Rules};
use proptest::prelude::*;
use std::sync::Arc;

const V2: DiscoveryVersion = DiscoveryVersion::V2;

fn listed(view: &PeerView) -> String {
    let core = view.group(ViewScope::Merged, "").cloned();
    let mut list = ApiGroupDiscoveryList {
        items: core.into_iter().collect(),
    };
    list.items.extend(view.list(ViewScope::Merged).items);
    spelled(&list)
}

#[test]
fn merged_and_local_documents_are_kept_apart() {
    let view = PeerView::build(inputs(
        local("v1: a; g/v1: a"),
        vec![peer("b", "v1: b; h/v1: a")],
    ));
    let text = |rendered: &Rendered| String::from_utf8(rendered.bytes.to_vec()).unwrap();
    let merged = groups("g/v1: a; h/v1: a");
    assert_eq!(
        view.aggregated_apis(ViewScope::Merged, V2).bytes[..],
        merged.to_json(V2)
    );
    assert_eq!(
        view.aggregated_apis(ViewScope::Merged, V2).etag,
        Some(merged.etag())
    );
    assert_eq!(
        view.aggregated_apis(ViewScope::Local, V2).bytes[..],
        groups("g/v1: a").to_json(V2)
    );
    assert_eq!(
        view.aggregated_core(ViewScope::Merged, V2).bytes[..],
        groups("v1: a b").to_json(V2)
    );
    assert_eq!(
        view.aggregated_core(ViewScope::Local, V2).bytes[..],
        groups("v1: a").to_json(V2)
    );
    assert!(text(view.legacy_groups(ViewScope::Merged)).contains(r#""name":"h""#));
    assert!(!text(view.legacy_groups(ViewScope::Local)).contains(r#""name":"h""#));
    assert!(matches!(
        view.legacy_group(ViewScope::Merged, "h"),
        Lookup::Found(_)
    ));
    assert_eq!(view.legacy_group(ViewScope::Local, "h"), Lookup::Unknown);
    assert_eq!(
        view.legacy_group(ViewScope::Merged, "nosuch"),
        Lookup::Unknown
    );
    assert!(matches!(
        view.legacy_resources(ViewScope::Merged, "h", "v1"),
        Lookup::Found(_)
    ));
    assert_eq!(
        view.legacy_resources(ViewScope::Local, "h", "v1"),
        Lookup::Unknown
    );
    assert_eq!(
        view.legacy_resources(ViewScope::Merged, "h", "v2"),
        Lookup::Unknown
    );
    let beta = text(view.aggregated_apis(ViewScope::Merged, DiscoveryVersion::V2Beta1));
    assert!(beta.contains(r#""apiVersion":"apidiscovery.k8s.io/v2beta1""#));
    let expected = concat!(
        r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":"#,
        r#"[{"clientCIDR":"0.0.0.0/0","serverAddress":"192.0.2.1:6443"}]}"#,
        "\n"
    );
    assert_eq!(text(view.legacy_versions(ViewScope::Merged)), expected);
}

#[test]
fn a_server_alone_answers_its_own_document() {
    let view = PeerView::build(inputs(
        local("v1: a; z/v1beta1: a; z/v1: b; b/v1: a"),
        vec![],
    ));
    let (merged, own) = (
        view.aggregated_apis(ViewScope::Merged, V2),
        view.aggregated_apis(ViewScope::Local, V2),
    );
    assert_eq!(merged, own);
}

/// The life of a peer, as its APIs are listed: there, away, back, away for good, forgotten.
#[test]
fn what_only_a_peer_serves_is_listed_as_long_as_it_is_remembered() {
    let there = peer("b", "h/v2: a; h/v1: a");
    let b = || there.clone();
    let here = local("g/v1: a; h/v1: a");
    let at = |now, b: Option<Peer>| ViewInputs {
        now: Millis(now),
        ..inputs(here.clone(), b.into_iter().collect())
    };
    let mut view = PeerView::build(at(10_000, Some(b())));
    for (now, b, expected) in [
        (10_000, Some(b()), "g/v1: a; h/v2: a; h/v1: a"),
        (
            20_000,
            Some(gone(b(), 20_000)),
            "g/v1: a; h/v2!: a; h/v1: a",
        ),
        (30_000, Some(b()), "g/v1: a; h/v2: a; h/v1: a"),
        (
            40_000,
            Some(gone(b(), 40_000)),
            "g/v1: a; h/v2!: a; h/v1: a",
        ),
        (
            99_999,
            Some(gone(b(), 40_000)),
            "g/v1: a; h/v2!: a; h/v1: a",
        ),
        (100_000, Some(gone(b(), 40_000)), "g/v1: a; h/v1: a"),
        // The last peer's record goes: nothing of it stays.
        (110_000, None, "g/v1: a; h/v1: a"),
    ] {
        view = PeerView::rebuild(&view, at(now, b));
        assert_eq!(listed(&view), expected, "at {now}");
    }
    let away = PeerView::build(at(20_000, Some(gone(b(), 20_000))));
    assert_eq!(
        away.legacy_resources(ViewScope::Merged, "h", "v2"),
        Lookup::Stale
    );
    assert!(matches!(
        away.legacy_resources(ViewScope::Merged, "h", "v1"),
        Lookup::Found(_)
    ));
    assert!(matches!(
        away.legacy_group(ViewScope::Merged, "h"),
        Lookup::Found(_)
    ));
}

/// Upstream: `TestFilterPeerDiscoveryCache` and `TestFilterGroupDiscovery` of `gv_exclusion_manager_test.go`.
#[test]
fn what_the_store_defines_is_listed_as_this_server_lists_it() {
    for (upstream, here, there, excluded, expected) in [
        (
            "empty exclusion no changes",
            "c/v1: x",
            "g/v1: a",
            "",
            "c/v1: x; g/v1: a",
        ),
        (
            "partial version exclusion",
            "c/v1: x",
            "g/v1: a; g/v2: a",
            "g/v1",
            "c/v1: x; g/v2: a",
        ),
        (
            "all versions excluded",
            "c/v1: x",
            "g/v1: a; g/v2: a",
            "g/v1 g/v2",
            "c/v1: x",
        ),
        // Differs: upstream leaves an excluded version without resources listed.
        ("", "c/v1: x", "g/v1; h/v1: a", "g/v1", "c/v1: x; h/v1: a"),
        ("", "c/v1: x", "g/v1", "g/v1/foos", "c/v1: x; g/v1"),
        // A definition that the peer has heard of and this server not yet, or that is gone here already.
        ("", "c/v1: x", "g/v1: foos", "g/v1/foos", "c/v1: x"),
        // Built-in resources beside a custom one stay.
        (
            "",
            "g/v1: bars",
            "g/v1: bars foos",
            "g/v1/bars",
            "g/v1: bars foos",
        ),
        (
            "",
            "c/v1: x",
            "g/v1: bars foos",
            "g/v1/bars",
            "c/v1: x; g/v1: foos",
        ),
        // What this server lists itself is not touched.
        ("", "g/v1: bars", "", "g/v1/bars h/v1", "g/v1: bars"),
        // An aggregated API that only the peer can reach.
        ("", "g/v1!", "g/v1: a", "g/v1", "g/v1: a"),
    ] {
        let given = inputs(local(here), vec![peer("b", there)]);
        let view = PeerView::build(ViewInputs {
            exclusions: exclusions(excluded),
            ..given
        });
        assert_eq!(
            listed(&view),
            expected,
            "{upstream} {here} | {there} without {excluded}"
        );
    }
}

#[test]
fn storage_version_hashes_are_kept_where_all_that_tell_one_agree() {
    let with = |text: &str, hashes: &[(&str, &str)]| {
        let mut table = StorageVersionHashes::default();
        for (resource, hash) in hashes {
            table.insert("g/v1", resource, hash);
        }
        let documents = documents(text).as_ref().clone();
        Some(Arc::new(documents.with_hashes(Arc::new(table))))
    };
    let text = "g/v1: a b c";
    let here = LocalApis {
        documents: with(text, &[("a", "same"), ("b", "mine")]),
        ..local("")
    };
    let there = Peer {
        documents: with(text, &[("a", "same"), ("b", "theirs"), ("c", "theirs")]),
        ..peer("b", "")
    };
    let view = PeerView::build(inputs(here, vec![there]));
    let Lookup::Found(rendered) = view.legacy_resources(ViewScope::Merged, "g", "v1") else {
        panic!("g/v1 is not listed");
    };
    let body: serde_json::Value = serde_json::from_slice(&rendered.bytes).unwrap();
    let hashes: Vec<_> = body["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["storageVersionHash"].as_str())
        .collect();
    assert_eq!(hashes, [Some("same"), None, Some("theirs")]);
}

/// Upstream: `TestPeerAggregatedDiscovery_ETagHandling` and `TestFetchFromCache` of `peer_aggregated_handler_test.go`.
#[test]
fn documents_are_rendered_once_and_again_when_something_changed() {
    let given = |there: &str| inputs(local("g/v1: a"), vec![peer("b", there)]);
    let first = PeerView::build(given("h/v1: a"));
    let rendered = first.aggregated_apis(ViewScope::Merged, V2).clone();
    assert!(rendered.etag.is_some());
    let same = PeerView::rebuild(&first, {
        let mut inputs = given("h/v1: a");
        let before = first.peer("b").unwrap().documents.as_ref().unwrap();
        let renewed =
            Documents::renewed(before, groups("h/v1: a"), ApiGroupDiscoveryList::default());
        let b = Peer {
            documents: Some(Arc::new(renewed)),
            ..(*inputs.peers[0]).clone()
        };
        inputs.peers = vec![Arc::new(b)];
        inputs.local.documents = first.local_documents().cloned();
        inputs
    });
    let again = same.aggregated_apis(ViewScope::Merged, V2);
    assert!(
        Arc::ptr_eq(&again.bytes, &rendered.bytes),
        "the bytes are shared while nothing changes"
    );
    let other = PeerView::rebuild(&same, given("h/v1: a; h/v2: a"));
    let changed = other.aggregated_apis(ViewScope::Merged, V2);
    assert_ne!(changed.etag, rendered.etag);
    assert_eq!(*first.aggregated_apis(ViewScope::Merged, V2), rendered);
    let only_peers = PeerView::build(inputs(local(""), vec![peer("b", "h/v1: a")]));
    assert_eq!(listed(&only_peers), "h/v1: a");
    assert!(
        only_peers
            .aggregated_apis(ViewScope::Merged, V2)
            .etag
            .is_some()
    );
}

/// A small world: every server lists some of the same few names.
fn any_world() -> impl Strategy<Value = ViewInputs> {
    let text = proptest::collection::vec(
        (
            0..3_usize,
            0..2_usize,
            proptest::bool::weighted(0.15),
            proptest::collection::vec((0..2_usize, 0..8_u8, 0..3_usize, 0..8_u8), 0..3),
        ),
        0..6,
    )
    .prop_map(|versions| world_text(&versions));
    let server = (text.clone(), 0..6_u8, any::<bool>());
    let exclusion = (0..3_usize, 0..2_usize, proptest::option::of(0..2_usize));
    let exclusions = proptest::collection::vec(exclusion, 0..3);
    (
        text,
        proptest::collection::vec(server, 0..4),
        exclusions,
        proptest::bool::weighted(0.8),
    )
        .prop_map(|(here, peers, excluded, synced)| {
            let peers = peers
                .into_iter()
                .enumerate()
                .map(|(n, (text, life, ready))| {
                    let mut it = peer(&format!("p{n}"), &text);
                    it.readiness = if ready {
                        Readiness::Ready
                    } else {
                        Readiness::NotReady
                    };
                    match life {
                        0 => gone(it, 9_000),
                        1 => Peer {
                            state: PeerState::Failing,
                            ..it
                        },
                        2 if n > 1 => Peer {
                            documents: None,
                            ..it
                        },
                        3 if n > 1 => Peer {
                            state: PeerState::Gone,
                            gone_since: Some(Millis(0)),
                            ..it
                        },
                        _ => it,
                    }
                });
            let peers = peers.collect();
            let excluded: Vec<String> = excluded
                .iter()
                .map(|(group, version, resource)| match resource {
                    Some(resource) => format!(
                        "{}/{}/{}",
                        GROUPS[*group], VERSIONS[*version], RESOURCES[*resource]
                    ),
                    None => format!("{}/{}", GROUPS[*group], VERSIONS[*version]),
                })
                .collect();
            let excluded: Vec<&str> = excluded
                .iter()
                .map(String::as_str)
                .filter(|it| !it.starts_with('/'))
                .collect();
            ViewInputs {
                exclusions: exclusions_of(&excluded),
                synced,
                hold: Millis(9_500),
                ..inputs(local(&here), peers)
            }
        })
}

fn exclusions_of(words: &[&str]) -> Arc<peerage_core::Exclusions> {
    exclusions(&words.join(" "))
}

const GROUPS: [&str; 3] = ["", "g", "h"];
const VERSIONS: [&str; 2] = ["v1", "v2"];
const RESOURCES: [&str; 2] = ["a", "b"];
const SUBRESOURCES: [&str; 3] = ["", "s", "t"];
const VERBS: [&str; 3] = ["get", "list", "patch"];

type Version = (usize, usize, bool, Vec<(usize, u8, usize, u8)>);

fn world_text(versions: &[Version]) -> String {
    let verbs = |bits: u8| {
        let some: Vec<&str> = (0..3)
            .filter(|n| bits & (1 << n) != 0)
            .map(|n| VERBS[n])
            .collect();
        if some.is_empty() {
            "get".into()
        } else {
            some.join(",")
        }
    };
    let mut items = std::collections::BTreeMap::new();
    for (group, version, stale, resources) in versions {
        let mut by_name = std::collections::BTreeMap::new();
        for (resource, bits, subresource, sub_bits) in resources {
            let name = RESOURCES[*resource];
            let mut word = format!("{name}[{}]", verbs(*bits));
            if *subresource > 0 {
                word.push_str(&format!(
                    " {name}/{}[{}]",
                    SUBRESOURCES[*subresource],
                    verbs(*sub_bits)
                ));
            }
            by_name.insert(name, word);
        }
        let words: Vec<String> = by_name.into_values().collect();
        let mark = if *stale { "!" } else { "" };
        let name = match GROUPS[*group] {
            "" => VERSIONS[*version].to_owned(),
            group => format!("{group}/{}", VERSIONS[*version]),
        };
        items.insert(
            (*group, *version),
            format!("{name}{mark}: {}", words.join(" ")),
        );
    }
    items.into_values().collect::<Vec<_>>().join("; ")
}

fn all_targets() -> Vec<Target<'static>> {
    let mut targets = Vec::new();
    for group in GROUPS {
        for version in VERSIONS {
            for resource in RESOURCES {
                for subresource in SUBRESOURCES {
                    for verb in VERBS {
                        targets.push(Target {
                            group,
                            version,
                            resource,
                            subresource,
                            verb,
                        });
                    }
                }
            }
        }
    }
    targets
}

/// Whether the merged documents list the target, and whether as current.
fn is_listed(view: &PeerView, target: &Target<'_>) -> Option<bool> {
    let version = view
        .group(ViewScope::Merged, target.group)?
        .version(target.version)?;
    let resource = version.resource(target.resource)?;
    let verbs = if target.subresource.is_empty() {
        &resource.verbs
    } else {
        &resource
            .subresources
            .iter()
            .find(|it| it.subresource == target.subresource)?
            .verbs
    };
    verbs
        .iter()
        .any(|verb| verb == target.verb)
        .then_some(!version.freshness.is_stale())
}

/// Whether who has it is gone and expected back, and nobody is asked but a server that says itself that it is down here.
fn is_away(route: &Route<'_>) -> bool {
    matches!(
        route,
        Route::Unsure {
            reason: UnsureReason::PeerGone | UnsureReason::StaleElsewhere,
            ..
        } | Route::Local(LocalReason::StaleHere)
    )
}

proptest! {
    #[test]
    fn what_is_listed_and_what_can_be_called_are_the_same(world in any_world(), sent_on in any::<bool>()) {
        let view = PeerView::build(world);
        let rules = Rules { from_verified_peer: sent_on, ..Rules::default() };
        for target in all_targets() {
            let route = route_target(&target, &view, &rules);
            let shown = format!("{target:?}: {route} in {}", listed(&view));
            let served = matches!(route, Route::Local(LocalReason::Served | LocalReason::DefinedByStore));
            let sent = matches!(route, Route::Forward { .. });
            prop_assert!(!(sent && sent_on), "sent on twice: {}", shown);
            match is_listed(&view, &target) {
                Some(true) if sent_on => prop_assert!(served || is_away(&route) || matches!(route, Route::Unsure { .. }), "{}", shown),
                Some(true) => prop_assert!(served || sent || is_away(&route), "current but not callable: {}", shown),
                Some(false) => prop_assert!(!matches!(route, Route::Unknown(_)), "stale but unknown: {}", shown),
                None => {
                    prop_assert!(!matches!(route, Route::Local(LocalReason::Served)), "served but not listed: {}", shown);
                    if sent {
                        // Somebody has the resource, nobody the subresource or verb, and the peer is to say so.
                        let any = VERBS.iter().any(|verb| is_listed(&view, &Target { subresource: "", verb, ..target }).is_some());
                        prop_assert!(any, "sent but not listed: {}", shown);
                    }
                }
            }
            if matches!(route, Route::Unknown(_)) {
                prop_assert!(view.absence_is_certain(), "{}", shown);
            }
        }
    }

    #[test]
    fn a_view_made_from_an_earlier_one_is_the_one_made_from_nothing(
        worlds in proptest::collection::vec(any_world(), 2..4), render in any::<bool>()
    ) {
        let mut view = PeerView::build(worlds[0].clone());
        for world in &worlds[1..] {
            if render {
                let _ = (all_bytes(&view, ViewScope::Merged), all_bytes(&view, ViewScope::Local));
            }
            // Halfway the peers stay and only the local server changes, and back.
            let half = ViewInputs { peers: view.peers().map(|(peer, _)| Arc::clone(peer)).collect(), ..world.clone() };
            for next in [half, world.clone()] {
                view = PeerView::rebuild(&view, next.clone());
                let fresh = PeerView::build(next);
                for scope in [ViewScope::Merged, ViewScope::Local] {
                    prop_assert_eq!(all_bytes(&view, scope), all_bytes(&fresh, scope));
                }
            }
        }
    }

    /// Each server is a peer of the others. All have heard of the same custom resources and APIServices.
    #[test]
    fn every_server_answers_the_same_bytes(
        worlds in proptest::collection::vec(any_world(), 3), defined in any::<bool>()
    ) {
        let shared = "c/v1: foos bars; c/v2!; i/v1: bars";
        let names = "c/v1/foos c/v1/bars c/v2 i/v1/bars";
        let servers: Vec<Arc<Documents>> = worlds
            .iter()
            .filter_map(|world| world.local.documents.as_ref())
            .map(|own| {
                let mut apis = own.apis();
                apis.items.extend(groups(if defined { shared } else { "" }).items);
                Arc::new(Documents::new(apis, own.core()))
            })
            .collect();
        let view_of = |me: usize| {
            let peers = servers.iter().enumerate().filter(|(n, _)| *n != me).map(|(n, documents)| {
                Peer { documents: Some(Arc::clone(documents)), ..peer(&format!("s{n}"), "") }
            });
            let own = LocalApis {
                id: format!("s{me}").into(),
                documents: Some(Arc::clone(&servers[me])),
                server_address: "x:1".into(),
                is_front: false,
            };
            let exclusions = exclusions(if defined { names } else { "" });
            PeerView::build(ViewInputs { exclusions, ..inputs(own, peers.collect()) })
        };
        let first = all_bytes(&view_of(0), ViewScope::Merged);
        prop_assert_eq!(&all_bytes(&view_of(1), ViewScope::Merged), &first);
        prop_assert_eq!(&all_bytes(&view_of(2), ViewScope::Merged), &first);
    }
}

fn all_bytes(view: &PeerView, scope: ViewScope) -> String {
    let mut bytes = Vec::new();
    for version in [V2, DiscoveryVersion::V2Beta1] {
        for rendered in [
            view.aggregated_apis(scope, version),
            view.aggregated_core(scope, version),
        ] {
            bytes.extend_from_slice(&rendered.bytes);
            bytes.extend_from_slice(rendered.etag.as_ref().unwrap().as_bytes());
        }
    }
    bytes.extend_from_slice(&view.legacy_groups(scope).bytes);
    bytes.extend_from_slice(&view.legacy_versions(scope).bytes);
    for group in GROUPS {
        for version in VERSIONS {
            bytes.extend_from_slice(
                format!("{:?}", view.legacy_resources(scope, group, version)).as_bytes(),
            );
        }
    }
    String::from_utf8(bytes).unwrap()
}
