//! OpenAPI of what this server serves, made from the catalogue: v3, a document per group-version and one for each
//! other path, and v2, one for all. Types and paths without prose, which is what clients check and complete with.
//!
//! Documents are made on first use and kept, compressed: all of them together are some megabytes, and clients read each
//! once for its hash. They are written part by part, since the tree of a whole one takes ten times its text. Those of the
//! whole control plane are the proxy's to merge.

mod overview;
mod paths;
pub(crate) mod protobuf;
mod schemas;
pub(crate) mod v2;
pub(crate) mod v3;

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};
use http::{HeaderMap, StatusCode};
use peerage_catalogue::Catalogue;
use peerage_core::Status;
use peerage_http::Response;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest as _, Sha512};

use crate::respond;

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

/// Paths or types of a document by name, each written already.
type Fragments = BTreeMap<String, Box<RawValue>>;

/// One of [`Fragments`].
fn fragment(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}

/// One document and the hash of its bytes, 128 upper-case hexadecimal digits.
#[derive(Debug)]
pub(crate) struct Document {
    /// The text, compressed, and how long it is in bytes.
    packed: (Vec<u8>, usize),
    pub(crate) hash: String,
}

impl Document {
    fn new(json: String) -> Self {
        let hash = Sha512::digest(json.as_bytes())
            .iter()
            .map(|b| format!("{b:02X}"))
            .collect();
        let packed = respond::compress(json.as_bytes()).unwrap_or_default();
        let packed = (packed, json.len());
        Self { packed, hash }
    }

    /// The text.
    ///
    /// # Errors
    ///
    /// If it could not be compressed when it was made.
    pub(crate) fn json(&self) -> io::Result<Bytes> {
        let (packed, len) = &self.packed;
        let mut json = Vec::with_capacity(*len);
        GzDecoder::new(packed.as_slice()).read_to_end(&mut json)?;
        Ok(json.into())
    }

    /// An answer of the whole document.
    fn answer(&self) -> Response {
        match self.json() {
            Ok(json) => respond::respond(StatusCode::OK, "application/json", json),
            Err(error) => respond::failure(&Status::internal(error.to_string())),
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
        Some(slot.get_or_init(|| Document::new(v3::document(&self.catalogue, path))))
    }

    /// The v2 document.
    pub(crate) fn v2(&self) -> &Document {
        self.v2
            .get_or_init(|| Document::new(v2::document(&self.catalogue)))
    }
}

#[cfg(test)]
mod tests;
