//! Accept negotiation against what a kube-apiserver answered.

#![allow(clippy::unwrap_used)]

use peerage_core::media::{
    Convert, DiscoveryDocument, DiscoveryOffer, DiscoveryPath, Encoding, Endpoint, Media,
    MetaVersion, NotAcceptable, body_type, is_pretty, negotiate_discovery, negotiate_resource,
    negotiate_status, patch_type, takes_gzip, takes_json, weighs_gzip,
};
use peerage_core::{Query, Status, StatusDetails};
use proptest::prelude::*;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn offer(v2beta1: bool, protobuf: bool) -> DiscoveryOffer {
    DiscoveryOffer { v2beta1, protobuf }
}

fn discovery(path: DiscoveryPath, accept: Option<&str>, serves_v2beta1: bool) -> String {
    match negotiate_discovery(accept, path, offer(serves_v2beta1, false)) {
        Err(refusal) => who(&refusal).to_owned(),
        Ok(answer) => {
            let document = match answer.document {
                DiscoveryDocument::AggregatedV2 => " v2",
                DiscoveryDocument::AggregatedV2Beta1 => " v2beta1",
                DiscoveryDocument::Legacy => "",
            };
            let no_peer = if answer.no_peer { " nopeer" } else { "" };
            format!(
                "{}{document}{no_peer}{}",
                name(answer.media),
                pretty(answer.pretty)
            )
        }
    }
}

fn resource(endpoint: Endpoint, accept: Option<&str>, has_table: bool) -> String {
    match negotiate_resource(accept, endpoint, has_table) {
        Err(refusal) => who(&refusal).to_owned(),
        Ok(answer) => {
            let stream = if answer.stream { " stream" } else { "" };
            let convert = answer.convert.map_or(String::new(), |convert| {
                let (kind, version) = match convert {
                    Convert::Table(version) => ("Table", version),
                    Convert::PartialObjectMetadata(version) => ("PartialObjectMetadata", version),
                    Convert::PartialObjectMetadataList(version) => {
                        ("PartialObjectMetadataList", version)
                    }
                };
                format!(
                    " {kind} {}",
                    if version == MetaVersion::V1 {
                        "v1"
                    } else {
                        "v1beta1"
                    }
                )
            });
            format!(
                "{}{convert}{}{stream}",
                name(answer.media),
                pretty(answer.pretty)
            )
        }
    }
}

fn name(media: Media) -> &'static str {
    media.content_type().trim_start_matches("application/")
}

fn pretty(pretty: bool) -> &'static str {
    if pretty { " pretty" } else { "" }
}

fn who(refusal: &NotAcceptable) -> &'static str {
    match refusal {
        NotAcceptable::Router(_) => "router",
        NotAcceptable::Handler(_) => "handler",
    }
}

#[test]
fn every_recorded_accept_header_is_answered_as_kubernetes_answers_it() {
    let mut count = 0;
    for row in include_str!("data/negotiation.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        count += 1;
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let accept = Some(cells[1]);
        let answer = match cells[0] {
            "groups" => discovery(DiscoveryPath::Groups, accept, false),
            "core" => discovery(DiscoveryPath::Core, accept, false),
            "group" => discovery(DiscoveryPath::Group, accept, false),
            "resources" => discovery(DiscoveryPath::Resources, accept, false),
            "object" => resource(Endpoint::Object, accept, true),
            "list" => resource(Endpoint::List, accept, true),
            "watch" => resource(Endpoint::Watch, accept, true),
            other => panic!("{other}"),
        };
        assert_eq!(answer, cells[2], "{row}");
    }
    assert!(count > 200, "{count}");
}

#[test]
fn discovery_follows_the_rules_that_no_recording_shows() {
    use DiscoveryPath::{Core, Groups, GroupsSlash};
    let beta = AGGREGATED.replace("v=v2", "v=v2beta1");
    for (path, accept, serves_v2beta1, expected) in [
        (Groups, String::new(), false, "json"),
        (GroupsSlash, AGGREGATED.to_owned(), false, "handler"),
        (GroupsSlash, format!("{AGGREGATED},application/json"), false, "json"),
        (Groups, beta.clone(), true, "json v2beta1"),
        (Groups, format!("{beta},{AGGREGATED}"), true, "json v2beta1"),
        (Groups, format!("{beta},{AGGREGATED}"), false, "json v2"),
        (Core, beta, true, "json v2beta1"),
        (Groups, format!("{AGGREGATED};profile=nopeer,{AGGREGATED}"), false, "json v2 nopeer"),
        (Groups, format!("{AGGREGATED},{AGGREGATED};profile=nopeer"), false, "json v2"),
        (Groups, format!("{AGGREGATED};profile=foo"), false, "json v2"),
        (Groups, format!("{AGGREGATED};sv=v1"), false, "handler"),
        (Groups, format!("{AGGREGATED};pretty=1"), false, "json v2 pretty"),
        (Groups, "application/json;as=APIGroupDiscoveryList".to_owned(), false, "handler"),
        (Groups, "application/*".to_owned(), false, "json"),
        (Core, "application/*".to_owned(), false, "router"),
        // What client-go sends for protobuf, and what peers of 1.35 and later send.
        (
            Groups,
            "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
             application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
                .to_owned(),
            false,
            "json v2",
        ),
        (
            Groups,
            format!("{AGGREGATED};profile=nopeer,{AGGREGATED},application/json"),
            false,
            "json v2 nopeer",
        ),
    ] {
        assert_eq!(discovery(path, Some(&accept), serves_v2beta1), expected, "{path:?} {accept}");
    }
    assert_eq!(discovery(Groups, None, false), "json");
}

#[test]
fn resources_follow_the_rules_that_no_recording_shows() {
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for (endpoint, accept, has_table, expected) in [
        (Endpoint::Object, table.to_owned(), false, "handler"),
        (
            Endpoint::List,
            format!("{table},application/json"),
            false,
            "json",
        ),
        (
            Endpoint::Object,
            "application/vnd.kubernetes.protobuf,application/json".to_owned(),
            true,
            "json",
        ),
        (
            Endpoint::Object,
            "application/vnd.kubernetes.protobuf, */*".to_owned(),
            true,
            "json",
        ),
        (
            Endpoint::Watch,
            "application/yaml,application/json".to_owned(),
            true,
            "handler",
        ),
        (
            Endpoint::Watch,
            "application/yaml;stream=watch".to_owned(),
            true,
            "handler",
        ),
        (
            Endpoint::List,
            "application/yaml;stream=watch,application/json".to_owned(),
            true,
            "json",
        ),
        (
            Endpoint::List,
            "application/json;stream=other".to_owned(),
            true,
            "handler",
        ),
        (
            Endpoint::Object,
            "application/json;sv=v1".to_owned(),
            true,
            "json",
        ),
        (
            Endpoint::Object,
            "application/json;sv=v2".to_owned(),
            true,
            "handler",
        ),
        (
            Endpoint::Object,
            "application/json;export=1;x=y".to_owned(),
            true,
            "json",
        ),
        // kubectl's header for get.
        (
            Endpoint::List,
            format!("{table},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"),
            true,
            "json Table v1",
        ),
    ] {
        assert_eq!(
            resource(endpoint, Some(&accept), has_table),
            expected,
            "{endpoint:?} {accept}"
        );
    }
    assert_eq!(resource(Endpoint::Watch, None, true), "json");
}

#[test]
fn refusals_list_what_there_is_in_kubernetes_words() {
    let refused = |accept: &str, endpoint| -> Status {
        negotiate_resource(Some(accept), endpoint, true)
            .unwrap_err()
            .into()
    };
    let status = refused("text/html", Endpoint::Object);
    assert_eq!(
        status.message,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf"
    );
    assert_eq!(
        (status.code, status.details.clone()),
        (406, Some(StatusDetails::default()))
    );
    assert_eq!(
        refused("text/html", Endpoint::List).message,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf, application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    );
    let status = refused("application/json;as=Chart", Endpoint::Object);
    assert_eq!(
        status.message,
        "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf"
    );
    assert_eq!(
        (status.code, status.reason.as_str(), status.details.clone()),
        (406, "NotAcceptable", None)
    );
    assert_eq!(
        refused("application/vnd.kubernetes.protobuf", Endpoint::Object).message,
        "only the following media types are accepted: application/json, application/yaml"
    );
    assert_eq!(
        refused("application/yaml", Endpoint::Watch).message,
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    );
    let partial = Convert::PartialObjectMetadata(MetaVersion::V1);
    assert_eq!(
        partial.check(true, "core.ConfigMapList").unwrap_err(),
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    );
    assert_eq!(partial.check(false, "core.ConfigMap"), Ok(()));
    assert_eq!(
        Convert::PartialObjectMetadataList(MetaVersion::V1)
            .check(false, "core.ConfigMap")
            .unwrap_err(),
        "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)"
    );
}

#[test]
fn statuses_are_written_as_accepted_or_as_indented_json() {
    let indented = Encoding {
        media: Media::Json,
        pretty: true,
    };
    for (accept, expected) in [
        (None, Encoding::default()),
        (Some(""), Encoding::default()),
        (Some("*/*"), Encoding::default()),
        (
            Some("application/yaml"),
            Encoding {
                media: Media::Yaml,
                pretty: false,
            },
        ),
        (Some("application/json;pretty=1"), indented),
        (Some("text/html"), indented),
        (
            Some("application/json;as=Table;g=meta.k8s.io;v=v1"),
            indented,
        ),
        (
            Some("application/json;as=Table;g=meta.k8s.io;v=v1,application/json"),
            Encoding::default(),
        ),
        (Some("application/vnd.kubernetes.protobuf"), indented),
    ] {
        assert_eq!(
            negotiate_status(accept, Media::OFFERED),
            expected,
            "{accept:?}"
        );
    }
    for (accept, media) in [
        ("application/vnd.kubernetes.protobuf", Media::Protobuf),
        (
            "application/vnd.kubernetes.protobuf,application/json",
            Media::Protobuf,
        ),
        (
            "application/json,application/vnd.kubernetes.protobuf",
            Media::Json,
        ),
        (
            "application/cbor,application/vnd.kubernetes.protobuf",
            Media::Protobuf,
        ),
        ("*/*", Media::Json),
    ] {
        let found = negotiate_status(Some(accept), Media::OFFERED_WITH_PROTOBUF);
        assert_eq!(found.media, media, "{accept}");
    }
}

#[test]
fn people_get_indented_json() {
    for (query, agent, expected) in [
        ("", None, false),
        ("pretty=true", None, true),
        ("pretty=1", Some("kubectl"), true),
        ("pretty=0", Some("curl/8"), false),
        ("pretty=yes", Some("curl/8"), false),
        ("pretty", Some("curl/8"), true),
        ("", Some("curl/8"), true),
        ("", Some("Wget/1"), true),
        ("", Some("Mozilla/5.0 (X11)"), true),
        ("", Some("Mozilla/4.0"), false),
        ("", Some("kubectl/v1.37 curl"), false),
    ] {
        assert_eq!(
            is_pretty(&Query::parse(query), agent),
            expected,
            "{query:?} {agent:?}"
        );
    }
}

#[test]
fn protobuf_is_answered_and_named_by_whoever_writes_it() {
    use DiscoveryPath::{Core, Group, Groups};
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let aggregated = AGGREGATED.replace("application/json", PROTOBUF);
    let rows: &[(DiscoveryPath, &str, &str)] = &[
        (Groups, PROTOBUF, PROTOBUF),
        (Core, PROTOBUF, PROTOBUF),
        (Group, PROTOBUF, PROTOBUF),
        (Groups, &aggregated, &aggregated),
        (Core, &aggregated, &aggregated),
        (
            Groups,
            &format!("{aggregated},{PROTOBUF},application/json"),
            &aggregated,
        ),
        (Groups, &format!("{AGGREGATED},{aggregated}"), AGGREGATED),
        (Group, &format!("{aggregated},{PROTOBUF}"), PROTOBUF),
        (Groups, "*/*", "application/json"),
    ];
    for (path, accept, expected) in rows {
        let answer = negotiate_discovery(Some(accept), *path, offer(false, true)).unwrap();
        assert_eq!(answer.content_type(), *expected, "{path:?} {accept}");
    }
    for path in [Groups, Core] {
        let accept = format!("{PROTOBUF};as=X");
        let refusal = negotiate_discovery(Some(&accept), path, offer(true, true)).unwrap_err();
        assert!(refusal.to_string().ends_with(PROTOBUF), "{refusal}");
    }
}

proptest! {
    #[test]
    fn no_header_panics_and_what_is_accepted_is_offered(
        header in proptest::collection::vec("[ -~]{0,12}|\\*/\\*|application/(json|yaml|\\*)(;(q=[0-9.]{0,4}|as=Table|g=x|v=v1|stream=watch)){0,3}", 0..20)
    ) {
        let header = header.join(",");
        for endpoint in [Endpoint::Object, Endpoint::List, Endpoint::Watch] {
            match negotiate_resource(Some(&header), endpoint, true) {
                Ok(answer) => prop_assert!(endpoint != Endpoint::Watch || answer.media == Media::Json),
                Err(refusal) => prop_assert_eq!(Status::from(refusal).code(), 406),
            }
        }
        for path in [DiscoveryPath::Groups, DiscoveryPath::Core, DiscoveryPath::Group] {
            if let Ok(answer) = negotiate_discovery(Some(&header), path, offer(true, true)) {
                prop_assert!(answer.content_type().starts_with(answer.media.content_type()));
            }
        }
        let _ = (negotiate_status(Some(&header), Media::OFFERED_WITH_PROTOBUF), body_type(Some(&header)), patch_type(Some(&header), true));
    }
}

#[test]
fn openapi_is_json_for_whoever_does_not_rule_it_out() {
    let yes = [
        None,
        Some(""),
        Some("*/*"),
        Some("application/json;q=0.1"),
        Some("text/html, application/*"),
    ];
    let no = [
        Some("text/html"),
        Some("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
    ];
    assert!(yes.into_iter().all(takes_json));
    assert!(!no.into_iter().any(takes_json));
}

#[test]
fn gzip_is_taken_by_the_rule_of_whoever_makes_the_document() {
    for (accept_encoding, bare, weighed) in [
        (None, false, false),
        (Some(""), false, false),
        (Some("gzip"), true, true),
        (Some("deflate, gzip ,br"), true, true),
        (Some("gzip;q=1.0"), false, true),
        (Some("gzip; q=0.5"), false, true),
        (Some("gzip;q=0"), false, false),
        (Some("GZIP"), false, true),
        (Some("x-gzip"), false, false),
        (Some("*"), false, false),
        (Some("gzip;q=x"), false, false),
        (Some("identity"), false, false),
    ] {
        assert_eq!(
            (takes_gzip(accept_encoding), weighs_gzip(accept_encoding)),
            (bare, weighed),
            "{accept_encoding:?}"
        );
    }
}
