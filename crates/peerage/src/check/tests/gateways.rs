//! Servers that are reached through a gateway.

#![allow(clippy::unwrap_used)]

use super::fixture::*;

use peerage_core::discovery::Freshness;
use serde_json::json;

use crate::check::handshake::HandshakeError;
use crate::check::judge::judge;
use crate::check::report::{Item, Verdict};
use crate::check::world::{Gateway, World};

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

/// The items that fail, as `check subject`.
fn failing(world: &World) -> Vec<String> {
    let report = judge(world);
    let failing = report.items.iter().filter(|it| it.verdict == Verdict::Fail);
    let mut failing: Vec<String> = failing
        .map(|it| format!("{} {}", it.check, it.subject))
        .collect();
    failing.dedup();
    failing
}

/// A pair of servers whose own proxies are off, as real ones without any flag for it answer.
pub(super) fn without_proxies(pki: &Pki) -> World {
    let mut world = world(pki);
    for at in [0, 1] {
        let own = answers(&mut world, at).own.clone().unwrap();
        let answers = answers(&mut world, at);
        answers.metrics = answer(200, METRICS.replace("} 1", "} 0"));
        answers.ready = answer(200, "[+]ping ok\n");
        (answers.merged, answers.merged_core) = (tagged(&own.apis), tagged(&own.core));
    }
    world.read[0].list[0] = missing();
    world.pods = document(
        200,
        &json!({"items": [{"metadata": {"name": "kube-apiserver-old"}, "spec": {"containers": [{
            "image": "kube-apiserver:v1.35.1",
            "command": ["kube-apiserver", "--requestheader-client-ca-file=/ca.crt",
                "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-"]}]}}]}),
    );
    world
}

/// What the runbook in `docs/gateway.md` says of each step.
#[test]
fn each_step_of_the_runbook_ends_as_it_says() {
    let pki = Pki::new("ca");
    let mut before = without_proxies(&pki);
    before.servers.truncate(1);
    before.read.clear();
    let report = judge(&before);
    assert_eq!(failing(&before), [""; 0], "{}", report.in_words(120, true));
    assert_eq!(report.exit_code(), 1);
    for check in ["proxy", "flags"] {
        let item = report.items.iter().find(|it| it.check == check).unwrap();
        let fix = item.fix.as_deref().unwrap();
        assert!(fix.starts_with("before the upgrade begins"), "{item:?}");
        assert!(fix.contains("gateway"), "{item:?}");
    }

    let mut mixed = without_proxies(&pki);
    let all = [
        "proxy old",
        "proxy new",
        "flags kube-apiserver-old",
        "merged-view old",
        "read-through /apis/storagemigration.k8s.io/v1/storageversionmigrations",
    ];
    assert_eq!(failing(&mixed), all);
    for item in judge(&mixed).items.iter().filter(|it| it.check == "proxy") {
        assert!(item.fix.as_ref().unwrap().contains("peerage gateway"));
    }

    let peer = |host: &str, state: &str| {
        json!({"id": host, "address": format!("{host}:6443"), "state": state, "why": "",
        "version": "v1.37.0"})
    };
    mixed.gateways = vec![gateway(json!([
        peer("10.0.0.1", "serving"),
        peer("10.0.0.2", "serving")
    ]))];
    let report = judge(&mixed);
    assert_eq!(failing(&mixed), [""; 0], "{}", report.in_words(120, true));
    let says = |subject: &str| {
        let mut items = report.items.iter();
        let item = items.find(|it| it.check == "proxy" && it.subject == subject);
        item.unwrap().says.clone()
    };
    for name in ["old", "new"] {
        assert!(says(name).starts_with("clients come through the gateway http://127.0.0.1:10440"));
    }

    // A server that the gateway cannot use, and one that it does not know, are not behind it.
    mixed.gateways = vec![gateway(json!([peer("10.0.0.1", "unreachable")]))];
    let failing = failing(&mixed);
    assert!(failing.contains(&"proxy new".to_owned()), "{failing:?}");
    assert!(!failing.contains(&"proxy old".to_owned()), "{failing:?}");
}

#[test]
fn a_gateway_that_is_away_is_named_once() {
    let mut world = world(&Pki::new("ca"));
    let url = "http://127.0.0.1:1";
    let why = format!("{url} did not answer: nobody accepts connections at 127.0.0.1:1");
    world.gateways = vec![Gateway {
        url: url.to_owned(),
        ready: Err(why.clone()),
        debug: Err(why.clone()),
        metrics: Err(why),
    }];
    let items = judge(&world).items.into_iter();
    let items: Vec<Item> = items.filter(|it| it.subject.contains(url)).collect();
    let [item] = items.as_slice() else {
        panic!("{items:?}");
    };
    assert_eq!(item.verdict, Verdict::Fail);
    assert_eq!(item.says, "did not answer: nobody accepts connections");
    let fix = item.fix.as_deref().unwrap_or_default();
    assert!(fix.starts_with("start it"), "{fix}");
}

/// A gateway before `old` and `new`, of which `new` is down.
fn with_new_away(pki: &Pki) -> World {
    let mut world = world(pki);
    let refused = || HandshakeError::Connect("refused".to_owned());
    world.servers[1].handshake = Err(refused());
    world.servers[1].answers = Err("it was not asked".to_owned());
    world.ports[1].handshake = Err(refused());
    world.read.clear();
    let peer = |host: &str, state: &str, version: &str| {
        json!({"id": format!("{host}:6443"), "address": format!("{host}:6443"),
        "state": state, "why": "3 attempts in a row failed", "version": version})
    };
    world.gateways = vec![gateway(json!([
        peer("10.0.0.1", "serving", "v1.36.1"),
        peer("10.0.0.2", "unreachable", "v1.37.1")
    ]))];
    world
}

#[test]
fn a_server_that_is_down_is_one_item_and_counts_once() {
    let mut world = with_new_away(&Pki::new("ca"));
    assert_eq!(failing(&world), ["reachable new"]);
    let skew = |world: &World| {
        let mut items = judge(world).items.into_iter();
        items.find(|it| it.check == "version-skew").unwrap().says
    };
    assert_eq!(skew(&world), "1.36 (old), 1.37 (new)");
    // Of an address that nobody named the gateway tells.
    world.servers.truncate(1);
    let away = [
        "peer 10.0.0.2:6443 seen by http://127.0.0.1:10440",
        "peer-port new at 10.0.0.2:6443",
    ];
    assert_eq!(failing(&world), away);
    assert_eq!(skew(&world), "1.36 (old), 1.37 (10.0.0.2:6443)");
}

#[test]
fn when_nobody_answers_it_is_not_said_of_everything_that_could_not_be_read() {
    let mut world = with_new_away(&Pki::new("ca"));
    world.gateways.clear();
    world.ports.clear();
    world.servers.remove(0);
    let nobody = || Err("no server answers".to_owned());
    (world.leases, world.endpoints, world.config, world.pods) =
        (nobody(), nobody(), nobody(), nobody());
    let problems = judge(&world).problems().items.into_iter();
    let problems: Vec<Item> = problems.filter(|it| it.fix.is_some()).collect();
    let [item] = problems.as_slice() else {
        panic!("{problems:#?}");
    };
    assert_eq!((item.check, &*item.subject), ("reachable", "new"));
}

#[test]
fn counters_that_are_read_through_a_gateway_are_not_taken_for_its_own() {
    let mut world = world(&Pki::new("ca"));
    through_a_gateway(&mut world, 0);
    let items = judge(&world).items.into_iter();
    let items: Vec<Item> = items.filter(|it| it.check == "rerouted").collect();
    let [old, new] = items.as_slice() else {
        panic!("{items:#?}");
    };
    assert_eq!((old.verdict, &*old.subject), (Verdict::Skip, "old"));
    assert!(old.says.contains("of a server behind it") && old.says.contains("--gateway"));
    assert!(
        new.says.starts_with("since it started: 4 rerouted"),
        "{new:?}"
    );
}
