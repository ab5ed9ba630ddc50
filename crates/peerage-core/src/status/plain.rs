//! The answers that are plain text and never a Status.
//!
//! They come from outside the API handlers, where no media type has been negotiated yet or nothing of the API
//! has been reached. What belongs to each (Retry-After, nosniff, closing) is part of it.
//!
//! Differs: a peer that cannot be reached is answered with [`Status`](super::Status), not with Kubernetes' plain
//! `error trying to reach service`.

use std::borrow::Cow;

use crate::quote::quote;

/// A plain-text answer: code, body and the headers that belong to it. Its content type is [`Self::CONTENT_TYPE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainError {
    /// The HTTP status code.
    pub code: u16,
    /// The body, with its final newline where it has one.
    pub body: Cow<'static, str>,
    /// The value of Retry-After.
    pub retry_after: Option<u32>,
    /// Whether `X-Content-Type-Options: nosniff` is sent.
    pub nosniff: bool,
    /// Whether `Cache-Control: no-cache, private` is sent; not by the filters that come before the one that sets it.
    pub uncached: bool,
    /// Whether the connection is closed after the answer (`Connection: close`).
    pub close: bool,
}

impl PlainError {
    /// The content type of every plain answer.
    pub const CONTENT_TYPE: &'static str = "text/plain; charset=utf-8";

    fn new(code: u16, body: impl Into<Cow<'static, str>>) -> Self {
        PlainError {
            code,
            body: body.into(),
            retry_after: None,
            nosniff: true,
            uncached: true,
            close: false,
        }
    }

    /// 404 for a path of no group-version that is installed here.
    #[must_use]
    pub fn page_not_found() -> Self {
        Self::new(404, "404 page not found\n")
    }

    /// 400 for a request that cannot be parsed at all.
    #[must_use]
    pub fn malformed_request() -> Self {
        PlainError {
            nosniff: false,
            uncached: false,
            close: true,
            ..Self::new(400, "400 Bad Request")
        }
    }

    /// 429 when more requests are in flight than the server takes.
    #[must_use]
    pub fn too_many_requests(retry_after: u32) -> Self {
        let body = "Too many requests, please try again later.\n";
        PlainError {
            retry_after: Some(retry_after),
            ..Self::new(429, body)
        }
    }

    /// 500 from a filter that failed before the API was reached. The target is quoted, and both it and the
    /// error are escaped for HTML.
    #[must_use]
    pub fn internal_server_error(target: &str, error: &str) -> Self {
        let text = format!("Internal Server Error: {}: {error}\n", quote(target));
        let escaped = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        PlainError {
            uncached: false,
            ..Self::new(500, escaped)
        }
    }

    /// 500 when handling a request panicked.
    #[must_use]
    pub fn panicked() -> Self {
        Self::new(
            500,
            "This request caused apiserver to panic. Look in the logs for details.\n",
        )
    }
}
