//! `/openapi/v2`: everything in one document.

use http::StatusCode;
use http::header::{ETAG, HeaderValue, VARY};
use http::request::Parts;
use peerage_catalogue::Catalogue;
use peerage_http::Response;
use serde::Serialize;
use serde_json::{Value, json};

use super::schemas::{Dialect, Writer};
use super::v3::matches;
use super::{Fragments, paths};
use crate::api::Api;

/// The document of all group-versions.
pub(super) fn document(catalogue: &Catalogue) -> String {
    let mut found = Fragments::new();
    let mut definitions = Fragments::new();
    for group in catalogue.groups() {
        for version in &group.versions {
            let mut writer = Writer::new(catalogue, Dialect::V2, &group.name, &version.version);
            paths::add(
                catalogue,
                &mut writer,
                Dialect::V2,
                &group.name,
                &version.version,
                &mut found,
            );
            for (name, schema) in writer.finish() {
                definitions.entry(name).or_insert(schema);
            }
        }
    }
    let whole = Whole {
        definitions: &definitions,
        info: json!({ "title": "Kubernetes", "version": catalogue.version_info().git_version }),
        paths: &found,
        security: json!([{ "BearerToken": [] }]),
        security_definitions: json!({
            "BearerToken": { "type": "apiKey", "name": "authorization", "in": "header" },
        }),
        swagger: "2.0",
    };
    serde_json::to_string(&whole).unwrap_or_default()
}

/// The document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a> {
    definitions: &'a Fragments,
    info: Value,
    paths: &'a Fragments,
    security: Value,
    security_definitions: Value,
    swagger: &'static str,
}

/// Answers `/openapi/v2`.
pub(crate) fn answer(api: &Api, parts: &Parts) -> Response {
    let document = api.openapi.v2();
    let etag = format!("\"{}\"", document.hash);
    let mut response = if matches(&parts.headers, &etag) {
        super::bare(StatusCode::NOT_MODIFIED)
    } else if !super::takes_json(&parts.headers) {
        super::bare(StatusCode::NOT_ACCEPTABLE)
    } else {
        document.answer()
    };
    let headers = response.headers_mut();
    headers.insert(
        ETAG,
        HeaderValue::from_str(&etag).unwrap_or(HeaderValue::from_static("")),
    );
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(VARY, HeaderValue::from_static("Accept"));
    response
}
