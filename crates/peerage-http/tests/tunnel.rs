//! Upgrades through a proxy of the kind Peerage is: a server that joins its client with an upstream.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{Ca, LONG, Running, get, serve};
use hyper::upgrade::OnUpgrade;
use peerage_http::server::Drained;
use peerage_http::tunnel::{TunnelEnd, TunnelOptions, Tunnelled};
use peerage_http::{
    Drain, Request, Response, ServerOptions, ServerTls, Stage, Upstream, UpstreamOptions, empty,
    tunnel,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

type Ends = mpsc::UnboundedReceiver<Tunnelled>;

/// A TLS server that answers each connection's first request with `answer` and then does `then`.
async fn backend<F, A>(tls: ServerTls, answer: Vec<u8>, then: F) -> SocketAddr
where
    F: Fn(tokio_rustls::server::TlsStream<TcpStream>) -> A + Send + Sync + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.config().unwrap());
    let then = Arc::new(then);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer, then) = (acceptor.clone(), answer.clone(), then.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                assert_eq!(
                    stream.get_ref().1.alpn_protocol(),
                    Some(b"http/1.1".as_slice())
                );
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                assert!(
                    head.contains(" /exec") && head.contains("\r\nUpgrade: "),
                    "{head}"
                );
                stream.write_all(&answer).await.unwrap();
                stream.flush().await.unwrap();
                then(stream).await;
            });
        }
    });
    address
}

/// A plain server that passes upgrades on, and tells how they ended.
async fn proxy(upstream: Upstream, options: ServerOptions) -> (Running, Ends) {
    let (sender, ends) = mpsc::unbounded_channel();
    let server = serve(ServerTls::plain(), options, move |request: Request| {
        let (upstream, ends) = (upstream.clone(), sender.clone());
        async move { pass(request, upstream, ends).await }
    })
    .await;
    (server, ends)
}

async fn pass(
    mut request: Request,
    upstream: Upstream,
    ends: mpsc::UnboundedSender<Tunnelled>,
) -> Response {
    let drain = request.extensions().get::<Drain>().cloned();
    let client = hyper::upgrade::on(&mut request);
    let mut response = match upstream.upgrade(request).await {
        Ok(response) => response,
        Err(error) => {
            let mut response = Response::new(peerage_http::full(error.reason()));
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            return response;
        }
    };
    if let Some(backend) = response.extensions_mut().remove::<OnUpgrade>() {
        tokio::spawn(async move {
            let _ = ends.send(tunnel(client, backend, drain, TunnelOptions::default()).await);
        });
        *response.body_mut() = empty();
    }
    response
}

const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
const ASK: &[u8] = b"POST /exec?a=%2F HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n";

async fn ask(proxy: &Running) -> (TcpStream, String) {
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    client.write_all(ASK).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(LONG, client.read_u8()).await.unwrap().unwrap());
    }
    (client, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn bytes_behind_the_switch_and_after_a_half_close_arrive() {
    let ca = Ca::new("ca");
    let mut answer = SWITCH.to_vec();
    answer.extend(std::iter::repeat_n(b'3', 3000));
    let address = backend(ca.server_tls(), answer, |mut stream| async move {
        let mut input = String::new();
        stream.read_to_string(&mut input).await.unwrap();
        assert_eq!(input, "input");
        stream
            .write_all(b"output after the input has ended")
            .await
            .unwrap();
        stream.shutdown().await.unwrap();
    })
    .await;
    let upstream = Upstream::new(UpstreamOptions::new(address.to_string(), ca.client_tls()));
    let (proxy, mut ends) = proxy(upstream, ServerOptions::default()).await;
    let (mut client, head) = ask(&proxy).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client.write_all(b"input").await.unwrap();
    client.shutdown().await.unwrap();
    let mut output = String::new();
    timeout(LONG, client.read_to_string(&mut output))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        output,
        format!("{}output after the input has ended", "3".repeat(3000))
    );
    let end = timeout(LONG, ends.recv()).await.unwrap().unwrap();
    assert!(matches!(end.end, TunnelEnd::Closed), "{end:?}");
    assert_eq!((end.sent, end.received), (5, 3032));
}

/// What hyper itself says to a head that it cannot take, and our server replaces.
const BARE: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\
                    date: Sun, 29 Nov 2026 20:18:01 GMT\r\n\r\n";

#[tokio::test]
async fn what_looks_like_a_refusal_of_the_server_goes_through_a_tunnel_unchanged() {
    let ca = Ca::new("ca");
    let address = backend(ca.server_tls(), SWITCH.to_vec(), |mut stream| async move {
        stream.read_u8().await.unwrap();
        stream.write_all(BARE.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    })
    .await;
    let upstream = Upstream::new(UpstreamOptions::new(address.to_string(), ca.client_tls()));
    let (proxy, _ends) = proxy(upstream, ServerOptions::default()).await;
    let (mut client, head) = ask(&proxy).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client.write_all(b"!").await.unwrap();
    let mut received = String::new();
    let read = client.read_to_string(&mut received);
    timeout(LONG, read).await.unwrap().unwrap();
    assert_eq!(received, BARE);
}

#[tokio::test]
async fn an_answer_other_than_the_switch_is_an_ordinary_one() {
    let ca = Ca::new("ca");
    let answer =
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nnonHTTP/1.1 200 smuggled\r\n\r\n"
            .to_vec();
    let address = backend(ca.server_tls(), answer, |mut stream| async move {
        let _ = stream.shutdown().await;
    })
    .await;
    let upstream = Upstream::new(UpstreamOptions::new(address.to_string(), ca.client_tls()));
    let (proxy, _ends) = proxy(upstream, ServerOptions::default()).await;
    let (mut client, head) = ask(&proxy).await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let mut body = [0; 3];
    client.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"non");
    // What came behind the answer is not passed on: the next bytes answer the next request.
    client
        .write_all(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut next = [0; 12];
    client.read_exact(&mut next).await.unwrap();
    assert_eq!(&next, b"HTTP/1.1 503");
}

#[tokio::test]
async fn a_backend_that_never_switches_is_given_up_in_time() {
    let ca = Ca::new("ca");
    let address = backend(ca.server_tls(), Vec::new(), |stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let mut options = UpstreamOptions::new(address.to_string(), ca.client_tls());
    options.first_byte_timeout = Duration::from_millis(50);
    let mut request = get("/exec");
    request
        .headers_mut()
        .insert("connection", "Upgrade".parse().unwrap());
    request
        .headers_mut()
        .insert("upgrade", "websocket".parse().unwrap());
    let error = Upstream::new(options).upgrade(request).await.unwrap_err();
    assert_eq!((error.stage(), error.sent()), (Stage::Timeout, true));
}

#[tokio::test]
async fn other_protocols_are_refused_before_the_upstream_hears_of_them() {
    let ca = Ca::new("ca");
    for offer in ["h2c", "made-up/1"] {
        let mut request = get("/exec");
        request
            .headers_mut()
            .insert("connection", "Upgrade".parse().unwrap());
        request
            .headers_mut()
            .insert("upgrade", offer.parse().unwrap());
        let upstream = Upstream::new(UpstreamOptions::new("127.0.0.1:1", ca.client_tls()));
        let mut error = upstream.upgrade(request).await.unwrap_err();
        assert_eq!((error.stage(), error.sent()), (Stage::Request, false));
        assert!(error.take_request().is_some());
    }
}

#[tokio::test]
async fn tunnels_are_waited_for_and_then_cut_when_the_server_stops() {
    let ca = Ca::new("ca");
    let address = backend(ca.server_tls(), SWITCH.to_vec(), |mut stream| async move {
        let _ = stream.read_u8().await;
    })
    .await;
    let upstream = Upstream::new(UpstreamOptions::new(address.to_string(), ca.client_tls()));
    let options = ServerOptions {
        drain_timeout: Duration::from_millis(100),
        ..ServerOptions::default()
    };
    let (mut proxy, mut ends) = proxy(upstream, options).await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(ask(&proxy).await.0);
    }
    proxy.stop.cancel();
    let drained = timeout(LONG, &mut proxy.task).await.unwrap().unwrap();
    assert_eq!(drained, Drained::Cut(50));
    for client in &mut clients {
        let end = timeout(LONG, ends.recv()).await.unwrap().unwrap();
        assert!(matches!(end.end, TunnelEnd::Cut), "{end:?}");
        assert_eq!(
            timeout(LONG, client.read(&mut [0; 1]))
                .await
                .unwrap()
                .unwrap_or(0),
            0
        );
    }
}
