//! Answering OpenAPI requests of clients.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use peerage_core::media;
use peerage_http::{Request, Response, body};

use super::{Elsewhere, INDEX, v2};
use crate::answer::Form;
use crate::error::ProxyError;
use crate::forward::Why;
use crate::gzip;
use crate::peer::Peer;
use crate::service::Call;

/// The local document is made in memory, so it does not pause for long.
const LOCAL_PAUSE: Duration = Duration::from_secs(30);

/// More than the largest local document.
const LOCAL_LIMIT: usize = 64 << 20;

/// What is asked for.
pub(crate) enum Asked {
    /// The index of version 3.
    Index,
    /// One document of version 3, by its path below the index.
    Document(String),
    /// The one document of version 2.
    V2,
}

impl Asked {
    /// What this path asks for, if it is one of OpenAPI's.
    pub(crate) fn of(path: &str) -> Option<Asked> {
        match path {
            v2::PATH => Some(Asked::V2),
            _ => match path.strip_prefix(INDEX)? {
                "" => Some(Asked::Index),
                below => Some(Asked::Document(below.strip_prefix('/')?.to_owned())),
            },
        }
    }
}

impl Asked {
    /// Whether a front answers it without a server.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self, Asked::Index | Asked::V2)
    }
}

/// The local service, to be called once.
pub(crate) type Inner =
    Box<dyn FnOnce(Request) -> BoxFuture<'static, Result<Response, Infallible>> + Send>;

/// Answers from here, from a peer, or from both.
pub(crate) async fn answer(
    call: Call,
    asked: Asked,
    inner: Inner,
    request: Request,
) -> Result<Response, Infallible> {
    let snapshot = call.snapshot.clone();
    let elsewhere = snapshot.elsewhere();
    if snapshot.view.is_front() {
        return front(call, asked, inner, request).await;
    }
    if elsewhere.is_empty() {
        return inner(request).await;
    }
    match asked {
        Asked::Document(path) => document(call, &path, inner, request).await,
        Asked::Index => index(elsewhere, inner, request).await,
        Asked::V2 if !takes_json(request.headers()) => inner(request).await,
        Asked::V2 => version_2(&call, elsewhere, inner, request).await,
    }
}

/// A document of version 3 comes from whoever has it.
async fn document(
    call: Call,
    path: &str,
    inner: Inner,
    request: Request,
) -> Result<Response, Infallible> {
    let snapshot = call.snapshot.clone();
    match snapshot.elsewhere().get(path) {
        Some(held) => {
            let peers = reachable(&call, &held.peers);
            Ok(call.forward(request, peers, Why::Described).await)
        }
        None => inner(request).await,
    }
}

/// A front answers alike whichever server a request would go to.
async fn front(
    call: Call,
    asked: Asked,
    inner: Inner,
    request: Request,
) -> Result<Response, Infallible> {
    let snapshot = call.snapshot.clone();
    let elsewhere = snapshot.elsewhere();
    if !snapshot.view.synced() {
        let why = "not every server has said yet what it serves".to_owned();
        let form = Form::of(&request, &call.info);
        return Ok(form.refuse(&call, &ProxyError::NotKnown { why }));
    }
    match asked {
        Asked::Document(path) => document(call, &path, inner, request).await,
        // No server has one: they say so in their own words.
        Asked::Index if elsewhere.is_empty() => inner(request).await,
        Asked::Index => {
            let mut head = head("text/plain; charset=utf-8");
            // It has no tag, so only "any" is one that the client has.
            if tags(request.headers()).any(|it| it == "*") {
                head.status = StatusCode::NOT_MODIFIED;
                head.headers.remove(CONTENT_TYPE);
                return Ok(rebuilt(head, Bytes::new()));
            }
            let bytes = elsewhere.index().unwrap_or_default();
            Ok(rebuilt(head, bytes.into()))
        }
        Asked::V2 if !takes_json(request.headers()) => {
            let newest = newest(&call);
            Ok(call.forward(request, newest, Why::Described).await)
        }
        Asked::V2 => {
            let mut peers = newest(&call);
            peers.truncate(1);
            let others = elsewhere.peers(peers.first().map(|it| &**it));
            peers.extend(reachable(&call, &others));
            match call.shared.openapi_v2.get(&call.shared, None, peers).await {
                Some(merged) => Ok(version_2_of(request.headers(), merged)),
                None => inner(request).await,
            }
        }
    }
}

/// The servers of the newest version that can be asked now.
fn newest(call: &Call) -> Vec<Arc<Peer>> {
    let known = call.snapshot.peers.values();
    let there = known.filter(|known| known.is_serving());
    let mut peers: Vec<_> = there.map(|known| known.peer.clone()).collect();
    let newest = peers.iter().filter_map(|peer| peer.version()).max();
    peers.retain(|peer| peer.version() == newest);
    peers.sort_by(|a, b| a.id.cmp(&b.id));
    peers
}

/// The head of a document that is made here.
fn head(content_type: &'static str) -> http::response::Parts {
    let mut head = Response::new(body::empty()).into_parts().0;
    let content_type = HeaderValue::from_static(content_type);
    head.headers.insert(CONTENT_TYPE, content_type);
    let caching = HeaderValue::from_static("no-cache, private");
    head.headers.insert(CACHE_CONTROL, caching);
    head
}

/// What the client says it has.
fn tags(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    tags_of(headers.get_all(IF_NONE_MATCH).into_iter())
}

/// The same, of the lines of `If-None-Match`.
fn tags_of<'h>(lines: impl Iterator<Item = &'h HeaderValue>) -> impl Iterator<Item = &'h str> {
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

fn version_2_of(headers: &HeaderMap, merged: v2::Merged) -> Response {
    let mut head = head("application/json");
    gzip::vary(&mut head.headers);
    head.headers
        .append(VARY, HeaderValue::from_static("Accept"));
    let fits = tags(headers).any(|it| names(it, &merged.etag));
    head.headers.insert(ETAG, merged.etag.clone());
    if fits {
        head.status = StatusCode::NOT_MODIFIED;
        head.headers.remove(CONTENT_TYPE);
        return rebuilt(head, Bytes::new());
    }
    whole_version_2(head, merged, gzip::takes_openapi(headers))
}

fn whole_version_2(mut head: http::response::Parts, merged: v2::Merged, gzip: bool) -> Response {
    let Some(packed) = merged.packed.filter(|_| gzip) else {
        return rebuilt(head, merged.bytes);
    };
    gzip::mark(&mut head.headers);
    rebuilt(head, Bytes::from_owner(packed))
}

/// Whether what the client has is this, weakly compared (RFC 9110 section 13.1.2), as kube-apiserver's OpenAPI does.
fn names(it: &str, tag: &HeaderValue) -> bool {
    it == "*" || it.strip_prefix("W/").unwrap_or(it).as_bytes() == tag.as_bytes()
}

async fn index(
    elsewhere: &Elsewhere,
    inner: Inner,
    request: Request,
) -> Result<Response, Infallible> {
    let whole = Whole::of(request);
    let (head, bytes) = match collect(inner(whole.request).await?).await {
        Ok(collected) => collected,
        Err(response) => return Ok(response),
    };
    let merged = elsewhere.merge_into(&bytes).map(Bytes::from);
    Ok(rebuilt(head, merged.unwrap_or(bytes)))
}

async fn version_2(
    call: &Call,
    elsewhere: &Elsewhere,
    inner: Inner,
    request: Request,
) -> Result<Response, Infallible> {
    let whole = Whole::of(request);
    let (mut head, bytes) = match collect(inner(whole.request).await?).await {
        Ok(collected) => collected,
        Err(response) => return Ok(response),
    };
    let local = v2::Local {
        bytes: bytes.clone(),
        etag: head.headers.get(ETAG).cloned(),
    };
    let cache = &call.shared.openapi_v2;
    let merged = cache.get(&call.shared, Some(local), elsewhere.peers(None));
    let Some(merged) = merged.await else {
        return Ok(rebuilt(head, bytes));
    };
    head.headers.insert(ETAG, merged.etag.clone());
    if tags_of(whole.if_none_match.iter()).any(|it| names(it, &merged.etag)) {
        head.status = StatusCode::NOT_MODIFIED;
        return Ok(rebuilt(head, Bytes::new()));
    }
    Ok(whole_version_2(head, merged, whole.gzip))
}

/// The peers that a request can be sent to now.
fn reachable(call: &Call, peers: &[Arc<Peer>]) -> Vec<Arc<Peer>> {
    let live = |peer: &&Arc<Peer>| {
        call.snapshot
            .peers
            .get(&peer.id)
            .is_some_and(|known| !known.is_away())
    };
    peers.iter().filter(live).cloned().collect()
}

/// A request for the whole local document, with what the client wanted of it.
struct Whole {
    request: Request,
    if_none_match: Vec<HeaderValue>,
    gzip: bool,
}

impl Whole {
    fn of(mut request: Request) -> Whole {
        let gzip = gzip::takes_openapi(request.headers());
        *request.method_mut() = Method::GET;
        let headers = request.headers_mut();
        let if_none_match = headers.get_all(IF_NONE_MATCH).iter().cloned().collect();
        for name in [
            ACCEPT_ENCODING,
            IF_NONE_MATCH,
            IF_MATCH,
            IF_MODIFIED_SINCE,
            IF_UNMODIFIED_SINCE,
            RANGE,
        ] {
            headers.remove(name);
        }
        Whole {
            request,
            if_none_match,
            gzip,
        }
    }
}

/// The body of a good local answer; the answer itself if it is not one to merge into.
async fn collect(response: Response) -> Result<(http::response::Parts, Bytes), Response> {
    let (head, stream) = response.into_parts();
    if head.status != StatusCode::OK || head.headers.contains_key(CONTENT_ENCODING) {
        return Err(Response::from_parts(head, stream));
    }
    match body::collect(stream, LOCAL_LIMIT, LOCAL_PAUSE).await {
        Ok(bytes) => Ok((head, bytes)),
        Err(error) => {
            tracing::warn!("the local OpenAPI document cannot be read: {error}");
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Err(response)
        }
    }
}

fn rebuilt(mut head: http::response::Parts, bytes: Bytes) -> Response {
    head.headers.remove(ACCEPT_RANGES);
    head.headers.remove(CONTENT_LENGTH);
    if head.status == StatusCode::OK {
        head.headers
            .insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    Response::from_parts(head, body::full(bytes))
}

/// Whether the client takes JSON: the protobuf form of version 2 is not merged.
fn takes_json(headers: &HeaderMap) -> bool {
    media::takes_json(headers.get(ACCEPT).and_then(|value| value.to_str().ok()))
}
