//! The executable as a shell sees it: exit codes, and which stream says what.

#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Command, Output};

use peerage_testkit::pki::Pki;

fn peerage(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peerage"))
        .args(words)
        .env_remove("KUBECONFIG")
        .env_remove("PEERAGE_DATA_DIR")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn exit_codes_tell_mistakes_from_what_is_missing() {
    for (words, code, expected) in [
        (&["--help"][..], 0, ""),
        (&["--version"], 0, ""),
        (&["apiserver", "--help"], 0, ""),
        (&[], 2, "Usage"),
        (&["no-such-command"], 2, "no-such-command"),
        (&["apiserver", "--no-such-flag"], 2, "--no-such-flag"),
        (
            &["apiserver", "--peer-advertise-ip=127.0.0.1"],
            2,
            "--peer-advertise-port",
        ),
        (
            &["apiserver", "--client-ca-file=/there/is/none"],
            3,
            "--client-ca-file: cannot read /there/is/none",
        ),
        (
            &["pki", "show", "--dir=/there/is/none"],
            3,
            "/there/is/none",
        ),
        (
            &["pki", "init", "--san=a b"],
            2,
            "neither a DNS name nor an IP address",
        ),
        (
            &["up", "--versions=1.2"],
            2,
            "there is no Kubernetes \"1.2\" here; there are 1.33, 1.34",
        ),
        (
            &["explain", "GET", "/x", "--kubeconfig=/there/is/none"],
            3,
            "/there/is/none",
        ),
    ] {
        let output = peerage(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        assert!(error.contains(expected), "{words:?}: {error}");
        if code == 0 {
            assert!(error.is_empty(), "{words:?}: {error}");
        }
    }
}

#[test]
fn a_context_that_a_kubeconfig_lacks_is_a_mistake_of_the_command_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "current-context: here\ncontexts:\n- {name: here, context: {cluster: c, user: u}}\n",
    )
    .unwrap();
    let kubeconfig = format!("--kubeconfig={}", file.path().display());
    let output = peerage(&["explain", "GET", "/x", &kubeconfig, "--context=nope"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("no context \"nope\"; it has here"),
        "{error}"
    );
}

#[test]
fn an_empty_kubeconfig_variable_is_as_good_as_none() {
    let home = tempfile::tempdir().unwrap();
    let (kube, here) = (home.path().join(".kube"), home.path().join("here"));
    for directory in [&kube, &here] {
        std::fs::create_dir(directory).unwrap();
    }
    let file = "current-context: mine\ncontexts:\n- {name: mine, context: {cluster: c, user: u}}\n";
    std::fs::write(kube.join("config"), file).unwrap();
    let asked = |value: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerage"));
        command.args(["explain", "/x", "--context=nope"]);
        command.current_dir(&here).env("HOME", home.path());
        match value {
            Some(value) => command.env("KUBECONFIG", value),
            None => command.env_remove("KUBECONFIG"),
        };
        text(&command.output().unwrap().stderr).to_owned()
    };
    let unset = asked(None);
    assert!(
        unset.contains("no context \"nope\"; it has mine"),
        "{unset}"
    );
    assert_eq!(asked(Some("")), unset);
    assert_eq!(asked(Some(":")), unset);
}

#[test]
fn half_a_pair_is_refused_by_the_names_of_both_flags() {
    for (given, missing) in [
        ("tls-cert-file", "tls-private-key-file"),
        ("tls-private-key-file", "tls-cert-file"),
        ("proxy-client-cert-file", "proxy-client-key-file"),
        ("proxy-client-key-file", "proxy-client-cert-file"),
    ] {
        let flag = format!("--{given}=x");
        let rest = match given.starts_with("tls") {
            true => vec![],
            false => vec![
                "--tls-cert-file=x",
                "--tls-private-key-file=x",
                "--peer-ca-file=x",
            ],
        };
        let words = [&["gateway", "--peer=https://10.0.0.1:1", &flag][..], &rest].concat();
        let output = peerage(&words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.contains(&format!(
                "--{given} needs --{missing}: give both or neither"
            )),
            "{error}"
        );
    }
    for (words, says) in [
        (
            &["apiserver", "--feature-gates=A"][..],
            "--feature-gates: \"A\" is not NAME=true",
        ),
        (&["apiserver", "--runtime-config=a"], "--runtime-config: "),
        (
            &["explain", "/x", "--local=/none"],
            "--local: cannot read \"/none\"",
        ),
    ] {
        let output = peerage(words);
        let error = text(&output.stderr);
        assert!(error.contains(says), "{words:?}: {error}");
    }
}

#[test]
fn help_lists_the_exit_codes() {
    let output = peerage(&["--help"]);
    let help = text(&output.stdout);
    for (code, meaning) in peerage::exit::EXIT_CODES {
        assert!(help.contains(&format!("  {code:<4} {meaning}")), "{help}");
    }
}

#[test]
fn certificates_are_shown_for_people_and_for_programs() {
    let temp = tempfile::tempdir().unwrap();
    let dir = format!("--dir={}", temp.path().join("pki").display());
    let made = peerage(&["pki", "init", &dir, "--san", "10.0.0.1"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stdout).contains("--peer-ca-file="));
    let again = peerage(&["pki", "init", &dir]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));

    let shown = peerage(&["pki", "show", &dir]);
    assert!(text(&shown.stdout).contains("O=system:masters"));
    let shown = peerage(&["pki", "show", &dir, "--output", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let serving = shown
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == "apiserver")
        .unwrap();
    assert_eq!(serving["purpose"], "serving");
    assert!(
        serving["altNames"]
            .as_array()
            .unwrap()
            .contains(&"10.0.0.1".into())
    );
    assert!((364..=365).contains(&serving["daysLeft"].as_i64().unwrap()));
}

#[test]
fn a_gateways_files_are_read_before_it_is_said_that_its_settings_are_good() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let file = |name: &str| pki.file(name).display().to_string();
    let good = [
        ("peer-ca-file", file("ca.crt")),
        ("client-ca-file", file("ca.crt")),
        ("proxy-client-cert-file", file("front-proxy-client.crt")),
        ("proxy-client-key-file", file("front-proxy-client.key")),
        ("tls-cert-file", file("server.crt")),
        ("tls-private-key-file", file("server.key")),
    ];
    let judge = |flag: &str, other: &str| {
        let value = |(name, value): &(&str, String)| match *name == flag {
            true => format!("--{name}={}", file(other)),
            false => format!("--{name}={value}"),
        };
        let flags: Vec<String> = good.iter().map(value).collect();
        let mut words = vec!["gateway", "--print-config", "--peer=https://10.0.0.1:6443"];
        words.extend(flags.iter().map(String::as_str));
        let output = peerage(&words);
        let error = text(&output.stderr).to_owned();
        (output.status.code(), error)
    };
    assert_eq!(judge("", ""), (Some(0), String::new()));
    for (flag, other) in [
        ("tls-cert-file", "server.key"),
        ("tls-private-key-file", "front-proxy-client.key"),
        ("proxy-client-key-file", "server.key"),
        ("peer-ca-file", "ca.key"),
        ("client-ca-file", "ca.key"),
    ] {
        let (code, error) = judge(flag, other);
        assert_eq!(code, Some(3), "{flag}: {error}");
        assert!(error.contains(&file(other)), "{flag}: {error}");
        assert!(error.starts_with("error: --"), "{error}");
        assert!(error.contains(&format!("--{flag}")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let (_, error) = judge("tls-cert-file", "server.key");
    assert!(error.ends_with(": it holds a private key\n"), "{error}");
    let (_, error) = judge("tls-private-key-file", "server.crt");
    assert!(error.ends_with(": it holds a certificate\n"), "{error}");
    let (_, error) = judge("proxy-client-key-file", "server.key");
    assert!(
        error.ends_with(": the key is not the one of that certificate\n"),
        "{error}"
    );
}

/// The flags of a gateway with everything that it needs, given its files' names.
fn gateway_flags(pki: &Pki, serving: &str) -> Vec<String> {
    let file = |name: &str| pki.file(name).display().to_string();
    vec![
        "gateway".to_owned(),
        "--print-config".to_owned(),
        format!("--peer-ca-file={}", file("ca.crt")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!(
            "--proxy-client-cert-file={}",
            file("front-proxy-client.crt")
        ),
        format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        format!("--tls-cert-file={}", file(&format!("{serving}.crt"))),
        format!("--tls-private-key-file={}", file(&format!("{serving}.key"))),
    ]
}

#[test]
fn what_is_in_force_and_does_not_work_is_told_beside_the_settings() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    for (serving, more, warnings) in [
        ("server", "--peer=https://10.0.0.1:6443", &[][..]),
        (
            "front-proxy-client",
            "--peer=https://10.0.0.1:6443",
            &[
                "front-proxy-client.crt is not for serving (it has no serverAuth usage)",
                "front-proxy-client.crt has no host names (subjectAltName)",
            ],
        ),
        (
            "server",
            "--upstream=https://127.0.0.1:6444",
            &["nothing to send on to: no other server is named"],
        ),
    ] {
        let mut words = gateway_flags(&pki, serving);
        words.push(more.to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = peerage(&words);
        assert_eq!(output.status.code(), Some(0));
        let told: Vec<&str> = text(&output.stderr).lines().collect();
        assert_eq!(told.len(), warnings.len(), "{told:#?}");
        for (told, warning) in told.iter().zip(warnings) {
            assert!(
                told.starts_with("warning: ") && told.contains(warning),
                "{told}"
            );
        }
        assert!(text(&output.stdout).contains("\nsecure-port:\n  value: 6443\n"));
    }
}

#[test]
fn a_name_that_no_server_has_is_refused_with_its_flag() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let mut words = gateway_flags(&pki, "server");
    let more = ["--peer=https://10.0.0.1:6443", "--peer-server-name=foo bar"];
    words.extend(more.map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = peerage(&words);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    let says = "error: --peer-server-name: \"foo bar\" is no server name: write the DNS name";
    assert!(error.starts_with(says), "{error}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_list_of_servers_with_a_mistake_is_refused_before_it_is_followed_and_nothing_else_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let list = pki.file("peers.yaml");
    for (content, says) in [
        ("- ulr: https://10.0.0.1:6443\n", "line 1, column 3: "),
        ("- url: https://a:1\n- {url: https://b:1\n", "line "),
        ("url: https://10.0.0.1:6443\n", "line 1, column 1"),
        (
            "- url: https://a:1\n- url: 10.0.0.1:6443\n",
            "line 2, column 3: url: \"10.0.0.1:6443\"",
        ),
        ("\n", "is empty"),
    ] {
        std::fs::write(&list, content).unwrap();
        let mut words = gateway_flags(&pki, "server");
        words.push(format!("--peers-file={}", list.display()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = peerage(&words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{content}: {error}");
        assert!(error.starts_with("error: --peers-file: "), "{error}");
        assert!(error.contains(says), "{content}: {error}");
        assert_eq!(text(&output.stdout), "", "{content}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    std::fs::write(&list, "[]").unwrap();
    let mut words = gateway_flags(&pki, "server");
    words.push(format!("--peers-file={}", list.display()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = peerage(&words);
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stderr);
    assert!(told.contains("all requests are answered 503"), "{told}");
}

#[test]
fn an_unknown_flag_or_key_is_told_with_the_one_that_was_meant_and_not_with_all_that_were_given() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let mut words = gateway_flags(&pki, "server");
    words.push("--wirtes=newest".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = peerage(&words);
    let error = text(&output.stderr);
    assert!(error.contains("'--writes'"), "{error}");
    assert!(
        error.contains("Usage: peerage gateway [OPTIONS]\n"),
        "{error}"
    );
    let config = pki.file("gateway.yaml");
    for (key, meant) in [
        ("wirtes", "; did you mean writes?\n"),
        ("peers", "; did you mean peer"),
        ("x", "lists them\n"),
    ] {
        std::fs::write(&config, format!("{key}: a\n")).unwrap();
        let output = peerage(&["gateway", &format!("--config={}", config.display())]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(error.contains(meant), "{error}");
        assert!(
            error.contains(&format!("line 1, column 1, key {key}: ")),
            "{error}"
        );
    }
}

#[test]
fn a_second_server_to_stand_beside_is_refused() {
    let output = peerage(&[
        "gateway",
        "--upstream=https://a:1",
        "--upstream",
        "https://b:1",
    ]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(
        error.contains("--upstream: a gateway stands beside one server"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_no_certificate_hides_no_other_one() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("pki").display().to_string();
    assert!(peerage(&["pki", "init", "--dir", &dir]).status.success());
    std::fs::write(format!("{dir}/aa.crt"), "no PEM").unwrap();
    let output = peerage(&["pki", "show", "--dir", &dir]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    let row = |name: &str| shown.lines().find(|it| it.split(' ').next() == Some(name));
    assert!(row("front-proxy-client").is_some(), "{shown}");
    assert!(
        row("etcd-server").unwrap().contains("serving, client"),
        "{shown}"
    );
    assert!(text(&output.stderr).contains("aa.crt: not a PEM certificate"));
}
