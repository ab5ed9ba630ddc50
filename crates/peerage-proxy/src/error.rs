//! Why the proxy itself refuses a request: whose fault it is and whether to try again.
//!
//! The one place that turns such a failure into an answer is `refuse` of [`Form`](crate::answer::Form).
//!
//! Differs: kube-apiserver answers transport errors, and the 504, as plain text without Retry-After; names the
//! peer's address in them; and answers 404 where it does not know for sure.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use peerage_core::route::UnsureReason;
use peerage_http::{SendError, Stranger};

use crate::version::ApiVersion;

/// A request that the proxy refuses.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    /// Nobody is known for sure to serve the API, or not to: [`not_known`](Self::not_known).
    #[error("{why}")]
    NotKnown { why: String },
    /// A peer sent a request here that this server does not serve and may not send on.
    #[error("a peer sent this request here, but this server does not serve it: {why}")]
    NotForPeers { why: String },
    /// It is a write, only the newest server may do it, and it is not known whether that is this one.
    #[error(
        "it is not known yet which version the server {peer} serves, and only the newest may write what several servers have (--writes=newest)"
    )]
    VersionUnknown { peer: Arc<str> },
    /// Of the servers that have the API, none is as new as this client has to have it.
    #[error(
        "no server that serves this API is known to be of version {oldest} or newer, and clients of this name are not sent to one that is older than themselves (--version-bound-clients)"
    )]
    TooOld { oldest: ApiVersion },
    /// Every server that has the API is known not to answer at the moment.
    #[error("no server that serves this API answers at the moment")]
    NoneUsable,
    /// The connection to the peer failed.
    #[error("error trying to reach service: peer {peer}")]
    Transport {
        peer: Arc<str>,
        source: Arc<SendError>,
    },
    /// It is of a kind that no connection to a peer carries.
    #[error("requests of this kind are not sent on to other servers")]
    Unsendable,
    /// The client's body could not be read to its end.
    #[error("the request's body broke off, or is not framed as it says")]
    RequestBody,
    /// The peer stopped answering while we waited.
    #[error("error trying to reach service: peer {peer} stopped answering")]
    WentSilent { peer: Arc<str> },
    /// The peer answered that it does not have what its documents list.
    #[error("peer {peer} lists this API but does not serve it any more")]
    Lacks { peer: Arc<str> },
    /// The peer says that it cannot serve it at the moment, although it lists it.
    #[error("peer {peer} lists this API but says that it does not serve it at the moment")]
    StaleView { peer: Arc<str> },
    /// No head of an answer came in time.
    #[error("Timeout: request did not complete within the allotted timeout")]
    FirstByte,
    /// The peer answered an upgrade with something that is neither a switch nor an error.
    #[error("invalid upgrade response: status code {0}")]
    UpgradeAnswer(StatusCode),
    /// The peer would have the client go to another host, which would get its credentials.
    #[error(
        "the server attempted to redirect this request to another host, which is not permitted"
    )]
    Redirect,
    /// As many tunnels are open as may be.
    #[error("too many upgraded connections are open")]
    TunnelsFull,
    /// The client's connection cannot be switched to another protocol (HTTP/2 cannot).
    #[error("the connection of this request cannot be upgraded")]
    CannotUpgrade,
    /// The user's name, groups or extra hold bytes that no header can carry.
    #[error("this user cannot be told to another server")]
    Identity,
    /// The client impersonates, and the servers behind are told of users by impersonation, which cannot be nested.
    #[error(
        "impersonation is not possible through this gateway with a client certificate, because it is how the gateway itself tells the servers who is asking (--identity=impersonate); use a bearer token"
    )]
    Impersonation,
    /// The chain around the proxy did not say who is asking.
    #[error("no user is known for this request")]
    NoUser,
}

impl ProxyError {
    /// What is known of an API that nobody can be asked for: to a client, who is not told of servers by name.
    pub(crate) fn not_known(reason: UnsureReason, nobody_answers: bool) -> Self {
        let why = match reason {
            UnsureReason::PeerGone | UnsureReason::PeerNotHeard if nobody_answers => {
                "no server behind this gateway answers at the moment".to_owned()
            }
            UnsureReason::PeerGone => {
                "no server serves this API at the moment: one that did is away, or has just come back and may serve it again"
                    .to_owned()
            }
            reason => format!("it is not known for certain whether this API is served: {reason}"),
        };
        Self::NotKnown { why }
    }

    /// The status code of the answer.
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            ProxyError::FirstByte => StatusCode::GATEWAY_TIMEOUT,
            ProxyError::NoUser => StatusCode::INTERNAL_SERVER_ERROR,
            ProxyError::RequestBody
            | ProxyError::Unsendable
            | ProxyError::CannotUpgrade
            | ProxyError::Identity
            | ProxyError::Impersonation => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// How long the client should wait before it tries again, if trying again can help.
    pub(crate) fn retry_after(&self, usual: Duration) -> Option<Duration> {
        match self {
            ProxyError::NoUser
            | ProxyError::Redirect
            | ProxyError::RequestBody
            | ProxyError::Unsendable
            | ProxyError::CannotUpgrade
            | ProxyError::Identity
            | ProxyError::Impersonation => None,
            _ => Some(usual.max(Duration::from_secs(1))),
        }
    }

    /// The metric label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            ProxyError::NotKnown { .. } => "not_known",
            ProxyError::NotForPeers { .. } => "not_for_peers",
            ProxyError::VersionUnknown { .. } => "version_unknown",
            ProxyError::TooOld { .. } => "too_old",
            ProxyError::NoneUsable => "none_usable",
            ProxyError::Transport { .. } => "transport",
            ProxyError::Unsendable => "unsendable",
            ProxyError::RequestBody => "request_body",
            ProxyError::WentSilent { .. } => "silent",
            ProxyError::Lacks { .. } => "lacks",
            ProxyError::StaleView { .. } => "stale_view",
            ProxyError::FirstByte => "timeout",
            ProxyError::UpgradeAnswer(_) => "upgrade_answer",
            ProxyError::Redirect => "redirect",
            ProxyError::TunnelsFull => "tunnels_full",
            ProxyError::CannotUpgrade => "cannot_upgrade",
            ProxyError::Identity => "identity",
            ProxyError::Impersonation => "impersonation",
            ProxyError::NoUser => "no_user",
        }
    }
}

/// The flag of a gateway or a server that says whose certificate is right, to be put behind a failure to connect.
#[must_use]
pub fn flag_to_look_at(error: &SendError) -> &'static str {
    match error.stranger() {
        Some(Stranger::Name) => " (a gateway's --peer-server-name)",
        Some(Stranger::Issuer) => " (--peer-ca-file for servers and peers)",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_what_is_known_and_not_that_nothing_is() {
        let says = |reason, nobody| ProxyError::not_known(reason, nobody).to_string();
        for reason in [UnsureReason::PeerGone, UnsureReason::PeerNotHeard] {
            let all_down = "no server behind this gateway answers at the moment";
            assert_eq!(says(reason, true), all_down);
        }
        let away = says(UnsureReason::PeerGone, false);
        assert!(away.starts_with("no server serves this API at the moment"));
        for nobody in [true, false] {
            let starting = says(UnsureReason::NotSynced, nobody);
            assert!(
                starting.starts_with("it is not known for certain"),
                "{starting}"
            );
        }
    }
}
