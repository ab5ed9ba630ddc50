//! Faults of finding servers: addresses that come late or from somebody who should not say, one host name for two.

use peerage_http::{Pem, testing::Authority};
use peerage_testkit::cluster::until;
use peerage_testkit::kube::leases::{LEASES, lease, let_gateways_read};
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, Gateway, RunningGateway};
use peerage_testkit::odd::{ODDITIES, Odd};
use peerage_testkit::pki::SERVER_NAME;
use peerage_testkit::wire::Outgoing;
use serde_json::json;

use super::{get, send};
use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

async fn knows(gateway: &RunningGateway, server: &Apiserver) {
    let address = server.address().to_string();
    until(&format!("{address} serves behind the gateway"), || async {
        serving(gateway).await.contains(&address)
    })
    .await;
}

async fn serving(gateway: &RunningGateway) -> Vec<String> {
    let state = gateway.own_state().await;
    let peers = state["peers"].as_array().unwrap().iter();
    let serving = peers.filter(|it| it["state"] == "serving");
    serving
        .filter_map(|it| Some(it["address"].as_str()?.to_owned()))
        .collect()
}

/// What kube-apiserver's proxy does with an address that comes after its last retry, and KEP-4020's rejected alternative of
/// addresses that users may write.
#[tokio::test]
async fn a_late_address_is_used_and_a_forged_one_learns_nothing() {
    let plane = versions::pair_without_own_proxies().await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let_gateways_read(older).await;
    // An impostor: its certificate has the right name, by an authority that nobody knows.
    let forged = Authority::new("nobody").server("kube-apiserver", &[SERVER_NAME]);
    let forged = (Pem::bytes(forged.certificate), Pem::bytes(forged.key));
    let impostor = Odd::with(forged, |_| None).await;
    older.create(LEASES, &lease("apiserver-late", None)).await;
    older
        .create(
            LEASES,
            &lease("apiserver-forged", Some(&impostor.address.to_string())),
        )
        .await;
    let flags = ["--peers-from-leases"];
    let (sidecar, balancer) = tokio::join!(
        start(&plane, Gateway::beside(older).flags(&flags)),
        start(&plane, Gateway::balancing(&[older]).flags(&flags)),
    );
    let ways = [("sidecar", &sidecar), ("balancer", &balancer)];
    for (name, gateway) in ways {
        let state = gateway.own_state().await.to_string();
        assert!(
            !state.contains(&newer.address().to_string()),
            "{name}: {state}"
        );
    }
    let address = json!({"metadata": {"annotations": {"kubernetes.io/peer-advertise-address": newer.address().to_string()}}});
    let patch = Outgoing::new("PATCH", &format!("{LEASES}/apiserver-late"))
        .json("application/merge-patch+json", &address);
    assert_eq!(send(older, "admin", &patch).await.status(), 200);
    for (name, gateway) in ways {
        knows(gateway, newer).await;
        gateway.serves(NEWER_ONLY).await;
        for _ in 0..10 {
            let answer = get(gateway, ODDITIES, "application/json").await;
            assert!(
                matches!(answer.status(), 404 | 503),
                "{name}: {}",
                answer.in_words()
            );
        }
    }
    assert!(impostor.asked().is_empty(), "{:?}", impostor.asked());
}

/// kubernetes/kubernetes#113307, kubernetes/website#38196: two servers of one host name have one identity, and each takes
/// the other for itself.
#[tokio::test]
async fn two_servers_of_one_host_name_are_both_used() {
    let spec = |version: String| versions::kube_apiserver(&version).named("twin").own_proxy();
    let plane = ControlPlane::on(Backend::Etcd("3.6")).start().await;
    let older = plane.start(spec(versions::older())).await;
    let newer = plane.start(spec(versions::newer())).await;
    let_gateways_read(&older).await;
    let flags = ["--peers-from-leases"];
    let (sidecar, balancer) = tokio::join!(
        start(&plane, Gateway::beside(&older).peer(&newer).flags(&flags)),
        start(&plane, Gateway::balancing(&[&older, &newer]).flags(&flags)),
    );
    for (name, gateway) in [("sidecar", &sidecar), ("balancer", &balancer)] {
        gateway.serves(NEWER_ONLY).await;
        let mut found = serving(gateway).await;
        found.sort();
        let mut both = [&older, &newer].map(|it| it.address().to_string());
        both.sort();
        assert_eq!(found, both, "{name}: {}", gateway.own_state().await);
        for _ in 0..20 {
            let answer = get(gateway, NEWER_ONLY, "application/json").await;
            assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
        }
    }
}
