//! The one place where a failure becomes an answer: a Status in the client's media type.

use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, StatusCode};
use peerage_core::media::{self, Encoding, Media};
use peerage_core::{RequestInfo, Status, json};
use peerage_http::{Request, Response, body};

use crate::audit::Audit;
use crate::error::ProxyError;
use crate::headers::{GUARD_VALUE, STALE_VIEW};
use crate::render::{Rendering, indent};
use crate::service::Call;

/// In which form this client reads failures, and where they are recorded.
#[derive(Clone)]
pub struct Form {
    /// As it came: most requests do not fail.
    accept: Option<HeaderValue>,
    pretty: bool,
    audit: Audit,
}

impl Form {
    /// Reads it off the request.
    #[must_use]
    pub fn of(request: &Request, info: &RequestInfo<'_>) -> Form {
        let headers = request.headers();
        Form {
            accept: headers.get(ACCEPT).cloned(),
            pretty: media::is_pretty(&info.query(), text(headers, USER_AGENT)),
            audit: Audit::of(request.extensions()),
        }
    }

    /// Says why the proxy refuses the request.
    pub(crate) fn refuse(&self, call: &Call, error: &ProxyError) -> Response {
        call.shared
            .metrics
            .refused(error, &call.info, &call.snapshot.view);
        let usual = call.shared.options.forward.retry_after;
        let after = error.retry_after(usual).map(|after| {
            let rounded_up = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            u32::try_from(rounded_up).unwrap_or(u32::MAX)
        });
        let status = status(error, after);
        self.audit.refused(error.reason(), &status);
        let mut response = self.say(&status, &call.shared.options.rendering);
        if matches!(error, ProxyError::NotForPeers { .. }) {
            response.headers_mut().insert(STALE_VIEW, GUARD_VALUE);
        }
        response
    }

    /// Writes a Status.
    #[must_use]
    pub fn say(&self, status: &Status, rendering: &Rendering) -> Response {
        let (media, bytes) = self.encode(status, rendering);
        let length = HeaderValue::from(bytes.len());
        let mut response = Response::new(body::full(bytes));
        *response.status_mut() =
            StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media.content_type()));
        headers.insert(CONTENT_LENGTH, length);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(after) = status.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(after));
        }
        response
    }

    fn encode(&self, status: &Status, rendering: &Rendering) -> (Media, Vec<u8>) {
        let encoding = self.encoding();
        if encoding.media == Media::Protobuf {
            return (Media::Protobuf, status.to_protobuf());
        }
        // A Status is structs and strings, which JSON can always hold.
        let json = json::to_body(status).unwrap_or_default();
        if encoding.media == Media::Yaml
            && let Some(yaml) = rendering.yaml.write(&json)
        {
            return (Media::Yaml, yaml);
        }
        let pretty = encoding.pretty;
        (Media::Json, if pretty { indent(&json) } else { json })
    }

    fn encoding(&self) -> Encoding {
        let accept = self.accept.as_ref().and_then(|it| it.to_str().ok());
        let mut encoding = media::negotiate_status(accept, Media::OFFERED_WITH_PROTOBUF);
        encoding.pretty |= self.pretty;
        encoding
    }
}

/// A field's value, if it is text. Of several lines the first counts, as for kube-apiserver.
pub(crate) fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn status(error: &ProxyError, after: Option<u32>) -> Status {
    let message = error.to_string();
    let status = match error.code() {
        StatusCode::GATEWAY_TIMEOUT => {
            let what = message.strip_prefix("Timeout: ");
            return Status::timeout(what.unwrap_or(&message), after.unwrap_or(1));
        }
        StatusCode::INTERNAL_SERVER_ERROR => Status::internal(message),
        StatusCode::BAD_REQUEST => Status::bad_request(message),
        _ => Status::service_unavailable(message),
    };
    match after {
        Some(after) => status.with_retry_after(after),
        None => status,
    }
}
