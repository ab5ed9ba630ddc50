//! Compressed forms of what the proxy makes itself, as kube-apiserver compresses its own.
//!
//! Each form is compressed once and sent often; what other servers answer is passed on as it comes. Which documents there
//! are, and who asks for them, is `discovery`'s and `openapi`'s.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};
use peerage_core::media;

use crate::answer::text;

/// Discovery is compressed beyond this (kube-apiserver's bound for everything that it serializes).
const DISCOVERY_MOST: usize = 128 << 10;
/// OpenAPI from this on (the bound of the handler around it).
const OPENAPI_LEAST: usize = 1400;

/// Whether this client may get compressed discovery.
pub(crate) fn takes_discovery(headers: &HeaderMap) -> bool {
    media::takes_gzip(text(headers, ACCEPT_ENCODING))
}

/// Whether this client may get compressed OpenAPI of version 2.
pub(crate) fn takes_openapi(headers: &HeaderMap) -> bool {
    media::weighs_gzip(text(headers, ACCEPT_ENCODING))
}

/// Compresses a discovery document that is large enough.
pub(crate) fn discovery(bytes: &[u8]) -> Option<Arc<[u8]>> {
    (bytes.len() > DISCOVERY_MOST)
        .then(|| pack(bytes))
        .flatten()
}

/// Compresses an OpenAPI document that is large enough.
pub(crate) fn openapi(bytes: &[u8]) -> Option<Arc<[u8]>> {
    (bytes.len() >= OPENAPI_LEAST)
        .then(|| pack(bytes))
        .flatten()
}

fn pack(bytes: &[u8]) -> Option<Arc<[u8]>> {
    let room = Vec::with_capacity(bytes.len() / 8);
    let mut encoder = GzEncoder::new(room, Compression::default());
    encoder.write_all(bytes).ok()?;
    Some(encoder.finish().ok()?.into())
}

/// Says that the body is compressed.
pub(crate) fn mark(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
}

/// Says that whether it is compressed depends on the request.
pub(crate) fn vary(headers: &mut HeaderMap) {
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
}
