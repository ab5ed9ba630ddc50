//! Paths that are no resources: health, version, metrics, OpenAPI, the proxy's debug pages, the list of paths.

use http::request::Parts;
use http::{Method, StatusCode};
use peerage_core::media::negotiate_document;
use peerage_core::route::Explanation;
use peerage_core::{GroupResource, PlainError, RequestInfo, Status};
use peerage_http::{Body, Response};
use peerage_proxy::DebugPeers;
use serde::Serialize;

use super::{index, pages, token_keys};
use crate::api::Api;
use crate::error::ApiError;
use crate::health::Page;
use crate::openapi;
use crate::respond::Respond;

/// Answers a path.
pub(super) async fn answer(
    api: &Api,
    info: &RequestInfo<'_>,
    parts: &Parts,
    _body: Body,
) -> Response {
    let path = info.path();
    let respond = Respond::plain(&parts.headers, &info.query());
    if let Some(page) = health_page(path) {
        let (page, check) = page;
        return api.health.answer(page, check, &info.query());
    }
    if let Some(issuer) = &api.issuer {
        match path.strip_suffix('/').unwrap_or(path) {
            "/.well-known/openid-configuration" => {
                return token_keys::configuration(issuer, parts, &respond);
            }
            "/openid/v1/jwks" => return token_keys::key_set(issuer, parts, &respond),
            _ => {}
        }
    }
    match path {
        "/" | "/index.html" => index::answer(api),
        "/version" | "/version/" => version(api, parts, &respond),
        path if path.starts_with("/version/") => respond.error(&ApiError::unknown_path()),
        "/metrics" | "/metrics/slis" => api.metrics.response(),
        "/statusz" if api.serves_pages => pages::statusz(api, parts, &respond),
        "/flagz" if api.serves_pages => pages::flagz(api, parts, &respond),
        "/debug/peers" => debug_peers(api, info, &respond),
        "/debug/peers/refresh" => refresh(api, parts, &respond),
        "/openapi/v2" => openapi::v2::answer(api, parts),
        path if path == "/openapi/v3" || path.starts_with("/openapi/v3/") => {
            openapi::v3::answer(api, info, parts)
        }
        path if is_below_served_group(api, path) => respond.error(&ApiError::unknown_path()),
        _ => peerage_http::plain(&PlainError::page_not_found()),
    }
}

fn health_page(path: &str) -> Option<(Page, Option<&str>)> {
    [
        ("/healthz", Page::Healthz),
        ("/livez", Page::Livez),
        ("/readyz", Page::Readyz),
    ]
    .into_iter()
    .find_map(|(at, page)| match path.strip_prefix(at)? {
        "" => Some((page, None)),
        rest => rest
            .strip_prefix('/')
            .filter(|c| !c.is_empty())
            .map(|check| (page, Some(check))),
    })
}

/// A path that begins like a served group but leads nowhere is a Status; anything else is plain text.
fn is_below_served_group(api: &Api, path: &str) -> bool {
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/');
    match (parts.next(), parts.next()) {
        (Some("api"), Some(_)) => true,
        (Some("apis"), Some(group)) => api.resources.has_group(group),
        _ => false,
    }
}

/// The peers; with `explain=METHOD PATH`, also who would answer that request, and why.
fn debug_peers(api: &Api, info: &RequestInfo<'_>, respond: &Respond) -> Response {
    let explanation = match api.proxy.explain(&info.query()) {
        Ok(explanation) => explanation,
        Err(error) => return respond.error(&Status::bad_request(error.to_string()).into()),
    };
    let peers = api.proxy.debug();
    respond.document(StatusCode::OK, &DebugPage { peers, explanation })
}

#[derive(Serialize)]
struct DebugPage {
    #[serde(flatten)]
    peers: DebugPeers,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
}

/// Asks every peer for its documents now.
fn refresh(api: &Api, parts: &Parts, respond: &Respond) -> Response {
    if parts.method != Method::POST {
        return respond.error(&Status::method_not_allowed().into());
    }
    api.proxy.refresh();
    respond.document(
        StatusCode::ACCEPTED,
        &Status::success(GroupResource::new("", "peers"), "", ""),
    )
}

fn version(api: &Api, parts: &Parts, respond: &Respond) -> Response {
    if parts.method != Method::GET {
        return respond.error(&Status::method_not_allowed().into());
    }
    let accept = super::accept_of(&parts.headers);
    if let Err(refusal) = negotiate_document(accept, &["application/json"]) {
        return respond.error(&Status::from(refusal).into());
    }
    respond.document(StatusCode::OK, api.catalogue.version_info())
}
