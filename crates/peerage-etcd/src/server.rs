//! Any store, offered to other processes over etcd's v3 protocol.
//!
//! Offered are the services KV, Watch and Lease whole but for nested transactions, and of Maintenance
//! and Cluster what clients ask of any server. Every other method is answered `UNIMPLEMENTED`.
//!
//! With [`StoreTls`] and a client CA, a connection whose certificate that CA did not sign ends in the
//! handshake; there are no users and roles beyond that. Everything is bounded: connections, handshakes,
//! streams of a connection, watches of a stream, messages.

mod kv;
mod lease;
mod listen;
mod maintenance;
mod router;
mod tls;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use peerage_store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::messages::ResponseHeader;
use crate::status::to_status;
pub use tls::StoreTls;

/// How a store is served.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    /// TLS; plain text without.
    pub tls: Option<StoreTls>,
    /// The most connections at a time.
    pub max_connections: usize,
    /// The most requests and watches of one connection at a time.
    pub max_streams: u32,
    /// The most watches of one watch stream.
    pub max_watches: usize,
    /// The largest message that is read.
    pub max_message: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// How long what is on its way may take when the server ends.
    pub drain: Duration,
    /// The address that clients are told this server has.
    pub client_urls: Vec<String>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            tls: None,
            max_connections: 1000,
            max_streams: 10_000,
            max_watches: 10_000,
            // More than a store's transaction may carry, so that the store's own answer is heard.
            max_message: 8 * 1024 * 1024,
            handshake_timeout: Duration::from_secs(10),
            drain: Duration::from_secs(5),
            client_urls: Vec::new(),
        }
    }
}

/// Why serving ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The connections cannot be served.
    #[error("cannot serve the store")]
    Transport(#[source] tonic::transport::Error),
    /// A file of the TLS settings cannot be used.
    #[error("cannot use {what} for the store's TLS")]
    Tls {
        /// Which one.
        what: String,
        /// Why.
        source: peerage_http::BoxError,
    },
}

/// Serves `store` on `listener` until `shutdown`. Then no request is begun any more, watches end, and
/// the rest has a little time.
pub async fn serve(
    store: Arc<dyn Store>,
    listener: TcpListener,
    options: ServeOptions,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let drain = options.drain;
    let (incoming, acceptor) = listen::incoming(listener, &options, shutdown.clone());
    let service = router::Router::new(Shared {
        store,
        options: Arc::new(options),
        shutdown: shutdown.clone(),
    });
    let server = tonic::transport::Server::builder()
        .max_concurrent_streams(Some(service.options().max_streams))
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .serve_with_incoming_shutdown(service, incoming, shutdown.clone().cancelled_owned());
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    let result = tokio::select! {
        result = server => result.map_err(ServeError::Transport),
        () = overdue => Ok(()),
    };
    acceptor.abort();
    // It was told to end, or has just been made to; either way the address is free now.
    let _ = acceptor.await;
    result
}

/// What every request is served with.
#[derive(Clone)]
pub(crate) struct Shared {
    store: Arc<dyn Store>,
    options: Arc<ServeOptions>,
    shutdown: CancellationToken,
}

/// The one member of the cluster that this is to its clients.
const MEMBER: u64 = 0x7065_6572_6167_6501;
const CLUSTER: u64 = 0x7065_6572_6167_6500;
/// There are no elections.
const TERM: u64 = 1;

fn header(revision: i64) -> ResponseHeader {
    ResponseHeader {
        cluster_id: CLUSTER,
        member_id: MEMBER,
        revision,
        raft_term: TERM,
    }
}

impl Shared {
    /// A header for an answer that has no revision of its own.
    async fn current(&self) -> Result<ResponseHeader, Status> {
        let status = self
            .store
            .status()
            .await
            .map_err(|error| to_status(&error))?;
        Ok(header(status.revision))
    }
}
