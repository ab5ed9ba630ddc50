//! Sending one request on to a peer that serves it, and its answer back.
//!
//! Both ways are streams; nothing is buffered but the body of a 404 that may say that the peer lacks the API.
//! Which peers may serve the request is `peerage_core::route`'s, the bytes on the wire are `peerage_http`'s, the
//! header fields `headers`'.
//!
//! Invariants: the request target travels byte for byte; a request is sent to another peer only if not one byte
//! of it was sent, or its method is safe and nothing of an answer came; the head of an answer is waited for no
//! longer than the deadline, whatever kind of request it is; redirects are never followed.

mod attempt;
mod deliver;
mod lacking;
mod tunnel;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, HeaderValue, Method, Uri, header};
use peerage_auth::identity_headers::{self, Family};
use peerage_auth::{PassedCredentials, VerifiedPeer};
use peerage_core::route::ForwardReason;
use peerage_core::{RequestInfo, User, duration};
use peerage_http::{Body, ConnInfo, Request, Response};
use tokio::time::Instant;

use crate::accepted::Token;
use crate::audit::Audit;
use crate::error::ProxyError;
use crate::front::{self, Question};
use crate::headers::{self, GUARD, GUARD_VALUE, Outgoing};
use crate::health::{InFlight, Rank};
use crate::peer::Peer;
use crate::poll::FRONT_ACCEPT;
use crate::shared::Shared;

use attempt::Outcome;

/// A request on its way out.
pub(crate) struct Forward<'a> {
    shared: &'a Arc<Shared>,
    info: &'a RequestInfo<'static>,
    own_id: &'a str,
    why: Why,
    head: Head,
    audit: Audit,
    /// None if the credentials are in the request, for the next server to judge.
    user: Option<Arc<User>>,
    /// That of the request, if the next server is to judge it.
    token: Option<Token>,
    /// For fronts only.
    who: Option<front::Client>,
    /// Whether only the status of the answer counts.
    is_question: bool,
    /// Another server sent it here, for the server that this front stands beside.
    was_sent_on: bool,
    deadline: Instant,
    started: Instant,
    client: Option<tunnel::Client>,
}

/// Why a request is sent to others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    /// They list what it asks for.
    Listed(ForwardReason),
    /// They describe what it asks for.
    Described,
    /// This is a front, and there is nobody else to say no.
    Behind,
}

impl Why {
    fn word(self) -> &'static str {
        match self {
            Why::Listed(reason) => reason.as_str(),
            Why::Described => "openapi",
            Why::Behind => ForwardReason::Behind.as_str(),
        }
    }

    /// Whether they would be wrong to say that they do not have it.
    fn is_listed(self) -> bool {
        matches!(self, Why::Listed(_))
    }
}

/// The head as every attempt sends it.
struct Head {
    method: Method,
    target: PathAndQuery,
    headers: HeaderMap,
    upgrade: bool,
}

/// An answer's head, from whom, and the count of what the peer has in hand.
struct Answered {
    peer: Arc<Peer>,
    response: Response,
    in_flight: InFlight,
}

/// Sends the request to the first of these peers that can take it.
pub(crate) async fn forward(
    shared: &Arc<Shared>,
    info: &RequestInfo<'static>,
    request: Request,
    candidates: Vec<Arc<Peer>>,
    own_id: &str,
    why: Why,
) -> Result<Response, ProxyError> {
    let (parts, body) = request.into_parts();
    let forward = Forward::new(shared, info, parts, own_id, why)?;
    let candidates = forward.in_order(candidates)?;
    let answered = forward.send(candidates, body).await?;
    forward.deliver(answered)
}

impl<'a> Forward<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        info: &'a RequestInfo<'static>,
        mut parts: Parts,
        own_id: &'a str,
        why: Why,
    ) -> Result<Forward<'a>, ProxyError> {
        let front = shared.front.as_ref();
        let user = user(shared, &mut parts)?;
        let address = client(&parts.extensions);
        let judged = front.filter(|_| user.is_none());
        let token = judged.and_then(|front| front.accepted.token(&parts.headers));
        let who = front.map(|_| front::Client::of(user.clone(), &parts.headers, address));
        let audit = Audit::of(&parts.extensions);
        let client = tunnel::protocol(&parts.headers)
            .map(|_| tunnel::Client::take(shared, &mut parts.extensions))
            .transpose()?;
        let is_question = parts.extensions.get::<Question>().is_some();
        let was_sent_on = parts.extensions.get::<VerifiedPeer>().is_some();
        let head = Head::of(shared, parts, user.as_deref(), &audit, own_id, why)?;
        let started = Instant::now();
        let wait = wait(info, head.upgrade, shared.options.forward.first_byte);
        Ok(Forward {
            shared,
            info,
            own_id,
            why,
            head,
            audit,
            user,
            token,
            who,
            is_question,
            was_sent_on,
            deadline: started + wait,
            started,
            client,
        })
    }

    /// Who is tried, healthiest first. Peers that are known not to answer are left out.
    fn in_order(&self, candidates: Vec<Arc<Peer>>) -> Result<Vec<Arc<Peer>>, ProxyError> {
        let mut ranked = usable(self.shared, self.info, self.why.is_listed(), candidates);
        match (&self.shared.front, &self.who) {
            (Some(front), Some(who)) => {
                ranked = front.order(self.info, who, self.is_question, ranked)?;
            }
            _ => ranked.sort_by_key(|(rank, _)| *rank),
        }
        ranked.truncate(self.shared.options.forward.attempts);
        Ok(ranked.into_iter().map(|(_, peer)| peer).collect())
    }

    async fn send(&self, candidates: Vec<Arc<Peer>>, body: Body) -> Result<Answered, ProxyError> {
        let replayable = self.head.method.is_safe() && http_body::Body::is_end_stream(&body);
        let again = |undone: bool| {
            let repeats = replayable && (undone || !self.is_session());
            repeats.then(|| self.head.request(peerage_http::empty()))
        };
        let mut error = ProxyError::NoneUsable;
        let mut declined = None;
        let mut unsent = Some(self.head.request(body));
        for peer in candidates {
            let Some(link) = peer.link() else { continue };
            let Some(request) = unsent.take() else {
                break;
            };
            match self.ask(peer, &link, request, replayable).await {
                Outcome::Answered(answered) => return Ok(answered),
                Outcome::Declined(answered) => {
                    declined.get_or_insert(answered);
                    unsent = again(true);
                }
                Outcome::Next(why, request) => {
                    let undone =
                        matches!(why, ProxyError::Lacks { .. } | ProxyError::StaleView { .. });
                    unsent = request.or_else(|| again(undone));
                    error = why;
                }
                Outcome::Stop(why) => {
                    error = why;
                    break;
                }
            }
        }
        declined.ok_or(error)
    }

    /// Whether it begins a session, which a GET does too and which is not safe for that: what it has a pod run is run.
    fn is_session(&self) -> bool {
        self.head.upgrade && self.info.verb() != "watch"
    }

    /// The server that a front stands beside is no peer: what it may still do with a request is its own business, unless
    /// another server sent it.
    fn set_guard(&self, peer: &Peer, request: &mut Request) {
        if self.is_beside(peer) && !self.was_sent_on {
            request.headers_mut().remove(GUARD);
        } else {
            request.headers_mut().insert(GUARD, GUARD_VALUE);
        }
    }

    /// Has a question answered without the document wherever this server's own tag of it is known.
    fn set_condition(&self, peer: &Peer, request: &mut Request) {
        if !self.is_question {
            return;
        }
        let heard = peer.documents();
        let (tag, accept) = match (self.info.path(), heard.as_deref()) {
            ("/api", Some(heard)) => (heard.core.etag.clone(), FRONT_ACCEPT),
            ("/apis", Some(heard)) => (heard.groups.etag.clone(), FRONT_ACCEPT),
            // Any tag of this document fits, for every server that makes one.
            ("/openapi/v2", _) => (Some(HeaderValue::from_static("*")), "application/json"),
            _ => (None, ""),
        };
        if let Some(tag) = tag {
            let headers = request.headers_mut();
            headers.insert(header::IF_NONE_MATCH, tag);
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        }
    }

    fn is_beside(&self, peer: &Peer) -> bool {
        let front = self.shared.front.as_ref();
        front.is_some_and(|front| front.is_beside(peer))
    }
}

/// Those of the candidates that are not known not to answer, or not to have what they list.
pub(crate) fn usable(
    shared: &Shared,
    info: &RequestInfo<'_>,
    is_listed: bool,
    candidates: Vec<Arc<Peer>>,
) -> Vec<(Rank, Arc<Peer>)> {
    candidates
        .into_iter()
        // Nobody who has not answered yet is told who a client is.
        .filter(|peer| shared.front.is_none() || peer.is_proven())
        .map(|peer| (peer.health.rank(), peer))
        .filter(|(rank, peer)| rank.usable() && !(is_listed && peer.is_disproved(info)))
        .collect()
}

impl Head {
    /// Makes a client's head ours.
    fn of(
        shared: &Shared,
        mut parts: Parts,
        user: Option<&User>,
        audit: &Audit,
        own_id: &str,
        why: Why,
    ) -> Result<Head, ProxyError> {
        let (target, host) = (target(&parts.uri), host(&parts));
        let upgrade = tunnel::protocol(&parts.headers);
        let outgoing = Outgoing {
            user,
            family: family(shared),
            passes_impersonation: shared.front.is_some(),
            leaves_trace: shared.front.is_some(),
            audit_id: audit.id(),
            client: client(&parts.extensions),
            target: target.as_str(),
            host: host.as_deref(),
            own_id,
            reason: why.word(),
            upgrade,
        };
        headers::outgoing(&mut parts.headers, &outgoing).map_err(|_| ProxyError::Identity)?;
        Ok(Head {
            method: parts.method,
            headers: parts.headers,
            target,
            upgrade: upgrade.is_some(),
        })
    }

    fn request(&self, body: Body) -> Request {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::from(self.target.clone());
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// Who is to be named to the server; nobody if the request brings its own credentials, which only a front passes on.
fn user(shared: &Shared, parts: &mut Parts) -> Result<Option<Arc<User>>, ProxyError> {
    let user: Option<Arc<User>> = parts.extensions.get().cloned();
    let passed = parts.extensions.get::<PassedCredentials>().is_some();
    // Only a front has connections that vouch for nobody.
    if user.is_none() && !(passed && shared.front.is_some()) {
        return Err(ProxyError::NoUser);
    }
    if user.is_some()
        && *family(shared) == Family::Impersonation
        && identity_headers::strip_impersonation(&mut parts.headers)
    {
        return Err(ProxyError::Impersonation);
    }
    Ok(user)
}

/// How users are told to servers.
fn family(shared: &Shared) -> &Family {
    let front = shared.front.as_ref();
    front.map_or(&Family::FrontProxy, |front| &front.options.family)
}

fn target(uri: &Uri) -> PathAndQuery {
    uri.path_and_query()
        .cloned()
        .unwrap_or_else(|| PathAndQuery::from_static("/"))
}

fn host(parts: &Parts) -> Option<String> {
    let named = parts
        .headers
        .get(header::HOST)
        .and_then(|h| h.to_str().ok());
    named
        .or_else(|| parts.uri.authority().map(|a| a.as_str()))
        .map(str::to_owned)
}

fn client(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<ConnInfo>().map(|conn| conn.remote.ip())
}

/// How long the head of the answer is waited for: `?timeout=` shortens it, except for requests that run long.
fn wait(info: &RequestInfo<'_>, upgrade: bool, limit: Duration) -> Duration {
    if upgrade || info.verb() == "watch" {
        return limit;
    }
    let asked = info.query().first("timeout").map(duration::parse);
    match asked {
        Some(Ok(Some(asked))) if !asked.is_zero() => asked.min(limit),
        _ => limit,
    }
}
