//! This server's records, and what it does about those of others.

use std::time::Duration;

use peerage_apiserver::{RunError, server_id};
use peerage_store::StoreExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::support::{Mode, Site, Switch, stored, until};

fn lease_key(name: &str) -> String {
    format!("/registry/leases/kube-system/{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_the_one_that_kube_apiserver_writes() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = site.start(site.options("1.37", "new", store.clone())).await;
    let id = server_id("new");
    until("a Lease", || async {
        stored(store.inner(), &lease_key(&id)).await.is_some()
    })
    .await;
    let lease = stored(store.inner(), &lease_key(&id)).await.unwrap();
    let (metadata, spec) = (&lease["metadata"], &lease["spec"]);
    assert_eq!(
        metadata["labels"],
        json!({"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "new"})
    );
    let address = server.running.address().to_string();
    assert_eq!(
        metadata["annotations"],
        json!({"kubernetes.io/peer-advertise-address": address})
    );
    assert_eq!(metadata["name"], json!(id));
    assert_eq!(metadata["namespace"], "kube-system");
    assert_eq!(spec.as_object().unwrap().len(), 3);
    assert_eq!(spec["leaseDurationSeconds"], 3600);
    let holder = spec["holderIdentity"].as_str().unwrap();
    assert_eq!(holder.len(), id.len() + 37);
    assert!(holder.starts_with(&format!("{id}_")));
    let renewed = spec["renewTime"].as_str().unwrap();
    assert_eq!(
        (renewed.len(), renewed.find('.')),
        (27, Some(19)),
        "{renewed}"
    );
}

/// kube-apiserver asks where a peer is when it sees its Lease; up to 1.34 it gives up after five tries in a fifth of a
/// second, for as long as the Lease stays the same.
#[tokio::test(flavor = "multi_thread")]
async fn who_sees_the_lease_can_find_out_where_the_server_is() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let _server = site.start(site.options("1.37", "new", store.clone())).await;
    let key = lease_key(&server_id("new"));
    until("a Lease", || async {
        stored(store.inner(), &key).await.is_some()
    })
    .await;
    let endpoint = format!("/registry/peerserverleases/{}", server_id("new"));
    let endpoint = store.inner().get(endpoint).await.unwrap().unwrap();
    let lease = store.inner().get(key).await.unwrap().unwrap();
    assert!(endpoint.create_revision < lease.create_revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_gate_off_nobody_is_told_where_this_server_is() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let mut options = site.options("1.37", "off", store.clone());
    options.peers.enabled = false;
    let server = site.start(options).await;
    let key = lease_key(&server_id("off"));
    until("a Lease", || async {
        stored(store.inner(), &key).await.is_some()
    })
    .await;
    let lease = stored(store.inner(), &key).await.unwrap();
    assert_eq!(lease["metadata"].get("annotations"), None);
    let endpoint = format!("/registry/peerserverleases/{}", server_id("off"));
    assert_eq!(store.inner().get(endpoint).await.unwrap(), None);
    server.running.stop().await;
    assert_eq!(
        stored(store.inner(), &key).await,
        None,
        "it leaves nothing behind"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_peer_ca_records_are_still_written() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let mut options = site.options("1.37", "local", store.clone());
    options.peers.ca = None;
    options.peers.client = None;
    options.peers.advertise = Some("[2001:db8::7]:7443".parse().unwrap());
    let _server = site.start(options).await;
    let endpoint = format!("/registry/peerserverleases/{}", server_id("local"));
    until("an endpoint key", || async {
        store.inner().get(endpoint.clone()).await.unwrap().is_some()
    })
    .await;
    let key = lease_key(&server_id("local"));
    until("a Lease", || async {
        stored(store.inner(), &key).await.is_some()
    })
    .await;
    let lease = stored(store.inner(), &key).await.unwrap();
    assert_eq!(
        lease["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"],
        "[2001:db8::7]:7443"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_of_the_same_name_says_how_to_fix_it_and_does_not_start() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let first = site
        .start(site.options("1.37", "same", store.clone()))
        .await;
    let endpoint = format!("/registry/peerserverleases/{}", server_id("same"));
    until("an endpoint key", || async {
        store.inner().get(endpoint.clone()).await.unwrap().is_some()
    })
    .await;
    let options = site.options("1.36", "same", store.clone());
    let second = peerage_apiserver::start(options, CancellationToken::new()).await;
    let Err(error @ RunError::SameIdentity { .. }) = second else {
        panic!("it started");
    };
    let text = error.to_string();
    assert!(text.contains("--hostname-override"), "{text}");
    assert!(
        text.contains(&first.running.address().to_string()),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_killed_comes_back_at_another_address_without_waiting() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    // Nobody listens there any more.
    let key = format!("/registry/peerserverleases/{}", server_id("back"));
    let left = json!({"kind": "Endpoints", "apiVersion": "v1",
        "metadata": {"generation": 7, "labels": {"apiserverIdentity": server_id("back")}},
        "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": 1, "protocol": "TCP"}]}]});
    store
        .inner()
        .create(key, left.to_string(), 0)
        .await
        .unwrap();
    let start = site.start(site.options("1.37", "back", store));
    let started = tokio::time::timeout(Duration::from_secs(8), start).await;
    started.unwrap().running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_key_is_written_in_the_encoding_it_was_found_in() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let key = format!("/registry/peerserverleases/{}", server_id("json"));
    let left = json!({"kind": "Endpoints", "apiVersion": "v1"}).to_string();
    let left = store.inner().create(key.clone(), left, 0).await.unwrap();
    let server = site.start(site.options("1.37", "json", store.clone()));
    let server = server.await;
    until("the endpoint key is written", || async {
        let kv = store.inner().get(key.clone()).await.unwrap().unwrap();
        kv.mod_revision > left.mod_revision
    })
    .await;
    let record = stored(store.inner(), &key).await.unwrap();
    let address = server.running.address();
    assert_eq!(
        record,
        json!({"apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"generation": 1, "labels": {"apiserverIdentity": server_id("json")}},
            "subsets": [{"addresses": [{"ip": "127.0.0.1"}],
                "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}]}]})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_leases_of_servers_long_gone_are_removed() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let lease = |namespace: &str, label: &str, renewed: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "x", "namespace": namespace, "labels": {"apiserver.kubernetes.io/identity": label}},
            "spec": {"holderIdentity": "x_y", "leaseDurationSeconds": 3600, "renewTime": renewed}})
        .to_string()
    };
    let (old, future) = ("2020-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z");
    for (key, value) in [
        (
            "kube-system/gone",
            lease("kube-system", "kube-apiserver", old),
        ),
        (
            "kube-system/alive",
            lease("kube-system", "kube-apiserver", future),
        ),
        (
            "kube-system/other",
            lease("kube-system", "something-else", old),
        ),
        ("default/elsewhere", lease("default", "kube-apiserver", old)),
    ] {
        let key = format!("/registry/leases/{key}");
        store.inner().create(key, value, 0).await.unwrap();
    }
    let _server = site.start(site.options("1.37", "gc", store.clone())).await;
    until("the old one is gone", || async {
        stored(store.inner(), "/registry/leases/kube-system/gone")
            .await
            .is_none()
    })
    .await;
    for key in [
        "kube-system/alive",
        "kube-system/other",
        "default/elsewhere",
    ] {
        assert!(
            stored(store.inner(), &format!("/registry/leases/{key}"))
                .await
                .is_some(),
            "{key}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_leaves_takes_nobody_elses_endpoint_key_away() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = site
        .start(site.options("1.37", "shared", store.clone()))
        .await;
    let key = format!("/registry/peerserverleases/{}", server_id("shared"));
    until("an endpoint key", || async {
        store.inner().get(key.clone()).await.unwrap().is_some()
    })
    .await;
    // Another server of the same identity has written it since.
    let other = json!({
        "kind": "Endpoints", "apiVersion": "v1",
        "metadata": { "labels": { "apiserverIdentity": server_id("shared") } },
        "subsets": [{ "addresses": [{ "ip": "127.0.0.9" }], "ports": [{ "port": 9 }] }],
    });
    store
        .inner()
        .put(key.clone(), other.to_string(), 0)
        .await
        .unwrap();
    server.running.stop().await;
    let left = store.inner().get(key).await.unwrap();
    assert_eq!(left.map(|kv| kv.value), Some(other.to_string().into()));
    let lease = stored(store.inner(), &lease_key(&server_id("shared"))).await;
    assert_eq!(
        lease.unwrap()["spec"]["leaseDurationSeconds"],
        3600,
        "the Lease is the other's too"
    );
}
