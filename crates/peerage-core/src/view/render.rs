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
    /// Compressed, by form. Made when it is first asked for.
    packed: [OnceLock<Option<Arc<[u8]>>>; 4],
}

/// The forms that a document is sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentForm {
    /// JSON as it is kept.
    Json,
    /// JSON for people.
    Indented,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf.
    Protobuf,
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
            packed: Default::default(),
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

    /// The document in one of its forms, compressed by `pack` the first time that somebody asks; `None` if that would
    /// not.
    pub fn packed(
        &self,
        form: DocumentForm,
        pack: impl FnOnce() -> Option<Arc<[u8]>>,
    ) -> Option<&Arc<[u8]>> {
        self.packed[form as usize].get_or_init(pack).as_ref()
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
