//! What the proxy adds to a request's audit event: that it was sent to a peer, or came from one, which and why.
//!
//! The event itself, its ID and where it is written are `peerage_auth`'s.

use http::Extensions;

/// A request's audit event, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Audit {}

impl Audit {
    /// The event of the request with these extensions.
    pub(crate) fn of(_extensions: &Extensions) -> Audit {
        Audit {}
    }

    /// The ID under which every server on the way audits the request.
    pub(crate) fn id(&self) -> Option<&str> {
        None
    }

    /// Adds an annotation.
    pub(crate) fn annotate(&self, _key: &'static str, _value: &str) {}
}
