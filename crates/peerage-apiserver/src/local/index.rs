//! `/`: the paths that this server knows.

use std::collections::BTreeSet;

use http::StatusCode;
use peerage_http::Response;
use serde::Serialize;

use crate::api::Api;
use crate::respond::Respond;

/// Paths that are always there.
const FIXED: [&str; 15] = [
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/debug/peers",
    "/healthz",
    "/healthz/ping",
    "/livez",
    "/livez/ping",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/readyz",
    "/version",
];

#[derive(Serialize)]
struct Index {
    paths: BTreeSet<String>,
}

/// Answers `/`.
pub(super) fn answer(api: &Api, respond: &Respond) -> Response {
    let mut paths: BTreeSet<String> = FIXED.iter().map(|p| (*p).to_owned()).collect();
    for group in api.catalogue.groups().iter().filter(|g| !g.name.is_empty()) {
        paths.insert(format!("/apis/{}", group.name));
        paths.extend(
            group
                .versions
                .iter()
                .map(|v| format!("/apis/{}/{}", group.name, v.version)),
        );
    }
    respond.document(StatusCode::OK, &Index { paths })
}
