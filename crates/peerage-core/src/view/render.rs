//! Documents as bytes, ready to be sent.

use std::sync::Arc;

/// One document as bytes, with its entity tag where the document has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The JSON body, with its final newline.
    pub bytes: Arc<[u8]>,
    /// The entity tag in its quotes; legacy documents have none.
    pub etag: Option<Arc<str>>,
}

impl Rendered {
    pub(super) fn untagged(bytes: Vec<u8>) -> Self {
        Self {
            bytes: bytes.into(),
            etag: None,
        }
    }
}

/// A document of one group or version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<'v> {
    /// Here it is.
    Found(&'v Rendered),
    /// The version is known, but nobody who can be reached has it now: 503, try again.
    Stale,
    /// Nobody lists it. Whether that means 404 is [`super::PeerView::absence_is_certain`]'s to say.
    Unknown,
}
