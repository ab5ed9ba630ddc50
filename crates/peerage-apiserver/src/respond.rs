//! Responses: bodies in the client's media type, the headers that belong to every answer, errors.

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::Stream;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue,
    RETRY_AFTER, USER_AGENT, VARY,
};
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use peerage_auth::AuditContext;
use peerage_core::media::{self, Encoding, Media, ResourceAccept};
use peerage_core::{PlainError, Query, Status, json};
use peerage_http::{BoxError, Response};
use serde::Serialize;
use serde_json::Value;
use std::io::Write as _;

use crate::error::ApiError;

/// Largest body that is not compressed (kube-apiserver: 128 KiB).
const GZIP_BEYOND: usize = 128 << 10;
/// gzip level; kube-apiserver takes 1 as well.
const GZIP_LEVEL: u32 = 1;

/// How one client wants its answer.
#[derive(Debug, Clone)]
pub(crate) struct Respond {
    encoding: Encoding,
    gzip: bool,
    /// Where the answer's object is recorded.
    audit: Option<AuditContext>,
}

impl Respond {
    /// Answers as negotiated.
    pub(crate) fn new(accept: &ResourceAccept, headers: &HeaderMap, query: &Query<'_>) -> Self {
        let pretty = accept.pretty || media::is_pretty(query, user_agent(headers));
        Self {
            encoding: Encoding {
                media: accept.media,
                pretty,
            },
            gzip: accepts_gzip(headers),
            audit: None,
        }
    }

    /// The same, recorded as far as the audit policy asks for it.
    pub(crate) fn recorded(self, audit: Option<&AuditContext>) -> Self {
        let audit = audit.filter(|audit| audit.wants_response_object()).cloned();
        Self { audit, ..self }
    }

    /// For failures, and for documents that know no conversion.
    pub(crate) fn plain(headers: &HeaderMap, query: &Query<'_>) -> Self {
        let encoding = media::negotiate_status(
            headers.get(ACCEPT).and_then(|v| v.to_str().ok()),
            Media::OFFERED,
        );
        let pretty = encoding.pretty || media::is_pretty(query, user_agent(headers));
        Self {
            encoding: Encoding { pretty, ..encoding },
            gzip: accepts_gzip(headers),
            audit: None,
        }
    }

    /// An answer whose fields are written in the order of the type.
    pub(crate) fn document(&self, code: StatusCode, document: &impl Serialize) -> Response {
        match self.encode(document) {
            Ok(bytes) => {
                if self.encoding.media == Media::Json {
                    self.record(&bytes);
                } else if self.audit.is_some() {
                    self.record(&serde_json::to_vec(document).unwrap_or_default());
                }
                self.bytes(code, bytes)
            }
            Err(error) => failure(&Status::internal(error)),
        }
    }

    /// Records JSON; of an answer in YAML its JSON.
    fn record(&self, json: &[u8]) {
        if let Some(audit) = &self.audit {
            audit.response_object(json);
        }
    }

    /// An answer of ready JSON bytes, which are passed through unless the client wants another form.
    pub(crate) fn json(&self, code: StatusCode, bytes: Bytes) -> Response {
        if self.encoding == Encoding::default() {
            self.record(&bytes);
            return self.bytes(code, bytes);
        }
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(value) => self.document(code, &value),
            Err(error) => failure(&Status::internal(error.to_string())),
        }
    }

    /// A failure.
    pub(crate) fn error(&self, error: &ApiError) -> Response {
        match error {
            ApiError::Plain(plain_error) => peerage_http::plain(plain_error),
            ApiError::Status(status) => {
                let mut response = self.document(code(status), status);
                retry_after(&mut response, status);
                response
            }
        }
    }

    fn encode(&self, document: &impl Serialize) -> Result<Bytes, String> {
        let encoded = match self.encoding.media {
            Media::Json if self.encoding.pretty => {
                json::to_vec_pretty(document).map_err(|e| e.to_string())?
            }
            Media::Json | Media::Protobuf => json::to_body(document).map_err(|e| e.to_string())?,
            Media::Yaml => yaml(document)?.into_bytes(),
        };
        Ok(encoded.into())
    }

    fn bytes(&self, code: StatusCode, bytes: Bytes) -> Response {
        let content_type = self.encoding.media.content_type();
        if !self.gzip || bytes.len() <= GZIP_BEYOND {
            return respond(code, content_type, bytes);
        }
        let mut response = respond(
            code,
            content_type,
            compress(&bytes).unwrap_or_default().into(),
        );
        response
            .headers_mut()
            .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
            .headers_mut()
            .append(VARY, HeaderValue::from_static("Accept-Encoding"));
        response
    }
}

/// YAML with its keys sorted, as Kubernetes writes it.
pub(crate) fn yaml(document: &impl Serialize) -> Result<String, String> {
    let value = serde_json::to_value(document).map_err(|e| e.to_string())?;
    serde_saphyr::to_string(&value).map_err(|e| e.to_string())
}

/// The bytes as gzip.
pub(crate) fn compress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(
        Vec::with_capacity(bytes.len() / 4),
        Compression::new(GZIP_LEVEL),
    );
    gzip.write_all(bytes)?;
    gzip.finish()
}

fn user_agent(headers: &HeaderMap) -> Option<&str> {
    headers.get(USER_AGENT).and_then(|v| v.to_str().ok())
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    media::takes_gzip(
        headers
            .get(ACCEPT_ENCODING)
            .and_then(|value| value.to_str().ok()),
    )
}

/// An answer of that type.
pub(crate) fn respond(code: StatusCode, content_type: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(peerage_http::full(body));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    no_cache(response.headers_mut());
    response
}

/// An answer of text.
pub(crate) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = respond(code, PlainError::CONTENT_TYPE, body.into());
    response.headers_mut().insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// An answer whose body comes bit by bit.
pub(crate) fn streaming(
    content_type: &'static str,
    body: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
) -> Response {
    use futures::StreamExt as _;
    let frames = body.map(|bytes| bytes.map(Frame::data));
    let mut response = Response::new(peerage_http::body::boxed(StreamBody::new(frames)));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    no_cache(response.headers_mut());
    response
}

/// A failure before anything is known of what the client accepts: indented JSON is what kube-apiserver falls back to.
pub(crate) fn failure(status: &Status) -> Response {
    let body = json::to_vec_pretty(status).unwrap_or_default();
    let mut response = respond(code(status), "application/json", body.into());
    retry_after(&mut response, status);
    response
}

fn no_cache(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
}

fn code(status: &Status) -> StatusCode {
    StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn retry_after(response: &mut Response, status: &Status) {
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
}
