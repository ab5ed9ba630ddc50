//! `peerage diff` as a shell sees it: versions, saved documents of every form, running servers, exit codes.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::{Command, Output};

use peerage::pki::kubeconfig::{Kubeconfig, Server};
use peerage_catalogue::{Catalogue, RuntimeConfig};
use peerage_core::discovery::DiscoveryVersion;
use peerage_testkit::cluster::legacy_documents;
use peerage_testkit::pki::Pki;
use peerage_testkit::process::{ServerProcess, ServerSpec};
use serde_json::{Value, json};

fn diff(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peerage"))
        .arg("diff")
        .args(words)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(words: &[&str]) -> Value {
    let output = diff(&[words, &["--output", "json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

/// What only one side has, in short.
fn entries(words: &[&str]) -> Vec<String> {
    let compared = json(words);
    let entries = compared["differences"].as_array().unwrap().iter();
    let entries = entries.map(|it| {
        let part = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
        let name = ["group", "version", "resource", "subresource"].map(part);
        format!("{} {} {}", part("onlyIn"), part("what"), name.join(" "))
    });
    entries.collect()
}

#[test]
fn two_versions_of_the_catalogue_differ_in_what_the_newer_brought() {
    let output = diff(&["1.36", "1.37"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let found = entries(&["1.36", "v1.37"]);
    for expected in [
        "b group storagemigration.k8s.io   ",
        "b version storagemigration.k8s.io v1  ",
        "b resource storagemigration.k8s.io v1 storageversionmigrations ",
        "b subresource storage.k8s.io v1 csinodes status",
    ] {
        assert!(
            found.iter().any(|it| it == expected),
            "{expected}: {found:#?}"
        );
    }
    let turned = entries(&["1.37", "1.36"]);
    let swapped: Vec<_> = found.iter().map(|it| it.replacen('b', "a", 1)).collect();
    assert_eq!(turned, swapped);
    let deprecated = json(&["1.36", "1.37"])["deprecated"].to_string();
    assert!(
        deprecated.contains("discovery.k8s.io/v1 EndpointSlice"),
        "{deprecated}"
    );
}

#[test]
fn beta_apis_are_told_with_when_they_go() {
    let shown = diff(&["--all-apis", "1.34", "1.37"]);
    let shown = text(&shown.stdout);
    assert!(
        shown.contains("resource.k8s.io/v1beta1 deviceclasses"),
        "{shown}"
    );
    assert!(
        shown.contains("deprecated since 1.35, gone in 1.38"),
        "{shown}"
    );
}

#[test]
fn trouble_has_an_exit_code_of_its_own() {
    let temp = tempfile::tempdir().unwrap();
    let bad = temp.path().join("bad.json");
    std::fs::write(&bad, "{").unwrap();
    let (bad, list) = (bad.display().to_string(), temp.path().join("list.json"));
    std::fs::write(
        &list,
        json!({"kind": "APIGroupList", "groups": []}).to_string(),
    )
    .unwrap();
    for (words, expected) in [
        (&["1.2", "1.37"][..], "no catalogue of Kubernetes 1.2"),
        (&["1.37.2", "1.36"], "write 1.37;"),
        (
            &["1.35", "127.0.0.1:21000"],
            "write https://127.0.0.1:21000",
        ),
        (&["1.35", "http://10.0.0.1:1"], "write https://10.0.0.1:1"),
        (
            &["old", "new", "--kubeconfig=/there/is/none"],
            "cannot read /there/is/none",
        ),
        (&["1.37"], "<B>"),
        (&["1.37", "/there/is/none"], "/there/is/none"),
        (&["1.37", &bad], "not JSON"),
        (&["1.37", list.to_str().unwrap()], "lists no resources"),
        (
            &["1.37", "context:x", "--kubeconfig=/there/is/none"],
            "/there/is/none",
        ),
        (
            &["1.37", "https://127.0.0.1:1", "--kubeconfig=/there/is/none"],
            "--certificate-authority",
        ),
    ] {
        let output = diff(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[test]
fn a_word_that_is_a_file_and_something_else_is_refused_with_how_to_write_either() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["a", "1.37", "empty"] {
        std::fs::create_dir(temp.path().join(name)).unwrap();
    }
    std::fs::write(temp.path().join("b"), "{}").unwrap();
    let contexts = "contexts:\n- {name: a, context: {cluster: c, user: u}}\n- {name: b, context: {cluster: c, user: u}}\n";
    std::fs::write(temp.path().join("kubeconfig"), contexts).unwrap();
    for (word, says) in [
        (
            "a",
            "a is a directory here and a context of the kubeconfig: write ./a for the one or context:a for",
        ),
        (
            "b",
            "b is a file here and a context of the kubeconfig: write ./b ",
        ),
        (
            "1.37",
            "1.37 is a directory here and a Kubernetes version: write ./1.37 for the one or v1.37 for",
        ),
        (
            "./1.37",
            "./1.37 is a directory here, and there is no discovery document in it, in .json files; ",
        ),
        (
            "empty",
            "empty is a directory here, and there is no discovery document in it, in .json files; ",
        ),
        (
            "./b",
            "./b is a file here, and there is no discovery document in it; ",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_peerage"))
            .args(["diff", word, "1.36"])
            .current_dir(temp.path())
            .env_remove("KUBECONFIG")
            .output()
            .unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{word}: {error}");
        assert!(error.contains(says), "{word}: {error}");
    }
    let version = Command::new(env!("CARGO_BIN_EXE_peerage"))
        .args(["diff", "v1.37", "1.36"])
        .current_dir(temp.path())
        .output()
        .unwrap();
    assert_eq!(version.status.code(), Some(1), "{}", text(&version.stderr));
}

fn write(directory: &Path, name: &str, bytes: &[u8]) {
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join(name), bytes).unwrap();
}

#[test]
fn saved_documents_of_every_form_say_the_same() {
    for version in peerage_catalogue::versions() {
        let catalogue = Catalogue::load(version, &RuntimeConfig::default()).unwrap();
        let temp = tempfile::tempdir().unwrap();
        let directory = |name: &str| temp.path().join(name);
        for (name, form) in [
            ("v2", DiscoveryVersion::V2),
            ("v2beta1", DiscoveryVersion::V2Beta1),
        ] {
            write(
                &directory(name),
                "api.json",
                &catalogue.core_discovery().to_json(form),
            );
            write(
                &directory(name),
                "apis.json",
                &catalogue.groups_discovery().to_json(form),
            );
            write(
                &directory(name),
                "version.json",
                br#"{"gitVersion":"v1.30.1"}"#,
            );
        }
        let walk = serde_json::to_vec(&legacy_documents(&catalogue)).unwrap();
        write(&directory("legacy"), "legacy.json", &walk);
        for name in ["v2", "v2beta1", "legacy"] {
            let saved = directory(name).display().to_string();
            assert_eq!(entries(&[&saved, version]), [""; 0], "{version} as {name}");
            assert_eq!(diff(&[version, &saved]).status.code(), Some(0));
        }
        let core = directory("v2").join("api.json").display().to_string();
        let compared = json(&[&core, version]);
        assert_eq!(compared["differences"], json!([]));
        assert!(
            compared["notCompared"][0]
                .as_str()
                .unwrap()
                .starts_with("/apis: ")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_serves_its_version() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let executable = Path::new(env!("CARGO_BIN_EXE_peerage"));
    let server = ServerProcess::start(executable, &pki, &ServerSpec::alone("1.35")).await;
    let url = format!("https://{}", server.address);
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.file(name).display());
    let flags = [
        file("certificate-authority", "ca.crt"),
        file("client-certificate", "admin.crt"),
        file("client-key", "admin.key"),
        "--kubeconfig=/there/is/none".to_owned(),
    ];
    let asked = |a: &str, b: &str| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        entries(&[&[a, b], flags.as_slice()].concat())
    };
    let (same, newer) = tokio::task::block_in_place(|| (asked(&url, "1.35"), asked(&url, "1.36")));
    assert_eq!(same, [""; 0]);
    assert_eq!(newer, entries(&["1.35", "1.36"]));

    // A context may go by its name alone.
    let read = |name: &str| std::fs::read_to_string(pki.file(name)).unwrap();
    let kubeconfig = Kubeconfig {
        servers: vec![Server {
            name: "here".to_owned(),
            url,
        }],
        authority: read("ca.crt"),
        user: "admin".to_owned(),
        certificate: read("admin.crt"),
        key: read("admin.key"),
    };
    let path = pki.file("kubeconfig");
    kubeconfig.write(&path, true).unwrap();
    let flag = format!("--kubeconfig={}", path.display());
    let of_context = tokio::task::block_in_place(|| entries(&["here", "1.36", &flag]));
    assert_eq!(of_context, newer);
    server.stop().await;
}
