//! A real kube-apiserver that stores protobuf, as it does by default, and an older `peerage apiserver` on one etcd: what
//! ours cannot read it refuses, tells of and leaves as it is; Leases, records of peers and of node ports are shared.

use peerage_core::protobuf::Envelope;

use super::*;
use crate::versions::NEWER_ONLY;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const NAMESPACES: &str = "/api/v1/namespaces";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// What the newer server, the real one, is not to have, and the older one has.
const LESS: &str = "--runtime-config=policy/v1=false";
const OLDER_ONLY: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const NODE_PORTS: &str = "/registry/ranges/servicenodeports";
const MAGIC: &[u8] = b"k8s\0";

struct Theirs {
    both: Both,
    /// What the real one had stored when ours came.
    before: BTreeMap<String, Bytes>,
}

impl Theirs {
    async fn start() -> Self {
        let real = versions::kube_apiserver("1.37").named("real");
        let plane = ControlPlane::on(Backend::Etcd("3.5"))
            .server(real.own_proxy().flags(&[LESS]))
            .start()
            .await;
        let client = plane.server("real").client("admin");
        for namespace in ["default", "kube-node-lease"] {
            let maps = format!("{NAMESPACES}/{namespace}/configmaps");
            until(&format!("{namespace} is there"), || async {
                send(&client, "POST", &maps, Some((JSON, &map("theirs"))))
                    .await
                    .status()
                    == 201
            })
            .await;
        }
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "theirs"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2026-11-29T10:00:00.123456Z"}});
        expect(
            send(&client, "POST", LEASES, Some((JSON, &lease))).await,
            201,
        );
        until("the bootstrap objects are there", || async {
            let stored = stored(&plane).await;
            stored.contains_key("/registry/namespaces/default") && stored.contains_key(NODE_PORTS)
        })
        .await;
        let before = stored(&plane).await;
        let version = versions::number(&versions::older());
        let ours = plane.start_peerage(executable(), "ours", &version, &["--controllers=*"]);
        let ours = ours.await;
        let both = Both { plane, ours };
        Self { both, before }
    }

    /// The real one's client, and ours.
    fn clients(&self) -> (Client, Client) {
        let [(_, real, ours), _] = self.both.ways();
        (real, ours)
    }

    /// What a key has.
    async fn value(&self, key: &str) -> Bytes {
        self.both.stored().await[key].clone()
    }
}

impl Logs for Theirs {
    fn logs(&self) -> String {
        self.both.logs()
    }
}

static THEIRS: Shared<Theirs> = Shared::new(|| Box::pin(Theirs::start()));

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// A namespace that ours can read, since it has made it itself; where its ConfigMaps are.
async fn namespace_of_ours(ours: &Client, name: &str) -> String {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    expect(
        send(ours, "POST", NAMESPACES, Some((JSON, &object))).await,
        201,
    );
    format!("{NAMESPACES}/{name}/configmaps")
}

/// What a request for an object in protobuf is answered with.
#[track_caller]
fn refused(answer: &Answer, key: &str) {
    assert_eq!(answer.status(), 500, "{}", answer.in_words());
    let message = answer.json()["message"].to_string();
    for part in [key, "--storage-media-type=application/json"] {
        assert!(message.contains(part), "{message}");
    }
}

#[track_caller]
fn exists(answer: Answer) {
    assert_eq!(expect(answer, 409)["reason"], "AlreadyExists");
}

/// What servers write by themselves, ours what it can read, the real ones the status of their own.
const WRITTEN_ANYWAY: [&str; 7] = [
    "/leases/",
    "/peerserverleases/",
    "/ranges/",
    "/servicecidrs/",
    "/apiservices/",
    "/flowschemas/",
    "/prioritylevelconfigurations/",
];

#[tokio::test]
async fn what_a_kube_apiserver_stores_in_protobuf_is_refused_and_left_alone() {
    let theirs = THEIRS.get().await;
    maps_are_refused(&theirs.clients().1).await;
    let after = theirs.both.stored().await;
    for (key, value) in &theirs.before {
        if !WRITTEN_ANYWAY.iter().any(|it| key.contains(it)) {
            assert_eq!(after.get(key), Some(value), "{key}");
        }
    }
    let log = theirs.both.ours.log();
    assert!(log.contains("cannot be read here"), "{log}");
}

/// Whatever is asked of it, ours says that it cannot read the other's maps.
async fn maps_are_refused(ours: &Client) {
    let of_theirs = |answer: Answer| refused(&answer, "/registry/configmaps/default/theirs");
    let theirs = format!("{MAPS}/theirs");
    for (method, path) in [
        ("GET", theirs.clone()),
        ("GET", MAPS.to_owned()),
        ("GET", format!("{MAPS}?labelSelector=a")),
        ("DELETE", theirs.clone()),
        ("DELETE", MAPS.to_owned()),
        ("DELETE", format!("{MAPS}?labelSelector=a")),
    ] {
        of_theirs(send(ours, method, &path, None).await);
    }
    of_theirs(send(ours, "PUT", &theirs, Some((JSON, &map("theirs")))).await);
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    of_theirs(send(ours, "PATCH", &theirs, Some((MERGE, &label))).await);
    let watch = Outgoing::new("GET", &format!("{MAPS}?watch=1"));
    let (_, mut watch) = ours.open(&watch).await.unwrap();
    let line = watch.line().await.unwrap().unwrap();
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(500))
    );
    assert_eq!(watch.line().await.unwrap(), None);
    let answer = send(
        ours,
        "DELETE",
        &format!("{NAMESPACES}/kube-node-lease"),
        None,
    )
    .await;
    refused(&answer, "/registry/namespaces/kube-node-lease");
    exists(send(ours, "POST", MAPS, Some((JSON, &map("theirs")))).await);
    // A namespace that cannot be read may be on its way out, but for those that never are.
    let closed = format!("{NAMESPACES}/kube-node-lease/configmaps");
    let answer = send(ours, "POST", &closed, Some((JSON, &map("new")))).await;
    refused(&answer, "/registry/namespaces/kube-node-lease");
    exists(send(ours, "POST", &closed, Some((JSON, &map("theirs")))).await);
    expect(
        send(ours, "POST", MAPS, Some((JSON, &map("new")))).await,
        201,
    );
}

#[tokio::test]
async fn leases_are_shared_but_for_one_of_the_future() {
    let theirs = THEIRS.get().await;
    let (real, ours) = theirs.clients();
    let (path, key) = (
        format!("{LEASES}/theirs"),
        "/registry/leases/kube-system/theirs",
    );
    both_show_the_same(&real, &ours, &path).await;
    let held = json!({"spec": {"holderIdentity": "b", "leaseTransitions": 1}});
    expect(send(&ours, "PATCH", &path, Some((MERGE, &held))).await, 200);
    let shown = both_show_the_same(&real, &ours, &path).await;
    assert_eq!(shown["spec"]["holderIdentity"], "b");
    let list = expect(send(&ours, "GET", LEASES, None).await, 200);
    assert!(list["items"].as_array().unwrap().len() >= 3, "{list}");
    let value = theirs.value(key).await;
    assert!(value.starts_with(MAGIC), "{value:?}");

    // With a field that no version has.
    namespace_of_ours(&ours, "future").await;
    let lease = Envelope::open(&value).unwrap();
    let raw = [lease.raw.unwrap(), b"\x1a\x01x"].concat();
    let raw = Some(&*raw);
    let value = Bytes::from(Envelope { raw, ..lease }.seal());
    let key = "/registry/leases/future/theirs";
    let store = store(&theirs.both.plane).await;
    store.create(key, value.clone(), 0).await.unwrap();
    let path = "/apis/coordination.k8s.io/v1/namespaces/future/leases/theirs";
    until("ours knows it", || async {
        send(&ours, "GET", path, None).await.status() != 404
    })
    .await;
    refused(&send(&ours, "GET", path, None).await, key);
    refused(&send(&ours, "PATCH", path, Some((MERGE, &held))).await, key);
    assert_eq!(theirs.value(key).await, value);
}

#[tokio::test]
async fn a_namespace_with_something_in_protobuf_stays_until_that_is_gone() {
    let theirs = THEIRS.get().await;
    let (real, ours) = theirs.clients();
    let maps = namespace_of_ours(&ours, "stuck").await;
    expect(
        send(&real, "POST", &maps, Some((JSON, &map("theirs")))).await,
        201,
    );
    exists(send(&ours, "POST", &maps, Some((JSON, &map("theirs")))).await);
    let dry_run = format!("{maps}?dryRun=All");
    exists(send(&ours, "POST", &dry_run, Some((JSON, &map("theirs")))).await);

    let namespace = format!("{NAMESPACES}/stuck");
    expect(send(&ours, "DELETE", &namespace, None).await, 200);
    until("its conditions say why it stays", || async {
        let shown = expect(send(&real, "GET", &namespace, None).await, 200);
        let conditions = shown["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["type"] == "NamespaceDeletionContentFailure"
                && it["status"] == "True"
                && message.contains("/registry/configmaps/stuck/theirs")
        })
    })
    .await;
    let kept = format!("{maps}/theirs");
    expect(send(&real, "GET", &kept, None).await, 200);
    expect(send(&real, "DELETE", &kept, None).await, 200);
    for client in [&real, &ours] {
        until("the namespace is gone", || async {
            send(client, "GET", &namespace, None).await.status() == 404
        })
        .await;
    }
}

/// Who may what is asked about users that each have a role and a binding, either of them made by either server.
#[tokio::test]
async fn a_role_or_binding_in_protobuf_grants_nothing() {
    let theirs = THEIRS.get().await;
    let (real, ours) = theirs.clients();
    let by = [("real", &real), ("ours", &ours)];
    for (role_by, role_writer) in by {
        for (binding_by, binding_writer) in by {
            let name = format!("{role_by}-{binding_by}");
            let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
            let subjects =
                json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]);
            grant(role_writer, binding_writer, &name, rules, subjects).await;
        }
    }
    for user in ["real-real", "real-ours", "ours-real", "ours-ours"] {
        until(&format!("the real one lets {user} read"), || {
            may_read(&real, user)
        })
        .await;
    }
    // When it knows the last it knows all of them.
    until("ours lets ours-ours read", || may_read(&ours, "ours-ours")).await;
    for user in ["real-real", "real-ours", "ours-real"] {
        assert!(!may_read(&ours, user).await, "{user}");
    }
}

/// A role made by one and a binding to it made by the other.
async fn grant(role_by: &Client, binding_by: &Client, name: &str, rules: Value, subjects: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({"metadata": {"name": name}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
    for (writer, kind, object) in [
        (role_by, "clusterroles", role),
        (binding_by, "clusterrolebindings", binding),
    ] {
        let path = format!("{RBAC}/{kind}");
        expect(
            send(writer, "POST", &path, Some((JSON, &object))).await,
            201,
        );
    }
}

async fn may_read(client: &Client, user: &str) -> bool {
    let review = json!({"spec": {"user": user,
        "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "configmaps"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = send(client, "POST", path, Some((JSON, &review))).await;
    expect(answer, 201)["status"]["allowed"] == true
}

/// What is written anew through a kube-apiserver that stores JSON can be read: an object, and the range of addresses,
/// without which services get none.
#[tokio::test]
async fn replacing_through_a_kube_apiserver_that_stores_json_is_the_way_out() {
    const CIDR: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    let theirs = THEIRS.get().await;
    let (real, ours) = theirs.clients();
    let maps = namespace_of_ours(&ours, "way-out").await;
    expect(
        send(&real, "POST", &maps, Some((JSON, &map("theirs")))).await,
        201,
    );
    let services = format!("{NAMESPACES}/way-out/services");
    let service = create_service(&ours, &services, "first", &Value::Null).await;
    refused(&service, "/registry/servicecidrs/kubernetes");

    let path = format!("{maps}/theirs");
    let key = "/registry/configmaps/way-out/theirs";
    assert!(theirs.value(key).await.starts_with(MAGIC));
    refused(&send(&ours, "GET", &path, None).await, key);
    let json = versions::kube_apiserver("1.37")
        .named("json")
        .storing_json();
    let json = theirs.both.plane.start(json).await;
    for path in [&*path, CIDR] {
        replace(&json.client("admin"), path, |_| ()).await;
        both_show_the_same(&real, &ours, path).await;
    }
    json.stop().await;
    assert!(theirs.value(key).await.starts_with(b"{"));
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    expect(
        send(&ours, "PATCH", &path, Some((MERGE, &label))).await,
        200,
    );
    node_ports_are_shared(&theirs, &services).await;
}

async fn create_service(client: &Client, services: &str, name: &str, port: &Value) -> Answer {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    send(client, "POST", services, Some((JSON, &object))).await
}

/// The record of node ports stays in protobuf, and both heed it.
async fn node_ports_are_shared(theirs: &Theirs, services: &str) {
    let (real, ours) = theirs.clients();
    for (writer, other) in [(&real, &ours), (&ours, &real)] {
        let service = create_service(writer, services, "first", &Value::Null).await;
        let service = expect(service, 201);
        let port = &service["spec"]["ports"][0]["nodePort"];
        assert!(theirs.value(NODE_PORTS).await.starts_with(MAGIC));
        let taken = create_service(other, services, "second", port).await;
        assert_eq!(taken.status(), 422, "{}", taken.in_words());
        let path = format!("{services}/first");
        expect(send(writer, "DELETE", &path, None).await, 200);
        // What was given back may reach the other's cache a moment later.
        until("the port is free", || async {
            let again = create_service(other, services, "second", port).await;
            again.status() == 201
        })
        .await;
        let path = format!("{services}/second");
        expect(send(other, "DELETE", &path, None).await, 200);
    }
    assert!(theirs.value(NODE_PORTS).await.starts_with(MAGIC));
}

/// Each serves what only the other has, which it can know from nothing but the record. The real one asks ours what that
/// has with a role that ours cannot read, so it needs another.
#[tokio::test]
async fn records_of_peers_in_protobuf_are_read_by_both() {
    let theirs = THEIRS.get().await;
    let (_, ours) = theirs.clients();
    let rules =
        json!([{"nonResourceURLs": ["/api", "/apis", "/apis/*", "/api/*"], "verbs": ["get"]}]);
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:apiserver"}]);
    grant(&ours, &ours, "peers", rules, subjects).await;
    theirs.both.ours.serves(NEWER_ONLY).await;
    theirs.both.real().serves(OLDER_ONLY).await;
    let records = theirs.both.stored().await;
    let records = records.range("/registry/peerserverleases/".to_owned()..);
    let records: Vec<_> = records
        .take_while(|(key, _)| key.starts_with("/registry/peerserverleases/"))
        .collect();
    assert_eq!(records.len(), 2, "{records:?}");
    for (key, value) in records {
        assert!(value.starts_with(MAGIC), "{key}: {value:?}");
    }
}
