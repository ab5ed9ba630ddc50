//! The checklist over servers made by hand: a pair of kube-apiservers as they should be, and each thing that may be
//! wrong with them.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use peerage_apiserver::server_id;
use peerage_catalogue::{Catalogue, RuntimeConfig};
use peerage_core::discovery::{ApiGroupDiscoveryList, DiscoveryVersion, Freshness};
use rcgen::{
    CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use super::apis;
use super::gather::PEER_NAME;
use super::handshake::{Handshake, HandshakeError};
use super::judge::judge;
use super::report::{Item, Report, Verdict};
use super::world::{
    Ahead, Answers, Asked, Gateway, Got, Port, Problem, ReadThrough, Server, Shown, World,
};
use crate::client::Answer;
use crate::discovery::Form;
use crate::pki::kubeconfig::Connection;

const NOW: &str = "2030-06-01T12:00:00Z";

/// A certificate authority and what it signs, with any dates.
struct Pki(CertifiedIssuer<'static, KeyPair>);

/// A serving certificate as it should be, to be changed.
struct Leaf {
    names: Vec<&'static str>,
    years: (i32, i32),
    usage: ExtendedKeyUsagePurpose,
}

fn leaf() -> Leaf {
    Leaf {
        names: vec!["10.0.0.1", PEER_NAME],
        years: (2029, 2032),
        usage: ExtendedKeyUsagePurpose::ServerAuth,
    }
}

impl Pki {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2040, 1, 1);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(&self, name: &str, leaf: &Leaf) -> (CertificateDer<'static>, String) {
        let names: Vec<String> = leaf.names.iter().map(|it| (*it).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(leaf.years.0, 1, 1);
        params.not_after = date_time_ymd(leaf.years.1, 1, 1);
        params.extended_key_usages = vec![leaf.usage.clone()];
        let signed = params
            .signed_by(&KeyPair::generate().unwrap(), &self.0)
            .unwrap();
        (signed.der().clone(), signed.pem())
    }

    fn serving(&self, leaf: &Leaf) -> Result<Handshake, HandshakeError> {
        Ok(Handshake {
            certificates: vec![self.issue("kube-apiserver", leaf).0],
            took: Duration::from_millis(3),
        })
    }
}

fn answer(status: u16, body: impl Into<Bytes>) -> Got {
    Ok(Answer {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::new(),
        body: body.into(),
    })
}

fn document(status: u16, value: &Value) -> Got {
    answer(status, value.to_string())
}

fn forbidden() -> Got {
    document(403, &json!({"kind": "Status", "message": "forbidden"}))
}

fn missing() -> Got {
    answer(404, "404 page not found\n")
}

fn tagged(list: &ApiGroupDiscoveryList) -> Got {
    let mut got = answer(200, list.to_json(DiscoveryVersion::V2)).unwrap();
    got.headers.insert("etag", list.etag().parse().unwrap());
    Ok(got)
}

const METRICS: &str = "kubernetes_feature_enabled{name=\"UnknownVersionInteroperabilityProxy\",stage=\"BETA\"} 1\n\
    apiserver_rerouted_request_total{code=\"200\"} 4\n";
const READY: &str = "[+]ping ok\n[+]poststarthook/mixed-version-proxy-handler ok\n";

/// A kube-apiserver of a release with its own proxy, beside one of the newest.
fn server(pki: &Pki, name: &str, release: &str, host: &str) -> Server {
    let load = |it: &str| Catalogue::load(it, &RuntimeConfig::default()).unwrap();
    let (own, newest) = (load(release), load("1.37"));
    let merged = newest.groups_discovery();
    let minor = release.trim_start_matches("1.");
    let version = json!({"gitVersion": format!("v{release}.1"), "emulationMajor": "1", "emulationMinor": minor});
    Server {
        name: name.to_owned(),
        connection: Connection {
            url: format!("https://{host}:6443"),
            server_name: None,
            authority: Some(pki.pem()),
            certificate: None,
            key: None,
            token: Some("t".to_owned()),
        },
        address: format!("{host}:6443"),
        handshake: pki.serving(&Leaf {
            names: vec!["10.0.0.1", "10.0.0.2", PEER_NAME],
            ..leaf()
        }),
        answers: Ok(Answers {
            ready: answer(200, READY),
            version: document(200, &version),
            metrics: answer(200, METRICS),
            debug: missing(),
            own: Ok(Shown {
                apis: own.groups_discovery(),
                core: own.core_discovery(),
                form: Form::V2,
            }),
            merged: tagged(&merged),
            merged_core: tagged(&newest.core_discovery()),
            legacy: document(200, &json!(own.groups_discovery().to_legacy())),
            openapi: document(200, &openapi_index(&own.groups_discovery())),
            ahead: Some(Ahead {
                least: -0.5,
                most: 0.5,
            }),
        }),
        as_peer: None,
    }
}

fn openapi_index(apis: &ApiGroupDiscoveryList) -> Value {
    let mut paths = serde_json::Map::new();
    for group in &apis.items {
        for version in &group.versions {
            paths.insert(
                format!("apis/{}/{}", group.name(), version.version),
                json!({}),
            );
        }
    }
    json!({"paths": paths})
}

fn lease(hostname: &str, address: &str) -> Value {
    json!({
        "metadata": {
            "name": server_id(hostname),
            "labels": {"kubernetes.io/hostname": hostname, "apiserver.kubernetes.io/identity": "kube-apiserver"},
            "annotations": {"kubernetes.io/peer-advertise-address": address},
        },
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 3600, "renewTime": "2030-06-01T11:59:55Z"},
    })
}

/// What an older and a newer kube-apiserver answer when they are asked for the documents of an API that the newer has.
fn only_in_the_newer() -> Asked {
    let list = json!({"kind": "APIResourceList", "groupVersion": "storagemigration.k8s.io/v1",
        "resources": [{"name": "storageversionmigrations", "singularName": "", "namespaced": false,
            "kind": "StorageVersionMigration", "verbs": ["get", "list"]}]});
    let paths = json!({"paths": {"/apis/storagemigration.k8s.io/v1/storageversionmigrations": {}}});
    Asked {
        api_version: "storagemigration.k8s.io/v1".to_owned(),
        legacy: vec![missing(), document(200, &list)],
        openapi: vec![missing(), document(200, &paths)],
    }
}

fn world(pki: &Pki) -> World {
    let servers = vec![
        server(pki, "old", "1.36", "10.0.0.1"),
        server(pki, "new", "1.37", "10.0.0.2"),
    ];
    let leases = json!({"items": [lease("old", "10.0.0.1:6443"), lease("new", "10.0.0.2:6443")]});
    let endpoints = json!({"items": [{"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]}]});
    let config = json!({"data": {
        "requestheader-client-ca-file": Pki::new("front-proxy-ca").pem(),
        "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]"}});
    let port = |hostname: &str, host: &str| Port {
        lease: server_id(hostname),
        address: format!("{host}:6443"),
        handshake: pki.serving(&leaf()),
    };
    let read = ReadThrough {
        path: "/apis/storagemigration.k8s.io/v1/storageversionmigrations".to_owned(),
        list: vec![document(200, &json!({})); 2],
        object: None,
    };
    World {
        now: NOW.parse::<Timestamp>().unwrap(),
        servers,
        unusable: Vec::new(),
        gateways: Vec::new(),
        leases: document(200, &leases),
        endpoints: document(200, &endpoints),
        config: document(200, &config),
        pods: document(200, &json!({"items": []})),
        manifests: Vec::new(),
        front_proxy: None,
        ports: vec![port("old", "10.0.0.1"), port("new", "10.0.0.2")],
        asked: vec![only_in_the_newer()],
        read: vec![read],
        left_out: Vec::new(),
    }
}

fn answers(world: &mut World, at: usize) -> &mut Answers {
    world.servers[at].answers.as_mut().unwrap()
}

/// Sets a server's clock, as far as its date tells it.
fn clock(world: &mut World, at: usize, ahead: f64) {
    answers(world, at).ahead = Some(Ahead {
        least: ahead - 0.5,
        most: ahead + 0.5,
    });
}

/// The same, with its Lease, which it writes by that clock.
fn wrong_clock_of_old(world: &mut World, ahead: i64) {
    clock(world, 0, ahead as f64);
    let mut old = lease("old", "10.0.0.1:6443");
    let renewed = Timestamp::from_second(world.now.as_second() - 5 + ahead).unwrap();
    old["spec"]["renewTime"] = json!(renewed.to_string());
    let leases = json!({"items": [old, lease("new", "10.0.0.2:6443")]});
    world.leases = document(200, &leases);
}

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

/// Makes a server one that is reached through a gateway.
fn through_a_gateway(world: &mut World, at: usize) {
    let version = answers(world, at).version.as_mut().unwrap();
    peerage_proxy::headers::mark_gateway(&mut version.headers);
}

fn gateway(peers: Value) -> Gateway {
    Gateway {
        url: "http://127.0.0.1:10440".to_owned(),
        ready: answer(200, "ok"),
        debug: document(200, &json!({"server": "gateway", "peers": peers})),
        metrics: missing(),
    }
}

#[test]
fn a_gateway_has_no_version_of_its_own_and_what_it_lists_comes_from_servers() {
    let pki = Pki::new("ca");
    let of = |world: &World, check: &str| {
        let found = judge(world).items.into_iter().find(|it| it.check == check);
        found.unwrap()
    };
    let mut world = world(&pki);
    world.servers.truncate(1);
    world.read.clear();
    through_a_gateway(&mut world, 0);
    let item = of(&world, "version-skew");
    assert_eq!(item.verdict, Verdict::Skip, "{item:?}");
    assert!(item.says.contains("name the servers"), "{item:?}");

    let peer = |id: &str, version: &str| json!({"id": id, "state": "serving", "why": "", "version": version});
    world.gateways = vec![gateway(json!([peer("a", "v1.34.1"), peer("b", "v1.37.0")]))];
    let item = of(&world, "version-skew");
    assert!(
        item.says.starts_with("1.34 (a), 1.37 (b): 3 minor"),
        "{item:?}"
    );

    let own = answers(&mut world, 0).own.as_mut().unwrap();
    std::sync::Arc::make_mut(&mut own.apis.items[0]).versions[0].freshness = Freshness::Stale;
    let item = of(&world, "discovery");
    assert_eq!(item.verdict, Verdict::Warn);
    assert!(
        item.fix.as_ref().unwrap().contains("/debug/peers"),
        "{item:?}"
    );
}

#[test]
fn each_fault_of_a_certificate_is_named() {
    let pki = Pki::new("ca");
    let other = Pki::new("other");
    let names = |names: &[&'static str]| Leaf {
        names: names.to_vec(),
        ..leaf()
    };
    for (signer, leaf, says) in [
        (&pki, leaf(), None),
        (
            &pki,
            Leaf {
                years: (2020, 2030),
                ..leaf()
            },
            Some("it ended 2030-01-01"),
        ),
        (
            &pki,
            Leaf {
                years: (2031, 2032),
                ..leaf()
            },
            Some("it is valid only from 2031-01-01"),
        ),
        (
            &pki,
            Leaf {
                usage: ExtendedKeyUsagePurpose::ClientAuth,
                ..leaf()
            },
            Some("its usages do not allow"),
        ),
        (
            &pki,
            names(&["10.0.0.1"]),
            Some("kubernetes.default.svc is not among its names: 10.0.0.1"),
        ),
        (
            &pki,
            names(&[PEER_NAME]),
            Some("10.0.0.1 is not among its names"),
        ),
        (&other, leaf(), Some("signed by \"other\"")),
    ] {
        let mut world = world(&pki);
        world.servers[0].handshake = signer.serving(&leaf);
        world.ports[0].handshake = signer.serving(&leaf);
        let report = judge(&world);
        let of = |check: &str, subject: &str| {
            let found = report
                .items
                .iter()
                .find(|it| it.check == check && it.subject.starts_with(subject));
            found.cloned().unwrap()
        };
        let (own, port) = (of("certificate", "old"), of("peer-port", "old"));
        match says {
            None => assert_eq!((own.verdict, port.verdict), (Verdict::Pass, Verdict::Pass)),
            Some(says) => {
                assert!(own.says.contains(says), "{own:?}");
                assert_eq!(own.verdict, Verdict::Fail);
                // Peers ask for one name, whatever the address.
                let port_is_fine = says.starts_with("10.0.0.1");
                assert_eq!(port.verdict == Verdict::Pass, port_is_fine, "{port:?}");
            }
        }
    }
}

#[test]
fn a_front_proxy_certificate_is_believed_by_authority_and_name() {
    let (pki, front) = (Pki::new("ca"), Pki::new("front-proxy-ca"));
    let client = || Leaf {
        names: vec![],
        usage: ExtendedKeyUsagePurpose::ClientAuth,
        ..leaf()
    };
    for (signer, name, years, says) in [
        (&front, "front-proxy-client", (2029, 2032), "allowed, "),
        (
            &front,
            "somebody",
            (2029, 2032),
            "is not among the names that are allowed",
        ),
        (
            &pki,
            "front-proxy-client",
            (2029, 2032),
            "signed by ca, not by",
        ),
        (&front, "front-proxy-client", (2020, 2030), "it ended "),
    ] {
        let mut world = world(&pki);
        let config = json!({"data": {"requestheader-client-ca-file": front.pem(),
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]"}});
        world.config = document(200, &config);
        let leaf = Leaf { years, ..client() };
        world.front_proxy = Some(signer.issue(name, &leaf).1);
        let report = judge(&world);
        let item = report
            .items
            .iter()
            .find(|it| it.check == "front-proxy")
            .unwrap();
        assert!(item.says.contains(says), "{item:?}");
        assert_eq!(item.verdict == Verdict::Pass, says.starts_with("allowed"));
    }
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
