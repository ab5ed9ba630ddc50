//! What goes past gateways: servers that one does not know, and pods that do not come to one.

#![allow(clippy::unwrap_used)]

use super::fixture::*;

use serde_json::{Value, json};

use crate::check::judge::judge;
use crate::check::report::{Item, Verdict};
use crate::check::world::{Gateway, World};

fn items(world: &World, check: &str) -> Vec<Item> {
    let items = judge(world).items.into_iter();
    items.filter(|it| it.check == check).collect()
}

fn knows(address: &str, certificate: Option<String>) -> Value {
    json!({"id": address, "address": address, "state": "serving", "why": "", "certificate": certificate})
}

#[test]
fn a_server_that_a_gateway_does_not_know_is_named() {
    let pki = Pki::new("ca");
    let base = || {
        let mut world = world(&pki);
        let (old, new) = (lease("old", "10.0.0.1:6443"), lease("cp3", "10.0.0.2:6443"));
        world.leases = document(200, &json!({"items": [old, new]}));
        world
    };
    let shown =
        |world: &World, at: usize| world.ports[at].handshake.as_ref().unwrap().fingerprint();
    let one = base();
    let [old, new] = [0, 1].map(|at| shown(&one, at));
    let mut shared = base();
    shared.ports[1].handshake = shared.ports[0].handshake.clone();
    let both = shown(&shared, 0);
    let lacks_cp3 = ["cp3 at 10.0.0.2:6443 for http://127.0.0.1:10440"];
    for (mut world, peers, expected) in [
        (
            one.clone(),
            vec![knows("10.0.0.1:6443", None), knows("10.0.0.2:6443", None)],
            &[][..],
        ),
        (one.clone(), vec![knows("10.0.0.1:6443", None)], &lacks_cp3),
        // The same server at another address, by its certificate.
        (
            one.clone(),
            vec![
                knows("127.0.0.1:6444", old.clone()),
                knows("10.0.0.2:6443", None),
            ],
            &[],
        ),
        (
            one.clone(),
            vec![knows("127.0.0.1:6444", old), knows("cp3.example:6443", new)],
            &[],
        ),
        (
            shared.clone(),
            vec![knows("10.0.0.1:6443", both.clone())],
            &lacks_cp3,
        ),
        (
            shared.clone(),
            vec![knows("127.0.0.1:6444", both.clone())],
            &["old at 10.0.0.1:6443, cp3 at 10.0.0.2:6443 for http://127.0.0.1:10440"],
        ),
        (
            shared,
            vec![
                knows("127.0.0.1:6444", both.clone()),
                knows("127.0.0.1:6445", both),
            ],
            &[],
        ),
        // One that was named and has no Lease.
        (
            World {
                leases: document(200, &json!({"items": []})),
                ..one
            },
            vec![knows("10.0.0.1:6443", None)],
            &["new at 10.0.0.2:6443 for http://127.0.0.1:10440"],
        ),
    ] {
        world.gateways = vec![gateway(json!(peers))];
        let found = items(&world, "known-servers");
        let warned: Vec<&Item> = found
            .iter()
            .filter(|it| it.verdict == Verdict::Warn)
            .collect();
        let subjects: Vec<&str> = warned.iter().map(|it| &*it.subject).collect();
        assert_eq!(subjects, expected, "{found:#?}");
        assert!(!found.is_empty(), "{peers:?}");
        let fix = warned.first().and_then(|it| it.fix.clone());
        let is_peer = |it: String| {
            it.contains("--peer=https://10.0.0.") && it.contains("--peers-from-leases")
        };
        assert!(fix.is_none_or(is_peer));
    }
    // The gateway has the address that its server publishes, and another certificate.
    let mut world = base();
    let peers = vec![knows("127.0.0.1:6443", None), knows("10.0.0.2:6443", None)];
    let state = json!({"server": "g", "listening": "10.0.0.1:6443", "peers": peers});
    let debug = document(200, &state);
    world.gateways = vec![Gateway {
        debug,
        ..gateway(json!([]))
    }];
    let found = items(&world, "known-servers");
    assert!(
        found.iter().all(|it| it.verdict == Verdict::Pass),
        "{found:#?}"
    );
}

#[test]
fn pods_that_go_past_the_gateways_are_told_of() {
    let pki = Pki::new("ca");
    let slice = |port: u16| {
        let endpoints = json!([{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]);
        document(
            200,
            &json!({"items": [{"ports": [{"name": "https", "port": port}], "endpoints": endpoints}]}),
        )
    };
    let state = |listening: &str, peers: Vec<Value>, aside: Value| {
        let state = json!({"server": "g", "listening": listening, "peers": peers, "aside": aside});
        Gateway {
            debug: document(200, &state),
            ..gateway(json!([]))
        }
    };
    let servers = |port: u16| {
        ["10.0.0.1", "10.0.0.2"]
            .map(|host| knows(&format!("{host}:{port}"), None))
            .to_vec()
    };
    let back = json!(
        ["10.0.0.1", "10.0.0.2"]
            .map(|host| json!({"address": format!("{host}:9443"), "kind": "oneself"}))
    );
    for (port, gateway, verdict, says) in [
        // Beside servers that have moved.
        (
            6444,
            state("0.0.0.0:6440", servers(6444), json!([])),
            Verdict::Warn,
            "10.0.0.1:6444, 10.0.0.2:6444",
        ),
        (
            6440,
            state("0.0.0.0:6440", servers(6444), json!([])),
            Verdict::Pass,
            "10.0.0.1:6440, 10.0.0.2:6440",
        ),
        // A balancer somewhere else, with the port of the servers.
        (
            6443,
            state("[::]:6443", servers(6443), json!([])),
            Verdict::Warn,
            "10.0.0.1:6443, 10.0.0.2:6443",
        ),
        (
            7443,
            state("10.0.0.1:7443", servers(6443), json!([])),
            Verdict::Warn,
            "publishes 10.0.0.2:7443, where",
        ),
        // A virtual address that leads back.
        (
            9443,
            state("10.0.0.9:6443", servers(6443), back),
            Verdict::Pass,
            "10.0.0.1:9443",
        ),
    ] {
        let mut world = world(&pki);
        (world.endpoints, world.gateways) = (slice(port), vec![gateway]);
        let found = items(&world, "in-cluster");
        let [item] = found.as_slice() else {
            panic!("{found:#?}");
        };
        assert_eq!(item.verdict, verdict, "{item:?}");
        assert!(item.says.contains(says), "{says}: {item:?}");
    }
    let mut world = world(&pki);
    world.endpoints = slice(6443);
    assert!(
        items(&world, "in-cluster").is_empty(),
        "there is no gateway"
    );
    for at in [0, 1] {
        through_a_gateway(&mut world, at);
    }
    assert_eq!(items(&world, "in-cluster")[0].verdict, Verdict::Pass);
}
