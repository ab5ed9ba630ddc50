//! The header fields of the hop from one server to another, in both directions.
//!
//! Leaves hop-by-hop rules to `peerage_http::hop` and the identity header families to `peerage_auth`.
//!
//! Invariants: everything that a client could use to speak as somebody else, or as a peer, is removed before
//! anything of ours is added, hop-by-hop names first, so that a client's `Connection` cannot name a field of ours;
//! the guard is set, never added; each field of an answer that has one value by nature comes once.

use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CACHE_CONTROL, CONNECTION, DATE, EXPECT, HOST,
    HeaderName, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderValue};
use peerage_auth::identity_headers::{self, Family, IdentityError};
use peerage_core::User;
use peerage_http::hop;

/// Marks a request as sent on by a peer: it is not sent on again.
pub const GUARD: HeaderName = peerage_auth::PEER_PROXIED;
/// The only value of [`GUARD`] that counts.
pub const GUARD_VALUE: HeaderValue = HeaderValue::from_static("true");
/// On a request between peers the sender's server ID, on an answer the ID of the peer that gave it.
pub const PEER: HeaderName = HeaderName::from_static("x-peerage-peer");
/// On a request between peers, why it was sent on.
pub const REASON: HeaderName = HeaderName::from_static("x-peerage-reason");
/// On an answer to a peer: it sent a request here that this server cannot serve, so its view is out of date.
pub const STALE_VIEW: HeaderName = HeaderName::from_static("x-peerage-stale-view");
/// What a gateway calls itself in the `Via` of answers. It is every gateway's name, so that it tells nobody anything but
/// that there is one.
const PSEUDONYM: &str = "peerage";
pub use peerage_auth::audit::AUDIT_ID;

/// What is said on a forwarded request beside what the client said.
pub(crate) struct Outgoing<'a> {
    /// Who is asking; none if the credentials are passed on for the next server to judge.
    pub(crate) user: Option<&'a User>,
    /// In which headers the user is told.
    pub(crate) family: &'a Family,
    /// Whether a client's own impersonation is for the next server to judge.
    pub(crate) passes_impersonation: bool,
    /// Whether to leave a trace of this server, which is how a front recognises a request that came round.
    pub(crate) leaves_trace: bool,
    pub(crate) audit_id: Option<&'a str>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) target: &'a str,
    pub(crate) host: Option<&'a str>,
    pub(crate) own_id: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) upgrade: Option<&'static str>,
}

/// Removes what only a verified peer may say. For every request, forwarded or not.
pub(crate) fn strip_peer_claims(headers: &mut HeaderMap) {
    for name in [GUARD, PEER, REASON, STALE_VIEW] {
        headers.remove(name);
    }
}

/// Turns a client's request head into the one that the peer gets.
pub(crate) fn outgoing(headers: &mut HeaderMap, what: &Outgoing<'_>) -> Result<(), IdentityError> {
    hop::strip_hop_by_hop(headers);
    strip_peer_claims(headers);
    strip_credentials(headers, what);
    // The interim answer that the client waits for was ours to give; the peer needs no permission to read.
    headers.remove(EXPECT);
    headers.remove(HOST);

    headers.insert(GUARD, GUARD_VALUE);
    if let Some(user) = what.user {
        identity_headers::set_as(what.family, headers, user)?;
    }
    set_text(headers, AUDIT_ID, what.audit_id);
    set_text(headers, PEER, Some(what.own_id));
    set_text(headers, REASON, Some(what.reason));
    if let Some(client) = what.client {
        hop::append_forwarded_for(headers, client);
    }
    // Differs: kube-apiserver puts the peer's own address into X-Forwarded-Host.
    hop::set_forwarded(headers, what.target, what.host, "https");
    if what.leaves_trace {
        leave_trace(headers, what.own_id);
    }
    if let Some(protocol) = what.upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(canonical(protocol)));
    }
    Ok(())
}

fn canonical(protocol: &'static str) -> &'static str {
    // SPDY servers compare the token exactly.
    if protocol.eq_ignore_ascii_case("spdy/3.1") {
        "SPDY/3.1"
    } else {
        protocol
    }
}

/// Says in `Via` that the request went through here (RFC 9110 section 7.6.3).
pub(crate) fn leave_trace(headers: &mut HeaderMap, own_id: &str) {
    if let Ok(value) = HeaderValue::try_from(format!("1.1 {own_id}")) {
        headers.append(VIA, value);
    }
}

/// Whether the request has been sent on by the server of this ID before.
#[must_use]
pub fn has_trace(headers: &HeaderMap, own_id: &str) -> bool {
    let lines = headers.get_all(VIA).into_iter();
    let entries = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    entries
        .filter_map(|entry| entry.split_whitespace().nth(1))
        .any(|by| by == own_id)
}

/// Says on an answer that it came through a gateway (RFC 9110 section 7.6.3), and not of which server.
pub fn mark_gateway(headers: &mut HeaderMap) {
    leave_trace(headers, PSEUDONYM);
}

/// Whether an answer came through a gateway.
#[must_use]
pub fn is_of_gateway(headers: &HeaderMap) -> bool {
    has_trace(headers, PSEUDONYM)
}

fn strip_credentials(headers: &mut HeaderMap, what: &Outgoing<'_>) {
    what.family.strip(headers);
    if what.user.is_some() {
        headers.remove(AUTHORIZATION);
    }
    if !what.passes_impersonation {
        identity_headers::strip_impersonation(headers);
    }
}

fn set_text(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    match value.map(HeaderValue::from_str) {
        Some(Ok(value)) => {
            headers.insert(name, value);
        }
        _ => {
            headers.remove(name);
        }
    }
}

/// Who says to browsers which pages may read an answer (CORS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origins {
    /// The chain around us.
    Here,
    /// The server that answers: a front has no opinion of its own.
    There,
}

/// Turns the head of a peer's answer into the one that the client gets. `Location` and links stay as they are.
///
/// Differs: kube-apiserver rewrites `Location` to the peer's address and sends its own `Audit-Id`,
/// `Cache-Control` and flow-control fields beside the peer's.
pub(crate) fn incoming(headers: &mut HeaderMap, named_peer: Option<&str>, says: Origins) {
    hop::strip_hop_by_hop(headers);
    if says == Origins::Here {
        for name in [
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            ACCESS_CONTROL_ALLOW_HEADERS,
            ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN,
        ] {
            headers.remove(name);
        }
    }
    for name in [
        AUDIT_ID,
        CACHE_CONTROL,
        DATE,
        HeaderName::from_static("x-kubernetes-pf-flowschema-uid"),
        HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"),
    ] {
        keep_first(headers, name);
    }
    strip_peer_claims(headers);
    set_text(headers, PEER, named_peer);
}

/// Tells a peer which server answers, so that one that asks itself (by an address that is out of date) notices.
pub fn name_server(headers: &mut HeaderMap, id: &str) {
    set_text(headers, PEER, Some(id));
}

fn keep_first(headers: &mut HeaderMap, name: HeaderName) {
    if headers.get_all(&name).iter().nth(1).is_some()
        && let Some(first) = headers.get(&name).cloned()
    {
        headers.insert(name, first);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        headers
    }

    fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
        headers
            .get_all(name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .collect()
    }

    fn sent(lines: &[(&str, &str)]) -> HeaderMap {
        let user = User {
            name: "jane".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["b,c".to_owned(), "system:authenticated".to_owned()],
            extra: Default::default(),
        };
        let mut headers = map(lines);
        outgoing(
            &mut headers,
            &Outgoing {
                user: Some(&user),
                family: &Family::FrontProxy,
                passes_impersonation: false,
                leaves_trace: false,
                audit_id: Some("audit-1"),
                client: Some("192.0.2.7".parse().unwrap()),
                target: "/apis/a/v1/b?x=1",
                host: Some("api.example.com"),
                own_id: "apiserver-old",
                reason: "why",
                upgrade: None,
            },
        )
        .unwrap();
        headers
    }

    #[test]
    fn nothing_that_a_client_says_about_itself_or_about_peers_travels() {
        let headers = sent(&[
            ("Authorization", "Bearer x"),
            ("X-Remote-User", "root"),
            ("x-remote-group", "system:masters"),
            ("X-Remote-Extra-Scopes", "all"),
            ("Impersonate-User", "root"),
            ("Impersonate-Extra-a", "b"),
            ("X-Kubernetes-Peer-Proxied", "false"),
            ("X-Kubernetes-Peer-Proxied", "true"),
            ("X-Peerage-Peer", "me"),
            ("Audit-Id", "theirs"),
            ("Expect", "100-continue"),
        ]);
        assert_eq!(values(&headers, "x-remote-user"), ["jane"]);
        assert_eq!(
            values(&headers, "x-remote-group"),
            ["b,c", "system:authenticated"]
        );
        assert_eq!(values(&headers, "x-kubernetes-peer-proxied"), ["true"]);
        assert_eq!(values(&headers, "x-peerage-peer"), ["apiserver-old"]);
        assert_eq!(values(&headers, "audit-id"), ["audit-1"]);
        for gone in [
            "authorization",
            "x-remote-extra-scopes",
            "impersonate-user",
            "impersonate-extra-a",
            "expect",
            "host",
        ] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn a_connection_field_cannot_take_away_what_we_add() {
        let headers = sent(&[(
            "Connection",
            "X-Remote-User, X-Kubernetes-Peer-Proxied, Audit-Id, close",
        )]);
        assert_eq!(values(&headers, "x-remote-user"), ["jane"]);
        assert_eq!(values(&headers, "x-kubernetes-peer-proxied"), ["true"]);
        assert_eq!(values(&headers, "audit-id"), ["audit-1"]);
        assert!(!headers.contains_key("connection"));
    }

    #[test]
    fn the_peer_learns_the_client_and_the_host_that_it_asked_for() {
        let headers = sent(&[
            ("X-Forwarded-For", "198.51.100.1"),
            ("X-Forwarded-Proto", "gopher"),
        ]);
        assert_eq!(
            values(&headers, "x-forwarded-for"),
            ["198.51.100.1, 192.0.2.7"]
        );
        assert_eq!(values(&headers, "x-forwarded-host"), ["api.example.com"]);
        assert_eq!(values(&headers, "x-forwarded-uri"), ["/apis/a/v1/b"]);
        assert_eq!(values(&headers, "x-forwarded-proto"), ["https"]);
    }

    #[test]
    fn an_answer_tells_that_it_came_through_a_gateway_beside_who_else_it_came_through() {
        let mut headers = map(&[("Via", "1.1 peerage-like, 2 cache")]);
        assert!(!is_of_gateway(&headers));
        mark_gateway(&mut headers);
        assert!(is_of_gateway(&headers));
        assert_eq!(
            values(&headers, "via"),
            ["1.1 peerage-like, 2 cache", "1.1 peerage"]
        );
    }

    #[test]
    fn an_answer_has_each_single_field_once_and_its_location_untouched() {
        let mut headers = map(&[
            ("Audit-Id", "a"),
            ("Audit-Id", "b"),
            ("Cache-Control", "no-cache, private"),
            ("Cache-Control", "no-cache, private"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("Location", "/apis/elsewhere"),
            ("Access-Control-Allow-Origin", "*"),
            ("Keep-Alive", "5"),
            ("X-Peerage-Peer", "liar"),
            ("Warning", "299 - \"a\""),
            ("Warning", "299 - \"b\""),
        ]);
        let mut through_a_front = headers.clone();
        incoming(&mut through_a_front, None, Origins::There);
        assert_eq!(
            values(&through_a_front, "access-control-allow-origin"),
            ["*"]
        );
        incoming(&mut headers, Some("apiserver-new"), Origins::Here);
        assert_eq!(values(&headers, "audit-id"), ["a"]);
        assert_eq!(values(&headers, "cache-control"), ["no-cache, private"]);
        assert_eq!(values(&headers, "set-cookie").len(), 2);
        assert_eq!(values(&headers, "warning").len(), 2);
        assert_eq!(values(&headers, "location"), ["/apis/elsewhere"]);
        assert_eq!(values(&headers, "x-peerage-peer"), ["apiserver-new"]);
        assert!(!headers.contains_key("access-control-allow-origin"));
        assert!(!headers.contains_key("keep-alive"));
        incoming(&mut headers, None, Origins::Here);
        assert!(!headers.contains_key("x-peerage-peer"));
    }
}
