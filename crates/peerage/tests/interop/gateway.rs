//! `peerage gateway` in front of a pair of real servers that know nothing of each other.

use peerage_testkit::cluster::until;
use peerage_testkit::documented_metrics::Documented;
use peerage_testkit::kube::{Backend, ControlPlane, Gateway, Logs, RunningGateway, Shared};
use peerage_testkit::wire::{AGGREGATED, Answer, Outgoing};
use serde_json::{Value, json};

use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

mod in_a_row;
mod writes;

/// A pair without proxies of its own, a gateway beside the older and one in front of both.
pub(crate) struct Gateways {
    pub(crate) sidecar: RunningGateway,
    pub(crate) balancer: RunningGateway,
    pub(crate) plane: ControlPlane,
}

impl Logs for Gateways {
    fn logs(&self) -> String {
        self.plane.logs() + &self.sidecar.log() + &self.balancer.log()
    }
}

pub(crate) static GATEWAYS: Shared<Gateways> = Shared::new(|| {
    Box::pin(async {
        let spec = |version: String, name: &str| {
            versions::without_own_proxy(&version, name)
                .token("bobs-token", "bob", &["devs"])
                .token("roots-token", "root", &["system:masters"])
        };
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(spec(versions::older(), "older"))
            .server(spec(versions::newer(), "newer"))
            .start()
            .await;
        let (older, newer) = (plane.server("older"), plane.server("newer"));
        let beside = Gateway::beside(older).peer(newer);
        let sidecar = start(&plane, beside);
        let balancing = Gateway::balancing(&[older, newer]);
        let balancer = start(&plane, balancing);
        let (sidecar, balancer) = tokio::join!(sidecar, balancer);
        Gateways {
            sidecar,
            balancer,
            plane,
        }
    })
});

impl Gateways {
    pub(crate) fn each(&self) -> [(&'static str, &RunningGateway); 2] {
        [("sidecar", &self.sidecar), ("balancer", &self.balancer)]
    }
}

async fn send(gateway: &RunningGateway, user: &str, request: &Outgoing) -> Answer {
    gateway.client(user).send(request).await.unwrap()
}

fn migration(name: &str) -> Value {
    json!({
        "apiVersion": "storagemigration.k8s.io/v1",
        "kind": "StorageVersionMigration",
        "metadata": {"name": name},
        "spec": {"resource": {"group": "", "resource": "secrets"}},
    })
}

#[tokio::test]
async fn what_only_the_newer_server_has_is_created_read_and_deleted_through_a_gateway() {
    let gateways = GATEWAYS.get().await;
    let older = gateways.plane.server("older").client("admin");
    let alone = older.send(&Outgoing::new("GET", NEWER_ONLY)).await.unwrap();
    assert_eq!(alone.status(), 404, "{}", alone.in_words());
    for (name, gateway) in gateways.each() {
        let create = Outgoing::new("POST", NEWER_ONLY).json("application/json", &migration(name));
        let created = send(gateway, "admin", &create).await;
        assert_eq!(created.status(), 201, "{name}: {}", created.in_words());
        let target = format!("{NEWER_ONLY}/{name}");
        let read = send(gateway, "admin", &Outgoing::new("GET", &target)).await;
        assert_eq!(read.status(), 200, "{name}: {}", read.in_words());
        assert_eq!(read.json()["metadata"]["name"], name);
        let deleted = send(gateway, "admin", &Outgoing::new("DELETE", &target)).await;
        assert_eq!(deleted.status(), 200, "{name}: {}", deleted.in_words());
        let gone = send(gateway, "admin", &Outgoing::new("GET", &target)).await;
        assert_eq!(gone.status(), 404, "{name}: {}", gone.in_words());
    }
}

#[tokio::test]
async fn what_no_server_has_is_404_as_the_server_says_it_and_stays_so() {
    let gateways = GATEWAYS.get().await;
    let older = gateways.plane.server("older").client("admin");
    for path in ["/apis/no.such.group/v1/things", "/no/such/path"] {
        let ask = Outgoing::new("GET", path);
        let said = older.send(&ask).await.unwrap();
        assert_eq!(said.status(), 404);
        for (name, gateway) in gateways.each() {
            for _ in 0..3 {
                let answer = send(gateway, "admin", &ask).await;
                assert_eq!(answer.in_words(), said.in_words(), "{name} {path}");
            }
            let answer = send(gateway, "alice", &ask).await;
            assert_eq!(
                answer.status(),
                403,
                "{name} {path}: authorization comes first"
            );
        }
    }
}

/// An answer that the gateway makes itself is that of the server, its number included.
#[tokio::test]
async fn a_target_that_no_request_can_have_is_refused_as_the_server_refuses_it() {
    let gateways = GATEWAYS.get().await;
    let id = "44444444-0000-4000-8000-000000000000";
    let ask = Outgoing::new("GET", "/api/v1/watch").header("Audit-Id", id);
    let older = gateways.plane.server("older").client("admin");
    let said = older.send(&ask).await.unwrap();
    assert_eq!(said.status(), 500, "{}", said.in_words());
    for (name, gateway) in gateways.each() {
        let answer = send(gateway, "admin", &ask).await;
        assert_eq!(answer.in_words(), said.in_words(), "{name}");
        for header in ["audit-id", "content-type", "content-length"] {
            assert_eq!(
                answer.head.header(header),
                said.head.header(header),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn the_server_knows_who_is_asking_by_certificate_by_token_and_not_at_all() {
    let gateways = GATEWAYS.get().await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let ask = Outgoing::new("POST", path).json("application/json", &review);
    for (name, gateway) in gateways.each() {
        let answer = send(gateway, "alice", &ask).await;
        let user = &answer.json()["status"]["userInfo"];
        assert_eq!(user["username"], "alice", "{name}: {}", answer.in_words());
        let groups = json!(["devs", "system:authenticated"]);
        assert_eq!(user["groups"], groups, "{name}");

        let with_token = ask.clone().header("Authorization", "Bearer bobs-token");
        let answer = send(gateway, "anonymous", &with_token).await;
        let user = &answer.json()["status"]["userInfo"];
        assert_eq!(user["username"], "bob", "{name}: {}", answer.in_words());

        let answer = send(gateway, "anonymous", &ask).await;
        assert_eq!(answer.status(), 403, "{name}: {}", answer.in_words());
        assert!(answer.in_words().contains("system:anonymous"), "{name}");

        let wrong = ask.clone().header("Authorization", "Bearer nobodys");
        let answer = send(gateway, "anonymous", &wrong).await;
        assert_eq!(answer.status(), 401, "{name}: {}", answer.in_words());
    }
}

#[tokio::test]
async fn discovery_shows_what_any_server_has() {
    let gateways = GATEWAYS.get().await;
    for (name, gateway) in gateways.each() {
        let answer = send(gateway, "admin", &Outgoing::get_as("/apis", AGGREGATED)).await;
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
        let groups = answer.json()["items"].as_array().unwrap().clone();
        let has = |group: &Value| group["metadata"]["name"] == "storagemigration.k8s.io";
        assert!(groups.iter().any(has), "{name}: {groups:?}");
        let legacy = Outgoing::new("GET", "/apis/storagemigration.k8s.io/v1");
        let answer = send(gateway, "admin", &legacy).await;
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
        let openapi = Outgoing::new("GET", "/openapi/v3/apis/storagemigration.k8s.io/v1");
        let answer = send(gateway, "admin", &openapi).await;
        assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
    }
}

#[tokio::test]
async fn the_balancer_writes_through_the_newest_and_loses_no_field_that_only_it_knows() {
    let gateways = GATEWAYS.get().await;
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let status = json!({"status": {"nodeInfo": {"runningInUserNamespace": true}}});
    let merge = "application/merge-patch+json";
    let label = json!({"metadata": {"labels": {"seen": "yes"}}});
    let newer = gateways.plane.server("newer").client("admin");
    let told =
        |answer: &Answer| answer.json()["status"]["nodeInfo"]["runningInUserNamespace"].clone();
    for (name, through, kept) in [
        ("older", gateways.plane.server("older"), false),
        ("balancer", &gateways.balancer.server, true),
    ] {
        let create = Outgoing::new("POST", "/api/v1/nodes").json("application/json", &node(name));
        assert_eq!(newer.send(&create).await.unwrap().status(), 201);
        let target = format!("/api/v1/nodes/{name}");
        let write = Outgoing::new("PATCH", &format!("{target}/status")).json(merge, &status);
        let written = newer.send(&write).await.unwrap();
        assert_eq!(told(&written), json!(true), "{}", written.in_words());
        let patch = Outgoing::new("PATCH", &target).json(merge, &label);
        let patched = through.client("admin").send(&patch).await.unwrap();
        assert_eq!(patched.status(), 200, "{}", patched.in_words());
        let read = newer.send(&Outgoing::new("GET", &target)).await.unwrap();
        let expected = if kept { json!(true) } else { Value::Null };
        assert_eq!(told(&read), expected, "{name}");
    }
}

#[tokio::test]
async fn what_a_gateway_exposes_is_what_its_documentation_says() {
    let gateways = GATEWAYS.get().await;
    let documented = Documented::read();
    for (name, gateway) in gateways.each() {
        send(gateway, "admin", &Outgoing::new("GET", NEWER_ONLY)).await;
        send(gateway, "alice", &Outgoing::new("GET", "/apis")).await;
        let seen = documented.check(&gateway.own_metrics().await);
        for metric in [
            "peerage_peer_live",
            "peerage_peer_requests_total",
            "peerage_gateway_source_servers",
            "peerage_gateway_discovery_authorizations_total",
            "apiserver_audit_event_total",
        ] {
            assert!(seen.contains(metric), "{name}: {metric}: {seen:?}");
        }
    }
}

/// What a path that only looks like a resource's is answered takes the resource away from nobody.
#[tokio::test]
async fn a_404_for_an_odd_path_leaves_the_api_to_everybody() {
    let gateways = GATEWAYS.get().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let odd = Outgoing::new("GET", &format!("/{maps}"));
    let older = gateways.plane.server("older").client("admin");
    let said = older.send(&odd).await.unwrap();
    assert_eq!(said.status(), 404, "{}", said.in_words());
    for (name, gateway) in gateways.each() {
        for _ in 0..4 {
            let answer = send(gateway, "admin", &odd).await;
            assert_eq!(answer.in_words(), said.in_words(), "{name}");
            let good = send(gateway, "admin", &Outgoing::new("GET", maps)).await;
            assert_eq!(good.status(), 200, "{name}: {}", good.in_words());
        }
    }
}

/// With a client certificate that is no front-proxy certificate everybody would be its user, here an administrator.
#[tokio::test]
async fn a_gateway_with_another_pair_than_the_front_proxys_serves_nobody_and_says_why() {
    let gateways = GATEWAYS.get().await;
    let pki = gateways.plane.pki();
    let [certificate, key] = ["crt", "key"].map(|it| pki.file(&format!("admin.{it}")));
    let flags = [
        format!("--proxy-client-cert-file={}", certificate.display()),
        format!("--proxy-client-key-file={}", key.display()),
    ];
    let (older, newer) = (
        gateways.plane.server("older"),
        gateways.plane.server("newer"),
    );
    let wrong = Gateway::balancing(&[older, newer]).flags(&flags.each_ref().map(String::as_str));
    let wrong = wrong.never_ready();
    let wrong = start(&gateways.plane, wrong).await;
    until("the gateway says why", || async {
        wrong.log().contains("--requestheader-client-ca-file")
    })
    .await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ask = Outgoing::new("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let ask = ask.json("application/json", &review);
    for user in ["alice", "admin"] {
        let answer = send(&wrong, user, &ask).await;
        assert_eq!(answer.status(), 503, "{user}: {}", answer.in_words());
    }
}

/// Runs `peerage explain` against a gateway's own address.
async fn explain(gateway: &RunningGateway, method: &str, target: &str) -> Value {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_peerage"))
        .args(["explain", method, target, "--output=json", "--gateway"])
        .arg(format!("http://{}", gateway.admin))
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{target}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_gateway_explains_who_can_answer_a_request_and_that_one_does() {
    let gateways = GATEWAYS.get().await;
    let newer = gateways.plane.server("newer").address().to_string();
    let both = "/api/v1/namespaces/default/pods";
    for (name, gateway) in gateways.each() {
        gateway.serves(NEWER_ONLY).await;
        let said = explain(gateway, "GET", NEWER_ONLY).await;
        assert_eq!(said["answer"], "peer", "{name}: {said}");
        let addresses = |said: &Value| {
            let candidates = said["candidates"].as_array().unwrap().iter();
            let mut addresses: Vec<_> = candidates.map(|it| it["address"].clone()).collect();
            addresses.sort_by_key(Value::to_string);
            addresses
        };
        assert_eq!(addresses(&said), [json!(newer)], "{name}: {said}");
        assert_eq!(
            addresses(&explain(gateway, "GET", both).await).len(),
            2,
            "{name}"
        );
        let said = explain(gateway, "GET", "/apis/no.such.group/v1/things").await;
        assert_eq!(said["answer"], "unknown", "{name}: {said}");
    }
    let balancer = explain(&gateways.balancer, "POST", both).await;
    assert_eq!(balancer["candidates"].as_array().unwrap().len(), 1);
    assert_eq!(balancer["candidates"][0]["address"], newer, "{balancer}");
    let sidecar = explain(&gateways.sidecar, "POST", both).await;
    let older = gateways.plane.server("older").address().to_string();
    assert_eq!(sidecar["candidates"][0]["address"], older, "{sidecar}");
}
