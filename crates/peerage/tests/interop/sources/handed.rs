//! An address that another server takes over, or that is taken off a list: what clients of gateways see, and what the
//! gateways say of it.

use peerage_testkit::cluster::until;
use peerage_testkit::kube::leases::let_gateways_read;
use peerage_testkit::kube::{
    Apiserver, ApiserverSpec, Backend, ControlPlane, Gateway, RunningGateway,
};
use peerage_testkit::wire::{Answer, Outgoing};
use serde_json::{Value, json};

use super::changes::{EVERYWHERE, Steady, finds, get, is_ok, is_ok_or_later};
use super::{PLANE, serving};
use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

/// A server with a certificate of its own.
fn own(plane: &ControlPlane, version: &str, name: &str) -> ApiserverSpec {
    if !plane.pki().file(&format!("{name}.crt")).exists() {
        plane.pki().server(name);
    }
    let file = |end: &str| plane.pki().file(&format!("{name}.{end}"));
    let flags = [
        format!("--tls-cert-file={}", file("crt").display()),
        format!("--tls-private-key-file={}", file("key").display()),
        // Without it a server that stops waits a minute for its watches.
        "--shutdown-watch-termination-grace-period=1s".to_owned(),
    ];
    versions::without_own_proxy(version, name).flags(&flags.each_ref().map(String::as_str))
}

/// A dry run of a create: served, or to be sent again; never "there is no such thing".
fn create() -> Outgoing {
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"generateName": "handed-"}, "spec": {"resource": {"group": "", "resource": "secrets"}},
    });
    let target = format!("{NEWER_ONLY}?dryRun=All");
    Outgoing::new("POST", &target).json("application/json", &migration)
}

fn is_created_or_later(answer: &Answer) -> bool {
    answer.status() == 201 || is_ok_or_later(answer)
}

/// Waits until each gateway uses a server at an address and knows which version that is.
async fn known(gateways: [&RunningGateway; 2], server: &Apiserver, version: &str) {
    let (address, version) = (server.address().to_string(), versions::number(version));
    for gateway in gateways {
        let what = format!("{} knows {version} at {address}", gateway.name());
        until(&what, || async {
            let peer = gateway.peer(&address).await;
            peer.is_some_and(|it| {
                it["state"] == "serving" && it["ready"] == true && it["version"] == version
            })
        })
        .await;
    }
}

/// What clients of a gateway do all the time.
fn clients(gateway: &RunningGateway, is_read: fn(&Answer) -> bool) -> [Steady; 3] {
    [
        Steady::asks(gateway, EVERYWHERE, is_ok),
        Steady::asks(gateway, NEWER_ONLY, is_read),
        Steady::sends(gateway, create(), is_created_or_later),
    ]
}

async fn all_got(clients: [[Steady; 3]; 2], what: &str) {
    for (clients, way) in clients.into_iter().zip(["sidecar", "balancer"]) {
        let kinds = ["everywhere", "newer only", "created"];
        for (client, kind) in clients.into_iter().zip(kinds) {
            client.got_all(&format!("{way}, {kind}: {what}")).await;
        }
    }
}

#[tokio::test]
async fn an_address_that_another_server_takes_over_is_named_and_answers_nothing_wrongly() {
    let plane = ControlPlane::on(Backend::Etcd("3.6")).start().await;
    let (old, new) = (versions::older(), versions::newer());
    let steady = plane.start(own(&plane, &old, "steady")).await;
    let (first, elsewhere) = tokio::join!(
        plane.start(own(&plane, &old, "first")),
        plane.start(own(&plane, &new, "elsewhere"))
    );
    let (sidecar, balancer) = tokio::join!(
        start(
            &plane,
            Gateway::beside(&steady).peer(&first).peer(&elsewhere)
        ),
        start(&plane, Gateway::balancing(&[&steady, &first, &elsewhere])),
    );
    let gateways = [&sidecar, &balancer];
    known(gateways, &first, &old).await;
    known(gateways, &elsewhere, &new).await;
    // While there is a newer server every read of what only newer ones have is answered.
    let clients = gateways.map(|gateway| clients(gateway, is_ok));
    let at = first.address();

    // A newer one where an older was, with a certificate that nobody has seen.
    first.stop().await;
    let second = plane.start(own(&plane, &new, "second").at(at)).await;
    known(gateways, &second, &new).await;
    // An older one where a newer was, which so far could answer what only newer ones have.
    second.kill();
    let third = plane.start(own(&plane, &old, "third").at(at)).await;
    known(gateways, &third, &old).await;
    for gateway in gateways {
        let log = std::fs::read_to_string(gateway.log_file()).unwrap();
        let said = |words: &str| {
            log.lines()
                .filter(|it| it.contains(words) && it.contains(&at.to_string()))
                .count()
        };
        let seen = said("a server shows a new certificate");
        assert_eq!(seen, 2, "{}: {log}", gateway.name());
    }
    all_got(
        clients,
        "one address, an older, a newer and an older server",
    )
    .await;

    // And one that was at another address until now; meanwhile there is none for some time.
    let clients = gateways.map(|gateway| self::clients(gateway, is_ok_or_later));
    third.kill();
    elsewhere.kill();
    let moved = plane.start(own(&plane, &new, "elsewhere").at(at)).await;
    for gateway in gateways {
        let what = format!("{} says that {at} changed hands", gateway.name());
        until(&what, || async {
            let peer = gateway.peer(&at.to_string()).await.unwrap_or_default();
            let remark = peer["remark"].as_str().unwrap_or_default().to_owned();
            remark.contains("changed hands") && remark.contains(&elsewhere.address().to_string())
        })
        .await;
        let metrics = gateway.own_metrics().await;
        assert!(metrics.contains("reason=\"changed_hands\""), "{metrics}");
        let log = std::fs::read_to_string(gateway.log_file()).unwrap();
        assert!(log.contains("the address changed hands"), "{log}");
    }
    known(gateways, &moved, &new).await;
    for gateway in gateways {
        let answer = gateway
            .client("admin")
            .send(&Outgoing::new("GET", NEWER_ONLY))
            .await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.in_words());
    }
    all_got(
        clients,
        "one address, an older server and one that moved there",
    )
    .await;
}

/// The Lease of a server that was killed stays for an hour, and names the address that is another's by then.
#[tokio::test]
async fn an_address_that_is_registered_under_two_names_is_named_and_asked_once() {
    let plane = ControlPlane::on(Backend::Etcd("3.6")).start().await;
    let (old, new) = (versions::older(), versions::newer());
    let registers = |version: &str, name: &str| {
        let spec = versions::kube_apiserver(version).named(name);
        plane.start(spec.own_proxy())
    };
    let steady = plane.start(own(&plane, &old, "steady")).await;
    let killed = registers(&old, "killed").await;
    let_gateways_read(&steady).await;
    let leases = ["--peers-from-leases"];
    let (sidecar, balancer) = tokio::join!(
        start(&plane, Gateway::beside(&steady).flags(&leases)),
        start(&plane, Gateway::balancing(&[&steady]).flags(&leases)),
    );
    let gateways = [&sidecar, &balancer];
    known(gateways, &killed, &old).await;
    let clients = gateways.map(|gateway| Steady::asks(gateway, EVERYWHERE, is_ok));

    killed.kill();
    let spec = versions::kube_apiserver(&new).named("heir").own_proxy();
    let heir = plane.start(spec.at(killed.address())).await;
    for (gateway, way) in gateways.iter().zip(["sidecar", "balancer"]) {
        let what = format!("{way}: two names of one address are found");
        until(&what, || async {
            finds(gateway, "one_address_two_ids").await.is_some()
        })
        .await;
        println!(
            "{way}: {}",
            finds(gateway, "one_address_two_ids").await.unwrap()
        );
        gateway.serves(NEWER_ONLY).await;
        let serving = serving(gateway).await;
        let there = heir.address().to_string();
        assert_eq!(
            serving.iter().filter(|it| **it == there).count(),
            1,
            "{serving:?}"
        );
    }
    for _ in 0..20 {
        for gateway in gateways {
            let answer = get(gateway, NEWER_ONLY).await;
            assert!(is_ok(&answer), "{}", answer.in_words());
        }
    }
    for (client, way) in clients.into_iter().zip(["sidecar", "balancer"]) {
        client
            .got_all(&format!("{way}: one address, two names"))
            .await;
    }
}

/// Only a watch that is open reaches a server that is no longer listed, until it is listed again.
#[tokio::test]
async fn beside_a_server_a_watch_outlives_that_its_server_is_taken_off_the_list() {
    let plane = PLANE.get().await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let list = plane.directory().join("beside.yaml");
    let write = |servers: &str| {
        let new = list.with_extension("new");
        std::fs::write(&new, servers).unwrap();
        std::fs::rename(new, &list).unwrap();
    };
    let listed = format!("- url: {}\n", newer.url());
    write(&listed);
    let file = format!("--peers-file={}", list.display());
    let gateway = start(&plane, Gateway::beside(older).flags(&[&file])).await;
    let admin = gateway.client("admin");
    let get = || async { admin.send(&Outgoing::new("GET", NEWER_ONLY)).await.unwrap() };
    assert_eq!(get().await.status(), 200);
    let watch = Outgoing::new("GET", &format!("{NEWER_ONLY}?watch=true"));
    let (head, body) = admin.open(&watch).await.unwrap();
    assert_eq!(head.status, 200);
    let mut lines = body.lines();

    write("[]\n");
    until("the newer server is taken off", || async {
        get().await.status() == 503
    })
    .await;
    assert_eq!(serving(&gateway).await, [older.address().to_string()]);
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"name": "late"}, "spec": {"resource": {"group": "", "resource": "secrets"}},
    });
    newer.create(NEWER_ONLY, &migration).await;
    let seen = async {
        while let Some(line) = lines.recv().await {
            let event: Value = serde_json::from_slice(&line.unwrap()).unwrap();
            if event["object"]["metadata"]["name"] == "late" {
                return true;
            }
        }
        false
    };
    let seen = tokio::time::timeout(std::time::Duration::from_secs(30), seen).await;
    assert!(seen.unwrap(), "the watch ended");
    write(&listed);
    until("the newer server is back", || async {
        get().await.status() == 200
    })
    .await;
    println!("taken off and back, and the watch went on");
}
