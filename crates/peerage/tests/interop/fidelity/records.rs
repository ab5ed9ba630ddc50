//! Endpoint records in JSON, as a kube-apiserver that stores JSON writes them.

use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_proxy::record::registered;
use peerage_store::{KeyRange, KeyValue, StoreExt as _};
use peerage_testkit::cluster::until;
use peerage_testkit::kube::Apiserver;
use serde_json::Value;

use super::{Both, answers};

/// A server's endpoint record.
async fn record(store: &EtcdStore, server: &Apiserver) -> KeyValue {
    let records = KeyRange::prefix("/registry/peerserverleases/");
    let records = store.list(records).await.unwrap().kvs;
    let of_server = |kv: &KeyValue| {
        let (_, address) = registered::read_endpoint(&kv.value).unwrap();
        address.unwrap().as_str() == server.address().to_string()
    };
    records.into_iter().find(of_server).unwrap()
}

/// A record in JSON, but for how often it was renewed.
fn json_record(record: &KeyValue) -> Value {
    let mut record: Value = serde_json::from_slice(&record.value).unwrap();
    record["metadata"]["generation"] = Value::Null;
    record["metadata"]["creationTimestamp"] = Value::Null;
    record
}

/// Ours finds its record as a kube-apiserver in its place would have left it.
pub(super) async fn stay_in_their_encoding(both: &Both) {
    let options = EtcdOptions::new([both.plane.etcd().url()]);
    let store = EtcdStore::connect(options).await.unwrap();
    let (real, ours) = (
        record(&store, both.real()).await,
        record(&store, &both.ours).await,
    );
    assert!(real.value.starts_with(b"{"), "{real:?}");
    assert!(ours.value.starts_with(b"k8s\0"), "{ours:?}");
    both.ours.kill();
    let id = |kv: &KeyValue| {
        let key = String::from_utf8(kv.key.to_vec()).unwrap();
        key.rsplit('/').next().unwrap().to_owned()
    };
    let port = |server: &Apiserver| format!("\"port\":{}", server.address().port());
    let left = String::from_utf8(real.value.to_vec()).unwrap();
    let left = left.replace(&id(&real), &id(&ours));
    let left = left.replace(&port(both.real()), &port(&both.ours));
    let left = store.put(ours.key.clone(), left, 0).await.unwrap();
    both.ours.restart().await;
    until("ours has renewed its record", || async {
        record(&store, &both.ours).await.mod_revision > left.mod_revision
    })
    .await;
    let renewed = record(&store, &both.ours).await;
    assert_eq!(json_record(&renewed), json_record(&left));
    // It has nothing to go by but what it finds.
    both.real().kill();
    both.real().restart().await;
    for way in both.ways() {
        answers(&way, 200).await;
    }
}
