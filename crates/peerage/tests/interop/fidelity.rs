//! A real kube-apiserver with its own proxy and `peerage apiserver` on one etcd take each other for peers: each lists
//! what the other serves, sends on what it lacks, says so when the other is away, and reads what the other has written.
//!
//! Each row runs with both as the older of the two. The newer one has an API turned off, so that requests go both ways.
//! The real one stores JSON, so that both read the same roles.

mod records;

use std::collections::BTreeMap;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, Logs, Shared};
use peerage_testkit::wire::{AGGREGATED, Client, Outgoing};
use serde_json::{Value, json};

use crate::ours::executable;
use crate::versions::{self, NEWER_ONLY};

/// What the older server serves: also what is off by default.
const EVERYTHING: &str = "--runtime-config=api/all=true";
/// What the newer server serves: all but what only the older one is to have.
const LESS: &str = "--runtime-config=policy/v1=false";
/// What only the older server serves.
const OLDER_ONLY: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A real server and ours on one etcd.
struct Both {
    // In the order of their end.
    ours: Apiserver,
    plane: ControlPlane,
    ours_is_older: bool,
    real_merges: bool,
}

impl Both {
    /// Ours is of the older version.
    async fn ours_older() -> Self {
        let newer = versions::kube_apiserver(&versions::newer()).named("real");
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(newer.own_proxy().storing_json().flags(&[LESS]))
            .start()
            .await;
        let version = versions::number(&versions::older());
        let ours = plane.start_peerage(executable(), "ours", &version, &[EVERYTHING]);
        Self {
            ours: ours.await,
            plane,
            ours_is_older: true,
            real_merges: versions::merges_discovery(&versions::newer()),
        }
        .acquainted()
        .await
    }

    /// The real one is of the older version.
    async fn real_older() -> Self {
        let older = versions::kube_apiserver(&versions::older()).named("real");
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(older.own_proxy().storing_json().flags(&[EVERYTHING]))
            .start()
            .await;
        let version = versions::number(&versions::newer());
        let ours = plane.start_peerage(executable(), "ours", &version, &[LESS]);
        Self {
            ours: ours.await,
            plane,
            ours_is_older: false,
            real_merges: versions::merges_discovery(&versions::older()),
        }
        .acquainted()
        .await
    }

    async fn acquainted(self) -> Self {
        for way in self.ways() {
            way.through.serves(way.path).await;
        }
        self
    }

    fn real(&self) -> &Apiserver {
        self.plane.server("real")
    }

    fn older(&self) -> &Apiserver {
        if self.ours_is_older {
            &self.ours
        } else {
            self.real()
        }
    }

    fn newer(&self) -> &Apiserver {
        if self.ours_is_older {
            self.real()
        } else {
            &self.ours
        }
    }

    /// Each server with the path that only the other serves, and an object for it.
    fn ways(&self) -> [Way<'_>; 2] {
        let (older, newer) = (self.older(), self.newer());
        [
            Way {
                through: older,
                served_by: newer,
                path: NEWER_ONLY,
                object: migration,
            },
            Way {
                through: newer,
                served_by: older,
                path: OLDER_ONLY,
                object: budget,
            },
        ]
    }
}

impl Logs for Both {
    fn logs(&self) -> String {
        self.plane.logs() + &self.ours.log()
    }
}

/// From one server to the other.
struct Way<'a> {
    through: &'a Apiserver,
    served_by: &'a Apiserver,
    path: &'static str,
    object: fn(&str) -> Value,
}

fn migration(name: &str) -> Value {
    json!({
        "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"name": name},
        "spec": {"resource": {"group": "apps", "resource": "deployments"}},
    })
}

fn budget(name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
    })
}

/// Everything that a server's merged `/apis` lists, by group, version and resource.
async fn resources(client: &Client) -> BTreeMap<String, Value> {
    let answer = client.send(&Outgoing::get_as("/apis", AGGREGATED)).await;
    let document = answer.map(|answer| answer.json()).unwrap_or_default();
    let mut all = BTreeMap::new();
    for group in document["items"].as_array().unwrap_or(&Vec::new()) {
        for version in group["versions"].as_array().unwrap() {
            assert_eq!(version["freshness"], "Current", "{version}");
            for resource in version["resources"].as_array().unwrap_or(&Vec::new()) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let name = [
                    &group["metadata"]["name"],
                    &version["version"],
                    &resource["resource"],
                ];
                all.insert(name.map(text).join("/"), resource.clone());
            }
        }
    }
    all
}

async fn both_list_the_same(both: &Both) {
    let ours = resources(&both.ours.client("admin")).await;
    let groups = [
        "storagemigration.k8s.io/v1/storageversionmigrations",
        "policy/v1/poddisruptionbudgets",
    ];
    for name in groups {
        assert!(ours.contains_key(name), "{name} is not listed");
    }
    if !both.real_merges {
        return;
    }
    let real = resources(&both.real().client("admin")).await;
    for (name, resource) in &real {
        assert_eq!(ours.get(name), Some(resource), "{name}");
    }
    for name in ours.keys() {
        assert!(real.contains_key(name), "only ours lists {name}");
    }
}

async fn an_object_lives_through_the_other(both: &Both) {
    let name = "object";
    for way in both.ways() {
        let client = way.through.client("admin");
        let create = Outgoing::new("POST", way.path).json("application/json", &(way.object)(name));
        let created = client.send(&create).await.unwrap();
        assert_eq!(created.status(), 201, "{}", created.in_words());
        let revision = created.json()["metadata"]["resourceVersion"].clone();
        let watch = format!(
            "{}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={}",
            way.path,
            revision.as_str().unwrap()
        );
        let (head, mut frames) = client.open(&Outgoing::new("GET", &watch)).await.unwrap();
        assert_eq!(head.status, 200);

        let one = format!("{}/{name}", way.path);
        let patch = json!({"metadata": {"labels": {"by": "patch"}}});
        let patch = Outgoing::new("PATCH", &one).json("application/merge-patch+json", &patch);
        let patched = client.send(&patch).await.unwrap();
        assert_eq!(patched.status(), 200, "{}", patched.in_words());
        let read = client.send(&Outgoing::new("GET", &one)).await.unwrap();
        assert_eq!(read.json()["metadata"]["labels"]["by"], "patch");
        let deleted = client.send(&Outgoing::new("DELETE", &one)).await.unwrap();
        assert_eq!(deleted.status(), 200, "{}", deleted.in_words());
        for event in ["MODIFIED", "DELETED"] {
            let frame = frames.line().await.unwrap().unwrap();
            let frame: Value = serde_json::from_slice(&frame).unwrap();
            assert_eq!(frame["type"], event, "{frame}");
        }
    }
}

/// alice is refused where she asks; with a role that the real one stores, the other judges her as alice again.
async fn the_other_hears_who_is_asking(both: &Both) {
    for way in both.ways() {
        let alice = way.through.client("alice");
        let answer = alice.send(&Outgoing::new("GET", way.path)).await.unwrap();
        assert_eq!(answer.status(), 403, "{}", answer.in_words());
    }
    let admin = both.real().client("admin");
    for (path, object) in rights_of_alice() {
        let create = Outgoing::new("POST", &path).json("application/json", &object);
        let created = admin.send(&create).await.unwrap();
        assert_eq!(created.status(), 201, "{}", created.in_words());
    }
    for way in both.ways() {
        answers_to("alice", &way, 200).await;
        for user in ["admin", "alice"] {
            let client = way.through.client(user);
            let answer = client.send(&Outgoing::new("GET", way.path)).await.unwrap();
            assert_eq!(answer.status(), 200, "{}", answer.in_words());
            let id = answer.head.header("audit-id").unwrap();
            for server in [way.through, way.served_by] {
                let seen = server.audited(id).await;
                assert_eq!(seen["user"]["username"], user, "{seen}");
                assert_eq!(seen["responseStatus"]["code"], 200, "{seen}");
            }
        }
    }
}

fn rights_of_alice() -> [(String, Value); 2] {
    let path = |kind: &str| format!("/apis/rbac.authorization.k8s.io/v1/{kind}");
    let groups = ["storagemigration.k8s.io", "policy"];
    let rules = json!([{"apiGroups": groups, "resources": ["*"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "lister"}, "rules": rules});
    let binding = json!({
        "metadata": {"name": "lister"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lister"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    [
        (path("clusterroles"), role),
        (path("clusterrolebindings"), binding),
    ]
}

async fn an_object_of_both_is_read_and_written_by_either(both: &Both) {
    let name = "map";
    let path = "/api/v1/namespaces/default/configmaps";
    let one = format!("{path}/{name}");
    let servers = [both.real(), &both.ours];
    for (writer, reader) in [(0, 1), (1, 0)] {
        let (writer, reader) = (
            servers[writer].client("admin"),
            servers[reader].client("admin"),
        );
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
        let create = Outgoing::new("POST", path).json("application/json", &object);
        let created = writer.send(&create).await.unwrap();
        assert_eq!(created.status(), 201, "{}", created.in_words());
        let read = reader.send(&Outgoing::new("GET", &one)).await.unwrap();
        assert_eq!(read.json(), created.json());
        let patch = json!({"data": {"c": "d"}});
        let patch = Outgoing::new("PATCH", &one).json("application/merge-patch+json", &patch);
        let patched = reader.send(&patch).await.unwrap();
        assert_eq!(patched.status(), 200, "{}", patched.in_words());
        let read = writer.send(&Outgoing::new("GET", &one)).await.unwrap();
        assert_eq!(read.json(), patched.json());
        let deleted = writer.send(&Outgoing::new("DELETE", &one)).await.unwrap();
        assert_eq!(deleted.status(), 200, "{}", deleted.in_words());
        let gone = reader.send(&Outgoing::new("GET", &one)).await.unwrap();
        assert_eq!(gone.status(), 404, "{}", gone.in_words());
    }
}

async fn answers(way: &Way<'_>, status: u16) {
    answers_to("admin", way, status).await;
}

/// Asks for what only the other serves until the answer has a status.
async fn answers_to(user: &str, way: &Way<'_>, status: u16) {
    let client = way.through.client(user);
    let what = format!(
        "{} through {} answers {status}",
        way.path,
        way.through.name()
    );
    until(&what, || async {
        let answer = client.send(&Outgoing::new("GET", way.path)).await;
        answer.is_ok_and(|answer| answer.status() == status)
    })
    .await;
}

async fn a_peer_that_is_killed_is_missed_and_found_again(both: &Both) {
    for way in both.ways() {
        answers(&way, 200).await;
        way.served_by.kill();
        answers(&way, 503).await;
        way.served_by.restart().await;
        answers(&way, 200).await;
    }
}

/// Ours leaves its Lease for a while, from which a real kube-apiserver concludes that it has to be back.
async fn through_ours_stopping_cleanly_a_real_server_says_unavailable(both: &Both) {
    let ways = both.ways();
    let way = ways.iter().find(|way| way.served_by.id() == both.ours.id());
    let way = way.unwrap();
    both.ours.stop().await;
    let client = way.through.client("admin");
    for _ in 0..50 {
        let answer = client.send(&Outgoing::new("GET", way.path)).await.unwrap();
        assert_eq!(answer.status(), 503, "{}", answer.in_words());
    }
    both.ours.restart().await;
    answers(way, 200).await;
}

macro_rules! rows {
    ($pair:ident, $start:ident) => {
        mod $pair {
            use super::*;

            static BOTH: Shared<Both> = Shared::new(|| Box::pin(Both::$start()));

            #[tokio::test]
            async fn both_list_the_same() {
                super::both_list_the_same(&*BOTH.get().await).await;
            }

            #[tokio::test]
            async fn an_object_lives_through_the_other() {
                super::an_object_lives_through_the_other(&*BOTH.get().await).await;
            }

            #[tokio::test]
            async fn the_other_hears_who_is_asking() {
                super::the_other_hears_who_is_asking(&*BOTH.get().await).await;
            }

            #[tokio::test]
            async fn an_object_of_both_is_read_and_written_by_either() {
                super::an_object_of_both_is_read_and_written_by_either(&*BOTH.get().await).await;
            }

            // Those that disturb a server have a pair to themselves. A real one that had to ask twice for a peer's
            // documents may still do so a while later, and forgets the peer when that finds it away.
            #[tokio::test]
            async fn a_peer_that_is_killed_is_missed_and_found_again() {
                super::a_peer_that_is_killed_is_missed_and_found_again(&Both::$start().await).await;
            }

            #[tokio::test]
            async fn a_record_is_read_in_either_encoding_and_stays_in_the_one_it_was_found_in() {
                let both = Both::$start().await;
                super::records::stay_in_their_encoding(&both).await;
            }

            #[tokio::test]
            async fn through_ours_stopping_cleanly_a_real_server_says_unavailable() {
                let both = Both::$start().await;
                super::through_ours_stopping_cleanly_a_real_server_says_unavailable(&both).await;
            }
        }
    };
}

rows!(ours_is_older, ours_older);
rows!(the_real_one_is_older, real_older);

#[tokio::test]
async fn a_patch_through_ours_keeps_what_only_a_newer_real_server_knows() {
    let both = Both::ours_older().await;
    let real = both.real().client("admin");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
    let create = Outgoing::new("POST", "/api/v1/nodes").json("application/json", &node);
    assert_eq!(real.send(&create).await.unwrap().status(), 201);
    let status = json!({"status": {"declaredFeatures": ["A", "B"]}});
    let status = Outgoing::new("PATCH", "/api/v1/nodes/node/status")
        .json("application/merge-patch+json", &status);
    let written = real.send(&status).await.unwrap();
    let features = json!(["A", "B"]);
    assert_eq!(written.json()["status"]["declaredFeatures"], features);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let label =
        Outgoing::new("PATCH", "/api/v1/nodes/node").json("application/merge-patch+json", &label);
    let patched = both.ours.client("admin").send(&label).await.unwrap();
    assert_eq!(patched.status(), 200, "{}", patched.in_words());
    let read = real
        .send(&Outgoing::new("GET", "/api/v1/nodes/node"))
        .await
        .unwrap()
        .json();
    assert_eq!(read["metadata"]["labels"]["a"], "b");
    assert_eq!(read["status"]["declaredFeatures"], features);
}
