//! What the proxy adds to a request's audit event: that it was sent to a peer, came from one, or was refused; which
//! peer, and why.
//!
//! The event itself, its number and where it is written are `peerage_auth`'s.

use http::Extensions;
use peerage_auth::AuditContext;
use peerage_core::Status;

/// The server ID of the peer that a request was sent to.
const SENT_TO: &str = "peerage.io/sent-to";
/// What this server lacks, so that the request was sent.
const SENT_REASON: &str = "peerage.io/sent-reason";
/// The server ID of the peer that a request came from.
const CAME_FROM: &str = "peerage.io/came-from";
/// What that peer lacks.
const CAME_REASON: &str = "peerage.io/came-reason";
/// Why a request was neither answered here nor by a peer.
const REFUSED: &str = "peerage.io/refused";

/// A request's audit event, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Audit(Option<AuditContext>);

impl Audit {
    /// The event of the request with these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Audit {
        Audit(extensions.get().cloned())
    }

    /// The number under which every server on the way records the request.
    pub(crate) fn id(&self) -> Option<&str> {
        self.0.as_ref().map(AuditContext::audit_id)
    }

    /// Notes who answered.
    pub(crate) fn sent(&self, peer: &str, reason: &str) {
        if let Some(event) = &self.0 {
            event.annotate(SENT_TO, peer);
            event.annotate(SENT_REASON, reason);
        }
    }

    /// Notes who sent the request here.
    pub(crate) fn came(&self, peer: &str, reason: Option<&str>) {
        if let Some(event) = &self.0 {
            event.annotate(CAME_FROM, peer);
            if let Some(reason) = reason {
                event.annotate(CAME_REASON, reason);
            }
        }
    }

    /// Notes that and why the proxy refused the request.
    pub(crate) fn refused(&self, reason: &str, status: &Status) {
        if let Some(event) = &self.0 {
            event.annotate(REFUSED, reason);
            event.fail(status);
        }
    }
}
