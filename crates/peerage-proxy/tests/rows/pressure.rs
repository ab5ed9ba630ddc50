//! Back-pressure: what one side does not read is not taken from the other, whichever way it goes. And trailers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::support::world::{request, request_with_body};
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";
const PIECE: usize = 16 << 10;
/// Windows and socket buffers of the whole way: Linux lets those of each of two connections grow to 36 MB. A gigabyte is
/// what is on offer.
const HELD: usize = 96 << 20;

/// A gigabyte, and how much of it has been taken.
fn gigabyte<E: Send + 'static>() -> (
    impl futures::Stream<Item = Result<Frame<Bytes>, E>> + Send + Sync,
    Arc<AtomicUsize>,
) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let frames = (0..(1 << 30) / PIECE).map(move |_| {
        count.fetch_add(PIECE, Ordering::Relaxed);
        Ok(Frame::data(piece.clone()))
    });
    (futures::stream::iter(frames), taken)
}

/// Waits until no more is taken; says how much was.
async fn stalled(taken: &AtomicUsize) -> usize {
    let mut before = taken.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = taken.load(Ordering::Relaxed);
        if now == before && now > 0 {
            return now;
        }
        before = now;
    }
}

#[tokio::test]
async fn what_a_client_does_not_read_is_not_taken_from_the_peer() {
    let (world, peer) = world::pair().await;
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    peer.on_request(move |_| {
        let tell = tell.clone();
        async move {
            let (frames, taken) = gigabyte();
            tell.send(taken).await.unwrap();
            http::Response::new(BodyExt::boxed(StreamBody::new(frames)))
        }
    });
    let front = Front::start(&world).await;
    let mut client = front.connect().await;
    client
        .write(&format!("GET {WIDGETS} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .await;
    client.head().await;
    let taken = told.recv().await.unwrap();
    let first = stalled(&taken).await;
    assert!(first < HELD, "{first} bytes");
    client.read(64 << 20).await;
    assert!(stalled(&taken).await > first, "it goes on when it is read");
    let held = taken.load(Ordering::Relaxed) - (64 << 20);
    assert!(held < HELD, "{held} bytes");
}

#[tokio::test]
async fn what_a_peer_does_not_read_is_not_taken_from_the_client() {
    let (world, peer) = world::pair().await;
    peer.on_request(|_unread| std::future::pending());
    let (frames, taken) = gigabyte::<peerage_http::BoxError>();
    let body = StreamBody::new(frames).boxed_unsync();
    let sent = tokio::spawn({
        let call = world.service();
        let request = request_with_body("POST", WIDGETS, body);
        tower::ServiceExt::oneshot(call, request)
    });
    let held = stalled(&taken).await;
    assert!(held < HELD, "{held} bytes");
    sent.abort();
}

/// hyperium/hyper#4049.
#[tokio::test]
async fn a_tunnel_takes_from_one_side_what_the_other_reads() {
    let pki = Pki::new();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let peer = RawPeer::start(&pki, move |_, mut wire| {
        let count = count.clone();
        async move {
            wire.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
            let piece = "x".repeat(PIECE);
            for _ in 0..(1 << 30) / PIECE {
                wire.write(&piece).await;
                count.fetch_add(PIECE, Ordering::Relaxed);
            }
            None
        }
    })
    .await;
    let world = World::start(pki, vec![live("apiserver-new", peer.address)]);
    world.until_state("apiserver-new", "serving").await;
    let front = Front::start(&world).await;
    let mut client = front.connect().await;
    client.write(&format!("GET {WIDGETS}?watch=true HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 101"));
    let first = stalled(&taken).await;
    assert!(first < HELD, "{first} bytes");
    client.read(64 << 20).await;
    let held = stalled(&taken).await - (64 << 20);
    assert!(held < HELD, "{held} bytes");
}

#[tokio::test]
async fn trailers_arrive_after_the_body_they_belong_to() {
    let (world, peer) = world::pair().await;
    peer.on_request(|_| async {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-checksum", http::HeaderValue::from_static("42"));
        let frames = [Frame::data(Bytes::from("body")), Frame::trailers(trailers)];
        let frames = futures::stream::iter(frames.map(Ok::<_, std::io::Error>));
        let mut response = http::Response::new(BodyExt::boxed(StreamBody::new(frames)));
        let announced = http::HeaderValue::from_static("x-checksum");
        response.headers_mut().insert("trailer", announced);
        response
    });
    let whole = world
        .call(request("GET", WIDGETS))
        .await
        .into_body()
        .collect()
        .await
        .unwrap();
    assert_eq!(whole.trailers().unwrap()["x-checksum"], "42");
    let front = Front::start(&world).await;
    let mut client = front.connect().await;
    client
        .write(&format!(
            "GET {WIDGETS} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n"
        ))
        .await;
    let answer = String::from_utf8(client.rest().await)
        .unwrap()
        .to_ascii_lowercase();
    assert!(answer.contains("\r\ntrailer: x-checksum\r\n"), "{answer}");
    assert!(
        answer.ends_with("4\r\nbody\r\n0\r\nx-checksum: 42\r\n\r\n"),
        "{answer}"
    );
}
