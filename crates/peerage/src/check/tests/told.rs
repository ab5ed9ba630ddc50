//! All that a gateway says on its own address is judged, in its own words.

#![allow(clippy::unwrap_used)]

use super::fixture::*;

use peerage_gateway::sources::{DebugSource, Finding, FindingKind, SourceName};
use peerage_proxy::debug::DebugAside;
use serde_json::{Value, json};

use crate::check::judge::judge;
use crate::check::report::{Item, Verdict};
use crate::check::world::{Gateway, World};

const URL: &str = "http://127.0.0.1:10440";

fn aside(id: &str, kind: &'static str, error: Option<&str>) -> Value {
    json!(DebugAside {
        id: id.to_owned(),
        address: Some(format!("{id}:6444")),
        kind,
        why: format!("{kind} at {id}"),
        error: error.map(str::to_owned),
    })
}

fn source(name: SourceName, error: Option<&str>, skipped: usize) -> Value {
    json!(DebugSource {
        name,
        servers: 2,
        skipped,
        age_seconds: Some(3.0),
        error: error.map(str::to_owned),
    })
}

fn with_state(world: &mut World, state: &Value) {
    let mut whole = json!({"server": "gateway", "peers": []});
    let fields = state.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    let debug = document(200, &whole);
    world.gateways = vec![Gateway {
        debug,
        ..gateway(json!([]))
    }];
}

#[test]
fn whatever_a_gateway_says_is_wrong_is_an_item_in_its_words() {
    use Verdict::{Fail, Pass, Warn};
    let pki = Pki::new("ca");
    let refused = "peerage-gateway may not read Leases (status 403). Allow it: kubectl create role";
    let finding = json!([Finding {
        kind: FindingKind::OneIdTwoAddresses,
        servers: Vec::new(),
        message: "two servers have the ID x".to_owned(),
    }]);
    let left = json!([{"id": "x", "state": "left", "why": "it stopped"}]);
    for (state, verdict, check, says, fix) in [
        (
            json!({"sources": [source(SourceName::Leases, Some(refused), 0)]}),
            Warn,
            "source leases of http://127.0.0.1:10440",
            "may not read Leases (status 403); 2 servers of the last",
            "allow it: kubectl create role",
        ),
        (
            json!({"sources": [source(SourceName::File, Some("bad YAML"), 0)]}),
            Warn,
            "source file of http://127.0.0.1:10440",
            "cannot be read: bad YAML",
            "--peers-file",
        ),
        (
            json!({"sources": [source(SourceName::Dns, None, 1)]}),
            Warn,
            "source dns of http://127.0.0.1:10440",
            "1 entry passed over, 2 servers",
            "log",
        ),
        (
            json!({"sources": [source(SourceName::Flags, None, 0)]}),
            Pass,
            "source flags of http://127.0.0.1:10440",
            "2 servers",
            "",
        ),
        (
            json!({"aside": [aside("x", "stranger", Some("another authority"))]}),
            Warn,
            "aside x seen by http://127.0.0.1:10440",
            "stranger at x (another authority)",
            "--peer-ca-file",
        ),
        (
            json!({"beside": "x", "aside": [aside("x", "oneself", None)]}),
            Fail,
            "aside x seen by http://127.0.0.1:10440",
            "oneself at x",
            "--upstream",
        ),
        (
            json!({"beside": "y", "aside": [aside("x", "oneself", None)]}),
            Warn,
            "aside x seen by http://127.0.0.1:10440",
            "oneself at x",
            "--peer",
        ),
        (
            json!({"aside": [aside("x", "never_heard", None)]}),
            Warn,
            "aside x seen by http://127.0.0.1:10440",
            "never_heard at x",
            "start the server",
        ),
        (
            json!({"aside": [aside("x", "same_server", None)]}),
            Pass,
            "aside x seen by http://127.0.0.1:10440",
            "same_server at x",
            "",
        ),
        (
            json!({"findings": finding}),
            Warn,
            "finding http://127.0.0.1:10440",
            "two servers have the ID x",
            "host names",
        ),
        (
            json!({"peers": left}),
            Warn,
            "peer x seen by http://127.0.0.1:10440",
            "left: it stopped",
            "not in the list any more: put it back into --peer",
        ),
    ] {
        let mut world = world(&pki);
        with_state(&mut world, &state);
        let items = judge(&world).items.into_iter();
        let mut items = items.filter(|it| format!("{} {}", it.check, it.subject) == check);
        let item = items.next().unwrap_or_else(|| panic!("no {check}"));
        assert_eq!(item.verdict, verdict, "{item:?}");
        assert!(item.says.contains(says), "{says}: {item:?}");
        let has_fix = item.fix.as_deref().unwrap_or_default().contains(fix);
        assert!(has_fix, "{fix}: {item:?}");
    }
}

#[test]
fn a_gateway_that_says_nothing_leaves_open_who_is_behind_it() {
    let pki = Pki::new("ca");
    let mut world = super::gateways::without_proxies(&pki);
    let silent = || Err("nobody accepts connections".to_owned());
    world.gateways = vec![Gateway {
        url: URL.to_owned(),
        ready: silent(),
        debug: silent(),
        metrics: silent(),
    }];
    let report = judge(&world);
    let mut failing = report.items.iter().filter(|it| it.verdict > Verdict::Pass);
    let first = failing.next().map(|it| (it.check, &*it.subject));
    assert_eq!(
        first,
        Some(("ready", URL)),
        "{}",
        report.in_words(120, true)
    );
    let rest: Vec<&Item> = failing.collect();
    assert!(rest.is_empty(), "{rest:#?}");
    let says = |check: &str| {
        let mut items = report.items.iter();
        let item = items.find(|it| it.check == check && it.verdict == Verdict::Skip);
        item.unwrap_or_else(|| panic!("no {check} is left out"))
            .says
            .clone()
    };
    for check in ["proxy", "flags", "merged-view"] {
        assert!(
            says(check).starts_with("not judged while "),
            "{}",
            says(check)
        );
    }
    // Something else that answers there is told for what it is.
    world.gateways[0].ready = answer(200, "ok");
    world.gateways[0].debug = missing();
    let items = judge(&world).items;
    let item = items.iter().find(|it| it.subject == URL).unwrap();
    assert_eq!((item.check, item.verdict), ("ready", Verdict::Fail));
    assert!(
        item.says.contains("/debug/peers: there is none (404)"),
        "{item:?}"
    );
}

#[test]
fn what_follows_from_a_server_that_is_away_is_mended_by_starting_it() {
    let pki = Pki::new("ca");
    let mut world = world(&pki);
    world
        .servers
        .push(server(&pki, "third", "1.37", "10.0.0.3"));
    world.servers[2].answers = Err("refused".to_owned());
    let own = answers(&mut world, 0).own.clone().unwrap();
    answers(&mut world, 0).merged = tagged(&own.apis);
    answers(&mut world, 1).openapi = document(503, &json!({"message": "away"}));
    world.read[0].list[0] = document(503, &json!({"message": "away"}));
    let fixes = |world: &World| -> Vec<String> {
        let checks = ["merged-view", "openapi", "legacy-discovery", "read-through"];
        let items = judge(world).items.into_iter();
        let items = items.filter(|it| checks.contains(&it.check) && it.verdict > Verdict::Pass);
        items.filter_map(|it| it.fix).collect()
    };
    let found = fixes(&world);
    assert!(found.len() > 4, "{found:#?}");
    for fix in found {
        let begins = "start third first: this may follow from it; if it stays: ";
        assert!(fix.starts_with(begins), "{fix}");
    }
    // Peerage's proxy hides nothing by itself.
    through_a_gateway(&mut world, 0);
    let found = fixes(&world);
    assert!(
        found.contains(&"start third; this follows from it".to_owned()),
        "{found:#?}"
    );
    world.servers.pop();
    assert!(fixes(&world).iter().all(|it| !it.contains("start ")));
    // Nor is a gateway what one lacks who has it.
    let items = judge(&world).items.into_iter();
    let through_it = items.filter(|it| it.subject == "old" && it.verdict > Verdict::Pass);
    let fixes: Vec<String> = through_it.filter_map(|it| it.fix).collect();
    assert!(
        fixes.iter().any(|it| it.contains("its log says why")),
        "{fixes:#?}"
    );
    assert!(
        fixes.iter().all(|it| !it.contains("put `peerage gateway`")),
        "{fixes:#?}"
    );
}

#[test]
fn a_gateway_that_is_not_ready_says_why_and_whom_to_start() {
    let mut world = world(&Pki::new("ca"));
    world.servers[1].answers = Err("refused".to_owned());
    through_a_gateway(&mut world, 0);
    let away = json!({"kind": "Status", "message": "no server can be used"});
    answers(&mut world, 0).ready = document(503, &away);
    let peers = json!([{"id": "x", "state": "unreachable", "address": "10.0.0.2:6443"}]);
    world.gateways = vec![Gateway {
        ready: answer(500, "no server can be used: x does not answer"),
        ..gateway(peers)
    }];
    for (subject, says, fix) in [
        (
            "old",
            "/readyz fails: 503 no server can be used",
            "start new, ",
        ),
        (
            URL,
            "500 no server can be used: x does not answer",
            "start new, ",
        ),
    ] {
        let items = judge(&world).items.into_iter();
        let mut items = items.filter(|it| it.check == "ready" && it.subject == subject);
        let item = items.next().unwrap();
        assert_eq!(item.says, says);
        assert!(item.fix.as_ref().unwrap().starts_with(fix), "{item:?}");
    }
}
