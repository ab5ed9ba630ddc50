//! What is typed after `peerage gateway`, and what it comes to.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::path::Path;

use super::*;
use crate::cli::{self, Command};

fn parse(words: &[&str]) -> (GatewayFlags, Settings) {
    let args = ["peerage", "gateway"].iter().chain(words);
    let typed = cli::parse(args.map(OsString::from)).unwrap_or_else(|e| panic!("{e:?}"));
    let Command::Gateway(flags) = typed.command else {
        panic!("it is another command");
    };
    (*flags, typed.settings.unwrap())
}

fn file(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// The flags that have to be there, with files that are.
fn needed(directory: &Path) -> Vec<String> {
    let names = [
        "tls-cert-file",
        "tls-private-key-file",
        "peer-ca-file",
        "proxy-client-cert-file",
        "proxy-client-key-file",
    ];
    let flag = |name: &&str| format!("--{name}={}", file(directory, name, ""));
    names.iter().map(flag).collect()
}

#[test]
fn every_setting_says_where_it_came_from() {
    let directory = tempfile::tempdir().unwrap();
    let config = file(
        directory.path(),
        "gateway.yaml",
        "peer: ['https://10.0.0.1:6443', 'https://10.0.0.2:6443']\nsecure_port: 7443\npeers-from-leases: true\n",
    );
    let (_, settings) = parse(&["--config", &config, "--secure-port=8443", "--zone", "a"]);
    let by_flag = settings.by_flag();
    let shown = |flag: &str| {
        let setting = by_flag[flag];
        (setting.value.to_string(), setting.from.as_str())
    };
    let from_file = |flag: &str| format!("{config}, key {flag}");
    let peers = r#"["https://10.0.0.1:6443","https://10.0.0.2:6443"]"#;
    assert_eq!(shown("peer"), (peers.into(), &*from_file("peer")));
    let leases = from_file("peers-from-leases");
    assert_eq!(shown("peers-from-leases"), ("true".into(), &*leases));
    assert_eq!(shown("secure-port"), ("8443".into(), "command line"));
    assert_eq!(shown("zone"), ("\"a\"".into(), "command line"));
    assert_eq!(shown("peer-hold"), ("\"10m\"".into(), "default"));
    assert_eq!(shown("upstream"), ("null".into(), "not set"));
    let uid = "requestheader-uid-headers";
    assert_eq!(shown(uid), (r#"["X-Remote-Uid"]"#.into(), "default"));
    assert!(!by_flag.contains_key("config") && !by_flag.contains_key("print-config"));
}

#[test]
fn all_flags_are_shown_and_read_back_as_yaml() {
    let (_, settings) = parse(&[
        "--upstream=https://127.0.0.1:6444",
        "--etcd-servers=https://me:secret@10.0.0.1:2379",
    ]);
    let text = settings.yaml().unwrap();
    assert!(!text.contains("secret"), "{text}");
    let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(read["upstream"]["value"], "https://127.0.0.1:6444");
    assert_eq!(read["upstream"]["from"], "command line");
    let command = <cli::Cli as clap::CommandFactory>::command();
    let command = command.find_subcommand("gateway").unwrap();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let name = arg.get_long().unwrap();
        let known = read.get(name).is_some();
        assert!(
            known || ["config", "print-config", "help"].contains(&name),
            "{name}"
        );
        // A default that only the help knows would not be among the settings; this one is derived.
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!help.contains("[default:") || name == "writes", "{name}");
    }
}

#[test]
fn what_is_derived_is_shown_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let mut words = needed(directory.path());
    words.push("--peer=https://10.0.0.1:6443".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (flags, settings) = parse(&words);
    let derived = GatewaySettings::new(&flags).unwrap().derived();
    let settings = settings.with_derived(&derived);
    let writes = settings.by_flag()["writes"].clone();
    assert_eq!(
        (writes.value, writes.from.as_str()),
        ("newest".into(), "default of a balancer")
    );
}

#[test]
fn the_port_in_force_is_shown_where_a_url_leaves_it_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut words = needed(directory.path());
    let servers = [
        "--upstream=https://127.0.10.1",
        "--peer=https://10.0.0.2;zone=a;id=b",
        "--peer=https://[fd00::1]/",
    ];
    words.extend(servers.map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (flags, shown) = parse(&words);
    let settings = GatewaySettings::new(&flags).unwrap();
    let shown = shown.with_values(&settings.servers());
    let shown = shown.by_flag();
    assert_eq!(shown["upstream"].value, "https://127.0.10.1:443");
    assert_eq!(shown["upstream"].from, "command line");
    let peers = ["https://10.0.0.2:443;zone=a;id=b", "https://[fd00::1]:443"];
    assert_eq!(shown["peer"].value, serde_json::json!(peers));
    assert_eq!(
        settings.notes[0],
        format!(
            "running beside https://127.0.10.1:443; other servers that flags name: {}",
            peers.join(", ")
        )
    );
}

#[test]
fn a_mistake_in_a_file_is_told_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let needed = needed(directory.path());
    for (text, says) in [
        (
            "zone: a\nsecure-port: many\n",
            "(secure-port is in F, line 2, column 1)",
        ),
        (
            "\n\npeer:\n- 'https://a'\n- foo\n",
            "(peer is in F, line 5, column 3)",
        ),
        (
            "peer-hold: forever\n",
            "(peer-hold is in F, line 1, column 1)",
        ),
        (
            "peer: 'https://a'\nclient-ca-file: /none\n",
            "(client-ca-file is in F, line 2, column 1)",
        ),
        (
            "peer: 'https://a'\nupstraem: 'https://a'\n",
            "F, line 2, column 1, key upstraem: no flag",
        ),
    ] {
        let config = file(directory.path(), "gateway.yaml", text);
        let words = [
            "peerage".to_owned(),
            "gateway".to_owned(),
            format!("--config={config}"),
        ];
        let words = words.into_iter().chain(needed.iter().cloned());
        let failure = match cli::parse(words.map(OsString::from)) {
            Ok(typed) => cli::run(typed).unwrap_err(),
            Err(cli::ParseError::Failure(failure)) => failure,
            Err(cli::ParseError::Clap(error)) => panic!("{text}: {error}"),
        };
        let told = failure.to_string();
        let says = says.replace('F', &config);
        assert!(told.contains(&says), "{text}: {told}");
        assert!(!told.contains('\n'), "{told}");
    }
}

#[test]
fn servers_may_come_from_anywhere_and_from_somewhere_they_must() {
    let directory = tempfile::tempdir().unwrap();
    let list = file(directory.path(), "peers.yaml", "[]");
    let needed = needed(directory.path());
    let list = format!("--peers-file={list}");
    for (words, expected) in [
        (&["--peer=https://10.0.0.1;id=apiserver-a;zone=z"][..], ""),
        (&[&list], ""),
        (&["--peer-dns=cp.example:6443;zone=z"], ""),
        (&["--etcd-servers=http://10.0.0.1:2379"], ""),
        (&[], "no server"),
        (&["--peers-from-leases"], "no server"),
        (&["--peer-dns=cp.example"], "--peer-dns"),
        (&["--peer-dns=cp.example:6443;id=a"], "--peer-dns"),
        (&["--peer=https://10.0.0.1;zone="], "--peer"),
        (&["--peer=http://10.0.0.1"], "--peer"),
        (&["--peers-file=/nowhere"], "--peers-file"),
        (&["--etcd-servers=https://10.0.0.1:2379"], "--etcd-cafile"),
        (&["--etcd-servers=10.0.0.1:2379"], "https://127.0.0.1:2379"),
        (&["--etcd-username=root"], "--etcd-password-file"),
        (
            &["--etcd-servers=http://10.0.0.1:2379", "--etcd-prefix=/"],
            "/registry",
        ),
    ] {
        let words: Vec<&str> = needed
            .iter()
            .map(String::as_str)
            .chain(words.iter().copied())
            .collect();
        let (flags, _) = parse(&words);
        match GatewaySettings::new(&flags) {
            Ok(_) => assert_eq!(expected, "", "{words:?}"),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    !expected.is_empty() && text.contains(expected),
                    "{words:?}: {text}"
                );
            }
        }
    }
}

#[test]
fn the_own_address_can_be_moved_and_turned_off() {
    let directory = tempfile::tempdir().unwrap();
    let mut needed = needed(directory.path());
    needed.push("--peer=https://10.0.0.1:6443".to_owned());
    let off = file(directory.path(), "off.yaml", "admin-bind-address: ''\n");
    let off = format!("--config={off}");
    for (words, expected) in [
        (&[][..], Some("127.0.0.1:10440")),
        (&["--admin-bind-address=[::1]:1"], Some("[::1]:1")),
        (&["--admin-bind-address="], None),
        (&["--admin-bind-address", ""], None),
        (&[&off], None),
    ] {
        let words: Vec<&str> = needed
            .iter()
            .map(String::as_str)
            .chain(words.iter().copied())
            .collect();
        let (flags, _) = parse(&words);
        let admin = GatewaySettings::new(&flags).unwrap().admin;
        let admin = admin.map(|it| it.to_string());
        assert_eq!(admin.as_deref(), expected, "{words:?}");
    }
    let typed = ["peerage", "gateway", "--admin-bind-address=nowhere"];
    assert!(cli::parse(typed.map(OsString::from)).is_err());
}

#[test]
fn what_impersonation_takes_is_told_at_start_as_the_documentation_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut words = needed(directory.path());
    words.extend(["--peer=https://10.0.0.1:6443", "--identity=impersonate"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let settings = GatewaySettings::new(&parse(&words).0).unwrap();
    let mut warnings = settings.warnings.iter();
    let told = warnings.find(|it| it.starts_with("--identity=impersonate"));
    let told = told.unwrap();
    let documented = include_str!("../../../../docs/gateway.md");
    for rule in settings::IMPERSONATION_RULES {
        assert!(told.contains(rule), "{told}");
        assert!(documented.contains(&format!("\n- {rule}\n")), "{rule}");
    }
    assert!(told.contains("key may be anybody"), "{told}");
}

#[test]
fn a_flag_for_an_etcd_that_is_not_named_is_not_said_to_keep_objects() {
    let directory = tempfile::tempdir().unwrap();
    let mut words = needed(directory.path());
    words.extend(["--peer=https://10.0.0.1:6443", "--etcd-cafile=x"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let refused = GatewaySettings::new(&parse(&words).0)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("--etcd-cafile needs --etcd-servers"),
        "{refused}"
    );
    assert!(!refused.contains("objects"), "{refused}");
}

#[test]
fn what_is_wrong_with_an_address_is_said_of_that_one() {
    let directory = tempfile::tempdir().unwrap();
    let needed = needed(directory.path());
    for (word, says) in [
        ("--peer=10.0.0.1:6443", ": https:// is missing in front"),
        ("--peer=http://10.0.0.1:6443", "over https alone, not http"),
        ("--peer=https://10.0.0.1:6443/api", "leave \"/api\" out"),
        ("--peer=https://10.0.0.1:6443;zoen=a", "not \"zoen=a\""),
        ("--peer=https://10.0.0.1:6443;zone=", "zone= has no value"),
        (
            "--peer=https://10.0.0.1:6443,https://10.0.0.2:6443",
            "once for each server",
        ),
        ("--peer=https://10.0.0.1:70000", "\"70000\" is no port"),
        ("--peer=https://10.0.0.1:", "\"\" is no port"),
        ("--peer=https://", "it has no host"),
        ("--peer=https://me@10.0.0.1", "it has a user name"),
        ("--peer=https://a b", "\"a b\" is no host"),
        ("--peer-dns=https://a:1", "without https://"),
        ("--peer-dns=a", "it has no port"),
        ("--peer-dns=a:1;id=b", "has no id"),
        ("--peer-dns=a:1,b:1", "once for each server"),
        (
            "--admin-bind-address=127.0.0.1:6443",
            "is where clients connect too",
        ),
        (
            "--admin-bind-address=0.0.0.0:6443",
            "is where clients connect too",
        ),
    ] {
        let words: Vec<&str> = needed.iter().map(String::as_str).collect();
        let words = [&words[..], &["--peer=https://10.0.0.9:6443", word]].concat();
        let refused = GatewaySettings::new(&parse(&words).0).unwrap_err();
        let refused = refused.to_string();
        let flag = word.split('=').next().unwrap();
        assert!(
            refused.starts_with(flag) && refused.contains(says),
            "{refused}"
        );
    }
}

#[test]
fn who_has_nothing_to_send_on_to_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let needed = needed(directory.path());
    let none = format!("--peers-file={}", file(directory.path(), "none.yaml", "[]"));
    let some = file(directory.path(), "some.yaml", "- url: https://a");
    let some = format!("--peers-file={some}");
    let own = "--upstream=https://127.0.0.1:6444";
    for (words, is_told) in [
        (&[own][..], true),
        (&[own, "--peer=https://127.0.0.1:6444"], true),
        (&[own, &none], true),
        (&[&none], true),
        (&[own, "--peer=https://10.0.0.2:6444"], false),
        (&[own, "--peer-dns=a:1"], false),
        (&[own, "--peers-from-leases"], false),
        (&[own, &some], false),
        (&["--peer=https://10.0.0.2:6444"], false),
    ] {
        let all: Vec<&str> = needed.iter().map(String::as_str).collect();
        let settings = GatewaySettings::new(&parse(&[&all, words].concat()).0).unwrap();
        let told = settings.warnings.iter();
        let told = told
            .filter(|it| it.starts_with("nothing to send on to"))
            .count();
        assert_eq!(told, usize::from(is_told), "{words:?}");
    }
    let all: Vec<&str> = needed.iter().map(String::as_str).collect();
    let words = [&all[..], &["--peer=https://10.0.0.2:6444"]].concat();
    let settings = GatewaySettings::new(&parse(&words).0).unwrap();
    assert_eq!(
        settings.notes[0],
        "running as a balancer; servers that flags name: https://10.0.0.2:6444"
    );
}
