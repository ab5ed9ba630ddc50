//! The client when servers come, go, fail, and are not who they should be.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use peerage_etcd::{ConnectError, EtcdOptions, EtcdStore, ServeOptions, StoreTls, serve};
use peerage_http::testing::{Authority, Pair, Subject};
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{ClientTls, Pem};
use peerage_store::memory::MemoryStore;
use peerage_store::testing::{FaultPlan, FaultyStore};
use peerage_store::{KeyRange, Store, StoreError, StoreExt, WatchRequest};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A server that can be stopped.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(store: &Arc<dyn Store>) -> Server {
        Self::start_at(
            store,
            "127.0.0.1:0".parse().unwrap(),
            ServeOptions::default(),
        )
        .await
    }

    async fn start_at(store: &Arc<dyn Store>, at: SocketAddr, options: ServeOptions) -> Server {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (store, stop) = (store.clone(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            serve(store, listener, options, stopped).await.unwrap();
        });
        Server {
            address,
            stop,
            task,
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

#[tokio::test]
async fn requests_go_on_at_another_endpoint() {
    let store = memory();
    let first = Server::start(&store).await;
    let second = Server::start(&store).await;
    let endpoints = [first.address.to_string(), second.address.to_string()];
    let client = EtcdStore::connect(EtcdOptions::new(endpoints))
        .await
        .unwrap();
    client.create("/a", "1", 0).await.unwrap();
    first.stop().await;
    assert_eq!(client.get("/a").await.unwrap().unwrap().value, "1");
    client.create("/b", "1", 0).await.unwrap();
    let lease = client
        .lease_grant(Duration::from_secs(60), None)
        .await
        .unwrap();
    client.lease_keep_alive(lease.id).await.unwrap();
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_without_gaps_or_repeats_while_servers_come_and_go() {
    const WRITES: i64 = 400;
    let store = memory();
    let mut servers = vec![Server::start(&store).await, Server::start(&store).await];
    let endpoints = servers.iter().map(|server| server.address.to_string());
    let client = EtcdStore::connect(EtcdOptions::new(endpoints))
        .await
        .unwrap();
    let request = WatchRequest::new(KeyRange::prefix("/w"), 0).previous();
    let mut watch = client.watch(request).await.unwrap();
    let seen = tokio::spawn(async move {
        let mut revisions = Vec::new();
        while revisions.len() < WRITES as usize {
            let batch = watch.next().await.unwrap().unwrap();
            revisions.extend(batch.events.into_iter().map(|event| event.kv.mod_revision));
        }
        revisions
    });
    for i in 0..WRITES {
        store.put("/w", format!("{i}"), 0).await.unwrap();
        if i % 50 == 49 {
            let server = servers.remove(0);
            let address = server.address;
            server.stop().await;
            servers.push(Server::start_at(&store, address, ServeOptions::default()).await);
        }
    }
    assert_eq!(seen.await.unwrap(), (2..WRITES + 2).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_written_again() {
    let inner = memory();
    let plan = FaultPlan {
        fail_after: 1.0,
        ..FaultPlan::slow(Duration::ZERO)
    };
    let faulty = Arc::new(FaultyStore::new(
        inner.clone(),
        FaultPlan::slow(Duration::ZERO),
    ));
    let store: Arc<dyn Store> = faulty.clone();
    let server = Server::start(&store).await;
    let client = EtcdStore::connect(EtcdOptions::new([server.address.to_string()]))
        .await
        .unwrap();
    faulty.set_plan(plan);
    let error = client.put("/a", "1", 0).await.unwrap_err();
    assert!(error.may_have_written(), "{error}");
    assert_eq!(inner.get("/a").await.unwrap().unwrap().version, 1);
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_connected_to_is_named() {
    let none = EtcdStore::connect(EtcdOptions::new::<String>([]))
        .await
        .unwrap_err();
    assert!(matches!(none, ConnectError::NoEndpoints), "{none}");
    for wrong in ["https://a:1", "http://a", "ftp://a:1", "a b"] {
        let error = EtcdStore::lazy(EtcdOptions::new([wrong])).unwrap_err();
        assert!(
            matches!(error, ConnectError::Endpoint { .. }),
            "{wrong}: {error}"
        );
    }
    // A port that was just given back: nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let mut options = EtcdOptions::new([free.to_string()]);
    options.request_timeout = Duration::from_millis(200);
    let error = EtcdStore::connect(options).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&free.to_string()), "{error}");
}

/// A certificate and its key, for a server at `host` or for a client.
fn sign(authority: &Authority, host: &str) -> Pair {
    authority.issue(&Subject {
        name: host,
        hosts: &[host],
        ..Subject::default()
    })
}

fn client_options(server: &Server, roots: Pem, identity: Option<Pair>) -> EtcdOptions {
    let mut tls = ClientTlsOptions::new(roots);
    tls.identity = identity.map(|pair| pair.pems());
    let mut options = EtcdOptions::new([server.address.to_string()]);
    options.tls = ClientTls::load(tls).unwrap();
    options.request_timeout = Duration::from_millis(500);
    options
}

async fn secured(folder: &Path, authority: &Authority) -> Server {
    let pair = sign(authority, "127.0.0.1");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let certificate = file("tls.crt", &pair.certificate);
    let key = file("tls.key", &pair.key);
    let ca = file("ca.crt", &authority.certificate());
    let mut options = ServeOptions::default();
    options.tls = Some(StoreTls::load(&certificate, &key, Some(&ca)).unwrap());
    Server::start_at(&memory(), "127.0.0.1:0".parse().unwrap(), options).await
}

#[tokio::test]
async fn only_who_shows_a_certificate_of_the_authority_gets_in() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("store"), Authority::new("other"));
    let server = secured(folder.path(), &authority).await;
    let identity = || Some(sign(&authority, "client"));

    let options = client_options(&server, authority.pem(), identity());
    let client = EtcdStore::connect(options.clone()).await.unwrap();
    client.create("/a", "1", 0).await.unwrap();

    let mut misnamed = options;
    misnamed.server_name = Some("elsewhere".to_owned());
    for refused in [
        misnamed,
        client_options(&server, authority.pem(), None),
        client_options(&server, authority.pem(), Some(sign(&other, "client"))),
        client_options(&server, other.pem(), identity()),
    ] {
        let error = EtcdStore::connect(refused).await.unwrap_err();
        let ConnectError::Unreachable { source, .. } = error else {
            panic!("{error}");
        };
        assert!(matches!(source, StoreError::Unavailable { .. }), "{source}");
        let text = source.to_string().to_lowercase();
        let told = ["certificate", "unknownca", "alert"];
        let told = told.iter().any(|it| text.contains(it));
        assert!(told, "why not is told: {text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn who_does_not_wait_for_the_error_can_ask_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("store"), Authority::new("other"));
    let server = secured(folder.path(), &authority).await;
    let mut options = client_options(&server, other.pem(), Some(sign(&authority, "client")));
    options.request_timeout = Duration::from_secs(60);
    let store = EtcdStore::lazy(options).unwrap();
    assert_eq!(store.trouble(), None);
    let trouble = async {
        loop {
            match store.trouble() {
                Some(trouble) => return trouble,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let trouble = tokio::select! {
        trouble = trouble => trouble,
        answer = store.get("/a") => panic!("{answer:?}"),
    };
    assert!(trouble.contains("certificate"), "{trouble}");
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_larger_than_wanted_is_not_read() {
    let store = memory();
    store.create("/a", vec![b'a'; 100_000], 0).await.unwrap();
    store.create("/b", "1", 0).await.unwrap();
    let server = Server::start(&store).await;
    let mut options = EtcdOptions::new([server.address.to_string()]);
    options.max_answer = 10_000;
    let client = EtcdStore::connect(options).await.unwrap();
    let error = client.get("/a").await.unwrap_err();
    assert!(matches!(error, StoreError::AnswerTooLarge), "{error}");
    assert_eq!(client.get("/b").await.unwrap().unwrap().value, "1");
    // A watch ends with it instead of asking for the same again and again.
    let watch = WatchRequest::new(KeyRange::prefix("/"), 0);
    let mut watch = client.watch(watch).await.unwrap();
    store.put("/a", vec![b'b'; 100_000], 0).await.unwrap();
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::AnswerTooLarge), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_never_finishes_its_handshake_keeps_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("store");
    let server = secured(folder.path(), &authority).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(
            tokio::net::TcpStream::connect(server.address)
                .await
                .unwrap(),
        );
    }
    let options = client_options(&server, authority.pem(), Some(sign(&authority, "client")));
    EtcdStore::connect(options).await.unwrap();
    server.stop().await;
}
