//! A server that says frames of HTTP/2, whatever a test wants of them.
#![allow(unreachable_pub)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use peerage_http::{Request, ServerTls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::common::get;

pub fn post(body: peerage_http::Body) -> Request {
    let mut request = get("/");
    *request.method_mut() = http::Method::POST;
    *request.body_mut() = body;
    request
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_HEADERS: u8 = 4;
pub const END_STREAM: u8 = 1;
/// `:status: 200` of the static table.
pub const OK: &[u8] = &[0x88];

pub struct Received {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    /// The number of the connection, from 0.
    pub connection: usize,
    /// Frames of its kind on its stream before it.
    pub before: usize,
}

impl Received {
    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    pub fn first_of_stream(&self) -> bool {
        self.before == 0
    }
}

#[derive(Default)]
pub struct Answers(Vec<u8>);

impl Answers {
    pub fn push(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.0.extend_from_slice(&length[1..]);
        self.0.extend_from_slice(&[kind, flags]);
        self.0.extend_from_slice(&stream.to_be_bytes());
        self.0.extend_from_slice(payload);
    }

    /// What comes after this stream was not looked at.
    pub fn go_away(&mut self, last: u32) {
        let payload = [last.to_be_bytes(), [0; 4]].concat();
        self.push(GOAWAY, 0, 0, &payload);
    }
}

/// A server of frames: what it says to each is up to this function.
pub async fn raw_http2<F>(tls: ServerTls, react: F) -> SocketAddr
where
    F: Fn(&Received, &mut Answers) + Clone + Send + 'static,
{
    raw_http2_with(tls, &[], react).await.address
}

/// A server of frames, and how many are connected to it.
pub struct Raw {
    pub address: SocketAddr,
    pub connected: Arc<AtomicUsize>,
    /// Since it began.
    pub accepted: Arc<AtomicUsize>,
}

/// The same with these settings.
pub async fn raw_http2_with<F>(tls: ServerTls, settings: &'static [u8], react: F) -> Raw
where
    F: Fn(&Received, &mut Answers) + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(tls.config().unwrap());
    let (connected, accepted) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let raw = Raw {
        address,
        connected: connected.clone(),
        accepted: accepted.clone(),
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, react) = (acceptor.clone(), react.clone());
            let connection = accepted.fetch_add(1, Ordering::Relaxed);
            let connected = connected.clone();
            connected.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let _counted = Uncount(connected);
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut preface = [0; 24];
                if stream.read_exact(&mut preface).await.is_err() {
                    return;
                }
                let mut first = Answers::default();
                first.push(SETTINGS, 0, 0, settings);
                let _ = stream.write_all(&first.0).await;
                let mut seen = std::collections::HashMap::new();
                while let Some((kind, flags, id)) = read_frame(&mut stream).await {
                    let mut answers = Answers::default();
                    if kind == SETTINGS && flags == 0 {
                        answers.push(SETTINGS, 1, 0, &[]);
                    }
                    let before = seen.entry((kind, id)).or_insert(0);
                    let frame = Received {
                        kind,
                        flags,
                        stream: id,
                        connection,
                        before: std::mem::replace(before, *before + 1),
                    };
                    react(&frame, &mut answers);
                    if stream.write_all(&answers.0).await.is_err() {
                        return;
                    }
                    let _ = stream.flush().await;
                }
            });
        }
    });
    raw
}

struct Uncount(Arc<AtomicUsize>);

impl Drop for Uncount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, u8, u32)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((head[3], head[4], id))
}
