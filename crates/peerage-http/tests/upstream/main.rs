//! One upstream and in-process servers that behave in every way a server may.
#![allow(clippy::unwrap_used)]

mod answers;
mod blame;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod frames;
mod pool;
mod turned_away;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Answers each connection's requests with these raw bytes, one after the other, then closes it.
async fn raw_server(answers: &'static [&'static str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                for answer in answers {
                    read_head(&mut stream).await;
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Passes bytes on until frozen, which stops the connections that exist and no new ones.
async fn freezing_proxy(to: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let frozen = Arc::new(AtomicUsize::new(0));
    let epoch = frozen.clone();
    tokio::spawn(async move {
        while let Ok((front, _)) = listener.accept().await {
            let back = TcpStream::connect(to).await.unwrap();
            let (mut from, mut to) = (front.into_split(), back.into_split());
            let begun = epoch.load(Ordering::Relaxed);
            let now = epoch.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while let Ok(read) = from.0.read(&mut buffer).await {
                    if now.load(Ordering::Relaxed) != begun {
                        std::future::pending::<()>().await;
                    }
                    if read == 0 || to.1.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
            });
            tokio::spawn(async move { tokio::io::copy(&mut to.0, &mut from.1).await });
        }
    });
    (address, frozen)
}
