//! The accepting side against clients that behave in every way a client may.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use common::{LONG, Running, serve};
use peerage_http::{Response, ServerOptions, ServerTls, full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[path = "../common/mod.rs"]
mod common;
mod heads;
mod leaving;
mod limits;
mod streams;
mod tls;

const SHORT: Duration = Duration::from_millis(100);

async fn plain(options: ServerOptions) -> Running {
    serve(ServerTls::plain(), options, |request| async move {
        Response::new(full(request.uri().path_and_query().unwrap().to_string()))
    })
    .await
}

/// Everything the server says to these bytes until it closes the connection.
async fn say(server: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    timeout(LONG, stream.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
