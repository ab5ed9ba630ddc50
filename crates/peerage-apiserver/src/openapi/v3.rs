//! `/openapi/v3`: the index of documents with their hashes, and the documents.

use http::header::{CACHE_CONTROL, ETAG, EXPIRES, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use peerage_catalogue::Catalogue;
use peerage_core::RequestInfo;
use peerage_http::Response;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::schemas::{Dialect, Writer};
use super::{Document, Fragments, overview, paths};
use crate::api::Api;
use crate::respond;

const INDEX: &str = "/openapi/v3";

/// The document of a path such as `apis/apps/v1`.
pub(super) fn document(catalogue: &Catalogue, path: &str) -> String {
    if let Some(document) = overview::document(catalogue, path) {
        return document;
    }
    let parts: Vec<&str> = path.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["apis", group, version] => (*group, *version),
        [_, version] => ("", *version),
        _ => ("", ""),
    };
    let mut writer = Writer::new(catalogue, Dialect::V3, group, version);
    let mut found = Fragments::new();
    paths::add(
        catalogue,
        &mut writer,
        Dialect::V3,
        group,
        version,
        &mut found,
    );
    whole(catalogue, &found, &writer.finish())
}

/// A document of these paths and types.
pub(super) fn whole(catalogue: &Catalogue, paths: &Fragments, schemas: &Fragments) -> String {
    let whole = Whole {
        components: Components {
            schemas,
            security_schemes: json!({
                "BearerToken": { "type": "apiKey", "name": "authorization", "in": "header" },
            }),
        },
        info: json!({ "title": "Kubernetes", "version": catalogue.version() }),
        openapi: "3.0.0",
        paths,
    };
    serde_json::to_string(&whole).unwrap_or_default()
}

/// A document.
#[derive(Serialize)]
struct Whole<'a> {
    components: Components<'a>,
    info: Value,
    openapi: &'static str,
    paths: &'a Fragments,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Components<'a> {
    #[serde(skip_serializing_if = "Fragments::is_empty")]
    schemas: &'a Fragments,
    security_schemes: Value,
}

/// How a type is referred to.
pub(super) fn reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

/// Answers the index or a document.
pub(crate) fn answer(api: &Api, info: &RequestInfo<'_>, parts: &Parts) -> Response {
    let below = info.path().strip_prefix(INDEX).unwrap_or_default();
    let Some(path) = below.strip_prefix('/') else {
        return index(api, &parts.headers);
    };
    match api.openapi.v3(path) {
        Some(document) => serve(document, path, info.query().first("hash"), &parts.headers),
        None => super::bare(StatusCode::NOT_FOUND),
    }
}

fn index(api: &Api, headers: &HeaderMap) -> Response {
    // It has no tag of its own, so nothing but "any" matches.
    if matches(headers, "") {
        return super::bare(StatusCode::NOT_MODIFIED);
    }
    let mut paths = Map::new();
    for path in api.openapi.paths() {
        let Some(document) = api.openapi.v3(path) else {
            continue;
        };
        let url = format!("{INDEX}/{path}?hash={}", document.hash);
        paths.insert(path.to_owned(), json!({ "serverRelativeURL": url }));
    }
    let body = json!({ "paths": paths }).to_string();
    respond::respond(StatusCode::OK, "text/plain; charset=utf-8", body.into())
}

/// A document: for ever under its own hash, to be asked for again without one, elsewhere under another.
fn serve(document: &Document, path: &str, hash: Option<&str>, headers: &HeaderMap) -> Response {
    let etag = format!("\"{}\"", document.hash);
    let value = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
    if hash.is_some_and(|h| !h.is_empty() && h != document.hash) {
        let mut response =
            respond::respond(StatusCode::MOVED_PERMANENTLY, "application/json", "".into());
        let url = format!("{INDEX}/{path}?hash={}", document.hash);
        response.headers_mut().insert(LOCATION, value(url));
        response.headers_mut().insert(ETAG, value(etag));
        response
            .headers_mut()
            .insert(VARY, HeaderValue::from_static("Accept"));
        return response;
    }
    let mut response = if matches(headers, &etag) {
        super::bare(StatusCode::NOT_MODIFIED)
    } else if !super::takes_json(headers) {
        let mut response = super::bare(StatusCode::NOT_ACCEPTABLE);
        response
            .headers_mut()
            .insert(VARY, HeaderValue::from_static("Accept"));
        return response;
    } else {
        document.answer()
    };
    let found = response.headers_mut();
    found.insert(ETAG, value(etag));
    found.insert(VARY, HeaderValue::from_static("Accept"));
    if hash.is_some_and(|h| !h.is_empty()) {
        found.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        let year = jiff::Timestamp::now()
            .saturating_add(jiff::SignedDuration::from_hours(24 * 365))
            .unwrap_or_default();
        found.insert(
            EXPIRES,
            value(year.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()),
        );
    }
    response
}

/// OpenAPI honours lists, weak tags and `*`, unlike aggregated discovery.
pub(super) fn matches(headers: &HeaderMap, etag: &str) -> bool {
    let sent = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok());
    sent.flat_map(|v| v.split(','))
        .map(str::trim)
        .filter(|tag| !tag.is_empty())
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}
