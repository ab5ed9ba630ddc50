//! The proxy behind a real listener, and a client that speaks HTTP/1.1 byte by byte.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;

use peerage_http::server::Server;
use peerage_http::{Request, ServerOptions, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceBuilder;

use super::world::{World, jane};

/// A listener in front of the proxy; every client is the same user.
pub struct Front {
    pub address: SocketAddr,
    _stop: DropGuard,
}

impl Front {
    pub async fn start(world: &World) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let service = ServiceBuilder::new()
            .map_request(|mut request: Request| {
                request.extensions_mut().insert(Arc::new(jane()));
                request
            })
            .service(world.service());
        let service = peerage_http::HttpService::new(service);
        let shutdown = stop.clone();
        tokio::spawn(async move {
            Server::serve(
                listener,
                ServerTls::plain(),
                service,
                ServerOptions::default(),
                shutdown,
            )
            .await
        });
        Front {
            address,
            _stop: stop.drop_guard(),
        }
    }

    pub async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }
}

/// One connection to it.
pub struct Client(pub TcpStream);

impl Client {
    pub async fn write(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// The head of the next answer.
    pub async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    }

    pub async fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        self.0.read_exact(&mut buffer).await.unwrap();
        buffer
    }

    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).await.unwrap();
        rest
    }
}
