//! A peer that speaks HTTP/1.1 byte by byte, as a test dictates: for what no HTTP library would send.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::documents;
use super::pki::{PEER_NAME, Pki};

/// One connection of a raw peer.
pub struct Wire(TlsStream<TcpStream>);

impl Wire {
    /// Reads up to and with the empty line after the head.
    pub async fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.ok()?);
        }
        Some(String::from_utf8_lossy(&head).into_owned())
    }

    pub async fn write(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes()).await;
        let _ = self.0.flush().await;
    }

    pub async fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        self.0.read_exact(&mut buffer).await.unwrap();
        buffer
    }

    pub async fn close(mut self) {
        let _ = self.0.shutdown().await;
    }
}

type Script = Arc<dyn Fn(String, Wire) -> BoxFuture<'static, Option<Wire>> + Send + Sync>;

/// The peer: serves the newer server's documents, and hands every other request to a script.
pub struct RawPeer {
    pub address: SocketAddr,
    _stop: DropGuard,
}

impl RawPeer {
    /// `script` gets the head of each request and the connection; it gives it back if more requests may follow.
    pub async fn start<F, Fut>(pki: &Pki, script: F) -> RawPeer
    where
        F: Fn(String, Wire) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<Wire>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsAcceptor::from(pki.server_config(&pki.server(PEER_NAME), &["http/1.1"]));
        let script: Script = Arc::new(move |head, wire| Box::pin(script(head, wire)));
        let stop = CancellationToken::new();
        let token = stop.clone();
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = token.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((stream, _)) = accepted else { return };
                let (tls, script) = (tls.clone(), script.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(Wire(stream), script).await;
                    }
                });
            }
        });
        RawPeer {
            address,
            _stop: stop.drop_guard(),
        }
    }
}

async fn serve(mut wire: Wire, script: Script) {
    while let Some(head) = wire.head().await {
        let document = match head.split(' ').nth(1) {
            Some("/readyz") => Some("ok".to_owned()),
            Some("/api") => Some(documents::core().to_string()),
            Some("/apis") => Some(documents::new().to_string()),
            Some("/openapi/v3") => Some("{\"paths\":{}}".to_owned()),
            _ => None,
        };
        if let Some(body) = document {
            let length = body.len();
            wire.write(&format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
            .await;
            continue;
        }
        if head.contains("system:apiserver") {
            wire.write("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                .await;
            continue;
        }
        match script(head, wire).await {
            Some(back) => wire = back,
            None => return,
        }
    }
}
