//! A real kube-apiserver and `peerage apiserver` of one version on one etcd: what either writes, the other reads, changes,
//! watches and deletes, under the same keys and in the same form.
//!
//! The real one stores JSON.

use std::collections::BTreeMap;

use bytes::Bytes;
use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_store::{KeyRange, StoreExt as _};
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, KubeApiserver, Logs, Shared};
use peerage_testkit::wire::{Answer, Client, Incoming, Outgoing};
use serde_json::{Value, json};

use crate::ours::executable;

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

struct Both {
    plane: ControlPlane,
    ours: Apiserver,
}

impl Both {
    async fn start() -> Self {
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(KubeApiserver::of("1.37").named("real").storing_json())
            .start()
            .await;
        let ours = plane
            .start_peerage(executable(), "ours", "1.37", &["--controllers=*"])
            .await;
        Self { plane, ours }
    }

    fn real(&self) -> &Apiserver {
        self.plane.server("real")
    }
}

impl Logs for Both {
    fn logs(&self) -> String {
        self.plane.logs() + &self.ours.log()
    }
}

static BOTH: Shared<Both> = Shared::new(|| Box::pin(Both::start()));

async fn send(client: &Client, method: &str, path: &str, body: Option<(&str, &Value)>) -> Answer {
    let mut request = Outgoing::new(method, path);
    if let Some((content_type, body)) = body {
        request = request.json(content_type, body);
    }
    client.send(&request).await.unwrap()
}

/// A kind.
#[derive(serde::Deserialize)]
struct Row {
    /// The path of its collection.
    path: String,
    /// An object of it, without a name.
    object: Value,
}

fn kinds() -> Vec<Row> {
    serde_json::from_str(include_str!("shared_objects/kinds.json")).unwrap()
}

/// The object with a name, which some kinds want in more places.
fn named(row: &Row, name: &str) -> (String, Value) {
    let mut object = row.object.clone();
    let bare = name.replace('-', "");
    let name = match object["kind"].as_str() {
        Some("CustomResourceDefinition") => {
            object["spec"]["names"] = json!({"plural": name, "kind": format!("Kind{bare}")});
            format!("{name}.example.com")
        }
        Some("APIService") => {
            object["spec"]["version"] = json!(format!("v1{bare}"));
            format!("v1{bare}.g.example.com")
        }
        // The two kinds of Events are one in the store.
        Some("Event") if !row.path.starts_with("/api/") => format!("new-{name}"),
        _ => name.to_owned(),
    };
    object["metadata"] = json!({"name": name});
    (name, object)
}

#[track_caller]
fn expect(answer: Answer, code: u16) -> Value {
    assert_eq!(answer.status(), code, "{}", answer.in_words());
    answer.json()
}

impl Both {
    /// Each server with the other.
    fn ways(&self) -> [(&'static str, Client, Client); 2] {
        let clients = || (self.real().client("admin"), self.ours.client("admin"));
        let ((real, ours), (other_real, other_ours)) = (clients(), clients());
        [("real", real, ours), ("ours", other_ours, other_real)]
    }

    /// What the store has, by key.
    async fn stored(&self) -> BTreeMap<String, Bytes> {
        stored(&self.plane).await
    }
}

async fn stored(plane: &ControlPlane) -> BTreeMap<String, Bytes> {
    let options = EtcdOptions::new([plane.etcd().url()]);
    let store = EtcdStore::connect(options).await.unwrap();
    let listing = store.list(KeyRange::prefix("/registry/")).await.unwrap();
    let pair = |kv: peerage_store::KeyValue| {
        (
            String::from_utf8(kv.key.to_vec()).unwrap(),
            kv.value.clone(),
        )
    };
    listing.kvs.into_iter().map(pair).collect()
}

/// Waits until both show the same; controllers of the real one may write a status meanwhile.
async fn both_show_the_same(one: &Client, other: &Client, path: &str) -> Value {
    let last = std::cell::RefCell::new((Value::Null, Value::Null));
    let same = until(path, || async {
        let shown = (
            send(one, "GET", path, None).await,
            send(other, "GET", path, None).await,
        );
        let (a, b) = (expect(shown.0, 200), expect(shown.1, 200));
        let same = a == b;
        last.replace((a, b));
        same
    });
    if tokio::time::timeout(std::time::Duration::from_secs(10), same)
        .await
        .is_err()
    {
        panic!("{path}: {:#?}", last.borrow());
    }
    last.into_inner().0
}

/// Replaces an object, however often somebody else is faster.
async fn replace(client: &Client, path: &str, change: impl Fn(&mut Value)) -> Value {
    loop {
        let mut object = expect(send(client, "GET", path, None).await, 200);
        change(&mut object);
        let answer = send(client, "PUT", path, Some((JSON, &object))).await;
        if answer.status() != 409 {
            return expect(answer, 200);
        }
    }
}

/// Deletes an object, whatever holds it.
async fn remove(client: &Client, other: &Client, path: &str) {
    let delete = format!("{path}?propagationPolicy=Background");
    let answer = send(client, "DELETE", &delete, None).await;
    assert!(answer.status() < 300, "{}", answer.in_words());
    until(&format!("{path} is gone"), || async {
        let left = send(other, "GET", path, None).await;
        if left.status() == 200 && left.json()["metadata"]["finalizers"].is_array() {
            let freed = json!({"metadata": {"finalizers": null}});
            let _ = send(other, "PATCH", path, Some((MERGE, &freed))).await;
        }
        left.status() == 404
    })
    .await;
    let left = send(client, "GET", path, None).await;
    assert_eq!(left.status(), 404, "{}", left.in_words());
}

/// Every event of the object of a name, up to its deletion.
async fn told(mut watch: Incoming, name: &str) -> Vec<(String, String)> {
    let mut events = Vec::new();
    loop {
        let line = watch.line().await.unwrap().expect("the watch ended");
        let event: Value = serde_json::from_slice(&line).unwrap();
        let meta = &event["object"]["metadata"];
        assert_ne!(event["type"], "ERROR", "{event}");
        if meta["name"] != name {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events.push((text(&event["type"]), text(&meta["resourceVersion"])));
        if event["type"] == "DELETED" {
            return events;
        }
    }
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn lives_with_both(row: &Row, name: &str, writer: &Client, reader: &Client) {
    let (name, object) = named(row, name);
    let path = format!("{}/{name}", row.path);
    let from = version(&expect(send(reader, "GET", &row.path, None).await, 200));
    let watch = Outgoing::new(
        "GET",
        &format!("{}?watch=1&resourceVersion={from}", row.path),
    );
    let (head, watch) = reader.open(&watch).await.unwrap();
    assert_eq!(head.status, 200, "{path}");

    let created = expect(
        send(writer, "POST", &row.path, Some((JSON, &object))).await,
        201,
    );
    both_show_the_same(writer, reader, &path).await;
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    let patched = expect(
        send(reader, "PATCH", &path, Some((MERGE, &label))).await,
        200,
    );
    let put = replace(writer, &path, |object| {
        object["metadata"]["annotations"]["c"] = json!("d")
    })
    .await;
    let shown = both_show_the_same(writer, reader, &path).await;
    assert_eq!(
        (
            &shown["metadata"]["labels"]["x"],
            &shown["metadata"]["annotations"]["c"]
        ),
        (&json!("y"), &json!("d"))
    );
    remove(reader, writer, &path).await;

    let events = told(watch, &name).await;
    assert_eq!(events[0], ("ADDED".to_owned(), version(&created)), "{path}");
    for changed in [patched, put] {
        let event = ("MODIFIED".to_owned(), version(&changed));
        assert!(events.contains(&event), "{path}: {event:?} in {events:?}");
    }
}

async fn namespace(client: &Client, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let answer = send(client, "POST", "/api/v1/namespaces", Some((JSON, &object))).await;
    assert!(
        [201, 409].contains(&answer.status()),
        "{}",
        answer.in_words()
    );
    // Pods need it; a controller makes it elsewhere.
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
    let answer = send(client, "POST", &path, Some((JSON, &account))).await;
    assert!(
        [201, 409].contains(&answer.status()),
        "{}",
        answer.in_words()
    );
}

#[tokio::test]
async fn what_either_writes_the_other_shows_changes_tells_of_and_deletes() {
    let both = BOTH.get().await;
    namespace(&both.ours.client("admin"), "shared").await;
    for row in kinds() {
        for (who, writer, reader) in both.ways() {
            lives_with_both(&row, &format!("lives-{who}"), &writer, &reader).await;
        }
    }
}

/// A stored object without what is another for each.
fn alike(value: &Bytes) -> Value {
    let json = peerage_apiserver::stored_json(value).expect("it can be read");
    let mut object: Value = serde_json::from_slice(&json).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for own in ["uid", "creationTimestamp", "managedFields"] {
        metadata.remove(own);
    }
    object
}

/// The text of a stored object, with the marks of each taken out: who has it, addresses, generated ids.
fn unmarked(object: &Value, who: &str) -> String {
    let text = object.to_string().replace(who, "who");
    let random = regex::Regex::new(
        r"10\.0\.0\.\d+|kube-api-access-\w{5}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    );
    random.unwrap().replace_all(&text, "any").into_owned()
}

#[tokio::test]
async fn both_store_the_same_under_the_same_keys() {
    let both = BOTH.get().await;
    namespace(&both.real().client("admin"), "shared").await;
    for row in kinds() {
        for (who, writer, _) in both.ways() {
            let (_, object) = named(&row, &format!("form-{who}"));
            expect(
                send(&writer, "POST", &row.path, Some((JSON, &object))).await,
                201,
            );
        }
    }
    let all = both.stored().await;
    let mut compared = 0;
    for (key, value) in all.iter().filter(|(key, _)| key.contains("real")) {
        if !key.contains("form-real") && !key.contains("formreal") {
            continue;
        }
        let Some(other) = all.get(&key.replace("real", "ours")) else {
            panic!("{key}: ours has it elsewhere");
        };
        let (mut real, mut ours) = (alike(value), alike(other));
        // Controllers of the real one write it; of claims it leaves out what is the default.
        let differs = [
            "customresourcedefinitions",
            "apiservices",
            "flowschemas",
            "persistentvolumeclaims",
        ];
        if differs.iter().any(|kind| key.contains(kind)) {
            real["status"] = Value::Null;
            ours["status"] = Value::Null;
        }
        assert_eq!(unmarked(&ours, "ours"), unmarked(&real, "real"), "{key}");
        compared += 1;
    }
    assert_eq!(compared, kinds().len());
}

#[tokio::test]
async fn services_of_both_share_no_address_and_no_port_and_give_them_back() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let both = BOTH.get().await;
    let [(_, real, ours), _] = both.ways();
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    };
    let creates = (0..30).map(|n| {
        let (client, name) = (if n % 2 == 0 { &real } else { &ours }, format!("np-{n}"));
        async move {
            expect(
                send(client, "POST", SERVICES, Some((JSON, &service(&name)))).await,
                201,
            )
        }
    });
    let made = futures::future::join_all(creates).await;
    let field = |at: &str| -> std::collections::BTreeSet<String> {
        made.iter()
            .map(|s| s.pointer(at).unwrap().to_string())
            .collect()
    };
    assert_eq!(
        (
            field("/spec/clusterIP").len(),
            field("/spec/ports/0/nodePort").len()
        ),
        (30, 30)
    );
    // Each deletes the other's, and gives what that had to a new one.
    for (n, old) in made.iter().enumerate().take(4) {
        let (deleter, taker) = if n % 2 == 0 {
            (&ours, &real)
        } else {
            (&real, &ours)
        };
        let path = format!("{SERVICES}/np-{n}");
        expect(send(deleter, "DELETE", &path, None).await, 200);
        let mut again = service(&format!("again-{n}"));
        again["spec"]["clusterIP"] = old["spec"]["clusterIP"].clone();
        again["spec"]["ports"][0]["nodePort"] = old["spec"]["ports"][0]["nodePort"].clone();
        // What was given back may reach the taker's cache a moment later.
        until("the address and the port are free", || async {
            let answer = send(taker, "POST", SERVICES, Some((JSON, &again))).await;
            assert!(
                [201, 422].contains(&answer.status()),
                "{}",
                answer.in_words()
            );
            answer.status() == 201
        })
        .await;
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// What a request for a ConfigMap in protobuf is answered with.
#[track_caller]
fn refused(answer: &Answer) {
    assert_eq!(answer.status(), 500, "{}", answer.in_words());
    let message = answer.json()["message"].to_string();
    for part in [
        "/registry/configmaps/default/theirs",
        "--storage-media-type=application/json",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn what_a_kube_apiserver_stores_in_protobuf_is_refused_and_left_alone() {
    let plane = ControlPlane::on(Backend::Etcd("3.5"))
        .server(KubeApiserver::of("1.37").named("real").own_proxy())
        .start()
        .await;
    let real = plane.server("real").client("admin");
    expect(
        send(&real, "POST", MAPS, Some((JSON, &map("theirs")))).await,
        201,
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "theirs"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2026-11-29T10:00:00.123456Z"}});
    expect(send(&real, "POST", LEASES, Some((JSON, &lease))).await, 201);
    until("the bootstrap objects are there", || async {
        stored(&plane)
            .await
            .contains_key("/registry/namespaces/default")
    })
    .await;
    let before = stored(&plane).await;

    let ours = plane.start_peerage(executable(), "ours", "1.37", &["--controllers=*"]);
    let server = ours.await;
    let ours = server.client("admin");
    maps_are_refused(&ours).await;
    leases_are_shared(&real, &ours).await;
    let after = stored(&plane).await;
    assert!(after["/registry/leases/kube-system/theirs"].starts_with(b"k8s\0"));
    // The records of peers are read in protobuf by both.
    for client in [&real, &ours] {
        peerage_testkit::cluster::serves_group(client, "apps").await;
    }
    for (key, value) in before {
        if !key.starts_with("/registry/leases/") && !key.starts_with("/registry/peerserverleases/")
        {
            assert_eq!(after.get(&key), Some(&value), "{key}");
        }
    }
    assert!(
        server.log().contains("cannot be read here"),
        "{}",
        server.log()
    );
}

/// Whatever is asked of it, ours says that it cannot read the other's maps.
async fn maps_are_refused(ours: &Client) {
    let theirs = format!("{MAPS}/theirs");
    refused(&send(ours, "GET", &theirs, None).await);
    refused(&send(ours, "GET", MAPS, None).await);
    refused(&send(ours, "GET", &format!("{MAPS}?labelSelector=a"), None).await);
    refused(&send(ours, "PUT", &theirs, Some((JSON, &map("theirs")))).await);
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    refused(&send(ours, "PATCH", &theirs, Some((MERGE, &label))).await);
    refused(&send(ours, "DELETE", &theirs, None).await);
    refused(&send(ours, "DELETE", MAPS, None).await);
    let watch = Outgoing::new("GET", &format!("{MAPS}?watch=1"));
    let (_, mut watch) = ours.open(&watch).await.unwrap();
    let line = watch.line().await.unwrap().unwrap();
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(500))
    );
    assert_eq!(watch.line().await.unwrap(), None);
    let refused = send(ours, "DELETE", "/api/v1/namespaces/kube-node-lease", None).await;
    assert_eq!(refused.status(), 500, "{}", refused.in_words());
    // Its namespace cannot be read either: it might be on its way out.
    for name in ["theirs", "ours"] {
        let answer = send(ours, "POST", MAPS, Some((JSON, &map(name)))).await;
        assert_eq!(answer.status(), 500, "{}", answer.in_words());
    }
}

/// Leases are read and written as they are, by both.
async fn leases_are_shared(real: &Client, ours: &Client) {
    let path = format!("{LEASES}/theirs");
    both_show_the_same(real, ours, &path).await;
    let held = json!({"spec": {"holderIdentity": "b", "leaseTransitions": 1}});
    expect(send(ours, "PATCH", &path, Some((MERGE, &held))).await, 200);
    let shown = both_show_the_same(real, ours, &path).await;
    assert_eq!(shown["spec"]["holderIdentity"], "b");
    let list = expect(send(ours, "GET", LEASES, None).await, 200);
    assert_eq!(list["items"].as_array().unwrap().len(), 3, "{list}");
}
