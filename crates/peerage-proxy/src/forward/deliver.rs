//! The peer's answer on its way to the client.

use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, header};
use peerage_core::user::SYSTEM_MASTERS;
use peerage_core::{Depth, Target};
use peerage_http::{Body, Response, body};
use tokio::time::{Instant, timeout_at};

use super::attempt::Failed;
use super::lacking::Listed;
use super::{Answered, Forward, tunnel};
use crate::error::ProxyError;
use crate::headers::{self, STALE_VIEW};
use crate::peer::{Edition, Peer};

/// What Kubernetes' path router answers for a group version that it does not have.
const UNKNOWN_PATH: &[u8] = b"404 page not found\n";

/// What it says, in a Status of whatever encoding, for a resource that is not in a group version that it has. Of an object
/// that is not there it says something else.
const UNKNOWN_RESOURCE: &[u8] = b"the server could not find the requested resource";

/// Such a Status is shorter than this.
const SHORT: usize = 1024;

/// How long a request may be held up by finding out what the answer to it means.
const INSPECTION: Duration = Duration::from_secs(5);

impl Forward<'_> {
    /// `None` if the peer lacks the API although its documents list it.
    ///
    /// # Errors
    /// If it breaks off before it has said which 404 it is, or says itself that it does not know.
    ///
    /// Differs: kube-apiserver passes the peer's 404 on, which a client takes for "the API was removed".
    pub(super) async fn examine(
        &self,
        peer: &Peer,
        response: Response,
    ) -> Result<Option<Response>, Failed> {
        // What a pod or a service answers says nothing of the server before it.
        if !self.why.is_listed() || self.info.subresource() == "proxy" {
            return Ok(Some(response));
        }
        let ends = self.deadline.min(Instant::now() + INSPECTION);
        match response.status() {
            StatusCode::SERVICE_UNAVAILABLE if response.headers().contains_key(STALE_VIEW) => {
                match self.is_listed(peer, ends).await {
                    Listed::No(of) => self.lacks(peer, of),
                    Listed::Yes => return Err(Failed::StaleView),
                    Listed::Unknown => return Err(self.unless_late(Failed::StaleView)),
                }
                Ok(None)
            }
            StatusCode::NOT_FOUND => {
                peer.recheck();
                self.examine_404(peer, response, ends).await
            }
            _ => Ok(Some(response)),
        }
    }

    async fn examine_404(
        &self,
        peer: &Peer,
        response: Response,
        ends: Instant,
    ) -> Result<Option<Response>, Failed> {
        let length = response.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|l| l.to_str().ok()?.parse::<usize>().ok());
        let Some(length) = length.filter(|length| *length < SHORT) else {
            return Ok(Some(response));
        };
        let (head, body) = response.into_parts();
        let read = body::collect(body, SHORT, INSPECTION);
        let Ok(Ok(bytes)) = timeout_at(ends, read).await else {
            return Err(self.unless_late(Failed::Silent));
        };
        let head_only = self.head.method == http::Method::HEAD && length == UNKNOWN_PATH.len();
        let unknown_resource = || says_unknown_resource(&bytes) && self.lists_endpoint(peer);
        if bytes == UNKNOWN_PATH || unknown_resource() || head_only {
            match self.is_listed(peer, ends).await {
                Listed::Yes => {}
                Listed::No(of) => {
                    self.lacks(peer, of);
                    return Ok(None);
                }
                Listed::Unknown => return Err(self.unless_late(Failed::Silent)),
            }
        }
        Ok(Some(Response::from_parts(head, body::full(bytes))))
    }

    /// Whether the peer's documents list the subresource too, if one is asked for: a kind that has none of that name says
    /// the same as a server that does not have the kind.
    fn lists_endpoint(&self, peer: &Peer) -> bool {
        let target = Target::of(self.info);
        peer.documents()
            .is_some_and(|heard| heard.served.find(&target).depth >= Depth::Endpoint)
    }

    /// The failure, unless the client's time has run out meanwhile.
    fn unless_late(&self, failed: Failed) -> Failed {
        match Instant::now() >= self.deadline {
            true => Failed::Deadline,
            false => failed,
        }
    }

    fn lacks(&self, peer: &Peer, of: Edition) {
        peer.disprove(self.info, of);
        peer.counts.attempt_failed("lacks");
        if let Some(held_back) = self.shared.log_gate.pass(Instant::now()) {
            tracing::warn!(
                peer = &*peer.id,
                held_back,
                path = self.info.path(),
                "a peer lists an API that it does not serve; it is not asked for it for a while"
            );
        }
    }

    /// Makes the peer's answer the client's.
    pub(super) fn deliver(self, answered: Answered) -> Result<Response, ProxyError> {
        let Answered {
            peer,
            mut response,
            in_flight,
        } = answered;
        let status = response.status();
        // A write that is done is told as such: whoever offers an upgrade with it can do without.
        let is_odd = status.is_redirection() || status.is_success() && self.head.method.is_safe();
        if self.head.upgrade && is_odd {
            return Err(ProxyError::UpgradeAnswer(status));
        }
        if self.leads_away(&response) {
            return Err(ProxyError::Redirect);
        }
        if !self.is_beside(&peer) && !self.is_question {
            self.record(&peer, status);
        }
        let groups = self.user.as_ref().map_or(&[][..], |user| &user.groups);
        let told = self.shared.options.name_peer_to_all
            || groups.iter().any(|group| group == SYSTEM_MASTERS);
        let named = told.then_some(&*peer.id);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let client = self.client.ok_or(ProxyError::UpgradeAnswer(status))?;
            let held = (in_flight, self.audit);
            return tunnel::join(self.shared, client, response, named, held);
        }
        headers::incoming(response.headers_mut(), named, self.shared.origins());
        Ok(response.map(|body| body::guarded(self.bounded(&peer, body), in_flight)))
    }

    /// An answer that has an end soon breaks off when the peer says nothing more for too long: it froze, or its network
    /// is gone, and over HTTP/1.1 nothing else tells.
    fn bounded(&self, peer: &Arc<Peer>, body: Body) -> Body {
        if self.info.is_long_running() {
            return body;
        }
        let (shared, peer) = (self.shared.clone(), peer.clone());
        let pause = shared.options.forward.pause;
        body::bounded(body, pause, move || {
            peer.counts.error("stalled");
            peer.recheck();
            if let Some(held_back) = shared.log_gate.pass(Instant::now()) {
                tracing::warn!(
                    peer = &*peer.id,
                    held_back,
                    "a peer has sent nothing of an answer for {pause:?}, so the answer breaks off"
                );
            }
        })
    }

    /// Whether the answer sends the client to another host, which would get the credentials that were meant for this one
    /// (CVE-2022-3172). What a pod or service answers through the subresource `proxy` is its own affair.
    ///
    /// Differs: kube-apiserver refuses that of aggregated API servers alone and passes on that of a peer.
    fn leads_away(&self, response: &Response) -> bool {
        let mut locations = response.headers().get_all(header::LOCATION).iter();
        response.status().is_redirection()
            && self.info.subresource() != "proxy"
            && locations.any(|location| names_a_host(location.as_bytes()))
    }

    fn record(&self, peer: &Peer, status: StatusCode) {
        let took = self.started.elapsed();
        self.shared.metrics.rerouted(peer, self.info, status, took);
        self.audit.sent(&peer.id, self.why.word());
        if self.shared.options.log_requests {
            tracing::info!(
                peer = &*peer.id,
                method = %self.head.method,
                path = self.info.path(),
                user = self.user.as_ref().map(|user| &*user.name),
                code = status.as_u16(),
                reason = self.why.word(),
                "forwarded a request"
            );
        }
    }
}

fn says_unknown_resource(body: &[u8]) -> bool {
    let mut windows = body.windows(UNKNOWN_RESOURCE.len());
    windows.any(|window| window == UNKNOWN_RESOURCE)
}

/// Whether a reference has an authority: `https://host/…`, `//host/…`, and what browsers take for these.
fn names_a_host(reference: &[u8]) -> bool {
    let slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    // Browsers drop tabs wherever they are (WHATWG URL, 4.4); no other such byte can be in a field.
    let reference: Vec<u8> = reference
        .iter()
        .copied()
        .filter(|it| *it != b'\t')
        .collect();
    let reference = reference.trim_ascii();
    let scheme = reference
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && !b"+-.".contains(byte));
    match (scheme, reference) {
        (Some(at @ 1..), _) if reference[at] == b':' => true,
        (_, [first, second, ..]) => slash(first) && slash(second),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_with_a_host_leads_away_and_a_path_does_not() {
        for (reference, away) in [
            ("https://elsewhere.example.com/", true),
            ("HTTPS:elsewhere.example.com", true),
            ("javascript:x", true),
            ("//elsewhere.example.com/", true),
            ("/\\elsewhere.example.com/", true),
            (" //elsewhere.example.com/", true),
            ("/\t/elsewhere.example.com/", true),
            ("h\tttps://elsewhere.example.com/", true),
            ("\t //elsewhere.example.com/", true),
            ("/apis/a:b//c", false),
            ("/apis/a\t//c", false),
            ("/", false),
            ("", false),
            ("../x?y=https://z", false),
            ("?a", false),
        ] {
            assert_eq!(names_a_host(reference.as_bytes()), away, "{reference}");
        }
    }
}
