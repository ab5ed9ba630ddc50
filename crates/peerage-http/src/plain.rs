//! The answers that are plain text and never a Status ([`PlainError`]), as responses.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use peerage_core::PlainError;

use crate::{Response, full};

/// The answer with all header fields that belong to it.
#[must_use]
pub fn plain(plain: &PlainError) -> Response {
    let mut response = Response::new(full(Bytes::from(plain.body.clone().into_owned())));
    *response.status_mut() =
        StatusCode::from_u16(plain.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(PlainError::CONTENT_TYPE),
    );
    if plain.nosniff {
        headers.insert(
            "x-content-type-options",
            HeaderValue::from_static("nosniff"),
        );
    }
    if let Some(seconds) = plain.retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if plain.uncached {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    }
    response
}
