//! Leases as servers write them, and each thing that may be wrong with one.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::check::report::Verdict;
use serde_json::json;

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn lease(hostname: &str, address: Option<&str>, seconds_ago: i64) -> Lease {
    Lease {
        name: server_id(hostname),
        hostname: hostname.to_owned(),
        address: address.map(str::to_owned),
        held: true,
        renewed: Some(Timestamp::from_second(now().as_second() - seconds_ago).unwrap()),
        duration: Some(3600),
        hold: None,
    }
}

#[test]
fn each_lease_is_judged_by_itself_and_beside_the_others() {
    let fine = || lease("a", Some("10.0.0.1:6443"), 5);
    let with = |change: &dyn Fn(&mut Lease)| {
        let mut lease = fine();
        change(&mut lease);
        lease
    };
    let named = |name: &str, hostname: &str| Lease {
        name: name.to_owned(),
        hostname: hostname.to_owned(),
        ..lease("x", Some("10.0.0.3:6443"), 5)
    };
    for (judged, other, verdict, says) in [
        (
            fine(),
            None,
            Verdict::Pass,
            "renewed 5 s ago, 10.0.0.1:6443",
        ),
        (
            lease("a", Some("10.0.0.1:6443"), 120),
            None,
            Verdict::Warn,
            "not renewed for 120 s",
        ),
        (
            lease("a", Some("10.0.0.1:6443"), 4000),
            None,
            Verdict::Warn,
            "has run out",
        ),
        (
            with(&|it| it.held = false),
            None,
            Verdict::Fail,
            "no holder",
        ),
        (
            with(&|it| it.renewed = None),
            None,
            Verdict::Fail,
            "no renewTime",
        ),
        (
            with(&|it| it.hold = Some(600)),
            None,
            Verdict::Warn,
            "expected back within 600 s",
        ),
        (
            with(&|it| it.address = Some("10.0.0.1".into())),
            None,
            Verdict::Fail,
            "is not HOST:PORT",
        ),
        (
            with(&|it| it.address = Some("0.0.0.0:6443".into())),
            None,
            Verdict::Fail,
            "every address",
        ),
        (
            with(&|it| it.address = Some("127.0.0.1:6443".into())),
            Some(lease("b", Some("10.0.0.2:6443"), 5)),
            Verdict::Fail,
            "themselves",
        ),
        (
            with(&|it| it.address = Some("127.0.0.1:6443".into())),
            Some(lease("b", Some("127.0.0.1:6444"), 5)),
            Verdict::Pass,
            "renewed",
        ),
        (
            fine(),
            Some(lease("b", Some("10.0.0.1:6443"), 5)),
            Verdict::Fail,
            "also that of b",
        ),
        (
            fine(),
            Some(lease("b", Some("10.0.0.1:6443"), 500)),
            Verdict::Pass,
            "renewed",
        ),
        (
            with(&|it| it.address = None),
            Some(lease("b", Some("10.0.0.2:6443"), 5)),
            Verdict::Warn,
            "no address",
        ),
        (
            with(&|it| it.address = None),
            Some(lease("b", None, 5)),
            Verdict::Pass,
            "no address",
        ),
        (
            named("apiserver-old", "c"),
            None,
            Verdict::Warn,
            "made by hand",
        ),
        (
            fine(),
            Some(named("apiserver-other", "a")),
            Verdict::Fail,
            "only one is seen",
        ),
    ] {
        let all: Vec<Lease> = [Some(judged.clone()), other]
            .into_iter()
            .flatten()
            .collect();
        let item = judge_lease(&judged, &all, now(), false);
        assert_eq!(item.verdict, verdict, "{item:?}");
        assert!(item.says.contains(says), "{says}: {item:?}");
        assert_eq!(item.fix.is_some(), verdict > Verdict::Pass, "{item:?}");
    }
}

#[test]
fn a_server_behind_a_gateway_needs_no_address() {
    let all = [lease("a", None, 5), lease("b", Some("10.0.0.2:6443"), 5)];
    let item = judge_lease(&all[0], &all, now(), true);
    assert_eq!(item.verdict, Verdict::Pass, "{item:?}");
    assert!(item.says.contains("no address for peers"), "{item:?}");
    let late = lease("a", None, 120);
    let item = judge_lease(&late, &all, now(), true);
    assert!(item.says.starts_with("not renewed"), "{item:?}");
}

#[test]
fn addresses_have_a_host_and_a_port() {
    for (text, good) in [
        ("10.0.0.1:6443", true),
        ("host.example:443", true),
        ("[::1]:6443", true),
        ("::1:6443", false),
        ("10.0.0.1", false),
        ("10.0.0.1:0", false),
        ("10.0.0.1:http", false),
        (":6443", false),
        ("[x]:1", false),
        ("user@10.0.0.1:6443", false),
        ("10.0.0.1:6443/path", false),
    ] {
        assert_eq!(is_socket(text), good, "{text}");
    }
}

#[test]
fn a_lease_is_read_as_servers_write_it() {
    let written = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "h", "apiserver.kubernetes.io/identity": "kube-apiserver"},
        "annotations": {"kubernetes.io/peer-advertise-address": "10.0.0.1:1", "peerage.io/hold-seconds": "600"}},
        "spec": {"holderIdentity": "n_u", "leaseDurationSeconds": 3600, "renewTime": "2026-11-29T12:00:00.000001Z"}});
    let read = Lease::read(&written);
    assert_eq!(
        (read.title().as_str(), read.hold, read.held),
        ("h", Some(600), true)
    );
    assert_eq!(read.age(now()), Some(0));
    assert_eq!(Lease::read(&Value::Null), Lease::default());
}
