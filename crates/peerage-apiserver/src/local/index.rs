//! `/`: the paths that this server knows.

use std::collections::BTreeSet;

use http::StatusCode;
use peerage_http::Response;
use serde::Serialize;

use crate::api::Api;
use crate::respond;

/// Paths that are always there.
pub(super) const FIXED: [&str; 16] = [
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/debug/peers",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/readyz",
    "/statusz",
    "/version",
];

/// Paths that are there when token keys are published.
const KEYS: [&str; 2] = ["/.well-known/openid-configuration", "/openid/v1/jwks"];

#[derive(Serialize)]
struct Index {
    paths: BTreeSet<String>,
}

/// Answers `/`, as indented JSON whatever is accepted.
pub(super) fn answer(api: &Api) -> Response {
    let mut paths: BTreeSet<String> = FIXED.iter().map(|p| (*p).to_owned()).collect();
    paths.extend(api.health.paths());
    if api.issuer.is_some() {
        paths.extend(KEYS.map(str::to_owned));
    }
    for group in api.catalogue.groups().iter().filter(|g| !g.name.is_empty()) {
        paths.insert(format!("/apis/{}", group.name));
        paths.extend(
            group
                .versions
                .iter()
                .map(|v| format!("/apis/{}/{}", group.name, v.version)),
        );
    }
    let body = peerage_core::json::to_vec_pretty(&Index { paths }).unwrap_or_default();
    respond::respond(StatusCode::OK, "application/json", body.into())
}
