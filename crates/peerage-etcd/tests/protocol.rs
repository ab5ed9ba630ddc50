//! The server, spoken to in etcd's own messages.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use peerage_etcd::messages::*;
use peerage_etcd::{ServeOptions, serve};
use peerage_store::memory::MemoryStore;
use peerage_store::{Store, StoreExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request as Envelope, Status, Streaming};
use tonic_prost::ProstCodec;

/// A served store in memory, and a connection to it.
struct Server {
    store: MemoryStore,
    grpc: Grpc<Channel>,
    _stop: DropGuard,
}

impl Server {
    async fn start() -> Server {
        let store = MemoryStore::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let served: Arc<dyn Store> = Arc::new(store.clone());
        tokio::spawn(serve(
            served,
            listener,
            ServeOptions::default(),
            stop.clone(),
        ));
        let channel = Endpoint::from_shared(address).unwrap().connect_lazy();
        Server {
            store,
            grpc: Grpc::new(channel).max_decoding_message_size(usize::MAX),
            _stop: stop.drop_guard(),
        }
    }

    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(method);
        let codec = ProstCodec::<Q, A>::new();
        Ok(grpc
            .unary(Envelope::new(request), path, codec)
            .await?
            .into_inner())
    }

    async fn range(&self, request: RangeRequest) -> RangeResponse {
        self.call("/etcdserverpb.KV/Range", request).await.unwrap()
    }

    async fn stream<Q, A>(&self, method: &'static str) -> (mpsc::Sender<Q>, Streaming<A>)
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.unwrap();
        let (requests, queue) = mpsc::channel(16);
        let path = PathAndQuery::from_static(method);
        let codec = ProstCodec::<Q, A>::new();
        let request = Envelope::new(ReceiverStream::new(queue));
        let answers = grpc.streaming(request, path, codec).await.unwrap();
        (requests, answers.into_inner())
    }

    async fn watch_stream(&self) -> Watching {
        let (requests, answers) = self.stream("/etcdserverpb.Watch/Watch").await;
        Watching { requests, answers }
    }
}

struct Watching {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Watching {
    async fn ask(&mut self, request: RequestUnion) {
        let request = WatchRequest {
            request_union: Some(request),
        };
        self.requests.send(request).await.unwrap();
    }

    async fn next(&mut self) -> WatchResponse {
        self.answers.message().await.unwrap().unwrap()
    }

    /// Creates a watch of all keys with a prefix and returns the first answer.
    async fn create(&mut self, prefix: &'static str, start_revision: i64) -> WatchResponse {
        let create = create(prefix, start_revision);
        self.ask(RequestUnion::CreateRequest(create)).await;
        self.next().await
    }
}

fn create(prefix: &'static str, start_revision: i64) -> WatchCreateRequest {
    let (key, range_end) = peerage_store::KeyRange::prefix(prefix).to_etcd();
    WatchCreateRequest {
        key,
        range_end,
        start_revision,
        ..WatchCreateRequest::default()
    }
}

fn all() -> RangeRequest {
    RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        ..RangeRequest::default()
    }
}

fn keys(response: &RangeResponse) -> Vec<&str> {
    response
        .kvs
        .iter()
        .map(|kv| std::str::from_utf8(&kv.key).unwrap())
        .collect()
}

#[tokio::test]
async fn ranges_are_sorted_and_filtered_as_asked() {
    let server = Server::start().await;
    for (key, value) in [("/b", "2"), ("/a", "3"), ("/c", "1"), ("/b", "9")] {
        server.store.put(key, value, 0).await.unwrap();
    }
    let sorted = |target: SortTarget, order: SortOrder| RangeRequest {
        sort_target: target.into(),
        sort_order: order.into(),
        ..all()
    };
    use {SortOrder as Order, SortTarget as Target};
    for (target, order, expected) in [
        (Target::Key, Order::None, ["/a", "/b", "/c"]),
        (Target::Key, Order::Descend, ["/c", "/b", "/a"]),
        (Target::Mod, Order::Ascend, ["/a", "/c", "/b"]),
        (Target::Mod, Order::None, ["/a", "/c", "/b"]),
        (Target::Create, Order::Descend, ["/c", "/a", "/b"]),
        (Target::Version, Order::Descend, ["/b", "/c", "/a"]),
        (Target::Value, Order::Ascend, ["/c", "/a", "/b"]),
    ] {
        let response = server.range(sorted(target, order)).await;
        assert_eq!(keys(&response), expected, "{target:?} {order:?}");
    }
    let newest = RangeRequest {
        limit: 1,
        keys_only: true,
        ..sorted(Target::Value, Order::Descend)
    };
    let response = server.range(newest).await;
    assert_eq!(
        (keys(&response), response.more, response.count),
        (vec!["/b"], true, 3)
    );
    assert_eq!(response.kvs[0].value, "");
    let recent = RangeRequest {
        min_mod_revision: 4,
        max_create_revision: 3,
        ..all()
    };
    assert_eq!(keys(&server.range(recent).await), ["/b"]);
}

#[tokio::test]
async fn refusals_have_etcds_codes_and_texts() {
    let server = Server::start().await;
    server.store.put("/a", "1", 0).await.unwrap();
    server.store.put("/a", "2", 0).await.unwrap();
    server.store.compact(3).await.unwrap();
    let at = |revision| RangeRequest { revision, ..all() };
    let range = async |request| {
        let answer = server
            .call::<_, RangeResponse>("/etcdserverpb.KV/Range", request)
            .await;
        let status = answer.unwrap_err();
        (status.code(), status.message().to_owned())
    };
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    assert_eq!(range(at(2)).await, (Code::OutOfRange, compacted.to_owned()));
    let future = "etcdserver: mvcc: required revision is a future revision";
    assert_eq!(range(at(4)).await, (Code::OutOfRange, future.to_owned()));
    let empty = "etcdserver: key is not provided";
    let none = range(RangeRequest::default()).await;
    assert_eq!(none, (Code::InvalidArgument, empty.to_owned()));

    let put = PutRequest {
        key: "/b".into(),
        lease: 9,
        ..PutRequest::default()
    };
    let answer = server
        .call::<_, PutResponse>("/etcdserverpb.KV/Put", put.clone())
        .await;
    let status = answer.unwrap_err();
    let lease = "etcdserver: requested lease not found";
    assert_eq!((status.code(), status.message()), (Code::NotFound, lease));

    let op = |put: &PutRequest| RequestOp {
        request: Some(Request::RequestPut(put.clone())),
    };
    let twice = TxnRequest {
        success: vec![op(&put), op(&put)],
        ..TxnRequest::default()
    };
    let answer = server
        .call::<_, TxnResponse>("/etcdserverpb.KV/Txn", twice)
        .await;
    let status = answer.unwrap_err();
    let duplicate = "etcdserver: duplicate key given in txn request";
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, duplicate)
    );

    let nested = TxnRequest {
        success: vec![RequestOp {
            request: Some(Request::RequestTxn(TxnRequest::default())),
        }],
        ..TxnRequest::default()
    };
    let answer = server
        .call::<_, TxnResponse>("/etcdserverpb.KV/Txn", nested)
        .await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
    let unknown = server.call::<_, StatusResponse>("/etcdserverpb.Auth/UserList", StatusRequest {});
    assert_eq!(unknown.await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_transaction_answers_each_operation_in_its_own_shape() {
    let server = Server::start().await;
    server.store.put("/a", "1", 0).await.unwrap();
    let op = |request| RequestOp {
        request: Some(request),
    };
    let put = PutRequest {
        key: "/b".into(),
        value: "2".into(),
        ..PutRequest::default()
    };
    let descending = RangeRequest {
        sort_order: SortOrder::Descend.into(),
        limit: 1,
        ..all()
    };
    let delete = DeleteRangeRequest {
        key: "/a".into(),
        prev_kv: true,
        ..DeleteRangeRequest::default()
    };
    let txn = TxnRequest {
        compare: vec![Compare {
            target: CompareTarget::Version.into(),
            key: "/a".into(),
            target_union: Some(TargetUnion::Version(1)),
            ..Compare::default()
        }],
        success: vec![
            op(Request::RequestPut(put)),
            op(Request::RequestRange(descending)),
            op(Request::RequestDeleteRange(delete)),
        ],
        failure: Vec::new(),
    };
    let answer: TxnResponse = server.call("/etcdserverpb.KV/Txn", txn).await.unwrap();
    assert!(answer.succeeded);
    assert_eq!(answer.header.unwrap().revision, 3);
    let responses: Vec<_> = answer
        .responses
        .into_iter()
        .map(|op| op.response.unwrap())
        .collect();
    let [
        Response::ResponsePut(_),
        Response::ResponseRange(range),
        Response::ResponseDeleteRange(deleted),
    ] = &responses[..]
    else {
        panic!("{responses:?}");
    };
    assert_eq!(
        (keys(range), range.count, range.more),
        (vec!["/b"], 2, true)
    );
    assert_eq!(
        (deleted.deleted, &deleted.prev_kvs[0].value[..]),
        (1, &b"1"[..])
    );
}

#[tokio::test]
async fn one_stream_carries_many_watches() {
    let server = Server::start().await;
    let mut watching = server.watch_stream().await;
    let first = watching.create("/a", 0).await;
    assert!(first.created && !first.canceled);
    assert_eq!((first.watch_id, first.header.unwrap().revision), (0, 1));
    let second = watching.create("/b", 0).await;
    assert_eq!(second.watch_id, 1);
    let duplicate = WatchCreateRequest {
        watch_id: 1,
        ..create("/c", 0)
    };
    watching.ask(RequestUnion::CreateRequest(duplicate)).await;
    let refused = watching.next().await;
    assert!(
        refused.created && refused.canceled && refused.watch_id == -1,
        "{refused:?}"
    );

    server.store.put("/b", "1", 0).await.unwrap();
    let event = watching.next().await;
    assert_eq!((event.watch_id, event.events.len()), (1, 1));
    assert_eq!(event.header.unwrap().revision, 2);
    server.store.put("/a", "1", 0).await.unwrap();
    assert_eq!(watching.next().await.watch_id, 0);

    watching
        .ask(RequestUnion::CancelRequest(WatchCancelRequest {
            watch_id: 1,
        }))
        .await;
    let cancelled = watching.next().await;
    assert!(
        cancelled.canceled && cancelled.watch_id == 1,
        "{cancelled:?}"
    );
    server.store.put("/b", "2", 0).await.unwrap();
    server.store.put("/a", "2", 0).await.unwrap();
    let event = watching.next().await;
    assert_eq!((event.watch_id, event.header.unwrap().revision), (0, 5));
    let third = watching.create("/b", 4).await;
    assert_eq!((third.watch_id, third.header.unwrap().revision), (2, 5));
    let event = watching.next().await;
    assert_eq!(
        (
            event.watch_id,
            event.events[0].kv.as_ref().unwrap().mod_revision
        ),
        (2, 4)
    );
}

#[tokio::test]
async fn progress_is_told_once_every_watch_of_the_stream_has_come_that_far() {
    let server = Server::start().await;
    let mut watching = server.watch_stream().await;
    watching
        .ask(RequestUnion::ProgressRequest(WatchProgressRequest {}))
        .await;
    let none = watching.next().await;
    assert_eq!((none.watch_id, none.header.unwrap().revision), (-1, 1));
    watching.create("/a", 0).await;
    watching.create("/b", 0).await;
    server.store.put("/c", "1", 0).await.unwrap();
    server.store.put("/a", "1", 0).await.unwrap();
    watching
        .ask(RequestUnion::ProgressRequest(WatchProgressRequest {}))
        .await;
    let event = watching.next().await;
    assert_eq!((event.watch_id, event.events.len()), (0, 1));
    let progress = watching.next().await;
    assert_eq!((progress.watch_id, progress.events.len()), (-1, 0));
    assert_eq!(progress.header.unwrap().revision, 3);
    assert!(!progress.created && !progress.canceled);
}

#[tokio::test]
async fn a_watch_of_the_compacted_past_is_cancelled_with_the_revision_that_is_left() {
    let server = Server::start().await;
    for i in 0..5 {
        server.store.put("/a", format!("{i}"), 0).await.unwrap();
    }
    server.store.compact(4).await.unwrap();
    let mut watching = server.watch_stream().await;
    assert!(watching.create("/a", 2).await.created);
    let cancelled = watching.next().await;
    assert!(cancelled.canceled && !cancelled.created);
    assert_eq!((cancelled.watch_id, cancelled.compact_revision), (0, 4));
    let reason = "etcdserver: mvcc: required revision has been compacted";
    assert_eq!(cancelled.cancel_reason, reason);
    watching.create("/a", 4).await;
    assert_eq!(watching.next().await.watch_id, 1);
}

#[tokio::test]
async fn a_large_batch_comes_in_fragments_to_those_who_take_them() {
    let server = Server::start().await;
    let ops = (0..8).map(|i| peerage_store::Op::put(format!("/f/{i}"), vec![0; 500_000], 0));
    server.store.txn(peerage_store::Txn::of(ops)).await.unwrap();
    let mut watching = server.watch_stream().await;
    watching.create("/f/", 2).await;
    let whole = watching.next().await;
    assert!(!whole.fragment && whole.events.len() == 8);
    let fragments = WatchCreateRequest {
        fragment: true,
        ..create("/f/", 2)
    };
    watching.ask(RequestUnion::CreateRequest(fragments)).await;
    assert!(watching.next().await.created);
    let mut parts = vec![watching.next().await];
    while parts.last().unwrap().fragment {
        parts.push(watching.next().await);
    }
    let sizes: Vec<_> = parts.iter().map(|part| part.events.len()).collect();
    assert_eq!(sizes, [2, 2, 2, 2]);
    assert!(parts.iter().all(|part| part.watch_id == 1));
}

#[tokio::test]
async fn a_client_that_does_not_read_its_watch_is_told_where_to_go_on_when_it_does() {
    let server = Server::start().await;
    let mut watching = server.watch_stream().await;
    watching.create("/s", 0).await;
    for i in 0..12_000 {
        server.store.put("/s", vec![0; 2000], 0).await.unwrap();
        if i % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let mut last = 1;
    let cancelled = loop {
        let response = watching.next().await;
        if response.canceled {
            break response;
        }
        for event in response.events {
            last += 1;
            assert_eq!(event.kv.unwrap().mod_revision, last);
        }
    };
    assert!(last < 12_001);
    let resume = format!("watch again from revision {}", last + 1);
    assert!(cancelled.cancel_reason.contains(&resume), "{cancelled:?}");
    assert_eq!(cancelled.compact_revision, 0);
}

#[tokio::test]
async fn a_lease_that_is_gone_has_no_time_left_in_etcds_ways_of_saying_so() {
    let server = Server::start().await;
    let grant = LeaseGrantRequest { ttl: 60, id: 0 };
    let granted: LeaseGrantResponse = server
        .call("/etcdserverpb.Lease/LeaseGrant", grant)
        .await
        .unwrap();
    assert!(granted.id != 0 && granted.ttl == 60 && granted.error.is_empty());
    let (requests, mut answers) = server
        .stream::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>(
            "/etcdserverpb.Lease/LeaseKeepAlive",
        )
        .await;
    for (id, ttl) in [(granted.id, 60), (1, 0)] {
        requests.send(LeaseKeepAliveRequest { id }).await.unwrap();
        let alive = answers.message().await.unwrap().unwrap();
        assert_eq!((alive.id, alive.ttl), (id, ttl));
    }
    let ask = LeaseTimeToLiveRequest { id: 1, keys: true };
    let left: LeaseTimeToLiveResponse = server
        .call("/etcdserverpb.Lease/LeaseTimeToLive", ask)
        .await
        .unwrap();
    assert_eq!((left.ttl, left.granted_ttl), (-1, 0));
}

#[tokio::test]
async fn a_client_finds_a_cluster_of_one_healthy_member() {
    let server = Server::start().await;
    server.store.put("/a", "1", 0).await.unwrap();
    let status: StatusResponse = server
        .call("/etcdserverpb.Maintenance/Status", StatusRequest {})
        .await
        .unwrap();
    let header = status.header.unwrap();
    assert_eq!((header.revision, header.member_id), (2, status.leader));
    assert_eq!((status.version.as_str(), status.errors.len()), ("3.6.0", 0));
    let members: MemberListResponse = server
        .call(
            "/etcdserverpb.Cluster/MemberList",
            MemberListRequest::default(),
        )
        .await
        .unwrap();
    assert_eq!(members.members.len(), 1);
    assert_eq!(members.members[0].id, header.member_id);
    let alarms: AlarmResponse = server
        .call("/etcdserverpb.Maintenance/Alarm", AlarmRequest::default())
        .await
        .unwrap();
    assert!(alarms.alarms.is_empty());
}
