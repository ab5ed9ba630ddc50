//! Servers that are found by names which are looked up (`--peer-dns`).

use std::net::{Ipv4Addr, SocketAddr};

use peerage_testkit::cluster::until;
use peerage_testkit::kube::Gateway;
use peerage_testkit::wire::Outgoing;

use super::changes::{EVERYWHERE, Steady, get, is_ok};
use super::{serving, source, until_serving};
use crate::gateway::GATEWAYS;
use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

#[tokio::test]
async fn every_address_of_a_name_is_a_server_and_a_name_that_is_none_costs_nothing() {
    let gateways = GATEWAYS.get().await;
    let plane = &gateways.plane;
    let older = plane.server("older");
    let port = older.address().port();
    let second = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), port));
    let spec = versions::without_own_proxy(&versions::newer(), "second");
    let spec = spec.at(second).flags(&["--bind-address=127.0.0.2"]);
    let second = plane.start(spec).await;

    // A name with one address, and later with two.
    let hosts = plane.directory().join("hosts");
    let one = "127.0.0.1 localhost control-plane.test\n";
    std::fs::write(&hosts, one).unwrap();
    let flags = [
        format!("--peer-dns=control-plane.test:{port}"),
        "--peer-dns=no-such-name.invalid:6443".to_owned(),
    ];
    let flags = flags.each_ref().map(String::as_str);
    let sidecar = Gateway::beside(older).flags(&flags).hosts(&hosts);
    let balancer = Gateway::balancing(&[]).flags(&flags).hosts(&hosts);
    let (sidecar, balancer) = tokio::join!(start(plane, sidecar), start(plane, balancer));
    let ways = [("sidecar", &sidecar), ("balancer", &balancer)];
    let steady = ways.map(|(_, gateway)| Steady::asks(gateway, EVERYWHERE, is_ok));
    for (name, gateway) in ways {
        until_serving(gateway, &[older]).await;
        let answer = get(gateway, NEWER_ONLY).await;
        assert_eq!(answer.status(), 404, "{name}: {}", answer.in_words());
        until(&format!("{name}: what is no name is named"), || async {
            let error = source(gateway, "dns").await["error"].to_string();
            error.contains("no-such-name.invalid") && !error.contains("control-plane.test")
        })
        .await;
    }
    std::fs::write(&hosts, format!("{one}127.0.0.2 control-plane.test\n")).unwrap();
    for (name, gateway) in ways {
        until_serving(gateway, &[older, &second]).await;
        gateway.serves(NEWER_ONLY).await;
        let read = Outgoing::new("GET", NEWER_ONLY);
        let answer = gateway.client("admin").send(&read).await.unwrap();
        second
            .audited(answer.head.header("audit-id").unwrap())
            .await;
        println!(
            "{name}: {:?} {}",
            serving(gateway).await,
            source(gateway, "dns").await
        );
    }
    for (steady, (name, _)) in steady.into_iter().zip(ways) {
        steady
            .got_all(&format!("{name}: a name gets another address"))
            .await;
    }
}
