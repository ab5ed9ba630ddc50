//! The stores under the suite again, this time through the server and the client.
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::sync::Arc;

use peerage_etcd::{EtcdOptions, EtcdStore, ServeOptions, serve};
use peerage_store::memory::MemoryStore;
use peerage_store::sqlite::{SqliteOptions, SqliteStore};
use peerage_store::testing::conformance::Fixture;
use peerage_store::{Store, Txn};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// `store` behind a server, and a client in front of it.
async fn served(store: Arc<dyn Store>, guard: Box<dyn Any + Send + Sync>) -> Fixture {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let options = ServeOptions::default();
    tokio::spawn(serve(store, listener, options, shutdown.clone()));
    let client = EtcdStore::connect(EtcdOptions::new([address.to_string()]))
        .await
        .unwrap();
    assert!(client.txn(Txn::new()).await.unwrap().succeeded);
    Fixture {
        guard: Box::new((guard, shutdown.drop_guard())),
        cuts_off: false,
        ..Fixture::new(client)
    }
}

mod memory {
    use super::*;

    async fn fixture() -> Fixture {
        served(Arc::new(MemoryStore::new()), Box::new(())).await
    }

    peerage_store::conformance!(fixture);
}

mod sqlite {
    use super::*;

    async fn fixture() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.db");
        let store = SqliteStore::open(file, SqliteOptions::default())
            .await
            .unwrap();
        served(Arc::new(store), Box::new(folder)).await
    }

    peerage_store::conformance!(fixture);
}
