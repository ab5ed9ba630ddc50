//! Whether one server answers at two addresses.
//!
//! Servers that share a certificate look alike, and one server that is reached in two ways does too. What tells them
//! apart is the TLS session ticket: only the process that gave it out takes it (RFC 8446, section 2.2). So a connection
//! to the first address fetches a ticket, a second one shows that tickets are taken there at all, and a third one offers
//! it at the other address.
//!
//! Nothing is sent that names anybody: one anonymous request per connection, since tickets come with the first answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::ClientTls;

/// How long one connection may take.
const WAIT: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read; the tickets come before them.
const READ: u64 = 64 << 10;

/// Whether one process answers at both addresses (`host:port`); none if that cannot be told, because one of them does
/// not answer or the first takes no tickets.
pub async fn is_same_server(first: &str, second: &str, tls: &ClientTls) -> Option<bool> {
    let (config, name) = tls.config(true)?;
    let mut config = ClientConfig::clone(&config);
    config.resumption = Resumption::in_memory_sessions(16);
    let ask = Ask {
        config: Arc::new(config),
        name,
    };
    ask.resumes(first).await?;
    if !ask.resumes(first).await? {
        return None;
    }
    ask.resumes(second).await
}

struct Ask {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Ask {
    /// Connects and says whether a ticket was taken; none if nobody answers.
    async fn resumes(&self, address: &str) -> Option<bool> {
        timeout(WAIT, self.exchange(address)).await.ok()?.ok()
    }

    async fn exchange(&self, address: &str) -> io::Result<bool> {
        let tcp = TcpStream::connect(address).await?;
        let connector = TlsConnector::from(self.config.clone());
        let mut stream = connector.connect(self.name.clone(), tcp).await?;
        let kind = stream.get_ref().1.handshake_kind();
        let request = format!(
            "GET /livez HTTP/1.1\r\nHost: {address}\r\nUser-Agent: peerage\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // A server that hangs up without a goodbye has answered all the same.
        let _ = (&mut stream).take(READ).read_to_end(&mut answer).await;
        Ok(kind == Some(HandshakeKind::Resumed))
    }
}
