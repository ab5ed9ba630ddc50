//! The load: clients that each have one HTTP/2 connection and ask one thing after the other.
//!
//! A closed loop: a client asks again when it has read the whole answer, so a slow server is asked less, never flooded.
//! Connections are opened and warmed before the clock starts. Any other status than the expected one fails the run:
//! errors are quick and would flatter whoever gives them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use peerage_testkit::pki::{Pki, SERVER_NAME};
use peerage_testkit::wire::client_config;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// What every client shows that shows no certificate; every server knows it.
pub(crate) const TOKEN: &str = "bench-token";

/// Where to ask, and as whom.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) pki: Pki,
    /// With a client certificate; otherwise with a bearer token.
    pub(crate) certificate: bool,
}

/// A connection.
pub(crate) struct Client {
    endpoint: Endpoint,
    sender: SendRequest<Full<Bytes>>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Bytes>,
    numbered: bool,
    pub(crate) status: u16,
}

/// What came of a load.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) seconds: f64,
    /// In ascending order.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) bytes: usize,
}

impl Call {
    /// A GET of JSON.
    pub(crate) fn get(target: impl Into<String>) -> Self {
        Self::get_as(target, "application/json")
    }

    /// A GET of a media type.
    pub(crate) fn get_as(target: impl Into<String>, accept: &str) -> Self {
        Self {
            method: "GET",
            target: target.into(),
            headers: vec![("accept", accept.to_owned())],
            body: None,
            numbered: false,
            status: 200,
        }
    }

    /// With a body, and the media type that it has.
    pub(crate) fn with(method: &'static str, target: &str, media: &str, body: String) -> Self {
        let mut call = Self::get(target);
        call.method = method;
        call.headers.push(("content-type", media.to_owned()));
        call.body = Some(body.into());
        call
    }

    /// A POST of JSON.
    pub(crate) fn create(target: &str, body: String) -> Self {
        Self::with("POST", target, "application/json", body).expecting(201)
    }

    /// `NUMBER` in the body becomes the number of the request.
    pub(crate) fn numbered(mut self) -> Self {
        self.numbered = true;
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn expecting(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    fn request(&self, endpoint: &Endpoint, number: usize) -> anyhow::Result<Sent> {
        let uri = format!("https://{}{}", endpoint.address, self.target);
        let mut builder = http::Request::builder().method(self.method).uri(uri);
        for (name, value) in &self.headers {
            builder = builder.header(*name, value);
        }
        if !endpoint.certificate {
            builder = builder.header("authorization", format!("Bearer {TOKEN}"));
        }
        let body = match (&self.body, self.numbered) {
            (None, _) => Bytes::new(),
            (Some(body), false) => body.clone(),
            (Some(body), true) => {
                let text = std::str::from_utf8(body)?;
                text.replacen("NUMBER", &number.to_string(), 1).into()
            }
        };
        Ok(builder.body(Full::new(body))?)
    }
}

type Sent = http::Request<Full<Bytes>>;

impl Client {
    pub(crate) async fn connect(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let user = match endpoint.certificate {
            true => "admin",
            false => "anonymous",
        };
        let mut config = client_config(&endpoint.pki, user);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpStream::connect(endpoint.address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME)?;
        let tls = TlsConnector::from(Arc::new(config));
        let stream = TokioIo::new(tls.connect(name, socket).await?);
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(stream).await?;
        // Its error is that of the requests on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self {
            endpoint: endpoint.clone(),
            sender,
        })
    }

    /// Asks, and leaves the body to be read as it comes.
    pub(crate) async fn open(
        &mut self,
        call: &Call,
        number: usize,
    ) -> anyhow::Result<http::Response<Incoming>> {
        let request = call.request(&self.endpoint, number)?;
        self.exchange(call, request).await
    }

    async fn exchange(
        &mut self,
        call: &Call,
        request: Sent,
    ) -> anyhow::Result<http::Response<Incoming>> {
        self.sender.ready().await?;
        let answer = tokio::time::timeout(PATIENCE, self.sender.send_request(request));
        let answer = answer.await.context("no answer")??;
        if answer.status().as_u16() != call.status {
            let status = answer.status();
            let body = answer.into_body().collect().await?.to_bytes();
            let text = String::from_utf8_lossy(&body);
            bail!("{} {}: {status} {text:.300}", call.method, call.target);
        }
        Ok(answer)
    }

    /// Asks and reads the answer whole.
    pub(crate) async fn ask(&mut self, call: &Call) -> anyhow::Result<http::Response<Bytes>> {
        let (head, body) = self.open(call, 0).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(http::Response::from_parts(head, body))
    }

    /// Asks and counts what is answered.
    async fn drain(&mut self, call: &Call, request: Sent) -> anyhow::Result<usize> {
        let mut body = self.exchange(call, request).await?.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(bytes)
    }
}

/// Clients, connected and warm.
pub(crate) struct Load {
    clients: Vec<Client>,
    call: Call,
}

impl Load {
    /// Connects; each client asks a few times what it will ask.
    pub(crate) async fn prepare(
        endpoint: &Endpoint,
        clients: usize,
        call: &Call,
        warm: usize,
    ) -> anyhow::Result<Self> {
        let mut connected = Vec::new();
        for _ in 0..clients {
            let mut client = Client::connect(endpoint).await?;
            for _ in 0..warm {
                let request = call.request(endpoint, 0)?;
                client.drain(call, request).await?;
            }
            connected.push(client);
        }
        Ok(Self {
            clients: connected,
            call: call.clone(),
        })
    }

    /// Asks so many times in all.
    pub(crate) async fn run(self, requests: usize) -> anyhow::Result<Loaded> {
        ensure!(requests > 0, "nothing to ask");
        let next = Arc::new(AtomicUsize::new(0));
        let started = Instant::now();
        let tasks = self.clients.into_iter().map(|client| {
            let task = one_after_the_other(client, self.call.clone(), next.clone(), requests);
            async { tokio::spawn(task).await? }
        });
        let each = try_join_all(tasks).await?;
        let seconds = started.elapsed().as_secs_f64();
        let bytes = each.iter().map(|(_, bytes)| bytes).sum();
        let mut latencies: Vec<Duration> = each.into_iter().flat_map(|(l, _)| l).collect();
        latencies.sort_unstable();
        Ok(Loaded {
            seconds,
            latencies,
            bytes,
        })
    }
}

async fn one_after_the_other(
    mut client: Client,
    call: Call,
    next: Arc<AtomicUsize>,
    requests: usize,
) -> anyhow::Result<(Vec<Duration>, usize)> {
    let mut latencies = Vec::with_capacity(requests);
    let mut bytes = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= requests {
            return Ok((latencies, bytes));
        }
        // Making the body is not the server's time.
        let request = call.request(&client.endpoint, number)?;
        let asked = Instant::now();
        bytes += client.drain(&call, request).await?;
        latencies.push(asked.elapsed());
    }
}

/// A value below which a part of ascending latencies is, in milliseconds.
pub(crate) fn quantile(ascending: &[Duration], part: f64) -> f64 {
    let last = ascending.len().saturating_sub(1);
    let at = (last as f64 * part).round() as usize;
    let value = ascending.get(at).copied().unwrap_or_default();
    value.as_secs_f64() * 1000.0
}
