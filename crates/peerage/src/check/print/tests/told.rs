//! Servers whose identity Leases have no address: those that a gateway knows, and those that nobody knows.

use jiff::Timestamp;
use serde_json::json;

use super::super::{Facts, What, text};
use crate::check::records::Lease;
use crate::check::world::{self, Got};
use crate::client::Answer;

fn gateway(listening: &str, peers: &[&str]) -> world::Gateway {
    let peers: Vec<_> = peers
        .iter()
        .map(|it| json!({"id": it, "address": it}))
        .collect();
    let debug = json!({"server": "gateway", "listening": listening, "peers": peers});
    let debug: Got = Ok(Answer {
        status: http::StatusCode::OK,
        headers: http::HeaderMap::new(),
        body: debug.to_string().into(),
    });
    world::Gateway {
        url: "http://127.0.0.1:10440".to_owned(),
        ready: debug.clone(),
        metrics: debug.clone(),
        debug,
    }
}

#[test]
fn a_server_without_an_address_is_a_peer_of_a_gateway_that_was_asked_or_is_named() {
    let lease = |name: &str, address: Option<&str>| Lease {
        hostname: name.to_owned(),
        address: address.map(str::to_owned),
        renewed: Some(Timestamp::now()),
        held: true,
        ..Lease::default()
    };
    let leases = [
        lease("cp1", Some("10.0.0.1:6443")),
        lease("cp2", None),
        lease("cp3", None),
    ];
    let nowhere = "no address is known; add --peer for it";
    let (cp2, cp3) = (format!("# cp2: {nowhere}"), format!("# cp3: {nowhere}"));
    let maybe =
        "its identity Lease has no address; if it is at none of 10.0.0.2:7443, add --peer for it";
    for (told, peers, comments) in [
        (
            vec![],
            &["10.0.0.1:6444"][..],
            vec![cp2.clone(), cp3.clone()],
        ),
        // Its own host's loopback leads others elsewhere.
        (
            vec![gateway("0.0.0.0:6443", &["127.0.0.1:6444"])],
            &["10.0.0.1:6444"],
            vec![cp2, cp3],
        ),
        (
            vec![gateway("0.0.0.0:6443", &["10.0.0.1:6443", "10.0.0.2:7443"])],
            &["10.0.0.1:6444", "10.0.0.2:7443"],
            vec![format!("# cp2: {maybe}"), format!("# cp3: {maybe}")],
        ),
        (
            vec![gateway("0.0.0.0:6443", &["10.0.0.2:6443", "10.0.0.3:6443"])],
            &["10.0.0.1:6444", "10.0.0.2:6444", "10.0.0.3:6444"],
            vec![],
        ),
        (
            vec![gateway(
                "127.0.0.1:6440",
                &["127.0.0.1:6441", "127.0.0.1:6442"],
            )],
            &["10.0.0.1:6444", "127.0.0.1:6441", "127.0.0.1:6442"],
            vec![],
        ),
    ] {
        let mut facts = Facts::default();
        facts.take_addresses(&leases, std::iter::empty(), &told);
        let shown = text(What::StaticPod, &facts);
        let found: Vec<&str> = shown
            .lines()
            .filter_map(|it| it.trim().strip_prefix("- --peer=https://"))
            .collect();
        assert_eq!(found, peers, "{shown}");
        for what in [What::StaticPod, What::Systemd, What::NetworkPolicy] {
            let shown = text(what, &facts);
            let found: Vec<&str> = shown.lines().filter(|it| it.starts_with("# cp")).collect();
            assert_eq!(found, comments, "{shown}");
        }
    }
}
