//! Entity tags of discovery documents, made the way kube-apiserver's aggregated discovery makes them.
//!
//! The tag names the content, not its encoding: it is the upper-case hexadecimal SHA-512 of the compact JSON of
//! the list without `kind` and `apiVersion`, in quotes, whichever media type or API version is sent.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha512};

/// The entity tag of a document whose hashed form is `content`.
#[must_use]
pub fn etag_of(content: &[u8]) -> Arc<str> {
    let digest = Sha512::digest(content);
    let mut tag = String::with_capacity(2 + 2 * digest.len());
    tag.push('"');
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(tag, "{byte:02X}");
    }
    tag.push('"');
    tag.into()
}

/// Whether `If-None-Match` names this very tag: kube-apiserver compares the bytes of the whole header, so weak
/// tags, lists and `*` never match on discovery documents.
#[must_use]
pub fn none_match(if_none_match: Option<&[u8]>, etag: &str) -> bool {
    if_none_match == Some(etag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_quoted_upper_case_sha512() {
        let tag = etag_of(b"abc");
        assert!(tag.starts_with("\"DDAF35A193617ABACC417349AE204131"));
        assert!(tag.ends_with("2A9AC94FA54CA49F\""));
        assert_eq!(tag.len(), 130);
    }

    #[test]
    fn only_the_exact_tag_matches() {
        for (header, matches) in [
            (None, false),
            (Some(&b"\"A\""[..]), true),
            (Some(b"W/\"A\""), false),
            (Some(b"\"A\", \"B\""), false),
            (Some(b"*"), false),
            (Some(b"A"), false),
        ] {
            assert_eq!(none_match(header, "\"A\""), matches, "{header:?}");
        }
    }
}
