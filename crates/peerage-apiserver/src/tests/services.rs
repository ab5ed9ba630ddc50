//! What services are given.

use std::collections::BTreeSet;

use futures::future::join_all;
use peerage_store::StoreExt as _;

use super::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, kind: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "type": kind, "ports": [{ "port": 80 }] } })
}

#[tokio::test]
async fn no_two_services_of_two_servers_get_the_same() {
    let store = memory();
    let servers = [
        Server::of("1.34", store.clone()).await,
        Server::of("1.37", store).await,
    ];
    let creates = (0..100).map(|n| {
        let server = &servers[n % 2];
        async move {
            server
                .create(SERVICES, service(&format!("s{n}"), "NodePort"))
                .await
                .ok()
        }
    });
    let made = join_all(creates).await;
    let field = |at: &str| -> BTreeSet<String> {
        made.iter()
            .map(|s| s.pointer(at).unwrap().to_string())
            .collect()
    };
    assert_eq!(field("/spec/clusterIP").len(), 100);
    assert_eq!(field("/spec/ports/0/nodePort").len(), 100);
}

#[tokio::test]
async fn ranges_that_come_later_bring_no_family_of_addresses() {
    let server = Server::new().await;
    let cidr = json!({"metadata": {"name": "a"}, "spec": {"cidrs": ["fd00::/112"]}});
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    server.create(cidrs, cidr).await.ok();
    let made = server
        .create(SERVICES, service("a", "ClusterIP"))
        .await
        .ok();
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4"]), "{made}");
    let mut v6 = service("b", "ClusterIP");
    v6["spec"]["ipFamilies"] = json!(["IPv6"]);
    let answer = server.create(SERVICES, v6).await;
    let (code, message) = answer.refusal();
    assert_eq!(code, 422, "{message}");
    assert!(message.contains("not configured"), "{message}");
}

#[tokio::test]
async fn without_knowing_all_ranges_no_address_is_given() {
    let store = memory();
    let key = format!("{ROOT}/servicecidrs/kubernetes");
    let value = crate::wire::seal(
        "networking.k8s.io/v1",
        "ServiceCIDR",
        &crate::wire::Time::default(),
    );
    store.put(key.clone(), value, 0).await.unwrap();
    let server = Server::of("1.37", store).await;
    let answer = server.create(SERVICES, service("a", "ClusterIP")).await;
    let (code, message) = answer.refusal();
    assert_eq!(code, 500, "{message}");
    assert!(message.contains(&key), "{message}");
}

#[tokio::test]
async fn what_a_service_leaves_others_may_have() {
    let server = Server::new().await;
    let mut wanted = service("a", "NodePort");
    wanted["spec"]["clusterIP"] = json!("10.0.0.9");
    wanted["spec"]["ports"][0]["nodePort"] = json!(30_001);
    server.create(SERVICES, wanted.clone()).await.ok();
    wanted["metadata"]["name"] = json!("b");
    let refused = server.create(SERVICES, wanted.clone()).await;
    assert_eq!(
        refused.code,
        StatusCode::UNPROCESSABLE_ENTITY,
        "{refused:?}"
    );
    // The type that has no node port gives it back, the address stays.
    let freed = json!({ "spec": { "type": "ClusterIP" } });
    let freed = server.merge(&format!("{SERVICES}/a"), freed).await.ok();
    assert_eq!(freed["spec"]["clusterIP"], "10.0.0.9");
    assert!(freed["spec"]["ports"][0]["nodePort"].is_null());
    wanted["spec"]["clusterIP"] = Value::Null;
    server.create(SERVICES, wanted).await.ok();
    server.delete(&format!("{SERVICES}/a")).await.ok();
    let mut third = service("c", "ClusterIP");
    third["spec"]["clusterIP"] = json!("10.0.0.9");
    server.create(SERVICES, third).await.ok();
}

#[tokio::test]
async fn a_refused_service_takes_nothing() {
    let server = Server::new().await;
    server
        .create(SERVICES, service("a", "ClusterIP"))
        .await
        .ok();
    let before = addresses(&server).await;
    let taken = server.create(SERVICES, service("a", "ClusterIP")).await;
    assert_eq!(taken.code, StatusCode::CONFLICT);
    let mut bad = service("b", "NodePort");
    bad["spec"]["ports"][0]["nodePort"] = json!(80);
    assert_eq!(
        server.create(SERVICES, bad).await.code,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    assert_eq!(addresses(&server).await, before);
}

#[tokio::test]
async fn an_address_stays_and_cannot_be_changed() {
    let server = Server::new().await;
    let made = server
        .create(SERVICES, service("a", "ClusterIP"))
        .await
        .ok();
    let path = format!("{SERVICES}/a");
    let put = server.put(&path, service("a", "ClusterIP")).await.ok();
    assert_eq!(put["spec"], made["spec"]);
    let other = json!({ "spec": { "clusterIP": "10.0.0.7" } });
    let answer = server.merge(&path, other).await;
    assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY, "{answer:?}");
}

async fn addresses(server: &Server) -> usize {
    let list = server
        .get("/apis/networking.k8s.io/v1/ipaddresses")
        .await
        .ok();
    list["items"].as_array().unwrap().len()
}
