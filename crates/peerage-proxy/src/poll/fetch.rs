//! One conditional GET of a peer's document, with a deadline and a size limit.
//!
//! Sent as Kubernetes' servers ask each other: as the user `system:apiserver`, with the guard header, asking for the
//! peer's own (`profile=nopeer`) aggregated document. What the bytes mean is the caller's.
//!
//! Invariants: the whole body is read or the answer is an error (a peer never sees an aborted stream for a good
//! answer); no more than the limit is ever held; every failure has a reason that is a metric label.

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_ENCODING, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use peerage_auth::identity_headers::{self, Family};
use peerage_core::User;
use peerage_http::{Request, Response, SendError, Upstream};
use tokio::time::{Instant, timeout_at};

use crate::headers::{self, GUARD, GUARD_VALUE, PEER};
use crate::peer::TroubleKind;

/// What Kubernetes' servers put into Accept when they ask each other for discovery.
pub const PEER_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// What a front asks with: the same, and for the older form of servers from 1.26 to 1.29.
pub const FRONT_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// A document as it came, or the news that it is the one we have.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// The peer answered 304.
    Unchanged,
    /// The peer answered 200.
    Document {
        /// The body.
        bytes: Bytes,
        /// Its ETag, to ask with next time.
        etag: Option<HeaderValue>,
    },
}

/// Why a peer's document could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("this server itself answers at the address of the peer")]
    Oneself,
    #[error(transparent)]
    Send(SendError),
    #[error("no whole answer within the deadline")]
    Deadline,
    #[error("the peer answered with status {0}")]
    Status(StatusCode),
    #[error("the peer answered 304 although nothing was asked conditionally")]
    UnaskedNotModified,
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the answer is encoded as {0:?}, which was not asked for")]
    Encoded(HeaderValue),
    #[error("the answer broke off")]
    BrokenBody(#[source] peerage_http::BoxError),
    #[error("the path cannot be asked for")]
    Target(#[source] http::Error),
}

impl FetchError {
    /// The metric label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            FetchError::Oneself => "oneself",
            FetchError::Send(error) => error.reason(),
            FetchError::Deadline => "deadline",
            FetchError::Status(status) if status.is_redirection() => "redirect",
            FetchError::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => "refused",
            FetchError::Status(_) => "status",
            FetchError::UnaskedNotModified => "not_modified",
            FetchError::TooLarge(_) => "too_large",
            FetchError::Encoded(_) => "encoding",
            FetchError::BrokenBody(_) => "body",
            FetchError::Target(_) => "target",
        }
    }

    /// What it says of who answers there.
    pub(crate) fn kind(&self) -> TroubleKind {
        match self {
            FetchError::Oneself => TroubleKind::Oneself,
            FetchError::Send(error) if error.stranger().is_some() => TroubleKind::Stranger,
            _ => TroubleKind::Other,
        }
    }

    /// Whether there is no whole answer (rather than a useless one).
    pub(crate) fn is_transport(&self) -> bool {
        matches!(
            self,
            FetchError::Send(_) | FetchError::Deadline | FetchError::BrokenBody(_)
        )
    }

    /// Whether that says that the peer cannot be reached. One that cancels a request is there.
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            FetchError::Send(error) => error.is_silence(),
            other => other.is_transport(),
        }
    }

    /// The connection that failed.
    pub(crate) fn connection(&self) -> Option<u64> {
        match self {
            FetchError::Send(error) => error.connection(),
            _ => None,
        }
    }
}

/// What to fetch and within which limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch<'a> {
    pub(crate) path: &'a str,
    pub(crate) accept: Option<&'static str>,
    pub(crate) etag: Option<&'a HeaderValue>,
    pub(crate) deadline: Instant,
    pub(crate) size_limit: usize,
    /// Who asks.
    pub(crate) own_id: &'a str,
    /// How we say that we are a server; a front that has no front-proxy certificate asks as itself.
    pub(crate) family: &'a Family,
}

/// Asks the peer.
pub(crate) async fn fetch(upstream: &Upstream, what: Fetch<'_>) -> Result<Fetched, FetchError> {
    let request = request(what).map_err(FetchError::Target)?;
    let answer = async {
        let response = upstream.send(request).await.map_err(FetchError::Send)?;
        let server = response.headers().get(PEER);
        if server.is_some_and(|server| server == what.own_id) {
            return Err(FetchError::Oneself);
        }
        read(response, what).await
    };
    timeout_at(what.deadline, answer)
        .await
        .unwrap_or(Err(FetchError::Deadline))
}

fn request(what: Fetch<'_>) -> Result<Request, http::Error> {
    let mut request = http::Request::builder()
        .method(Method::GET)
        .uri(what.path)
        .header(GUARD, GUARD_VALUE)
        .body(peerage_http::empty())?;
    let headers = request.headers_mut();
    if let Some(accept) = what.accept {
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
    }
    if let Some(etag) = what.etag {
        headers.insert(IF_NONE_MATCH, etag.clone());
    }
    headers::leave_trace(headers, what.own_id);
    if *what.family != Family::Impersonation {
        // The name, the UID and the group are plain text, which headers can carry.
        let _ = identity_headers::set_as(what.family, headers, &peer_user());
    }
    Ok(request)
}

/// The user that Kubernetes' servers are when they ask each other for discovery.
#[must_use]
pub fn peer_user() -> User {
    User {
        name: "system:apiserver".to_owned(),
        uid: "system:apiserver".to_owned(),
        groups: vec!["system:authenticated".to_owned()],
        extra: Default::default(),
    }
}

async fn read(response: Response, what: Fetch<'_>) -> Result<Fetched, FetchError> {
    let (head, mut body) = response.into_parts();
    match head.status {
        StatusCode::NOT_MODIFIED if what.etag.is_some() => return Ok(Fetched::Unchanged),
        StatusCode::NOT_MODIFIED => return Err(FetchError::UnaskedNotModified),
        StatusCode::OK => {}
        other => return Err(FetchError::Status(other)),
    }
    if let Some(encoding) = head.headers.get(CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(FetchError::Encoded(encoding.clone()));
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(FetchError::BrokenBody)?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > what.size_limit {
                return Err(FetchError::TooLarge(what.size_limit));
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(Fetched::Document {
        bytes: bytes.freeze(),
        etag: head.headers.get(ETAG).cloned(),
    })
}
