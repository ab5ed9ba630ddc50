//! Whether a server takes a request of ours for that of the user it names.
//!
//! A server believes identity headers on connections that show a front-proxy certificate, and ignores them on others: with
//! another client certificate every user would be that certificate's, which may be an administrator's. So no user is named
//! to a server before it has told whom it takes us for (a SelfSubjectReview). Who cannot tell, as before Kubernetes 1.28,
//! is believed to be as it should.
//!
//! Leaves a gateway that impersonates to the server, which refuses who may not.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use peerage_auth::identity_headers::{self, Family};
use peerage_http::{Request, body};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::fetch::peer_user;
use crate::headers::{self, GUARD, GUARD_VALUE};
use crate::peer::Link;
use crate::shared::Shared;

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
const LIMIT: usize = 64 << 10;

/// A certificate may be replaced while a connection's options stay.
const AGAIN: Duration = Duration::from_secs(60);

/// Whom the server takes us for, if that is not the user that we name.
pub(super) async fn another_user(shared: &Shared, link: &Link, own_id: &str) -> Option<String> {
    let family = &shared.front.as_ref()?.options.family;
    let now = Instant::now();
    if *family == Family::Impersonation || !link.is_to_be_asked_again(now, AGAIN) {
        return None;
    }
    let deadline = now + shared.options.poll.probe_deadline;
    let taken = async {
        let response = link.upstream.send(request(family, own_id)?).await.ok()?;
        if response.status() != StatusCode::CREATED {
            return None;
        }
        let bytes = body::collect(response.into_body(), LIMIT, deadline - now).await;
        let review: Review = serde_json::from_slice(&bytes.ok()?).ok()?;
        Some(review.status.user_info.username)
    };
    let taken = timeout_at(deadline, taken).await.ok().flatten();
    taken.filter(|name| *name != peer_user().name)
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
