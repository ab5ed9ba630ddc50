//! Continue tokens: where the next page of a list starts, and at which revision. The form is that of
//! kube-apiserver (`meta.k8s.io/v1`), so that a list can go on at another server.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use peerage_store::Revision;
use serde::{Deserialize, Serialize};

const VERSION: &str = "meta.k8s.io/v1";
/// Go's raw URL encoding, which does not mind odd bits at the end.
const ENCODING: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));
/// Longest token that is looked at; a real one holds a key.
const MAX: usize = 4_096;

#[derive(Debug, Serialize, Deserialize)]
struct Token {
    v: String,
    #[serde(default)]
    rv: Revision,
    #[serde(default)]
    start: String,
}

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Continuation {
    /// The revision of the first page; -1 for whatever is newest.
    pub(crate) revision: Revision,
    /// The first key that may be on the page, below the list's own prefix.
    pub(crate) start: String,
}

/// A token that this server did not make.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContinueError {
    /// It is not base64 of a token.
    #[error("continue key is not valid: {0}")]
    Unreadable(String),
    /// It has another version.
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    Version(String),
    /// A part is missing, or leads out of the list.
    #[error("continue key is not valid: {0}")]
    Content(&'static str),
}

impl Continuation {
    /// The place right after `last`, a key below the list's prefix.
    pub(crate) fn after(last: &str, revision: Revision) -> Self {
        Self {
            revision,
            start: format!("{last}\0"),
        }
    }

    /// Reads a token.
    pub(crate) fn parse(token: &str) -> Result<Self, ContinueError> {
        if token.len() > MAX {
            return Err(ContinueError::Content("it is too long"));
        }
        let bytes = ENCODING
            .decode(token.trim_end_matches('='))
            .map_err(|e| ContinueError::Unreadable(e.to_string()))?;
        let token: Token = serde_json::from_slice(&bytes)
            .map_err(|e| ContinueError::Unreadable(json_error(&bytes, &e)))?;
        if token.v != VERSION {
            return Err(ContinueError::Version(token.v));
        }
        if token.rv == 0 {
            return Err(ContinueError::Content(
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        if token.start.is_empty() {
            return Err(ContinueError::Content(
                "encoded start key empty (version meta.k8s.io/v1)",
            ));
        }
        // A path that climbs out of its prefix would read other kinds.
        if token.start.split('/').any(|part| part == "..") || token.start.starts_with('/') {
            return Err(ContinueError::Content(
                "the start key leads out of the list",
            ));
        }
        Ok(Self {
            revision: token.rv,
            start: token.start,
        })
    }

    /// Writes the token.
    pub(crate) fn token(&self) -> String {
        let token = Token {
            v: VERSION.to_owned(),
            rv: self.revision,
            start: self.start.clone(),
        };
        // Strings and a number always serialize.
        ENCODING.encode(serde_json::to_vec(&token).unwrap_or_default())
    }
}

/// Go's words for what is wrong with the first character, which is what clients have seen so far.
fn json_error(bytes: &[u8], error: &serde_json::Error) -> String {
    match bytes.first() {
        Some(b'{' | b'[' | b'"') | None => error.to_string(),
        Some(first) => format!(
            "invalid character '{}' looking for beginning of value",
            char::from(*first)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back() {
        let at = Continuation::after("ns/a", 17);
        assert_eq!(Continuation::parse(&at.token()), Ok(at));
    }

    #[test]
    fn foreign_tokens_are_refused() {
        let rows = [
            (
                "rubbish",
                "continue key is not valid: invalid character '®' looking for beginning of value",
            ),
            (
                "eyJ2IjoieCJ9",
                "continue key is not valid: server does not recognize this encoded version x",
            ),
        ];
        for (token, message) in rows {
            assert_eq!(
                Continuation::parse(token).map_err(|e| e.to_string()),
                Err(message.to_owned())
            );
        }
        let climbing = Token {
            v: VERSION.to_owned(),
            rv: 1,
            start: "../secrets/x".to_owned(),
        };
        let token = ENCODING.encode(serde_json::to_vec(&climbing).expect("it serializes"));
        assert!(Continuation::parse(&token).is_err());
    }
}
