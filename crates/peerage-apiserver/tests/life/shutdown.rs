//! A stop in good order, and the next start.

use std::time::{Duration, Instant};

use peerage_apiserver::server_id;
use peerage_store::StoreExt as _;
use peerage_testkit::wire::Outgoing;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::support::{Mode, Site, Switch, stored, until};

fn lease_key(hostname: &str) -> String {
    format!("/registry/leases/kube-system/{}", server_id(hostname))
}

fn endpoint_key(hostname: &str) -> String {
    format!("/registry/peerserverleases/{}", server_id(hostname))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_turns_readiness_red_and_says_goodbye_while_requests_are_still_taken() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let mut options = site.options("1.37", "a", store.clone());
    options.shutdown_delay = Duration::from_secs(2);
    let stop = CancellationToken::new();
    let mut running = peerage_apiserver::start(options, stop.clone())
        .await
        .unwrap();
    let client = peerage_testkit::wire::Client::new(running.address(), &site.pki, "admin");
    let key = endpoint_key("a");
    until("the endpoint key is there", || async {
        store.inner().get(key.clone()).await.unwrap().is_some()
    })
    .await;
    let path = "/api/v1/namespaces/default/configmaps";
    let watching = Outgoing::new("GET", &format!("{path}?watch=true"));
    let (_, mut watch) = client.open(&watching).await.unwrap();

    stop.cancel();
    let ask = async |target: &str| client.send(&Outgoing::new("GET", target)).await;
    until("red", || async {
        ask("/readyz").await.unwrap().status() == 500
    })
    .await;
    assert_eq!(ask("/livez").await.unwrap().status(), 200);
    until("the endpoint key is gone", || async {
        store.inner().get(key.clone()).await.unwrap().is_none()
    })
    .await;
    until("the Lease is shortened", || async {
        stored(store.inner(), &lease_key("a")).await.unwrap()["spec"]["leaseDurationSeconds"] == 600
    })
    .await;
    // Reads that have to be fresh, and writes, are served until the delay is over, and watches hear of them.
    let body = json!({"metadata": {"name": "late"}});
    let create = Outgoing::new("POST", path).json("application/json", &body);
    assert_eq!(client.send(&create).await.unwrap().status(), 201);
    assert_eq!(ask(path).await.unwrap().status(), 200);
    let line = loop {
        let line = watch.line().await.unwrap().unwrap();
        if String::from_utf8_lossy(&line).contains("\"late\"") {
            break line;
        }
    };
    assert!(line.ends_with(b"\n"));
    assert_eq!(
        watch.line().await.unwrap(),
        None,
        "a last chunk ends the watch"
    );
    running.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_takes_its_lease_over() {
    let (site, store) = (Site::new(), Switch::new(Mode::There));
    let server = site.start(site.options("1.37", "a", store.clone())).await;
    until("a Lease", || async {
        stored(store.inner(), &lease_key("a")).await.is_some()
    })
    .await;
    let first = stored(store.inner(), &lease_key("a")).await.unwrap();
    server.running.stop().await;
    let left = stored(store.inner(), &lease_key("a")).await.unwrap();
    assert_eq!(left["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(
        left["metadata"]["annotations"]["peerage.io/hold-seconds"],
        "600"
    );

    let server = site.start(site.options("1.37", "a", store.clone())).await;
    until("a new holder", || async {
        let now = stored(store.inner(), &lease_key("a")).await.unwrap();
        now["spec"]["holderIdentity"] != first["spec"]["holderIdentity"]
    })
    .await;
    let second = stored(store.inner(), &lease_key("a")).await.unwrap();
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(
        second["metadata"]["creationTimestamp"],
        first["metadata"]["creationTimestamp"]
    );
    assert_eq!(
        second["metadata"]["annotations"].get("peerage.io/hold-seconds"),
        None
    );
    assert_eq!(second["spec"]["leaseDurationSeconds"], 3600);
    server.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_in_bounded_time_without_its_store() {
    for mode in [Mode::Away, Mode::Silent] {
        let (site, store) = (Site::new(), Switch::new(Mode::There));
        let mut options = site.options("1.37", "a", store.clone());
        options.drain = Duration::from_millis(500);
        let server = site.start(options).await;
        // Connections that say nothing, and one that has a watch, do not hold it up.
        let silent: Vec<_> = (0..20)
            .map(|_| std::net::TcpStream::connect(server.running.address()).unwrap())
            .collect();
        let path = "/api/v1/namespaces/default/configmaps?watch=true";
        let (_, watch) = server
            .client
            .open(&Outgoing::new("GET", path))
            .await
            .unwrap();
        store.set(mode);
        let told = Instant::now();
        server.running.stop().await;
        assert!(
            told.elapsed() < Duration::from_secs(8),
            "{:?}",
            told.elapsed()
        );
        drop((silent, watch));
    }
}
