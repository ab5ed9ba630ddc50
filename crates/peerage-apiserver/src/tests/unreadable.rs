//! Objects that kube-apiservers have stored in protobuf: never hidden, never overwritten, never deleted; Leases read
//! and written as they were found.

use peerage_store::StoreExt as _;

use super::*;
use crate::encoding::Encoding;
use crate::wire;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const NAMESPACES: &str = "/api/v1/namespaces";

/// A ConfigMap of that kind's envelope; what is in it does not matter, since nobody reads it.
fn protobuf(kind: &str) -> Vec<u8> {
    wire::seal("v1", kind, &wire::ObjectMeta::default())
}

fn key(name: &str) -> String {
    format!("{ROOT}/configmaps/default/{name}")
}

async fn with_one() -> Server {
    let server = Server::new().await;
    server.create(CONFIG_MAPS, config_map("good")).await.ok();
    let value = protobuf("ConfigMap");
    server.store.put(key("other"), value, 0).await.unwrap();
    server
}

#[track_caller]
fn refused(answer: &Answer) {
    let (code, message) = answer.refusal();
    assert_eq!(
        (code, &answer.body["reason"]),
        (500, &json!("InternalError"))
    );
    for part in [
        "configmaps \"default/other\"",
        "/registry/configmaps/default/other",
        "v1 ConfigMap in protobuf",
        "--storage-media-type=application/json",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[tokio::test]
async fn it_is_refused_by_name_in_reads_and_writes_and_stays() {
    let server = with_one().await;
    let (other, good) = (
        format!("{CONFIG_MAPS}/other"),
        format!("{CONFIG_MAPS}/good"),
    );
    refused(&server.get(&other).await);
    refused(&server.put(&other, config_map("other")).await);
    refused(&server.merge(&other, json!({"data": {"a": "b"}})).await);
    refused(&server.delete(&other).await);
    let again = server.create(CONFIG_MAPS, config_map("other")).await;
    assert_eq!(again.body["reason"], "AlreadyExists");
    server.merge(&good, json!({"data": {"a": "b"}})).await.ok();
    let left = server.store.get(key("other")).await.unwrap().unwrap();
    assert_eq!(
        (left.version, &left.value[..]),
        (1, &protobuf("ConfigMap")[..])
    );
}

#[tokio::test]
async fn a_list_that_may_have_it_fails_and_a_collection_with_it_is_not_deleted() {
    let server = with_one().await;
    for query in [
        "",
        "?labelSelector=a%3Db",
        "?limit=5",
        "?resourceVersion=0",
        "?fieldSelector=metadata.name%3Dother",
    ] {
        refused(&server.get(&format!("{CONFIG_MAPS}{query}")).await);
    }
    let named = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dgood");
    assert_eq!(
        server.get(&named).await.ok()["items"][0]["metadata"]["name"],
        "good"
    );
    refused(&server.delete(CONFIG_MAPS).await);
    server.get(&format!("{CONFIG_MAPS}/good")).await.ok();
}

#[tokio::test]
async fn a_watch_ends_with_the_error_when_it_comes_to_it() {
    let server = with_one().await;
    let mut initial = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(
        initial.shown().await,
        ("ADDED".to_owned(), "good".to_owned())
    );
    let frame = initial.next().await.unwrap();
    assert_eq!(
        (&frame["type"], &frame["object"]["code"]),
        (&json!("ERROR"), &json!(500))
    );
    assert_eq!(initial.next().await, None);

    let from = server.revision().await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}&labelSelector=a");
    let mut later = server.watch(&path).await;
    let value = protobuf("ConfigMap");
    server.store.put(key("more"), value, 0).await.unwrap();
    server.create(CONFIG_MAPS, config_map("after")).await.ok();
    let frame = later.next().await.unwrap();
    assert_eq!(frame["type"], "ERROR");
    let message = frame["object"]["message"].as_str().unwrap();
    assert!(message.contains(&key("more")), "{message}");
    assert_eq!(later.next().await, None);
}

#[tokio::test]
async fn nothing_comes_into_a_namespace_that_cannot_be_read() {
    let server = Server::new().await;
    let namespace = format!("{ROOT}/namespaces/closed");
    let value = protobuf("Namespace");
    server.store.put(namespace, value, 0).await.unwrap();
    let path = format!("{NAMESPACES}/closed/configmaps");
    let answer = server.create(&path, config_map("a")).await;
    let (code, message) = answer.refusal();
    assert_eq!(code, 500, "{message}");
    assert!(message.contains("/registry/namespaces/closed"), "{message}");
    let key = format!("{ROOT}/configmaps/closed/a");
    assert_eq!(server.store.get(key.clone()).await.unwrap(), None);
    let value = protobuf("ConfigMap");
    server.store.put(key, value, 0).await.unwrap();
    let answer = server.create(&path, config_map("a")).await;
    assert_eq!(answer.body["reason"], "AlreadyExists", "{}", answer.body);
}

#[tokio::test]
async fn a_namespace_that_is_never_deleted_need_not_be_read() {
    let store = memory();
    let key = format!("{ROOT}/namespaces/default");
    let value = protobuf("Namespace");
    store.put(key.clone(), value, 0).await.unwrap();
    let server = Server::of("1.37", store.clone()).await;
    server.create(CONFIG_MAPS, config_map("a")).await.ok();
    assert_eq!(store.get(key).await.unwrap().unwrap().version, 1);
}

#[tokio::test]
async fn a_fresh_clusters_objects_are_left_in_protobuf() {
    let store = memory();
    let key = format!("{ROOT}/clusterroles/admin");
    let value = protobuf("ClusterRole");
    store.put(key.clone(), value, 0).await.unwrap();
    let _server = Server::of("1.37", store.clone()).await;
    assert_eq!(store.get(key).await.unwrap().unwrap().version, 1);
}

fn lease(holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": holder, "renewTime": "2026-11-29T10:00:00.123456Z"},
    })
}

#[tokio::test]
async fn a_lease_is_written_in_the_encoding_it_was_found_in() {
    let server = Server::new().await;
    let key = format!("{ROOT}/leases/default/l");
    let path = format!("{LEASES}/l");
    let encoding = async || {
        let kv = server.store.get(key.clone()).await.unwrap().unwrap();
        (Encoding::of(&kv.value), kv)
    };
    let created = server.create(LEASES, lease("a")).await.ok();
    let (found, kv) = encoding().await;
    assert_eq!(
        found,
        Encoding::Protobuf,
        "new ones are as kube-apiserver's"
    );
    let read = server.get(&path).await.ok();
    assert_eq!(read, created);
    assert_eq!(read["spec"], lease("a")["spec"]);

    let patched = server
        .merge(&path, json!({"spec": {"leaseTransitions": 1}}))
        .await;
    assert_eq!(patched.ok()["spec"]["leaseTransitions"], 1);
    assert_eq!(encoding().await.0, Encoding::Protobuf);
    let json = crate::stored_json(&kv.value).unwrap();
    server.store.put(key.clone(), json, 0).await.unwrap();
    let patched = server.merge(&path, json!({"spec": {"holderIdentity": "b"}}));
    patched.await.ok();
    let (found, kv) = encoding().await;
    assert_eq!(found, Encoding::Json);
    assert!(String::from_utf8_lossy(&kv.value).contains("\"b\""));
    server.delete(&path).await.ok();
}

#[tokio::test]
async fn a_lease_with_a_field_of_the_future_is_refused_and_stays() {
    let server = Server::new().await;
    server.create(LEASES, lease("a")).await.ok();
    let key = format!("{ROOT}/leases/default/l");
    let kv = server.store.get(key.clone()).await.unwrap().unwrap();
    let (_, raw) = wire::open_typed(&kv.value).unwrap();
    let raw = [&raw[..], b"\x1a\x01x"].concat();
    let value = wire::enclose(wire::lease::API_VERSION, wire::lease::KIND, raw);
    server
        .store
        .put(key.clone(), value.clone(), 0)
        .await
        .unwrap();
    let (path, patch) = (
        format!("{LEASES}/l"),
        json!({"spec": {"leaseTransitions": 1}}),
    );
    let answer = server.merge(&path, patch).await;
    let (code, message) = answer.refusal();
    assert_eq!(code, 500, "{message}");
    assert!(
        message.contains("has fields which this server does not know"),
        "{message}"
    );
    let left = server.store.get(key).await.unwrap().unwrap();
    assert_eq!(left.value, value);
}
