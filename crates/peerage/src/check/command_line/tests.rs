//! Flags as pods have them, and what is said of each that is missing.

use super::super::report::Verdict;
use super::*;
use serde_json::json;

fn line(version: &str, args: &[&str]) -> CommandLine {
    CommandLine {
        origin: "kube-apiserver-a".to_owned(),
        release: Release::parse(version),
        args: args.iter().map(|it| (*it).to_owned()).collect(),
    }
}

const KUBEADM: [&str; 6] = [
    "--proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt",
    "--proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key",
    "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
];
const GATE_ON: &str = "--feature-gates=A=false,UnknownVersionInteroperabilityProxy=true";
const PEER_CA: &str = "--peer-ca-file=/ca.crt";

#[test]
fn what_is_missing_depends_on_the_release() {
    for (version, more, verdict, says) in [
        ("1.37", &[PEER_CA][..], Verdict::Pass, ""),
        ("1.37", &[], Verdict::Fail, "no --peer-ca-file"),
        ("1.35", &[PEER_CA], Verdict::Fail, "the gate"),
        ("1.35", &[PEER_CA, GATE_ON], Verdict::Pass, ""),
        (
            "1.37",
            &["--peer-ca-file="],
            Verdict::Fail,
            "no value after --peer-ca-file",
        ),
        (
            "1.37",
            &["--peer-ca-file"],
            Verdict::Fail,
            "no value after --peer-ca-file",
        ),
        ("1.37", &["--peer-ca-file", "/ca.crt"], Verdict::Pass, ""),
        (
            "1.35",
            &[
                PEER_CA,
                "--feature-gates",
                "UnknownVersionInteroperabilityProxy=true",
            ],
            Verdict::Pass,
            "",
        ),
        (
            "1.37",
            &[PEER_CA, "--emulated-version=kube:1.35"],
            Verdict::Fail,
            "the gate",
        ),
        (
            "1.37",
            &[
                PEER_CA,
                "--feature-gates=UnknownVersionInteroperabilityProxy=false",
            ],
            Verdict::Fail,
            "the gate",
        ),
        (
            "1.37",
            &[PEER_CA, "--feature-gates=APIServerIdentity=false"],
            Verdict::Fail,
            "no identity",
        ),
        (
            "1.37",
            &[PEER_CA, "--peer-advertise-ip=1.2.3.4"],
            Verdict::Warn,
            "--peer-advertise-ip do nothing",
        ),
    ] {
        let item = judge_line(&line(version, &[&KUBEADM[..], more].concat()), Way::Own);
        assert_eq!(item.verdict, verdict, "{version} {more:?}: {item:?}");
        assert!(item.says.contains(says), "{item:?}");
    }
    let bare = judge_line(&line("1.34", &[]), Way::Own);
    assert!(
        bare.fix
            .unwrap_or_default()
            .contains("--requestheader-client-ca-file=")
    );
}

#[test]
fn flags_are_read_from_pods_and_the_last_one_counts() {
    let pods = json!({"items": [
        {"metadata": {"name": "a"}, "spec": {"containers": [
            {"image": "registry.example:5000/kube-apiserver:v1.36.3",
             "command": ["kube-apiserver", "--v=2", "--v=4", "--allow-privileged"]},
            {"command": ["sidecar"]}]}},
        {"metadata": {"name": "b"}, "spec": {}}]});
    let found = of_pods(&pods);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].release, Some(Release(1, 36)));
    assert_eq!(found[0].value("v"), Some("4"));
    assert_eq!(found[0].last("allow-privileged"), Some(Given::Bare));
    assert_eq!(found[0].last("allow"), None);
}

#[test]
fn a_flag_may_be_absent_bare_or_have_a_value_in_one_word_or_two() {
    for (args, expected) in [
        (&["--other=1", "a"][..], None),
        (&["a=1", "-a=1"], None),
        (&["--a"], Some(Given::Bare)),
        (&["--a", "--b"], Some(Given::Bare)),
        (&["--a="], Some(Given::Value(""))),
        (&["--a=1"], Some(Given::Value("1"))),
        (&["--a=1=2"], Some(Given::Value("1=2"))),
        (&["--a", "1"], Some(Given::Value("1"))),
        (&["--a=1", "--a", "2", "--b"], Some(Given::Value("2"))),
        (&["--a=1", "--a="], Some(Given::Value(""))),
    ] {
        assert_eq!(line("1.37", args).last("a"), expected, "{args:?}");
    }
    assert_eq!(line("1.37", &["--a_b=1"]).value("a-b"), Some("1"));
}

#[test]
fn every_list_of_gates_counts_and_of_one_gate_the_last_word() {
    let words = [
        "--feature-gates",
        "X=true,kube:Y=True",
        "--feature-gates=X=false, Z=true",
    ];
    let line = line("1.37", &words);
    for (gate, expected) in [
        ("X", Some(false)),
        ("Y", Some(true)),
        ("Z", Some(true)),
        ("W", None),
    ] {
        assert_eq!(line.gate(gate), expected, "{gate}");
    }
}
