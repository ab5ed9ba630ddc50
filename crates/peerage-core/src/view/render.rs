//! Documents as bytes, ready to be sent.

use std::sync::{Arc, OnceLock};

use crate::discovery::protobuf;

/// One document as bytes, with its entity tag where the document has one.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The JSON body, with its final newline.
    pub bytes: Arc<[u8]>,
    /// The entity tag in its quotes; legacy documents have none.
    pub etag: Option<Arc<str>>,
    /// Written when it is first asked for.
    protobuf: OnceLock<Option<Arc<[u8]>>>,
}

impl PartialEq for Rendered {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.etag == other.etag
    }
}

impl Eq for Rendered {}

impl Rendered {
    pub(super) fn untagged(bytes: Vec<u8>) -> Self {
        Self {
            bytes: bytes.into(),
            etag: None,
            protobuf: OnceLock::new(),
        }
    }

    pub(super) fn tagged(bytes: Vec<u8>, etag: Arc<str>) -> Self {
        Self {
            etag: Some(etag),
            ..Self::untagged(bytes)
        }
    }

    /// The same document in Kubernetes' protobuf form.
    #[must_use]
    pub fn protobuf(&self) -> Option<&Arc<[u8]>> {
        let write = || protobuf::from_json(&self.bytes).map(Into::into);
        self.protobuf.get_or_init(write).as_ref()
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
