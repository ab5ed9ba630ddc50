//! Whose fault a failure is: the client's, the server's, or our own side's.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::BodyExt;
use peerage_http::{Request, Response, ServerOptions, ServerTls, body, full};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::common::{Ca, LONG, get, serve, upstream};

fn post(body: peerage_http::Body) -> Request {
    let mut request = get("/");
    *request.method_mut() = http::Method::POST;
    *request.body_mut() = body;
    request
}

#[tokio::test]
async fn a_body_that_breaks_off_is_its_senders_fault() {
    let ca = Ca::new("ca");
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let server = serve(
            ca.server_tls_with(&[alpn]),
            ServerOptions::default(),
            |request| async move {
                let _ = body::collect(request.into_body(), 100, LONG).await;
                Response::new(full(""))
            },
        )
        .await;
        let broken = futures::stream::iter([
            Ok(http_body::Frame::data(Bytes::from_static(b"{"))),
            Err(std::io::Error::other("the client is gone").into()),
        ]);
        let broken = http_body_util::StreamBody::new(broken).boxed_unsync();
        let sent = upstream(server.address, ca.client_tls());
        let error = timeout(LONG, sent.send(post(broken))).await.unwrap();
        let error = error.unwrap_err();
        assert!(error.is_senders_fault() && !error.is_silence(), "{error:?}");
        assert_eq!(error.reason(), "request_body");
    }
}

/// A server that turns away what it has begun to read is to blame for that, although the body cannot be had again.
#[tokio::test]
async fn a_long_body_that_a_server_turns_away_is_not_its_senders_fault() {
    let ca = Ca::new("ca");
    let address = raw_http2(ca.server_tls(), |frame, answers| {
        if frame.kind == DATA && frame.first_of_stream() {
            // REFUSED_STREAM, after a part of the body.
            answers.push(RESET, 0, frame.stream, &7_u32.to_be_bytes());
        }
    })
    .await;
    let frames =
        std::iter::repeat_with(|| Ok(http_body::Frame::data(Bytes::from(vec![1; 300 << 10]))));
    let long = http_body_util::StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
    let sent = upstream(address, ca.client_tls());
    let error = timeout(LONG, sent.send(post(long))).await.unwrap();
    let error = error.unwrap_err();
    assert_eq!(error.reason(), "refused_stream", "{error:?}");
    assert!(!error.is_senders_fault());
}

/// Frames for requests that were given up meanwhile are reset by our library, which by default ends the connection, and
/// with it everybody's watches, after 1024 of them.
#[tokio::test]
async fn requests_that_are_given_up_do_not_end_the_watch_of_another() {
    let ca = Ca::new("ca");
    let given_up = 1200;
    let address = raw_http2(ca.server_tls(), move |frame, answers| match frame.kind {
        HEADERS => answers.push(HEADERS, END_HEADERS, frame.stream, OK),
        // Late data for a stream that is not known any more, and at the end word for the watch.
        RESET => {
            if let Some(forgotten @ 3..) = frame.stream.checked_sub(2 * 100) {
                answers.push(DATA, 0, forgotten, &[b' '; 300]);
            }
            if frame.stream > 2 * given_up {
                answers.push(DATA, 0, 1, b"event");
            }
        }
        _ => {}
    })
    .await;
    let upstream = upstream(address, ca.client_tls());
    let watch = upstream.send(get("/watch")).await.unwrap();
    for _ in 0..given_up {
        let (_open, endless) = body::channel(1);
        drop(
            timeout(LONG, upstream.send(post(endless)))
                .await
                .unwrap()
                .unwrap(),
        );
    }
    let event = timeout(LONG, watch.into_body().frame()).await.unwrap();
    let event = event.unwrap().expect("the watch lives");
    assert_eq!(event.into_data().unwrap(), "event");
    assert_eq!(upstream.stats().connections, 1);
}

/// What h2 does when it has had enough of a server is no silence of that server.
#[tokio::test]
async fn a_connection_that_our_own_side_ends_does_not_make_the_server_silent() {
    let ca = Ca::new("ca");
    for (case, reason) in [("calm", "ended_here"), ("nonsense", "bad_answer")] {
        let address = raw_http2(ca.server_tls(), move |frame, answers| {
            if frame.kind != HEADERS {
                return;
            }
            if case == "nonsense" {
                // A setting that the protocol does not allow: a window of 2^32 - 1.
                answers.push(SETTINGS, 0, 0, &[0, 4, 255, 255, 255, 255]);
            } else {
                // A head that goes on in frames without end.
                answers.push(HEADERS, 0, frame.stream, OK);
                for _ in 0..10_000 {
                    answers.push(CONTINUATION, 0, frame.stream, b"");
                }
            }
        })
        .await;
        let upstream = upstream(address, ca.client_tls());
        let error = timeout(LONG, upstream.send(post(full("a")))).await.unwrap();
        let error = error.unwrap_err();
        assert_eq!(error.reason(), reason, "{error:?}");
        assert!(!error.is_silence() && !error.is_senders_fault());
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// `:status: 200` of the static table.
const OK: &[u8] = &[0x88];

struct Received {
    kind: u8,
    stream: u32,
    /// Frames of its kind on its stream before it.
    before: usize,
}

impl Received {
    fn first_of_stream(&self) -> bool {
        self.before == 0
    }
}

#[derive(Default)]
struct Answers(Vec<u8>);

impl Answers {
    fn push(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.0.extend_from_slice(&length[1..]);
        self.0.extend_from_slice(&[kind, flags]);
        self.0.extend_from_slice(&stream.to_be_bytes());
        self.0.extend_from_slice(payload);
    }
}

/// A server of frames: what it says to each is up to this function.
async fn raw_http2<F>(tls: ServerTls, react: F) -> SocketAddr
where
    F: Fn(&Received, &mut Answers) + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(tls.config().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, react) = (acceptor.clone(), react.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut preface = [0; 24];
                stream.read_exact(&mut preface).await.unwrap();
                let mut first = Answers::default();
                first.push(SETTINGS, 0, 0, &[]);
                stream.write_all(&first.0).await.unwrap();
                let mut seen = std::collections::HashMap::new();
                while let Some((kind, flags, id)) = read_frame(&mut stream).await {
                    let mut answers = Answers::default();
                    if kind == SETTINGS && flags == 0 {
                        answers.push(SETTINGS, 1, 0, &[]);
                    }
                    let before = seen.entry((kind, id)).or_insert(0);
                    let frame = Received {
                        kind,
                        stream: id,
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
    address
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
