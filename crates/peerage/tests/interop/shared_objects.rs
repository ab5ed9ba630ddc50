//! A real kube-apiserver and `peerage apiserver` of one version on one etcd: what either writes, the other reads, changes,
//! watches and deletes, under the same keys and in the same form.
//!
//! The real one stores JSON; what happens where it stores protobuf, as by default, shows `protobuf`.

mod kinds;
mod protobuf;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_store::{KeyRange, StoreExt as _};
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, Logs, Shared};
use peerage_testkit::wire::{Answer, Client, Incoming, Outgoing};
use serde_json::{Value, json};

use crate::ours::executable;
use crate::versions;
use kinds::{Row, kinds, named};

/// Also what is off by default.
const EVERYTHING: &str = "--runtime-config=api/all=true";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

struct Both {
    plane: ControlPlane,
    ours: Apiserver,
}

impl Both {
    async fn of(version: &str) -> Self {
        let real = versions::kube_apiserver(version).named("real");
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(real.storing_json().flags(&[EVERYTHING]))
            .start()
            .await;
        let number = versions::number(version);
        let flags = ["--controllers=*", EVERYTHING];
        let ours = plane.start_peerage(executable(), "ours", &number, &flags);
        Self {
            ours: ours.await,
            plane,
        }
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

static BOTH: Shared<Both> = Shared::new(|| Box::pin(Both::of("1.37")));

async fn send(client: &Client, method: &str, path: &str, body: Option<(&str, &Value)>) -> Answer {
    let mut request = Outgoing::new(method, path);
    if let Some((content_type, body)) = body {
        request = request.json(content_type, body);
    }
    client.send(&request).await.unwrap()
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

    /// The kinds that both serve; nobody serves the others.
    async fn kinds(&self) -> Vec<Row> {
        let mut served = Vec::new();
        let [(_, real, ours), _] = self.ways();
        for row in kinds() {
            let by_real = send(&real, "GET", &row.path, None).await.status();
            let by_ours = send(&ours, "GET", &row.path, None).await.status();
            assert!([200, 404].contains(&by_real), "{}: {by_real}", row.path);
            // The real one tells nobody what it has: ours cannot know that it has not either.
            let like_real = by_ours == by_real || (by_real, by_ours) == (404, 503);
            assert!(like_real, "{}: {by_real}, ours {by_ours}", row.path);
            served.extend((by_real == 200).then_some(row));
        }
        served
    }

    /// Writes, reads, watches and deletes each kind by both.
    async fn share_every_kind(&self) -> usize {
        namespace(&self.ours.client("admin"), "shared").await;
        let kinds = self.kinds().await;
        for row in &kinds {
            for (who, writer, reader) in self.ways() {
                lives_with_both(row, &format!("lives-{who}"), &writer, &reader).await;
            }
        }
        kinds.len()
    }

    /// What the store has, by key.
    async fn stored(&self) -> BTreeMap<String, Bytes> {
        stored(&self.plane).await
    }
}

async fn store(plane: &ControlPlane) -> EtcdStore {
    let options = EtcdOptions::new([plane.etcd().url()]);
    EtcdStore::connect(options).await.unwrap()
}

async fn stored(plane: &ControlPlane) -> BTreeMap<String, Bytes> {
    let store = store(plane).await;
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
    let shared = BOTH.get().await.share_every_kind().await;
    assert_eq!(shared, kinds().len());
}

#[tokio::test]
async fn what_either_of_an_older_version_writes_the_other_shows_changes_tells_of_and_deletes() {
    let older = Both::of(&versions::older()).await;
    let shared = older.share_every_kind().await;
    eprintln!("{shared} of {} kinds", kinds().len());
    assert!(shared > 50, "{shared}");
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

/// The text of a stored object, with the marks of each taken out: its name, who has it, addresses, generated ids.
fn unmarked(object: &Value, name: &str, who: &str) -> String {
    let text = object.to_string().replace(name, "name").replace(who, "who");
    let random = regex::Regex::new(
        r"10\.0\.0\.\d+|kube-api-access-\w{5}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    );
    random.unwrap().replace_all(&text, "any").into_owned()
}

/// Kinds whose status the controllers of the real one write; of claims it leaves out what is the default.
const DIFFERENT_STATUS: [&str; 4] = [
    "customresourcedefinitions",
    "apiservices",
    "flowschemas",
    "persistentvolumeclaims",
];

#[tokio::test]
async fn both_store_the_same_under_the_same_keys() {
    let both = BOTH.get().await;
    namespace(&both.real().client("admin"), "shared").await;
    let mut names = BTreeSet::new();
    for row in kinds() {
        let mut created = Vec::new();
        for (who, writer, _) in both.ways() {
            let (name, object) = named(&row, &format!("form-{who}"));
            expect(
                send(&writer, "POST", &row.path, Some((JSON, &object))).await,
                201,
            );
            created.push(name);
        }
        names.insert((created.remove(0), created.remove(0)));
    }
    let all = both.stored().await;
    let mut compared = 0;
    for (real_name, our_name) in names {
        for (key, value) in &all {
            let Some(kind) = key.strip_suffix(&format!("/{real_name}")) else {
                continue;
            };
            let Some(other) = all.get(&format!("{kind}/{our_name}")) else {
                panic!("{key}: ours has it elsewhere");
            };
            let (mut real, mut ours) = (alike(value), alike(other));
            if kind.contains("podcertificaterequests") {
                // Go writes `null` for no bytes, where the field must be there in the stored version.
                let spec = real["spec"].as_object_mut().unwrap();
                spec.retain(|_, value| !value.is_null());
            }
            if DIFFERENT_STATUS.iter().any(|it| kind.contains(it)) {
                real["status"] = Value::Null;
                ours["status"] = Value::Null;
            }
            assert_eq!(
                unmarked(&ours, &our_name, "ours"),
                unmarked(&real, &real_name, "real"),
                "{key}"
            );
            compared += 1;
        }
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
