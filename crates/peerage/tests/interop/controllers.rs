//! A real kube-controller-manager that works only through a gateway beside the older server.
//!
//! What has to hold: a namespace with objects that only the newer server can show is emptied and goes away; the garbage
//! collector deletes what has lost its owner and nothing else, whatever becomes of the newer server meanwhile.

use std::time::Duration;

use peerage_testkit::cluster::{serves_group, until, until_within};
use peerage_testkit::kube::{
    ApiserverSpec, Backend, ControlPlane, ControllerManager, Gateway, Logs, RunningGateway,
};
use peerage_testkit::wire::{AGGREGATED, Answer, Outgoing};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::ours::start;
use crate::versions;

/// What only the newer server serves, in namespaces.
const CANDIDATES: &str = "coordination.k8s.io/v1beta1";
/// Who empties namespaces.
const NAMESPACES: &str = "namespace-controller";
/// Who collects garbage.
const COLLECTOR: &str = "generic-garbage-collector";
/// The garbage collector looks for new kinds every thirty seconds.
const PATIENCE: Duration = Duration::from_secs(90);

struct World {
    manager: ControllerManager,
    gateway: RunningGateway,
    plane: ControlPlane,
}

impl World {
    /// With the newer server, and another like it that the gateway knows nothing of, as `change` has them.
    async fn start(change: impl Fn(ApiserverSpec) -> ApiserverSpec) -> World {
        let newer = |name| change(versions::without_own_proxy(&versions::newer(), name));
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(versions::without_own_proxy(&versions::older(), "older"))
            .server(newer("newer"))
            .server(newer("hidden"))
            .start()
            .await;
        let gateway = Gateway::beside(plane.server("older")).peer(plane.server("newer"));
        let gateway = start(&plane, gateway).await;
        let manager = ControllerManager::start(
            versions::controllers(),
            &gateway.url(),
            plane.pki(),
            plane.directory(),
            &[
                "--controllers=namespace-controller,garbage-collector-controller",
                // So that the collector says each time that it could not judge an object.
                "--v=5",
            ],
        )
        .await;
        World {
            manager,
            gateway,
            plane,
        }
    }

    async fn ask(&self, request: &Outgoing) -> Answer {
        self.gateway.client("admin").send(request).await.unwrap()
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        let request = Outgoing::new("POST", path).json("application/json", object);
        let answer = self.ask(&request).await;
        assert_eq!(answer.status(), 201, "POST {path}: {}", answer.in_words());
        answer.json()
    }

    async fn delete(&self, path: &str) {
        let answer = self.ask(&Outgoing::new("DELETE", path)).await;
        let fine = matches!(answer.status(), 200 | 202);
        assert!(fine, "DELETE {path}: {}", answer.in_words());
    }

    async fn namespace(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create("/api/v1/namespaces", &object).await;
    }

    /// An object that only the newer server serves.
    async fn candidate(&self, namespace: &str, name: &str) -> Value {
        self.create(&candidates(namespace), &candidate(name)).await
    }

    /// A ConfigMap that belongs to an object.
    async fn belonging(&self, namespace: &str, name: &str, owner: &Value) {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [{
                "apiVersion": owner["apiVersion"], "kind": owner["kind"],
                "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            }]},
        });
        self.create(
            &format!("/api/v1/namespaces/{namespace}/configmaps"),
            &object,
        )
        .await;
    }

    async fn status_of(&self, path: &str) -> u16 {
        self.ask(&Outgoing::new("GET", path)).await.status()
    }

    async fn gone(&self, path: &str) {
        let begun = Instant::now();
        loop {
            let answer = self.ask(&Outgoing::new("GET", path)).await;
            if answer.status() == 404 {
                return;
            }
            let words = answer.in_words();
            assert!(begun.elapsed() < PATIENCE, "{path} is still there: {words}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until a controller has asked again what APIs there are, so many times.
    async fn looks(&self, controller: &str, times: usize) {
        let asked = |event: &&Value| {
            let agent = event["userAgent"].as_str().unwrap_or_default();
            event["requestURI"] == "/apis" && agent.ends_with(controller)
        };
        let count = || {
            self.gateway
                .audit_with(controller)
                .iter()
                .filter(asked)
                .count()
        };
        let enough = count() + times;
        let what = format!("{controller} looks what there is");
        until_within(PATIENCE, &what, || std::future::ready(count() >= enough)).await;
    }

    /// While the newer server is away, something comes to belong to an object that nobody behind the gateway has seen. The
    /// collector wants to know about that owner, and is never told that there is none.
    async fn belongs_to_what_cannot_be_seen(&self, when: &str) {
        let (owner, child) = (format!("owner-{when}"), format!("child-{when}"));
        let hidden = self.plane.server("hidden");
        let seen = hidden.create(&candidates("kept"), &candidate(&owner)).await;
        self.belonging("kept", &child, &seen).await;
        let what = format!("{COLLECTOR} cannot judge the owner of {child}");
        until_within(PATIENCE, &what, || {
            let log = std::fs::read_to_string(self.manager.log_file()).unwrap_or_default();
            let mut lines = log.lines();
            let told = lines.any(|it| it.contains("error syncing item") && it.contains(&owner));
            std::future::ready(told)
        })
        .await;
        let codes = self.told_of(&owner);
        assert!(codes.iter().all(|code| *code == 503), "{when}: {codes:?}");
        assert_eq!(self.status_of(&config_map("kept", &child)).await, 200);
    }

    /// Which codes the collector got when it asked for this owner.
    fn told_of(&self, owner: &str) -> Vec<Value> {
        let path = format!("{}/{owner}", candidates("kept"));
        let events = self.gateway.audit_with(COLLECTOR).into_iter();
        let questions = events.filter(|event| event["requestURI"] == path.as_str());
        questions
            .map(|event| event["responseStatus"]["code"].clone())
            .collect()
    }

    /// What belongs to an object is there until that object goes.
    async fn goes_with_its_owner(&self, owner: &str, child: &str) {
        let child = config_map("kept", child);
        assert_eq!(
            self.status_of(&child).await,
            200,
            "its owner was there all the time"
        );
        self.delete(&format!("{}/{owner}", candidates("kept")))
            .await;
        self.gone(&child).await;
    }

    /// Whether discovery says that the newer server's API cannot be had.
    async fn is_stale(&self) -> bool {
        let request = Outgoing::get_as("/apis", AGGREGATED);
        let groups = self.ask(&request).await.json();
        let groups = groups["items"].as_array().unwrap().iter();
        let mut group = groups.filter(|it| it["metadata"]["name"] == "coordination.k8s.io");
        let versions = group.next().unwrap()["versions"].as_array().unwrap();
        let mut versions = versions.iter();
        let version = versions.find(|it| it["version"] == "v1beta1" && it["freshness"] == "Stale");
        version.is_some() && self.status_of(&candidates("kept")).await == 503
    }

    async fn newer_is_back(&self) {
        self.plane.server("newer").ready().await;
        until("the newer server's API is back", || async {
            self.status_of(&candidates("kept")).await == 200
        })
        .await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}{}{}",
                self.plane.logs(),
                self.gateway.log(),
                self.manager.log()
            );
        }
    }
}

/// An object that only the newer server serves. It says that it was renewed, since that server throws away what was not.
fn candidate(name: &str) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ");
    json!({
        "apiVersion": CANDIDATES,
        "kind": "LeaseCandidate",
        "metadata": {"name": name},
        "spec": {"leaseName": "l", "binaryVersion": "1.37.0", "emulationVersion": "1.37.0", "strategy": "OldestEmulationVersion",
                 "renewTime": now.to_string()},
    })
}

fn candidates(namespace: &str) -> String {
    format!("/apis/{CANDIDATES}/namespaces/{namespace}/leasecandidates")
}

fn config_map(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

#[tokio::test]
async fn a_controller_manager_behind_the_older_server_deletes_what_it_should_and_nothing_else() {
    let served = format!("--runtime-config={CANDIDATES}=true");
    let with_candidates = |newer: ApiserverSpec| {
        newer
            .gate("CoordinatedLeaderElection=true")
            .flags(&[&served])
    };
    let world = World::start(with_candidates).await;
    serves_group(&world.gateway.client("admin"), "storagemigration.k8s.io").await;
    world.namespace("kept").await;
    let owner = world.candidate("kept", "owner").await;
    world.belonging("kept", "child", &owner).await;
    let mut stranger = owner.clone();
    stranger["apiVersion"] = json!("v1");
    stranger["kind"] = json!("Secret");
    world.belonging("kept", "orphan", &stranger).await;
    world.gone(&config_map("kept", "orphan")).await;

    killed(&world).await;
    paused(&world).await;
    stopped(&world).await;

    world.goes_with_its_owner("owner", "child").await;
    for when in ["killed", "paused", "stopped"] {
        let (owner, child) = (format!("owner-{when}"), format!("child-{when}"));
        world.goes_with_its_owner(&owner, &child).await;
    }
}

/// Nothing else of the newer server's tells the controller that there is something that it cannot see.
#[tokio::test]
async fn a_namespace_waits_for_what_a_server_that_is_away_has_in_a_group_version_of_both() {
    let without = "--runtime-config=storagemigration.k8s.io/v1=false";
    let world = World::start(|newer| newer.flags(&[without])).await;
    let requests = "/apis/certificates.k8s.io/v1/namespaces/waiting/podcertificaterequests";
    until("what only the newer server has is served", || async {
        world.status_of(requests).await == 200
    })
    .await;
    world.namespace("waiting").await;
    world.create(requests, &pod_certificate_request()).await;
    let newer = world.plane.server("newer");
    newer.kill();
    until("the newer server is away", || async {
        world.status_of(requests).await == 503
    })
    .await;
    world.delete("/api/v1/namespaces/waiting").await;
    world.looks(NAMESPACES, 2).await;
    assert_eq!(world.status_of("/api/v1/namespaces/waiting").await, 200);
    newer.restart().await;
    newer.ready().await;
    world.gone("/api/v1/namespaces/waiting").await;
    let list = Outgoing::new("GET", requests);
    let left = newer.client("admin").send(&list).await.unwrap();
    assert_eq!(left.json()["items"], json!([]));
}

fn pod_certificate_request() -> Value {
    let uid = "11111111-2222-3333-4444-555555555555";
    // A PKCS #10 request for an Ed25519 key, signed with it: the server checks that.
    let signed = "MH8wMwIBADAAMCowBQYDK2VwAyEAF4TywcDpkmqdm9cjJMO1B7iJeNS4QzWb933i4+XdjOCgADAFBgMrZXADQQAi2J8HYxTeM3SF6z2H\
                  tgwSfnhEwiVLNHFn1rsh3Ok6MoG7meVfw1Ae/mxR0AJ/Fnr7C9OsC9OAT/I/T9NelCgA";
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {"name": "request"},
        "spec": {
            "signerName": "example.com/signer", "podName": "p", "podUID": uid, "nodeName": "n", "nodeUID": uid,
            "serviceAccountName": "default", "serviceAccountUID": uid, "maxExpirationSeconds": 86400,
            "stubPKCS10Request": signed,
        },
    })
}

/// The newer server is killed while a namespace with its objects is being deleted.
async fn killed(world: &World) {
    world.namespace("leaving").await;
    world.candidate("leaving", "candidate").await;
    let newer = world.plane.server("newer");
    newer.kill();
    world.delete("/api/v1/namespaces/leaving").await;
    // Later the collector may know from discovery that it cannot ask.
    world.belongs_to_what_cannot_be_seen("killed").await;
    until("the collector has asked for that owner", async || {
        world.told_of("owner-killed").contains(&json!(503))
    })
    .await;
    // When it looks the second time, it has done what it does after the first.
    world.looks(NAMESPACES, 2).await;
    world.looks(COLLECTOR, 1).await;
    let read = world.status_of("/api/v1/namespaces/leaving").await;
    assert_eq!(
        read, 200,
        "the namespace went although not all in it could be seen"
    );
    assert_eq!(world.status_of(&config_map("kept", "child")).await, 200);
    newer.restart().await;
    world.newer_is_back().await;
    world.gone("/api/v1/namespaces/leaving").await;
    let list = Outgoing::new("GET", &candidates("leaving"));
    let left = newer.client("admin").send(&list).await.unwrap();
    assert_eq!(left.json()["items"], json!([]));
}

async fn paused(world: &World) {
    let newer = world.plane.server("newer");
    newer.pause();
    world.belongs_to_what_cannot_be_seen("paused").await;
    world.looks(COLLECTOR, 1).await;
    assert_eq!(world.status_of(&config_map("kept", "child")).await, 200);
    newer.resume();
    world.newer_is_back().await;
}

/// Custom resources and an aggregated API appear while the newer server is away, and go when it is back.
async fn stopped(world: &World) {
    let newer = world.plane.server("newer");
    newer.stop().await;
    let gone = Instant::now();
    until("its API is stale", async || world.is_stale().await).await;
    eprintln!(
        "measured: its API was stale {:?} after it had stopped",
        gone.elapsed()
    );
    assert!(
        gone.elapsed() < Duration::from_secs(10),
        "{:?}",
        gone.elapsed()
    );
    definitions_come(world).await;
    world.belongs_to_what_cannot_be_seen("stopped").await;
    world.looks(COLLECTOR, 1).await;
    assert_eq!(world.status_of(&config_map("kept", "child")).await, 200);
    newer.restart().await;
    world.newer_is_back().await;
    definitions_go(world).await;
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const THINGS: &str = "/apis/own.example.com/v1/namespaces/custom/things";

async fn definitions_come(world: &World) {
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.away.example.com"},
        "spec": {"group": "away.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "kept", "name": "nobody"}, "insecureSkipTLSVerify": true},
    });
    world.create(API_SERVICES, &service).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.own.example.com"},
        "spec": {"group": "own.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    world.create(DEFINITIONS, &definition).await;
    world.namespace("custom").await;
    until("the custom resource is served", || async {
        world.status_of(THINGS).await == 200
    })
    .await;
    let thing =
        json!({"apiVersion": "own.example.com/v1", "kind": "Thing", "metadata": {"name": "one"}});
    world.create(THINGS, &thing).await;
    for group in ["own.example.com", "away.example.com"] {
        serves_group(&world.gateway.client("admin"), group).await;
    }
}

/// The aggregated API, which nobody answers for, goes with objects of all kinds in a namespace that is being deleted.
async fn definitions_go(world: &World) {
    world.candidate("custom", "candidate").await;
    world.delete("/api/v1/namespaces/custom").await;
    world
        .delete(&format!("{API_SERVICES}/v1.away.example.com"))
        .await;
    world.gone("/api/v1/namespaces/custom").await;
    world
        .delete(&format!("{DEFINITIONS}/things.own.example.com"))
        .await;
    world.gone(THINGS).await;
}
