//! An HTTP/2 client of one connection, for what the HTTP/1.1 client of [`crate::wire`] cannot show: streams beside each
//! other, trailers, resets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
pub use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::pki::{Pki, SERVER_NAME};
use crate::wire::{Answer, Head, Outgoing, client_config};

/// How long a request may take altogether.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum MultiplexError {
    /// No connection.
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    /// The stream or the connection broke.
    #[error("no answer: {0}")]
    Http2(#[from] hyper::Error),
    /// The connection had ended before.
    #[error("the connection has ended")]
    Ended,
    /// It took too long.
    #[error("no answer within {PATIENCE:?}")]
    Late,
}

/// An HTTP/2 connection as one user; clones share it.
#[derive(Clone)]
pub struct Multiplexed {
    address: SocketAddr,
    /// None once the connection has ended: what came as it did, and that nobody reads any more, is given back only when the
    /// last sender is gone.
    sender: Arc<Mutex<Option<SendRequest<Full<Bytes>>>>>,
}

impl Multiplexed {
    /// Connects with the pair `user.crt` and `user.key`; `anonymous` shows none.
    pub async fn connect(
        address: SocketAddr,
        pki: &Pki,
        user: &str,
    ) -> Result<Self, MultiplexError> {
        let mut config = client_config(pki, user);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let tls = TlsConnector::from(std::sync::Arc::new(config));
        let stream = TokioIo::new(tls.connect(name, socket).await?);
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(stream).await?;
        let sender = Arc::new(Mutex::new(Some(sender)));
        let kept = sender.clone();
        tokio::spawn(async move {
            // Its error is that of the requests on it.
            drop(connection.await);
            *kept.lock().unwrap() = None;
        });
        Ok(Self { address, sender })
    }

    /// Asks and reads the answer whole.
    pub async fn send(&self, request: &Outgoing) -> Result<Answer, MultiplexError> {
        let exchange = async {
            let (head, body) = self.open(request).await?;
            let body = body.collect().await?.to_bytes().to_vec();
            Ok(Answer { head, body })
        };
        timeout(PATIENCE, exchange)
            .await
            .unwrap_or(Err(MultiplexError::Late))
    }

    /// Asks, and leaves the body to be read as it comes; the stream is reset when the body is dropped.
    pub async fn open(&self, request: &Outgoing) -> Result<(Head, Incoming), MultiplexError> {
        let sender = self.sender.lock().unwrap().clone();
        let mut sender = sender.ok_or(MultiplexError::Ended)?;
        sender.ready().await?;
        let answer = sender.send_request(self.request(request));
        drop(sender);
        let (parts, body) = answer.await?.into_parts();
        let head = Head {
            status: parts.status.as_u16(),
            headers: words(&parts.headers),
        };
        Ok((head, body))
    }

    fn request(&self, request: &Outgoing) -> http::Request<Full<Bytes>> {
        let target = format!("https://{}{}", self.address, request.target);
        let mut builder = http::Request::builder()
            .method(request.method.as_str())
            .uri(target);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let body = request.body.clone().unwrap_or_default();
        builder.body(Full::from(body)).unwrap()
    }
}

fn words(headers: &HeaderMap) -> Vec<(String, String)> {
    let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs = headers.iter();
    pairs
        .map(|(name, value)| (name.to_string(), word(value.as_bytes())))
        .collect()
}
