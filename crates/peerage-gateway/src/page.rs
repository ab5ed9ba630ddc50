//! Short texts that the gateway answers itself.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use peerage_core::PlainError;
use peerage_http::{Response, full};

/// A short text.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(PlainError::CONTENT_TYPE),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
