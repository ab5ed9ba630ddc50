//! OpenAPI of what this server serves, made from the catalogue: v3, a document per group-version and one for each
//! other path, and v2, one for all. Types and paths without prose, which is what clients check and complete with.
//!
//! Documents are made on first use and kept. Those of the whole control plane are the proxy's to merge.

mod overview;
mod paths;
pub(crate) mod protobuf;
mod schemas;
pub(crate) mod v2;
pub(crate) mod v3;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};
use http::{HeaderMap, StatusCode};
use peerage_catalogue::Catalogue;
use peerage_http::Response;
use sha2::{Digest as _, Sha512};

/// Whether the client takes JSON; version 2 as protobuf is [`protobuf`]'s.
fn takes_json(headers: &HeaderMap) -> bool {
    peerage_core::media::takes_json(headers.get(ACCEPT).and_then(|v| v.to_str().ok()))
}

/// An answer without a body and without a type.
fn bare(code: StatusCode) -> Response {
    let mut response = Response::new(peerage_http::empty());
    *response.status_mut() = code;
    let no_cache = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(CACHE_CONTROL, no_cache);
    response
}

/// One document and the hash of its bytes, 128 upper-case hexadecimal digits.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) json: Bytes,
    pub(crate) hash: String,
}

impl Document {
    fn new(json: String) -> Self {
        let hash = Sha512::digest(json.as_bytes())
            .iter()
            .map(|b| format!("{b:02X}"))
            .collect();
        Self {
            json: json.into(),
            hash,
        }
    }
}

/// The documents of one catalogue.
#[derive(Debug)]
pub(crate) struct OpenApi {
    catalogue: Arc<Catalogue>,
    /// By path below `/openapi/v3/`, such as `apis/apps/v1`.
    v3: BTreeMap<String, OnceLock<Document>>,
    v2: OnceLock<Document>,
}

impl OpenApi {
    /// `keys`: whether the keys of service account tokens are published.
    pub(crate) fn new(catalogue: Arc<Catalogue>, keys: bool) -> Self {
        let keys = overview::KEYS.iter().filter(|_| keys);
        let others = overview::FIXED.iter().chain(keys);
        let mut paths: BTreeMap<String, _> = others
            .map(|path| ((*path).to_owned(), OnceLock::new()))
            .collect();
        for group in catalogue.groups() {
            if !group.name.is_empty() {
                paths.insert(format!("apis/{}", group.name), OnceLock::new());
            }
            for version in &group.versions {
                let path = if group.name.is_empty() {
                    format!("api/{}", version.version)
                } else {
                    format!("apis/{}/{}", group.name, version.version)
                };
                paths.insert(path, OnceLock::new());
            }
        }
        Self {
            catalogue,
            v3: paths,
            v2: OnceLock::new(),
        }
    }

    /// Paths of the v3 documents.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.v3.keys().map(String::as_str)
    }

    /// The v3 document of a path such as `apis/apps/v1`.
    pub(crate) fn v3(&self, path: &str) -> Option<&Document> {
        let slot = self.v3.get(path)?;
        Some(slot.get_or_init(|| Document::new(v3::document(&self.catalogue, path).to_string())))
    }

    /// The v2 document.
    pub(crate) fn v2(&self) -> &Document {
        self.v2
            .get_or_init(|| Document::new(v2::document(&self.catalogue).to_string()))
    }
}

#[cfg(test)]
mod tests;
