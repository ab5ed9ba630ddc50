//! An HTTP/1.1 client that sends exactly what it is told to, and shows exactly what comes back.
//!
//! One connection for each request, so that no request depends on an earlier one. A library would normalise paths,
//! refuse odd ones and hide headers, which are what recordings are about.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pki::{Pki, SERVER_NAME};

/// What asks for an aggregated discovery document, with what peers serve.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Longest answer that is read.
const LONGEST: usize = 64 << 20;
/// How long a request may take altogether.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No connection, or it broke.
    #[error("no answer: {0}")]
    Io(#[from] std::io::Error),
    /// The answer is not HTTP.
    #[error("not HTTP: {0:?}")]
    NotHttp(String),
    /// It took too long.
    #[error("no answer within {PATIENCE:?}")]
    Late,
}

/// What is sent.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    /// The method.
    pub method: String,
    /// The request target, byte for byte.
    pub target: String,
    /// Headers as they are written, without `Host` and `Content-Length`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Vec<u8>>,
}

impl Outgoing {
    /// A request for JSON without a body.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![("Accept".to_owned(), "application/json".to_owned())],
            body: None,
        }
    }

    /// A GET of a media type.
    pub fn get_as(target: &str, accept: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            target: target.to_owned(),
            headers: vec![("Accept".to_owned(), accept.to_owned())],
            body: None,
        }
    }

    /// A GET that asks for a WebSocket, as a browser does.
    pub fn websocket(target: &str) -> Self {
        Self::new("GET", target)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Origin", "https://dashboard.example.com")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    }

    /// With a header in place of those of its name.
    pub fn instead(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.header(name, value)
    }

    /// With one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a JSON body, of a content type.
    pub fn json(mut self, content_type: &str, body: &serde_json::Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self.header("Content-Type", content_type)
    }
}

/// The head of an answer.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Header names and values as they came, in order.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// An answer, read whole.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status and headers.
    pub head: Head,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Status and body, for messages.
    pub fn in_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.chars().take(400).collect();
        format!("{} {}", self.head.status, text.trim_end())
    }
}

/// A client of one server, as one user.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    tls: TlsConnector,
}

impl Client {
    /// A client with the pair `user.crt` and `user.key`; `anonymous` shows none.
    pub fn new(address: SocketAddr, pki: &Pki, user: &str) -> Self {
        let config = client_config(pki, user);
        Self {
            address,
            tls: TlsConnector::from(Arc::new(config)),
        }
    }

    /// Asks and reads the answer whole.
    pub async fn send(&self, request: &Outgoing) -> Result<Answer, WireError> {
        let exchange = async {
            let (head, mut body) = self.open(request).await?;
            let body = body.rest().await?;
            Ok(Answer { head, body })
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .unwrap_or(Err(WireError::Late))
    }

    /// Asks twice on one connection, the second time when the first answer has been read.
    pub async fn send_two(
        &self,
        first: &Outgoing,
        second: &Outgoing,
    ) -> Result<(Answer, Answer), WireError> {
        let exchange = async {
            let (head, mut body) = self.open(first).await?;
            let first = Answer {
                head,
                body: body.rest().await?,
            };
            let (head, mut body) = self.ask(body.stream, second).await?;
            let body = body.rest().await?;
            Ok((first, Answer { head, body }))
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .unwrap_or(Err(WireError::Late))
    }

    /// Asks, and leaves the body to be read as it comes.
    pub async fn open(&self, request: &Outgoing) -> Result<(Head, Incoming), WireError> {
        let socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let stream = BufReader::new(self.tls.connect(name, socket).await?);
        self.ask(stream, request).await
    }

    async fn ask(
        &self,
        mut stream: BufReader<TlsStream<TcpStream>>,
        request: &Outgoing,
    ) -> Result<(Head, Incoming), WireError> {
        stream.write_all(&self.bytes(request)).await?;
        stream.flush().await?;
        loop {
            let head = read_head(&mut stream).await?;
            // Switching protocols is final: what follows is no HTTP.
            if !(100..200).contains(&head.status) || head.status == 101 {
                let rest = Rest::of(&head, &request.method);
                let pending = Vec::new();
                return Ok((
                    head,
                    Incoming {
                        stream,
                        rest,
                        pending,
                    },
                ));
            }
        }
    }

    fn bytes(&self, request: &Outgoing) -> Vec<u8> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            request.method, request.target, self.address
        );
        for (name, value) in &request.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &request.body {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(request.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// How much of a body is still to come.
#[derive(Debug)]
enum Rest {
    /// So many bytes.
    Bytes(usize),
    /// As many chunks as there are.
    Chunks,
    /// Everything until the connection ends.
    UntilEnd,
}

impl Rest {
    fn of(head: &Head, method: &str) -> Self {
        let chunked = head.header("Transfer-Encoding") == Some("chunked");
        let length = head.header("Content-Length").and_then(|n| n.parse().ok());
        match (head.status, length) {
            (204 | 304, _) => Self::Bytes(0),
            _ if method == "HEAD" => Self::Bytes(0),
            _ if chunked => Self::Chunks,
            (_, Some(length)) => Self::Bytes(length),
            _ => Self::UntilEnd,
        }
    }
}

/// A body that is being read.
pub struct Incoming {
    stream: BufReader<TlsStream<TcpStream>>,
    rest: Rest,
    pending: Vec<u8>,
}

impl Incoming {
    /// The lines as they come, read by a task of their own; the body is let go when the receiver is dropped.
    pub fn lines(mut self) -> mpsc::Receiver<Result<Vec<u8>, WireError>> {
        let (sender, lines) = mpsc::channel(64);
        tokio::spawn(async move {
            loop {
                let line = tokio::select! {
                    line = self.line() => line.transpose(),
                    () = sender.closed() => None,
                };
                let Some(line) = line else { return };
                let broken = line.is_err();
                if sender.send(line).await.is_err() || broken {
                    return;
                }
            }
        });
        lines
    }

    /// Breaks the connection off (RST), without a word of farewell.
    pub fn reset(self) {
        let (socket, _) = self.stream.get_ref().get_ref();
        socket.set_zero_linger().unwrap();
    }

    /// The next line; what comes after the last one is a line too.
    pub async fn line(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.pending, rest)));
            }
            match self.part().await? {
                Some(part) => self.pending.extend_from_slice(&part),
                None if self.pending.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.pending))),
            }
        }
    }

    /// All that is to come.
    async fn rest(&mut self) -> Result<Vec<u8>, WireError> {
        let mut bytes = Vec::new();
        while let Some(part) = self.part().await? {
            bytes.extend_from_slice(&part);
            if bytes.len() > LONGEST {
                return Err(WireError::NotHttp("an endless body".to_owned()));
            }
        }
        Ok(bytes)
    }

    async fn part(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        match self.rest {
            Rest::Bytes(0) => Ok(None),
            Rest::Bytes(left) => {
                let part = self.some(left).await?;
                self.rest = Rest::Bytes(left - part.len());
                match part.is_empty() {
                    true => Err(WireError::NotHttp("the body is cut off".to_owned())),
                    false => Ok(Some(part)),
                }
            }
            Rest::UntilEnd => match self.some(LONGEST).await {
                Ok(part) if part.is_empty() => Ok(None),
                Ok(part) => Ok(Some(part)),
                // Some servers end a connection without TLS's farewell.
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
                Err(e) => Err(e.into()),
            },
            Rest::Chunks => self.chunk().await,
        }
    }

    /// Some bytes, at most `most`; none at the end.
    async fn some(&mut self, most: usize) -> std::io::Result<Vec<u8>> {
        let buffer = self.stream.fill_buf().await?;
        let part = buffer[..buffer.len().min(most)].to_vec();
        self.stream.consume(part.len());
        Ok(part)
    }

    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let line = read_line(&mut self.stream).await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16)
            .ok()
            .filter(|size| *size <= LONGEST);
        let size = size.ok_or_else(|| WireError::NotHttp(line.clone()))?;
        let mut part = vec![0; size];
        self.stream.read_exact(&mut part).await?;
        if size > 0 {
            read_line(&mut self.stream).await?;
            return Ok(Some(part));
        }
        while !read_line(&mut self.stream).await?.is_empty() {}
        self.rest = Rest::Bytes(0);
        Ok(None)
    }
}

async fn read_head(stream: &mut BufReader<TlsStream<TcpStream>>) -> Result<Head, WireError> {
    let line = read_line(stream).await?;
    let status = line
        .strip_prefix("HTTP/1.")
        .and_then(|l| l.get(2..5)?.parse().ok());
    let status = status.ok_or_else(|| WireError::NotHttp(line.clone()))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream).await?;
        if line.is_empty() {
            return Ok(Head { status, headers });
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| WireError::NotHttp(line.clone()))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// A line without its end; bytes that are not UTF-8 are taken as Latin-1.
async fn read_line(stream: &mut BufReader<TlsStream<TcpStream>>) -> Result<String, WireError> {
    let mut line = Vec::new();
    let read = stream.take(1 << 20).read_until(b'\n', &mut line).await?;
    if read == 0 || line.last() != Some(&b'\n') {
        let end = std::io::ErrorKind::UnexpectedEof;
        return Err(std::io::Error::from(end).into());
    }
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    Ok(String::from_utf8(line)
        .unwrap_or_else(|e| e.into_bytes().into_iter().map(char::from).collect()))
}

/// How a user of the certificates connects; `anonymous` shows none.
pub fn client_config(pki: &Pki, user: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&pki.file("ca.crt")) {
        roots.add(certificate).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match user {
        "anonymous" => builder.with_no_client_auth(),
        user => builder
            .with_client_auth_cert(
                certificates(&pki.file(&format!("{user}.crt"))),
                PrivateKeyDer::from_pem_file(pki.file(&format!("{user}.key"))).unwrap(),
            )
            .unwrap(),
    }
}

fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(file)
        .unwrap()
        .map(|c| c.unwrap())
        .collect()
}
