//! Each thing that may be wrong with a pair, and that it is found and nothing else.

#![allow(clippy::unwrap_used)]

use super::fixture::*;

use serde_json::json;

use crate::check::apis;
use crate::check::handshake::HandshakeError;
use crate::check::judge::judge;
use crate::check::report::{Item, Report, Verdict};
use crate::check::world::{Gateway, Got, Problem, ReadThrough, World};

/// What turned out worse than it does for the pair as it should be.
fn worse(report: &Report, than: &Report) -> Vec<String> {
    let known = |check: &str, subject: &str| {
        let found = than
            .items
            .iter()
            .find(|it| it.check == check && it.subject == subject);
        found.map_or(Verdict::Skip, |it| it.verdict)
    };
    let worse = report
        .items
        .iter()
        .filter(|it| it.verdict > Verdict::Pass && it.verdict > known(it.check, &it.subject));
    worse
        .map(|it| {
            format!(
                "{} {} {}: {}",
                it.verdict.word(),
                it.check,
                it.subject,
                it.says
            )
        })
        .collect()
}

#[test]
fn a_pair_as_it_should_be_passes_but_for_what_kubernetes_itself_lacks() {
    let report = judge(&world(&Pki::new("ca")));
    let mut failing: Vec<_> = report
        .items
        .iter()
        .filter(|it| it.verdict > Verdict::Pass)
        .map(|it| (it.verdict, it.check, it.subject.as_str()))
        .collect();
    failing.sort_unstable();
    assert_eq!(
        failing,
        [
            (Verdict::Warn, "legacy-discovery", "old"),
            (Verdict::Warn, "openapi", "old"),
            (Verdict::Warn, "subresources", ""),
        ],
        "{}",
        report.in_words(120, false)
    );
}

type Change = Box<dyn Fn(&mut World)>;

fn change(change: impl Fn(&mut World) + 'static) -> Change {
    Box::new(change)
}

#[test]
fn each_thing_that_is_wrong_is_found_and_nothing_else() {
    let pki = Pki::new("ca");
    let good = judge(&world(&pki));
    let gate_off = METRICS.replace("} 1", "} 0");
    let rows: Vec<(Change, &[&str])> = vec![
        (
            change(|it| it.servers[1].answers = Err("TLS: bad".into())),
            &["fail reachable new: TLS: bad"],
        ),
        (
            change(move |it| answers(it, 0).metrics = answer(200, gate_off.clone())),
            &["fail proxy old: the gate UnknownVersionInteroperabilityProxy is off"],
        ),
        (
            change(|it| answers(it, 0).ready = answer(200, "[+]ping ok\n")),
            &["fail proxy old: the gate is on, but without --peer-ca-file"],
        ),
        (
            change(|it| answers(it, 0).metrics = forbidden()),
            &["warn rerouted old: /metrics: may not be read (403)"],
        ),
        (
            change(|it| answers(it, 0).ready = forbidden()),
            &[
                "warn ready old: /readyz and /version: may not be read (403)",
                "warn proxy old: the gate is on; whether --peer-ca-file is there is not known: /readyz",
            ],
        ),
        (
            change(|it| {
                let old = answers(it, 0);
                (old.ready, old.metrics) = (document(401, &json!({})), forbidden());
            }),
            &[
                "fail ready old: /readyz and /version: the server does not know these credentials (401)",
                "fail proxy old: poststarthook/mixed-version-proxy-handler may be there or not; /readyz",
                "warn rerouted old: /metrics: may not be read (403)",
            ],
        ),
        (
            change(|it| {
                it.gateways = vec![Gateway {
                    ready: missing(),
                    ..gateway(json!([{"id": "a", "state": "starting", "why": "no endpoint yet"}]))
                }]
            }),
            &[
                "fail ready http://127.0.0.1:10440: no gateway: /readyz: there is none (404)",
                "warn peer a seen by http://127.0.0.1:10440: starting: no endpoint yet",
                "warn known-servers old at 10.0.0.1:6443 for http://127.0.0.1:10440: has an identity Lease",
                "warn known-servers new at 10.0.0.2:6443 for http://127.0.0.1:10440: has an identity Lease",
            ],
        ),
        (
            change(|it| {
                let why = "it is registered and answers";
                let a = json!({"id": "a", "state": "serving", "why": why, "starting": true});
                it.gateways = vec![gateway(json!([a]))];
            }),
            &[
                "warn peer a seen by http://127.0.0.1:10440: serving: it lists less than before it was away",
                "warn known-servers old at 10.0.0.1:6443 for http://127.0.0.1:10440: has an identity Lease",
                "warn known-servers new at 10.0.0.2:6443 for http://127.0.0.1:10440: has an identity Lease",
            ],
        ),
        (
            change(|it| {
                let error =
                    json!({"reason": "refused", "message": "nobody listens at 10.0.0.9:6443"});
                let a = json!({"id": "a", "state": "unreachable", "why": "", "error": error});
                it.gateways = vec![gateway(json!([a]))];
            }),
            &[
                "fail peer a seen by http://127.0.0.1:10440: unreachable: nobody listens at 10.0.0.9:6443",
                "warn known-servers old at 10.0.0.1:6443 for http://127.0.0.1:10440: has an identity Lease",
                "warn known-servers new at 10.0.0.2:6443 for http://127.0.0.1:10440: has an identity Lease",
            ],
        ),
        (
            // What leads to nobody is told, and counts for nothing.
            change(|it| {
                let (name, why) = ("cloud".to_owned(), "it runs a program".to_owned());
                it.unusable = vec![crate::targets::Unusable { name, why }];
            }),
            &[],
        ),
        (
            change(|it| {
                answers(it, 0).ready = answer(
                    500,
                    "[+]ping ok\n[-]etcd failed: reason withheld\n[+]poststarthook/mixed-version-proxy-handler ok\n",
                )
            }),
            &["fail ready old: /readyz fails: etcd"],
        ),
        (
            change(|it| wrong_clock_of_old(it, 90)),
            &["fail clock old: at least 89 s ahead of this machine's clock"],
        ),
        (
            change(|it| wrong_clock_of_old(it, -300)),
            &["fail clock old: at least 299 s behind this machine's clock"],
        ),
        (
            change(|it| {
                // This machine's is wrong, and Leases are right.
                it.now = "2030-06-01T11:58:30Z".parse().unwrap();
                clock(it, 0, 90.0);
                clock(it, 1, 90.2);
            }),
            &["fail clock this machine: at least 89 s behind that of old"],
        ),
        (
            change(|it| {
                clock(it, 0, 2.3);
                clock(it, 1, -2.3);
            }),
            &["warn clock old: at least 3 s ahead of that of new"],
        ),
        (
            change(|it| answers(it, 0).version = document(200, &json!({"gitVersion": "v1.33.1"}))),
            &[
                "warn version-skew : 1.33 (old), 1.37 (new): 4 minor versions apart",
                "warn proxy old: on, but before 1.35",
            ],
        ),
        (
            change(|it| {
                let own = answers(it, 0).own.clone().unwrap();
                answers(it, 0).merged = tagged(&own.apis);
            }),
            &[
                "fail merged-view old: it hides ",
                "warn merged-view : not the same everywhere",
            ],
        ),
        (
            change(|it| answers(it, 0).own = Err(Problem::Forbidden)),
            &["warn discovery old: discovery: may not be read (403)"],
        ),
        (
            change(|it| it.read[0].list[0] = missing()),
            &[
                "fail read-through /apis/storagemigration.k8s.io/v1/storageversionmigrations: old answers 404",
            ],
        ),
        (
            change(|it| it.read[0].list = vec![forbidden(), forbidden()]),
            &[
                "warn read-through /apis/storagemigration.k8s.io/v1/storageversionmigrations: may not be read",
            ],
        ),
        (
            change(|it| it.leases = forbidden()),
            &["warn identity-lease : the identity Leases: may not be read (403)"],
        ),
        (
            change(|it| it.config = forbidden()),
            &["warn front-proxy : the ConfigMap"],
        ),
        (
            change(|it| it.pods = forbidden()),
            &["warn flags : the kube-apiservers' pods: may not be read (403)"],
        ),
        (
            change(|it| it.config = document(200, &json!({"data": {}}))),
            &["fail front-proxy : no server has --requestheader-client-ca-file"],
        ),
        (
            change(|it| it.ports[1].handshake = Err(HandshakeError::Connect("refused".into()))),
            &["fail peer-port new at 10.0.0.2:6443: cannot connect: refused"],
        ),
        (
            change(|it| {
                it.endpoints = document(
                    200,
                    &json!({"items": [{"endpoints": [
                {"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.3"]}]}]}),
                )
            }),
            &["fail host-names : the Service kubernetes has 3 servers"],
        ),
    ];
    for (at, (change, expected)) in rows.iter().enumerate() {
        let mut changed = world(&pki);
        change(&mut changed);
        let report = judge(&changed);
        let unusable = report.items.iter().filter(|it| it.subject == "cloud");
        assert_eq!(unusable.count(), changed.unusable.len(), "row {at}");
        let mended = |it: &Item| it.verdict <= Verdict::Pass || it.fix.is_some();
        assert!(report.items.iter().all(mended), "row {at}: {report:#?}");
        let found = worse(&report, &good);
        let expected_all = expected
            .iter()
            .all(|it| found.iter().any(|found| found.starts_with(it)));
        let no_more = found
            .iter()
            .all(|found| expected.iter().any(|it| found.starts_with(it)));
        assert!(
            expected_all && no_more,
            "row {at}: {found:#?}, expected {expected:#?}"
        );
    }
}

#[test]
fn one_server_that_says_nothing_does_not_keep_the_others_from_being_compared() {
    let pki = Pki::new("ca");
    let three = || {
        let mut world = world(&pki);
        world
            .servers
            .push(server(&pki, "third", "1.37", "10.0.0.3"));
        world.read.clear();
        world
    };
    let rows: [(Change, &str, &str); 4] = [
        (
            change(|_| ()),
            "1.36 (old), 1.37 (new, third)",
            "everywhere, by its ETag",
        ),
        (
            change(|it| it.servers[2].answers = Err("refused".to_owned())),
            "1.36 (old), 1.37 (new); not known: third",
            "everywhere, by its ETag; not known: third",
        ),
        (
            change(|it| {
                let third = answers(it, 2);
                (third.version, third.merged) = (forbidden(), forbidden());
            }),
            "1.36 (old), 1.37 (new); not known: third",
            "everywhere, by its ETag; not known: third",
        ),
        (
            change(|it| {
                let merged = answers(it, 2).merged.as_mut().unwrap();
                merged.headers.clear();
            }),
            "1.36 (old), 1.37 (new, third)",
            "everywhere, by its ETag; not known: third",
        ),
    ];
    for (change, versions, views) in rows {
        let mut world = three();
        change(&mut world);
        let report = judge(&world);
        for (check, says) in [("version-skew", versions), ("merged-view", views)] {
            let mut items = report.items.iter();
            let item = items.find(|it| it.check == check && it.subject.is_empty());
            let item = item.unwrap_or_else(|| panic!("no {check}"));
            assert_eq!(item.verdict, Verdict::Pass, "{item:?}");
            assert!(item.says.ends_with(says), "{says}: {item:?}");
        }
    }
    let mut world = three();
    for at in [0, 2] {
        world.servers[at].answers = Err("refused".to_owned());
    }
    let report = judge(&world);
    let skew = report.items.iter().find(|it| it.check == "version-skew");
    let skew = skew.unwrap();
    assert_eq!(skew.verdict, Verdict::Skip, "{skew:?}");
    assert_eq!(skew.says, "1.37 (new); not known: old, third");
}

#[test]
fn what_fails_for_one_cause_is_one_item() {
    let mut world = world(&Pki::new("ca"));
    let read = |name: &str, list: [Got; 2]| ReadThrough {
        path: format!("/apis/x/v1/{name}"),
        list: list.to_vec(),
        object: None,
    };
    let fine = || document(200, &json!({}));
    world.read = ["a", "b", "c", "d", "e", "f"]
        .map(|it| read(it, [missing(), fine()]))
        .to_vec();
    world.read.push(read("g", [fine(), missing()]));
    let report = judge(&world);
    let failed = report.items.iter().filter(|it| it.check == "read-through");
    let subjects: Vec<&str> = failed.map(|it| it.subject.as_str()).collect();
    assert_eq!(
        subjects,
        [
            "/apis/x/v1/a, /apis/x/v1/b, /apis/x/v1/c, /apis/x/v1/d, /apis/x/v1/e and 1 more",
            "/apis/x/v1/g"
        ]
    );
}

#[test]
fn what_only_the_newer_serves_is_what_is_asked_for_everywhere() {
    let pki = Pki::new("ca");
    let world = world(&pki);
    let differing = apis::differing(&world.servers);
    assert!(
        differing
            .iter()
            .any(|it| it.root() == "/apis/storagemigration.k8s.io/v1" && it.readable)
    );
    let report = judge(&world);
    let says = |check: &str, subject: &str| {
        let found = report
            .items
            .iter()
            .find(|it| it.check == check && it.subject == subject);
        found.unwrap().says.clone()
    };
    assert!(
        says("openapi", "old").contains("storageversionmigrations"),
        "{}",
        says("openapi", "old")
    );
    assert!(says("legacy-discovery", "old").contains("the group storagemigration.k8s.io"));
}
