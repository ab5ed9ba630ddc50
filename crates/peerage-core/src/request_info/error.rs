//! Requests that do not say what they ask for, and the plain-text answers to them.
//!
//! They are answered before anybody is authenticated, so the answer tells nothing but the request itself.

use std::fmt::Write;

use crate::query::percent_decode;
use crate::status::PlainError;

/// Why a method and target describe no request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestInfoError {
    /// A malformed `%` escape in the path, or a control character anywhere.
    #[error("the request target {target:?} is malformed")]
    Malformed {
        /// The raw target.
        target: String,
    },
    /// A path that ends in `watch` or `proxy` where a resource has to follow.
    #[error("unable to determine kind and namespace from url, {url}")]
    NoKind {
        /// The raw target.
        target: String,
        /// The target in Go's spelling.
        url: String,
    },
}

impl RequestInfoError {
    pub(super) fn malformed(target: &str) -> Self {
        RequestInfoError::Malformed {
            target: target.to_owned(),
        }
    }

    pub(super) fn no_kind(target: &str, path_end: usize) -> Self {
        let (path, query) = target.split_at(path_end);
        RequestInfoError::NoKind {
            target: target.to_owned(),
            url: go_path(path) + query,
        }
    }

    /// The answer to such a request.
    #[must_use]
    pub fn plain(&self) -> PlainError {
        match self {
            RequestInfoError::Malformed { .. } => PlainError::malformed_request(),
            RequestInfoError::NoKind { target, .. } => PlainError::internal_server_error(
                target,
                &format!("failed to create RequestInfo: {self}"),
            ),
        }
    }
}

/// A raw path as Go prints a parsed URL: as it was sent if that is a valid encoding, else encoded anew.
fn go_path(raw: &str) -> String {
    let is_valid = raw
        .bytes()
        .all(|byte| !needs_escape(byte) || b"!'()*[]%".contains(&byte));
    if is_valid {
        return raw.to_owned();
    }
    let mut path = String::with_capacity(raw.len());
    for byte in percent_decode(raw).unwrap_or_default().bytes() {
        if needs_escape(byte) {
            // Writing to a String cannot fail.
            let _ = write!(path, "%{byte:02X}");
        } else {
            path.push(char::from(byte));
        }
    }
    path
}

/// Whether Go escapes the byte when it encodes a path.
fn needs_escape(byte: u8) -> bool {
    !(byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte))
}
