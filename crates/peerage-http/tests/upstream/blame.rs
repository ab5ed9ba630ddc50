//! Whose fault a failure is: the client's, the server's, or our own side's.

use bytes::Bytes;
use http_body_util::BodyExt;
use peerage_http::{Response, ServerOptions, body, full};
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, serve, upstream};
use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, OK, RESET, SETTINGS, post, raw_http2,
};

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
