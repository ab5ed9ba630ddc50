//! Request parsing against Kubernetes' examples and against a slow reference written from the rules alone.

#![allow(clippy::unwrap_used)]

mod reference;

use peerage_core::{PlainError, RequestInfo, RequestInfoError};
use proptest::prelude::*;

use reference::{Said, said};

#[test]
fn every_example_reads_as_kubernetes_reads_it() {
    let rows = include_str!("data/request_info.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for row in rows {
        count += 1;
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let parsed = RequestInfo::parse(cells[0], cells[1]);
        if cells[2] == "error" {
            assert!(
                matches!(parsed, Err(RequestInfoError::NoKind { .. })),
                "{row}"
            );
            continue;
        }
        let optional = |cell: &str| (cell != "-").then(|| cell.to_owned());
        let expected = Said {
            is_resource: cells[2] == "R",
            verb: cells[3].to_owned(),
            prefix: cells[4].to_owned(),
            group: cells[5].to_owned(),
            version: cells[6].to_owned(),
            namespace: cells[7].to_owned(),
            resource: cells[8].to_owned(),
            subresource: cells[9].to_owned(),
            name: cells[10].to_owned(),
            parts: optional(cells[11]),
            field_selector: optional(cells[12]),
            label_selector: optional(cells[13]),
        };
        let info = parsed.unwrap();
        assert_eq!(said(&info), expected, "{row}");
        assert_eq!(info.raw_target(), cells[1]);
        assert_eq!(said(&info.into_owned()), expected, "owned: {row}");
    }
    assert_eq!(count, 77);
}

#[test]
fn the_raw_target_and_the_decoded_path_are_both_kept() {
    let target = "/api/v1/namespaces/a%2Fb/pods/%41?x=%zz;&watch";
    let info = RequestInfo::parse("GET", target).unwrap();
    assert_eq!(info.raw_target(), target);
    assert_eq!(info.raw_query(), "x=%zz;&watch");
    assert_eq!(info.path(), "/api/v1/namespaces/a/b/pods/A");
    assert_eq!(info.query().iter().collect::<Vec<_>>(), [("watch", "")]);
    let info = RequestInfo::parse("GET", "//api/").unwrap();
    assert_eq!((info.path(), info.raw_query()), ("//api/", ""));
}

#[test]
fn resource_paths_name_the_subresource() {
    let path = |target| {
        RequestInfo::parse("GET", target)
            .unwrap()
            .resource_path()
            .into_owned()
    };
    assert_eq!(path("/api/v1/namespaces/n/pods/p/log"), "pods/log");
    assert_eq!(path("/api/v1/namespaces/n/pods/p"), "pods");
    assert_eq!(path("/healthz"), "");
}

#[test]
fn a_watch_of_nothing_is_answered_as_plain_text_with_the_url_quoted_and_escaped() {
    let plain = |target: &str| RequestInfo::parse("GET", target).unwrap_err().plain();
    for (target, shown, url) in [
        ("/api/v1/watch", "/api/v1/watch", "/api/v1/watch"),
        (
            "/api/v1/watch?a=<b>&c",
            "/api/v1/watch?a=&lt;b&gt;&amp;c",
            "/api/v1/watch?a=&lt;b&gt;&amp;c",
        ),
        ("/api/v1/w%61tch/", "/api/v1/w%61tch/", "/api/v1/w%61tch/"),
        ("/api/\"v1/watch", r#"/api/\"v1/watch"#, "/api/%22v1/watch"),
        ("/api/v1!/%70roxy", "/api/v1!/%70roxy", "/api/v1!/%70roxy"),
        (
            "/api/v1!é/%70roxy",
            "/api/v1!é/%70roxy",
            "/api/v1%21%C3%A9/proxy",
        ),
    ] {
        let expected = format!(
            "Internal Server Error: \"{shown}\": failed to create RequestInfo: unable to determine kind and namespace \
             from url, {url}\n"
        );
        assert_eq!(plain(target).body, expected, "{target}");
    }
    let answer = plain("/api/v1/watch");
    assert_eq!(
        (answer.code, answer.nosniff, answer.close),
        (500, true, false)
    );
}

#[test]
fn targets_that_cannot_be_decoded_are_bad_requests() {
    for target in ["/api/%", "/api/%4", "/%zz", "/a\nb", "/a?b\u{7f}"] {
        let error = RequestInfo::parse("GET", target).unwrap_err();
        assert!(
            matches!(error, RequestInfoError::Malformed { .. }),
            "{target}"
        );
        assert_eq!(error.plain(), PlainError::malformed_request());
    }
    assert!(
        RequestInfo::parse("GET", "/api?bad=%zz").is_ok(),
        "a bad escape in the query only drops its pair"
    );
    assert_eq!(
        RequestInfo::parse("GET", "/%FF").unwrap().path(),
        "/\u{fffd}"
    );
    assert_eq!(RequestInfo::parse("OPTIONS", "*").unwrap().path(), "*");
    assert_eq!(RequestInfo::parse("FooBar", "").unwrap().verb(), "foobar");
}

fn segment() -> impl Strategy<Value = String> {
    let words = [
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "pods",
        "watch",
        "proxy",
        "status",
        "finalize",
        "",
        "log",
        "%2F",
        "%70ods",
        "a%2Fb",
        "%FF",
        "é",
        "..",
        "w%61tch",
        "%c3%a9",
        "%zz",
        "name",
    ];
    prop_oneof![8 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => "[a-z%./=!-]{0,6}"]
}

fn pair() -> impl Strategy<Value = String> {
    let pairs = [
        "watch",
        "watch=1",
        "watch=FALSE",
        "watch=0",
        "limit=5",
        "limit=x",
        "limit=",
        "timeoutSeconds=-3",
        "timeoutSeconds=x",
        "labelSelector=a%3Db",
        "labelSelector=!!",
        "labelSelector=a=b=c",
        "labelSelector=",
        "fieldSelector=metadata.name%3Dx",
        "fieldSelector=metadata.name=b,metadata.name==a",
        "fieldSelector=metadata.name!=x",
        "fieldSelector=,bogus",
        "fieldSelector=metadata.name=a/b",
        "fieldSelector=metadata.name=..,a==b",
        "fieldSelector=metadata.name=x;",
        "a=%zz",
        "%77atch=1",
        "",
        "fieldSelector=metadata.name%3D+",
        "fieldSelector=metadata.name===a",
        "fieldSelector=a!==b",
    ];
    proptest::sample::select(pairs.to_vec()).prop_map(str::to_owned)
}

fn target() -> impl Strategy<Value = String> {
    let path = prop_oneof![
        4 => ("/?/api(s/[a-z]{0,3})?/v1", proptest::collection::vec(segment(), 0..7))
            .prop_map(|(head, rest)| format!("{head}/{}", rest.join("/"))),
        1 => proptest::collection::vec(segment(), 0..7).prop_map(|rest| format!("/{}", rest.join("/"))),
    ];
    let query = proptest::option::of(proptest::collection::vec(pair(), 0..4));
    (path, query).prop_map(|(path, query)| match query {
        Some(pairs) => format!("{path}?{}", pairs.join("&")),
        None => path,
    })
}

fn method() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "Frob",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn agrees_with_the_slow_reference(method in method(), target in target()) {
        let parsed = RequestInfo::parse(method, &target);
        match reference::parse(method, &target) {
            None => prop_assert!(matches!(parsed, Err(RequestInfoError::Malformed { .. })), "malformed"),
            Some(Err(())) => prop_assert!(matches!(parsed, Err(RequestInfoError::NoKind { .. })), "no kind"),
            Some(Ok(expected)) => prop_assert_eq!(said(&parsed.unwrap()), expected),
        }
    }

    #[test]
    fn never_panics_and_keeps_the_target(method in ".{0,8}", target in ".{0,60}") {
        match RequestInfo::parse(&method, &target) {
            Ok(info) => {
                prop_assert_eq!(info.raw_target(), target.as_str());
                prop_assert_eq!(said(&info), said(&info.clone().into_owned()));
            }
            Err(error) => prop_assert!(!error.plain().body.is_empty()),
        }
    }
}
