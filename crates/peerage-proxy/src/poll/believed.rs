//! Whether a server takes a request of ours for that of the user it names.
//!
//! A server believes identity headers on connections that show a front-proxy certificate, and ignores them on others: with
//! another client certificate every user would be that certificate's, which may be an administrator's. So no user is named
//! to a server before it has told whom it takes us for (a SelfSubjectReview). A server that has no such review, as before
//! Kubernetes 1.28, is believed to be as it should. So is one that refuses it without a name: an administrator is never
//! refused, and nearly everybody else may ask.
//!
//! Leaves a gateway that impersonates to the server, which refuses who may not.
//!
//! Invariant: what is no answer to the question is taken for neither a yes nor a no.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use peerage_auth::identity_headers::{self, Family};
use peerage_core::chain;
use peerage_http::{ClientTls, Request, body};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::fetch::peer_user;
use crate::headers::{self, GUARD, GUARD_VALUE};
use crate::peer::Link;
use crate::shared::Shared;

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
const LIMIT: usize = 64 << 10;

/// What a server's 401 means.
const STRANGER: &str = "it answered 401, so it does not know the certificate of --proxy-client-cert-file: the authority \
                        of that has to be in the server's --requestheader-client-ca-file, and its name among \
                        --requestheader-allowed-names where that is set";

/// A certificate may be replaced while a connection's options stay.
const AGAIN: Duration = Duration::from_secs(60);

/// What a server says of whom it takes us for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Believed {
    /// For whom we name; it said so now or lately.
    Yes,
    /// It knows no such question.
    CannotTell,
    /// For this user.
    No(String),
    /// It has not answered the question, for this reason.
    NotHeard(String),
}

/// Asks over the connections that clients' requests go over, since it is these that are believed or not.
pub(super) async fn ask(shared: &Shared, link: &Link, own_id: &str) -> Believed {
    let Some(front) = &shared.front else {
        return Believed::Yes;
    };
    let family = &front.options.family;
    let now = Instant::now();
    if *family == Family::Impersonation || !link.is_to_be_asked_again(now, AGAIN) {
        return Believed::Yes;
    }
    let deadline = now + shared.options.poll.probe_deadline;
    let said = timeout_at(deadline, review(link, family, own_id, deadline - now)).await;
    let said = said.unwrap_or_else(|_| Err("no answer within the deadline".to_owned()));
    said.unwrap_or_else(|reason| {
        link.forget_answer();
        Believed::NotHeard(in_full(reason, shared.options.tls.as_ref()))
    })
}

async fn review(
    link: &Link,
    family: &Family,
    own_id: &str,
    pause: Duration,
) -> Result<Believed, String> {
    let request = request(family, own_id).ok_or("the question cannot be written")?;
    let response = link.upstream.send(request).await;
    let (head, body) = response.map_err(|error| chain(&error))?.into_parts();
    let read = async {
        let bytes = body::collect(body, LIMIT, pause).await;
        bytes.map_err(|error| format!("its answer cannot be read: {error}"))
    };
    match head.status {
        StatusCode::CREATED => {
            let review: Review = serde_json::from_slice(&read.await?)
                .map_err(|error| format!("its answer makes no sense: {error}"))?;
            Ok(Believed::of(&review.status.user_info.username))
        }
        StatusCode::FORBIDDEN => Ok(refused(&read.await?)),
        StatusCode::NOT_FOUND => Ok(Believed::CannotTell),
        StatusCode::UNAUTHORIZED => Err(STRANGER.to_owned()),
        other => Err(format!("it answered with status {other}")),
    }
}

/// Why a server does not know us, which may be plain to see here.
fn in_full(reason: String, shown: Option<&ClientTls>) -> String {
    let trouble = shown.and_then(ClientTls::identity_trouble);
    match trouble.filter(|_| reason == STRANGER) {
        Some(trouble) => {
            format!("it answered 401: the certificate of --proxy-client-cert-file {trouble}")
        }
        None => reason,
    }
}

impl Believed {
    fn of(name: &str) -> Believed {
        if name == peer_user().name {
            Believed::Yes
        } else {
            Believed::No(name.to_owned())
        }
    }
}

/// Who is refused is named in the words for it: `User "somebody" cannot create resource …`.
fn refused(body: &[u8]) -> Believed {
    let status: Option<Refusal> = serde_json::from_slice(body).ok();
    let message = status.map(|it| it.message).unwrap_or_default();
    let named = message.split_once("User \"").map(|(_, rest)| rest);
    match named.and_then(|rest| rest.split_once('"')) {
        Some((name, _)) => Believed::of(name),
        None => Believed::CannotTell,
    }
}

fn request(family: &Family, own_id: &str) -> Option<Request> {
    let mut request = Request::new(body::full(REVIEW));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(PATH);
    let headers = request.headers_mut();
    headers.insert(GUARD, GUARD_VALUE);
    for name in [ACCEPT, CONTENT_TYPE] {
        headers.insert(name, HeaderValue::from_static("application/json"));
    }
    headers::leave_trace(headers, own_id);
    identity_headers::set_as(family, headers, &peer_user()).ok()?;
    Some(request)
}

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    username: String,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use peerage_http::testing::{Authority, Pair};
    use peerage_http::tls::ClientTlsOptions;

    #[test]
    fn a_certificate_that_has_ended_is_not_said_to_be_unknown() {
        let authority = Authority::new("front-proxy-ca");
        let shown = |pair: Option<Pair>| {
            let mut options = ClientTlsOptions::new(authority.pem());
            options.identity = pair.map(|it| it.pems());
            ClientTls::load(options).unwrap()
        };
        let ended = shown(Some(authority.ended("front-proxy-client", (2021, 1, 1))));
        let says = "it answered 401: the certificate of --proxy-client-cert-file ended 2021-01-01";
        assert_eq!(in_full(STRANGER.to_owned(), Some(&ended)), says);
        assert_eq!(in_full("no answer".to_owned(), Some(&ended)), "no answer");
        for good in [None, Some(authority.client("front-proxy-client"))] {
            assert_eq!(in_full(STRANGER.to_owned(), Some(&shown(good))), STRANGER);
        }
        assert_eq!(in_full(STRANGER.to_owned(), None), STRANGER);
    }

    #[test]
    fn a_refusal_says_whom_it_refuses() {
        let no = |name: &str| Believed::No(name.to_owned());
        let cannot = "is forbidden: User \\\"NAME\\\" cannot create resource";
        for (body, expected) in [
            (
                r#"{"message":"NOBODY is named"}"#.to_owned(),
                Believed::CannotTell,
            ),
            ("no".to_owned(), Believed::CannotTell),
            (String::new(), Believed::CannotTell),
            (
                format!(
                    r#"{{"message":"{}"}}"#,
                    cannot.replace("NAME", "system:apiserver")
                ),
                Believed::Yes,
            ),
            (
                format!(
                    r#"{{"message":"{}"}}"#,
                    cannot.replace("NAME", "system:anonymous")
                ),
                no("system:anonymous"),
            ),
        ] {
            assert_eq!(refused(body.as_bytes()), expected, "{body}");
        }
    }
}
