//! One attempt with one peer, and what it comes to: the answer, a try with the next one, or the end.
//!
//! Leaves to `deliver` what the head of an answer means.
//!
//! Invariant: only what says that a peer cannot be reached is held against it, and nothing that its client did.

use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, header};
use peerage_core::chain;
use peerage_http::{Request, Response, SendError, Stage, Upstream};
use tokio::time::{Instant, sleep_until};

use super::{Answered, Forward};
use crate::error::{ProxyError, flag_to_look_at};
use crate::peer::{Link, Peer};

/// A peer that has not answered for so long is probed meanwhile.
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// How one attempt failed.
pub(super) enum Failed {
    Send(SendError),
    Deadline,
    Silent,
    /// It says that what it knows of the others is out of date.
    StaleView,
}

/// What came of asking one peer.
pub(super) enum Outcome {
    Answered(Answered),
    /// It says to come again; another may be asked first.
    Declined(Answered),
    /// The next one may do better; it gets the request if that is at hand.
    Next(ProxyError, Option<Request>),
    /// Nobody will.
    Stop(ProxyError),
}

impl Forward<'_> {
    /// Asks one peer and judges what came of it.
    pub(super) async fn ask(
        &self,
        peer: Arc<Peer>,
        link: &Link,
        mut request: Request,
        replayable: bool,
    ) -> Outcome {
        self.set_guard(&peer, &mut request);
        self.set_condition(&peer, &mut request);
        let in_flight = peer.health.begin();
        let answer = match self
            .attempt(&peer, link, request, replayable && !self.is_session())
            .await
        {
            Ok(response) => self.examine(&peer, response).await,
            Err(failed) => Err(failed),
        };
        let response = match answer {
            Ok(Some(response)) => response,
            Ok(None) => {
                let peer = peer.id.clone();
                return Outcome::Next(ProxyError::Lacks { peer }, None);
            }
            Err(failed) => return self.failed(&peer, failed),
        };
        let declined = replayable && declines(&response);
        let answered = Answered {
            peer,
            response,
            in_flight,
        };
        if declined {
            answered.peer.recheck();
            return Outcome::Declined(answered);
        }
        Outcome::Answered(answered)
    }

    fn failed(&self, peer: &Arc<Peer>, failed: Failed) -> Outcome {
        let (error, request) = match failed {
            // No other server would fare better, and none is counted or warned about for it.
            Failed::Send(failed) if failed.is_senders_fault() => {
                return Outcome::Stop(match failed.stage() {
                    Stage::Request => ProxyError::Unsendable,
                    _ => ProxyError::RequestBody,
                });
            }
            Failed::Send(mut failed) => {
                let request = failed.take_request();
                (self.transport_error(peer, failed), request)
            }
            // Not held against the peer: the client may have asked for a very short time.
            Failed::Deadline => {
                peer.recheck();
                return Outcome::Stop(self.note_failure(peer, "timeout", ProxyError::FirstByte));
            }
            Failed::Silent => {
                let error = ProxyError::WentSilent {
                    peer: peer.id.clone(),
                };
                (self.note_failure(peer, "silent", error), None)
            }
            Failed::StaleView => {
                let error = ProxyError::StaleView {
                    peer: peer.id.clone(),
                };
                (self.note_failure(peer, "stale_view", error), None)
            }
        };
        Outcome::Next(error, request)
    }

    fn transport_error(&self, peer: &Arc<Peer>, failed: SendError) -> ProxyError {
        if failed.is_silence() {
            self.shared.peer_failed(peer, failed.connection());
        }
        peer.recheck();
        if failed.stage() == Stage::Timeout {
            return self.note_failure(peer, "timeout", ProxyError::FirstByte);
        }
        let reason = failed.reason();
        let error = ProxyError::Transport {
            peer: peer.id.clone(),
            source: Arc::new(failed),
        };
        self.note_failure(peer, reason, error)
    }

    fn note_failure(&self, peer: &Peer, reason: &'static str, error: ProxyError) -> ProxyError {
        peer.counts.attempt_failed(reason);
        if let Some(held_back) = self.shared.log_gate.pass(Instant::now()) {
            let flag = match &error {
                ProxyError::Transport { source, .. } => flag_to_look_at(source),
                _ => "",
            };
            tracing::warn!(
                peer = &*peer.id,
                reason,
                held_back,
                "an attempt to forward a request failed: {}{flag}",
                chain(&error)
            );
        }
        error
    }

    /// One attempt with one peer. A safe request does not wait for a peer whose breaker opens meanwhile.
    async fn attempt(
        &self,
        peer: &Peer,
        link: &Link,
        request: Request,
        may_leave: bool,
    ) -> Result<Response, Failed> {
        let (started, begun) = (Instant::now(), peer.health.mark());
        let upstream = self.way(peer, link, started);
        let mut send = std::pin::pin!(async {
            if self.head.upgrade {
                upstream.upgrade(request).await
            } else {
                upstream.send(request).await
            }
        });
        let mut suspicion = Some(started + SUSPICIOUS);
        loop {
            let suspicious_at = suspicion.unwrap_or(self.deadline);
            tokio::select! {
                biased;
                answer = send.as_mut() => {
                    let response = answer.map_err(Failed::Send)?;
                    self.judge_token(peer, response.status());
                    self.shared.peer_answered(peer, begun, started.elapsed());
                    return Ok(response);
                }
                () = sleep_until(self.deadline) => return Err(Failed::Deadline),
                () = peer.health.opened(), if may_leave => return Err(Failed::Silent),
                () = sleep_until(suspicious_at), if suspicion.is_some() => {
                    // Slow or dead? The poller finds out while we wait.
                    peer.recheck();
                    suspicion = None;
                }
            }
        }
    }
}

impl Forward<'_> {
    /// Over which connections it goes. What a server may not accept has some for itself, since others on its connection
    /// suffer for it.
    fn way<'l>(&self, peer: &Peer, link: &'l Link, now: Instant) -> &'l Upstream {
        match (&self.user, &link.passing, &self.shared.front) {
            (None, Some(passing), Some(front)) => match self.token {
                Some(token) if front.accepted.has(token, &peer.id, now) => &passing.accepted,
                _ => &passing.doubtful,
            },
            _ => &link.upstream,
        }
    }

    fn judge_token(&self, peer: &Peer, status: StatusCode) {
        if let (Some(token), Some(front)) = (self.token, &self.shared.front) {
            front
                .accepted
                .judge(token, &peer.id, &self.head.method, status);
        }
    }
}

/// Whether the server says that it did nothing and that the client should come again, as a kube-apiserver does between
/// the order to stop and its last connection.
fn declines(response: &Response) -> bool {
    response.status() == StatusCode::SERVICE_UNAVAILABLE
        && response.headers().contains_key(header::RETRY_AFTER)
}
