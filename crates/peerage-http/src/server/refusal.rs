//! Requests that hyper refuses before any service sees them, answered with a Status like every other failure.
//!
//! hyper answers a request line or header that it cannot take with a bare head and closes the connection. It
//! offers no way to say more, so this looks for exactly that head in what it writes while no request is under way,
//! and writes one with a body instead: the same bytes in an answer or a tunnel are none of ours. (HTTP/2 has no such
//! head: h2 answers 431 or resets the one stream, and the connection goes on.)
//!
//! Differs: kube-apiserver answers these in plain text.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{Request, StatusCode, Version};
use peerage_core::Status;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pace::Answers;
use super::targets::{Cut, Targets};
use crate::{Response, body};

/// What hyper writes behind the status line, up to the date.
const REST: &[u8] = b"\r\nconnection: close\r\ncontent-length: 0\r\ndate: ";
/// The date and the end of the head.
const TAIL: usize = "Sun, 29 Nov 2026 20:18:01 GMT\r\n\r\n".len();

/// A stream on which bare refusals get a body.
pub(super) struct Refusals<S> {
    stream: S,
    answers: Arc<Answers>,
    /// How many requests there had been when all answers were last written.
    answered: u64,
    /// What is still to be written in place of a refusal.
    instead: Bytes,
    targets: Targets,
}

impl<S> Refusals<S> {
    pub(super) fn new(stream: S, answers: Arc<Answers>, targets: Targets) -> Self {
        Self {
            stream,
            answers,
            answered: 0,
            instead: Bytes::new(),
            targets,
        }
    }

    /// Whether what is written now belongs to no request.
    fn may_refuse(&self) -> bool {
        self.answers.may_refuse() && self.answers.total() == self.answered
    }
}

/// The length of the refusal that these bytes are, and what to write instead.
fn refusal(bytes: &[u8]) -> Option<(usize, Bytes)> {
    let rest = bytes.strip_prefix(b"HTTP/1.1 4")?;
    let (line, text) = [
        (
            &b"00 Bad Request"[..],
            "the request line or a header cannot be understood",
        ),
        (b"14 URI Too Long", "the request line is too long"),
        (b"31 Request Header Fields Too Large", TOO_LARGE),
    ]
    .into_iter()
    .find(|(line, _)| rest.starts_with(line))?;
    let status = &bytes[b"HTTP/1.1 ".len()..b"HTTP/1.1 ".len() + 3];
    let code = StatusCode::from_bytes(status).ok()?;
    let tail = rest[line.len()..].strip_prefix(REST)?;
    if tail.len() != TAIL || !tail.ends_with(b"\r\n\r\n") {
        return None;
    }
    Some((bytes.len(), answer(code, text, &tail[..TAIL - 4])))
}

const FRAGMENT: &str =
    "the request target has a `#`, which belongs to none: write %23 for one in a name or value";
const TOO_LARGE: &str = "the request's headers are too large or too many";

/// The refusal of a head that hyper takes and no service shall see.
pub(super) fn of<B>(request: &Request<B>, max_headers: usize, cut: &Cut) -> Option<Response> {
    let (code, text) = if cut.is_cut(request.uri()) {
        (StatusCode::BAD_REQUEST, FRAGMENT)
    } else if request.headers().len() > max_headers {
        // Over HTTP/2 the parser does not count them.
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, TOO_LARGE)
    } else {
        ambiguous(request).or_else(|| unexpected(request))?
    };
    let mut response = Response::new(body::full(status(code, text)));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if request.version() < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

/// An expectation that is not `100-continue`. As Go has it: the first line counts, it may name others beside it, and
/// over HTTP/2 the header means nothing.
fn unexpected<B>(request: &Request<B>) -> Option<(StatusCode, &'static str)> {
    let expected = request.headers().get(EXPECT)?.as_bytes();
    let mut tokens = expected.split(|byte| matches!(byte, b' ' | b',' | b'\t'));
    let known = expected.is_empty()
        || tokens.any(|token| token.eq_ignore_ascii_case(b"100-continue"))
        || request.version() >= Version::HTTP_2;
    let text = "no expectation but 100-continue is supported";
    (!known).then_some((StatusCode::EXPECTATION_FAILED, text))
}

/// What of a head another server on the way could have read differently (RFC 9112, 3.2 and 6.1).
fn ambiguous<B>(request: &Request<B>) -> Option<(StatusCode, &'static str)> {
    let (uri, headers) = (request.uri(), request.headers());
    if uri.scheme().is_none() && uri.authority().is_some() {
        let text = "the request target must be a path";
        return Some((StatusCode::BAD_REQUEST, text));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    if codings.next().is_some()
        || coding.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        let text = "no transfer coding but chunked is supported";
        return Some((StatusCode::NOT_IMPLEMENTED, text));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let text = match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => "the Host header is missing",
        (_, Some(_)) => "there is more than one Host header",
        (Some(host), None) if !is_host(host.as_bytes()) => "the Host header is malformed",
        _ => return None,
    };
    Some((StatusCode::BAD_REQUEST, text))
}

/// Whether all of it may occur in a host and a port (RFC 3986, 3.2.2).
fn is_host(host: &[u8]) -> bool {
    host.iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte))
}

fn status(code: StatusCode, text: &str) -> Vec<u8> {
    let mut status = Status::bad_request(text);
    if code != StatusCode::BAD_REQUEST {
        // Kubernetes has no reason for these.
        status.reason.clear();
        status.code = code.as_u16();
    }
    peerage_core::json::to_body(&status).unwrap_or_default()
}

fn answer(code: StatusCode, text: &str, date: &[u8]) -> Bytes {
    let body = status(code, text);
    let head = format!(
        "HTTP/1.1 {code}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\ndate: {}\r\n\r\n",
        body.len(),
        String::from_utf8_lossy(date),
    );
    [head.as_bytes(), &body].concat().into()
}

impl<S: AsyncWrite + Unpin> Refusals<S> {
    fn poll_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.instead.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.instead))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.instead.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Refusals<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if !self.answers.is_upgraded() {
            self.targets.read(&buffer.filled()[before..])?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Refusals<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_instead(context))?;
        if let Some((length, instead)) = refusal(bytes).filter(|_| self.may_refuse()) {
            self.instead = instead;
            return Poll::Ready(Ok(length));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = slices {
            return self.poll_write(context, only);
        }
        ready!(self.poll_instead(context))?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(context))?;
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        if self.answers.idle_since().is_some() {
            self.answered = self.answers.total();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_bare_refusal_is_replaced() {
        let head =
            |middle: &str| format!("HTTP/1.1 {middle}date: Sun, 29 Nov 2026 20:18:01 GMT\r\n\r\n");
        let bare = "\r\nconnection: close\r\ncontent-length: 0\r\n";
        let rows = [
            (head(&format!("400 Bad Request{bare}")), true),
            (
                head(&format!("431 Request Header Fields Too Large{bare}")),
                true,
            ),
            (head(&format!("404 Not Found{bare}")), false),
            (head("400 Bad Request\r\ncontent-length: 0\r\n"), false),
            (
                head(
                    "400 Bad Request\r\naudit-id: 1\r\nconnection: close\r\ncontent-length: 0\r\n",
                ),
                false,
            ),
            (head(&format!("400 Bad Request{bare}")) + "more", false),
        ];
        for (bytes, replaced) in rows {
            assert_eq!(refusal(bytes.as_bytes()).is_some(), replaced, "{bytes}");
        }
    }

    #[test]
    fn what_is_written_instead_is_a_status() {
        let head = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
                    date: Sun, 29 Nov 2026 20:18:01 GMT\r\n\r\n";
        let (_, instead) = refusal(head.as_bytes()).unwrap();
        let text = String::from_utf8(instead.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())));
        let status: Status = serde_json::from_str(body).unwrap();
        assert_eq!((status.code, status.reason.as_str()), (431, ""));
    }
}
