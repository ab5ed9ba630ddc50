//! OpenID Connect discovery of service account tokens: who issues them, and with which keys they are verified.

use http::header::{CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use peerage_auth::TokenKeys;
use peerage_core::Status;
use peerage_core::media::negotiate_document;
use peerage_http::Response;
use serde::Serialize;

use crate::respond::{self, Respond};

const KEY_SET: &str = "application/jwk-set+json";

/// What is published.
#[derive(Debug, Clone)]
pub(crate) struct Issuer {
    /// The issuer's name, an https URL.
    pub(crate) issuer: String,
    /// Where the keys are found.
    pub(crate) jwks_uri: String,
    /// The keys.
    pub(crate) keys: TokenKeys,
}

#[derive(Serialize)]
struct Configuration<'a> {
    issuer: &'a str,
    jwks_uri: &'a str,
    response_types_supported: [&'static str; 1],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: Vec<&'static str>,
}

/// Answers `/.well-known/openid-configuration`.
pub(super) fn configuration(issuer: &Issuer, parts: &Parts, respond: &Respond) -> Response {
    let document = Configuration {
        issuer: &issuer.issuer,
        jwks_uri: &issuer.jwks_uri,
        response_types_supported: ["id_token"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: issuer.keys.algorithms(),
    };
    let body = serde_json::to_string(&document).unwrap_or_default();
    answer(parts, respond, "application/json", body)
}

/// Answers `/openid/v1/jwks`.
pub(super) fn key_set(issuer: &Issuer, parts: &Parts, respond: &Respond) -> Response {
    answer(parts, respond, KEY_SET, issuer.keys.key_set())
}

fn answer(parts: &Parts, respond: &Respond, content_type: &'static str, body: String) -> Response {
    if parts.method != Method::GET {
        return respond.error(&Status::method_not_allowed().into());
    }
    if let Err(refusal) = negotiate_document(super::accept_of(&parts.headers), &[content_type]) {
        return respond.error(&Status::from(refusal).into());
    }
    let mut response = respond::respond(StatusCode::OK, content_type, body.into());
    let for_an_hour = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(CACHE_CONTROL, for_an_hour);
    response
}
