//! Request heads: targets, and what two readers could read in two ways.

use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, StatusCode};
use peerage_http::{Body, Request, Response, ServerOptions, ServerTls, body};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::common::{Ca, LONG, get, serve, text, upstream};
use crate::{plain, say};

#[tokio::test]
async fn the_request_target_reaches_the_service_byte_for_byte() {
    let server = plain(ServerOptions::default()).await;
    for target in [
        "/a%2Fb//../c/?z=1&&a=%zz;b&q",
        "//x/y",
        "/%C3%A9~!$&'()*+,;=:@",
        "/é",
        "/?",
        "/a|b{c}\"d\\e",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = say(&server, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
        assert_eq!(answer.rsplit("\r\n").next().unwrap(), target);
    }
}

const CUT: &str = "the request target has a `#`";

#[tokio::test]
async fn a_target_with_a_fragment_is_refused_and_not_cut_off_there() {
    let server = plain(ServerOptions::default()).await;
    let end = "Host: x\r\nConnection: close\r\n\r\n";
    for target in ["/a#b", "/a?dryRun=#All", "/#", "http://x/a#b"] {
        let request = format!("DELETE {target} HTTP/1.1\r\n{end}");
        let answer = say(&server, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{target}: {answer}");
        assert!(answer.contains(CUT), "{target}: {answer}");
    }
    // Behind the body of another, which does not end with a line break.
    let both = format!(
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{{\"#\"}}DELETE /b#c HTTP/1.1\r\n{end}"
    );
    let answers = say(&server, both.as_bytes()).await;
    assert!(answers.starts_with("HTTP/1.1 200"), "{answers}");
    assert!(
        answers.contains("HTTP/1.1 400") && answers.contains(CUT),
        "{answers}"
    );
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    frame.extend(payload);
    frame
}

#[tokio::test]
async fn over_http_2_a_target_with_a_fragment_never_reaches_the_service() {
    let (seen, mut targets) = tokio::sync::mpsc::unbounded_channel();
    let server = serve(
        ServerTls::plain(),
        ServerOptions::default(),
        move |request| {
            let _ = seen.send(request.uri().path_and_query().unwrap().to_string());
            async { Response::new(body::empty()) }
        },
    )
    .await;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    for (stream, target) in [(1, "/a#b"), (3, "/c?d=e#f"), (5, "/#"), (7, "/ok")] {
        // GET, https, and a path that is kept in the table.
        let mut block = vec![0x82, 0x87, 0x44, target.len() as u8];
        block.extend(target.as_bytes());
        bytes.extend(frame(1, 5, stream, &block));
    }
    // The first path again, by its number: four have been kept.
    bytes.extend(frame(1, 5, 9, &[0x82, 0x87, 0x80 | 65]));
    let mut end = vec![0x82, 0x87, 0x04, 4];
    end.extend(b"/end");
    bytes.extend(frame(1, 5, 11, &end));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    for expected in ["/ok", "/end"] {
        let seen = timeout(LONG, targets.recv()).await.unwrap();
        assert_eq!(seen.as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn a_target_that_is_none_is_a_bad_request() {
    let server = plain(ServerOptions::default()).await;
    for line in [
        &b"GET /a<b HTTP/1.1"[..],
        b"GET /\xff HTTP/1.1",
        b"nonsense",
    ] {
        let request = [line, b"\r\nHost: x\r\nConnection: close\r\n\r\n"].concat();
        let answer = say(&server, &request).await;
        assert!(
            answer.starts_with("HTTP/1.1 400")
                && answer.contains(r#""reason":"BadRequest","code":400}"#),
            "{}: {answer}",
            String::from_utf8_lossy(line)
        );
    }
}

#[tokio::test]
async fn a_head_that_two_readers_could_read_in_two_ways_is_refused_and_the_connection_closed() {
    let server = plain(ServerOptions::default()).await;
    for (head, status) in [
        ("GET /a HTTP/1.1\r\n", "400"),
        ("GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n", "400"),
        ("GET /a HTTP/1.1\r\nHost: x/y z\r\n", "400"),
        ("CONNECT other:443 HTTP/1.1\r\nHost: x\r\n", "400"),
        ("GET other:443 HTTP/1.1\r\nHost: x\r\n", "400"),
        ("GET a HTTP/1.1\r\nHost: x\r\n", "400"),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n",
            "501",
        ),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "501",
        ),
        ("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n", "417"),
        ("GET /a HTTP/1.1\r\nHost: x\r\nExpect: 100\r\n", "417"),
    ] {
        let answer = say(&server, format!("{head}\r\n").as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}"))
                && answer.contains(&format!(r#""code":{status}}}"#)),
            "{head}: {answer}"
        );
    }
    for head in [
        "GET /a HTTP/1.0\r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nHost: \r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nHost: [::1]:80\r\n",
        "GET http://x/a HTTP/1.1\r\nConnection: close\r\nHost: x\r\n",
        "OPTIONS * HTTP/1.1\r\nConnection: close\r\nHost: x\r\n",
        "POST /a HTTP/1.1\r\nConnection: close\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nHost: x\r\nExpect: \r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nHost: x\r\nExpect: a, 100-Continue\r\n",
    ] {
        let answer = say(&server, format!("{head}\r\n").as_bytes()).await;
        assert!(
            ["HTTP/1.0 200", "HTTP/1.1 200"]
                .iter()
                .any(|ok| answer.starts_with(ok)),
            "{head}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_piece_of_an_answer_that_looks_like_a_refusal_is_left_alone() {
    let piece = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\
                 date: Sun, 29 Nov 2026 20:18:01 GMT\r\n\r\n";
    let read = Arc::new(Notify::new());
    let goes_on = read.clone();
    let server = serve(ServerTls::plain(), ServerOptions::default(), move |_| {
        let (mut sender, body) = body::channel(1);
        let goes_on = goes_on.clone();
        tokio::spawn(async move {
            sender.send_data("first".into()).await.unwrap();
            goes_on.notified().await;
            sender.send_data(piece.into()).await.unwrap();
        });
        let mut response = Response::new(body);
        let length = ("first".len() + piece.len()).into();
        response.headers_mut().insert(CONTENT_LENGTH, length);
        std::future::ready(response)
    })
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"first") {
        answer.push(timeout(LONG, stream.read_u8()).await.unwrap().unwrap());
    }
    read.notify_one();
    let mut rest = String::new();
    let ended = timeout(LONG, stream.read_to_string(&mut rest)).await;
    ended.unwrap().unwrap();
    assert_eq!(rest, piece);
}

#[tokio::test]
async fn heads_over_the_limits_are_refused_and_large_ones_within_are_served() {
    let server = plain(ServerOptions {
        max_header_bytes: 100 << 10,
        ..ServerOptions::default()
    })
    .await;
    let head = |lines: usize, size: usize| {
        let lines = format!("X-Remote-Group: {}\r\n", "g".repeat(size)).repeat(lines);
        format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n")
    };
    for (lines, size, status) in [
        (1, 60 << 10, "200"),
        (600, 100, "200"),
        (1, 200 << 10, "431"),
        (2100, 1, "431"),
    ] {
        let answer = say(&server, head(lines, size).as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{lines} lines of {size}: {answer:.100}"
        );
    }
}

/// RFC 9110, 8.6 and 9.3.2: a length that is stated is the one that GET is answered with.
#[tokio::test]
async fn the_answer_to_a_head_states_a_length_only_where_one_is_known() {
    let ca = Ca::new("ca");
    let rows = [
        ("stated", Some("42")),
        ("zero", Some("0")),
        ("whole", Some("5")),
        ("none", None),
        ("stream", None),
        ("not-modified", None),
        ("refused", Some("13")),
    ];
    for alpn in [b"h2".as_slice(), b"http/1.1"] {
        let tls = ca.server_tls_with(&[alpn]);
        let server = serve(tls, ServerOptions::default(), answer_to_head).await;
        let upstream = upstream(server.address, ca.client_tls());
        for (name, expected) in rows {
            let mut request = get(&format!("/{name}"));
            *request.method_mut() = http::Method::HEAD;
            let response = timeout(LONG, upstream.send(request)).await.unwrap();
            let response = response.unwrap();
            let length = response.headers().get(CONTENT_LENGTH).cloned();
            let length = length.as_ref().map(|it| it.to_str().unwrap());
            assert_eq!(length, expected, "{alpn:?} {name}");
            assert_eq!(text(response).await, "", "{alpn:?} {name}");
        }
    }
    // As it is written, too; and the next request is answered.
    let server = serve(ServerTls::plain(), ServerOptions::default(), answer_to_head).await;
    for (name, expected) in rows {
        let close = "Host: x\r\nConnection: close\r\n\r\n";
        let both =
            format!("HEAD /{name} HTTP/1.1\r\nHost: x\r\n\r\nHEAD /whole HTTP/1.1\r\n{close}");
        let answers = say(&server, both.as_bytes()).await.to_ascii_lowercase();
        let (first, rest) = answers.split_once("\r\n\r\n").unwrap();
        let lengths = first
            .lines()
            .filter_map(|it| it.strip_prefix("content-length: "));
        let lengths: Vec<&str> = lengths.collect();
        assert_eq!(lengths, expected.as_slice(), "{name}: {answers}");
        assert!(rest.starts_with("http/1.1 200"), "{name}: {answers}");
        assert!(!first.contains("transfer-encoding"), "{name}: {answers}");
    }
    // What is refused before the service sees it.
    let refused = say(&server, b"HEAD /a#b HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let (head, rest) = refused.split_once("\r\n\r\n").unwrap();
    let status = say(&server, b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let (_, status) = status.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", status.len());
    assert!(head.contains(&length) && rest.is_empty(), "{refused}");
}

async fn answer_to_head(request: Request) -> Response {
    let stating = |length: &'static str| {
        let mut response = Response::new(body::empty());
        let length = HeaderValue::from_static(length);
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    };
    let with = |status: StatusCode, body: Body| {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response
    };
    match request.uri().path() {
        "/stated" => stating("42"),
        "/zero" => stating("0"),
        "/whole" => Response::new(body::full("whole")),
        "/stream" => Response::new(body::channel(1).1),
        "/not-modified" => with(StatusCode::NOT_MODIFIED, body::empty()),
        "/refused" => with(StatusCode::FORBIDDEN, body::full("no, you don't")),
        _ => Response::new(body::empty()),
    }
}
