//! A gateway whose peer is the gateway beside the other server, and not that server itself: where servers listen on the
//! loopback address only, so that nobody passes a gateway by, or where one was moved behind a gateway of its own and the
//! others' `--peer` still has the address that is the gateway's now.

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Backend, ControlPlane, Gateway, RunningGateway};
use peerage_testkit::wire::{AGGREGATED, Client, Outgoing};
use serde_json::json;

use super::{GATEWAYS, Gateways, send};
use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

/// Beside the older server, and, behind it, beside the newer.
async fn in_a_row(gateways: &Gateways) -> (RunningGateway, RunningGateway) {
    let [older, newer] = ["older", "newer"].map(|name| gateways.plane.server(name));
    let behind = start(&gateways.plane, Gateway::beside(newer).peer(older)).await;
    let front = start(&gateways.plane, Gateway::beside(older).peer(&behind.server)).await;
    (front, behind)
}

#[tokio::test]
async fn who_asks_and_for_what_comes_through_two_gateways_unchanged_and_never_back() {
    let gateways = GATEWAYS.get().await;
    let (front, behind) = in_a_row(&gateways).await;
    front.uses(&behind.server).await;
    front.serves(NEWER_ONLY).await;

    let newer = gateways.plane.server("newer");
    let users = [
        ("alice", None, "alice"),
        ("anonymous", Some("bobs-token"), "bob"),
        ("anonymous", None, "system:anonymous"),
    ];
    for (at, (certificate, token, user)) in users.into_iter().enumerate() {
        let id = format!("33333333-0000-4000-8000-00000000000{at}");
        let mut ask = Outgoing::new("GET", NEWER_ONLY)
            .header("Audit-Id", &id)
            .header("X-Remote-User", "admin")
            .header("X-Remote-Group", "system:masters");
        if let Some(token) = token {
            ask = ask.header("Authorization", &format!("Bearer {token}"));
        }
        let answer = send(&front, certificate, &ask).await;
        assert_eq!(answer.status(), 403, "{user}: {}", answer.in_words());
        let event = newer.audited(&id).await;
        assert_eq!(event["user"]["username"], user, "{event:#}");
    }

    // What nobody has is asked of one server and comes back from there.
    let nothing = Outgoing::new("GET", "/apis/no.such.group/v1/things");
    let answer = send(&front, "admin", &nothing).await;
    assert_eq!(answer.status(), 404, "{}", answer.in_words());
    let loops = |metrics: String| {
        let mut lines = metrics.lines().filter(|it| !it.starts_with('#'));
        lines.any(|it| it.starts_with("peerage_gateway_loops_total") && !it.ends_with(" 0"))
    };
    for gateway in [&front, &behind] {
        assert!(!loops(gateway.own_metrics().await), "{}", gateway.name());
    }
}

#[tokio::test]
async fn discovery_of_two_gateways_in_a_row_is_that_of_all_servers_and_a_lost_server_is_503() {
    let gateways = GATEWAYS.get().await;
    let (front, behind) = in_a_row(&gateways).await;
    front.serves(NEWER_ONLY).await;
    let whole = Outgoing::get_as("/apis", AGGREGATED);
    until("both list the same", || async {
        let [a, b] = [&front, &gateways.sidecar].map(|it| send(it, "admin", &whole));
        let (a, b) = tokio::join!(a, b);
        a.status() == 200 && a.body == b.body
    })
    .await;
    behind.kill();
    let read = Outgoing::new("GET", NEWER_ONLY);
    let answer = send(&front, "admin", &read).await;
    assert_eq!(answer.status(), 503, "{}", answer.in_words());
    assert!(answer.head.header("retry-after").is_some());
}

/// kube-apiserver publishes its own port: where the gateway has the same one at the host's address, pods come to it.
#[tokio::test]
async fn pods_are_led_to_the_gateway_where_the_server_keeps_its_port_on_the_loopback_address() {
    const HOST: &str = "198.51.100.7";
    let flags = [
        "--endpoint-reconciler-type=lease",
        &format!("--advertise-address={HOST}"),
    ];
    let only = versions::without_own_proxy(&versions::newer(), "only").flags(&flags);
    let plane = ControlPlane::on(Backend::Etcd("3.6")).server(only);
    let plane = plane.start().await;
    let only = plane.server("only");
    let port = only.address().port();
    // In place of the host's address.
    let flags = [
        "--bind-address=127.0.0.2".to_owned(),
        format!("--secure-port={port}"),
    ];
    let spec = Gateway::beside(only).flags(&flags.each_ref().map(String::as_str));
    let _gateway = start(&plane, spec).await;
    let gateway = Client::new(([127, 0, 0, 2], port).into(), plane.pki(), "admin");
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = Outgoing::new("GET", slice);
    until("the server has published where it is", || async {
        let answer = gateway.send(&slice).await;
        answer.is_ok_and(|answer| {
            let slice = answer.json();
            slice["endpoints"][0]["addresses"] == json!([HOST]) && slice["ports"][0]["port"] == port
        })
    })
    .await;
}
