//! Headers that concern one connection and must not travel further (RFC 9110 section 7.6.1).
//!
//! Invariant: what is left after [`strip_hop_by_hop`] means the same on any connection and any HTTP version.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use std::net::IpAddr;

/// The fields that end at each hop, named in `Connection` or not.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What is meant for whoever answers, whatever `Connection` says. A sender may not name such fields there (RFC 9110
/// section 7.6.1), and one who does must not get a request of somebody else's rights, or another body, out of it: without
/// `Impersonate-User`, a proxy's request for its user would be the proxy's own.
///
/// Differs: the reverse proxy in kube-apiserver removes whatever `Connection` names.
fn is_end_to_end(name: &HeaderName) -> bool {
    const BEGINNINGS: [&str; 3] = ["impersonate-", "content-", "sec-websocket-"];
    *name == header::AUTHORIZATION
        || *name == header::HOST
        || BEGINNINGS
            .iter()
            .any(|beginning| name.as_str().starts_with(beginning))
}

/// Protocols whose bytes are passed through after a `101`.
const TUNNELLED: [&str; 2] = ["spdy/3.1", "websocket"];

/// Removes `Connection`, what it names, and the other hop-by-hop fields, from a request or a response.
/// `TE` is kept when it asks for trailers, which is the one value HTTP/2 allows, and `Trailer`, which says what follows
/// the body (RFC 9110 section 6.6.2): without it HTTP/1.1 would lose the fields that it announces.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        for name in connection_options(headers).collect::<Vec<_>>() {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    if headers.contains_key(header::TE) {
        let trailers = has_token(headers, &header::TE, "trailers");
        headers.remove(header::TE);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
    }
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    tokens(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::try_from(name).ok())
        .filter(|name| !is_end_to_end(name))
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| {
        let token = token.split(';').next().unwrap_or_default().trim_end();
        token.eq_ignore_ascii_case(wanted)
    })
}

/// The protocol to tunnel, if the request asks to switch to one that Kubernetes uses: `SPDY/3.1` or `websocket`.
///
/// Differs: kube-apiserver takes every request with `Connection: upgrade` for a tunnel. An offer of anything
/// else (`h2c`, which some clients send with each request) may be ignored by RFC 9110, so that the request is
/// an ordinary one.
#[must_use]
pub fn upgrade_protocol(headers: &HeaderMap) -> Option<&'static str> {
    if !has_token(headers, &header::CONNECTION, "upgrade") {
        return None;
    }
    TUNNELLED.into_iter().find(|known| {
        tokens(headers, &header::UPGRADE).any(|asked| asked.eq_ignore_ascii_case(known))
    })
}

/// Whether the request asks to switch to a protocol that is tunnelled. See [`upgrade_protocol`].
#[must_use]
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    upgrade_protocol(headers).is_some()
}

/// Appends the client to `X-Forwarded-For`, as one line with the addresses that came.
///
/// Values that are no text are left out: nobody could have trusted them.
pub fn append_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let name = HeaderName::from_static("x-forwarded-for");
    let mut line = tokens(headers, &name).collect::<Vec<_>>().join(", ");
    if !line.is_empty() {
        line.push_str(", ");
    }
    line.push_str(&client.to_canonical().to_string());
    if let Ok(value) = HeaderValue::try_from(line) {
        headers.insert(name, value);
    }
}

/// Replaces `X-Forwarded-Uri`, `-Host` and `-Proto` by what the client asked of this server.
pub fn set_forwarded(
    headers: &mut HeaderMap,
    target: &str,
    host: Option<&str>,
    scheme: &'static str,
) {
    let mut set = |name: &'static str, value: Option<&str>| {
        headers.remove(name);
        if let Some(Ok(value)) = value.map(|text| HeaderValue::from_bytes(text.as_bytes())) {
            headers.insert(name, value);
        }
    };
    let path = target.split('?').next();
    set("x-forwarded-uri", path);
    set("x-forwarded-host", host);
    set("x-forwarded-proto", Some(scheme));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    type Lines = &'static [(&'static str, &'static str)];

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        map
    }

    fn left(lines: &[(&str, &str)]) -> Vec<String> {
        let mut map = headers(lines);
        strip_hop_by_hop(&mut map);
        map.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn what_ends_at_a_hop_is_removed_and_the_rest_stays() {
        let rows: &[(Lines, &[&str])] = &[
            (&[("Connection", "close")], &[]),
            (
                &[
                    ("Connection", "X-A, x-b"),
                    ("Connection", "x-c"),
                    ("X-A", "1"),
                    ("x-b", "2"),
                    ("X-C", "3"),
                    ("x-d", "4"),
                ],
                &["x-d"],
            ),
            (
                &[
                    ("Keep-Alive", "5"),
                    ("Proxy-Authorization", "b"),
                    ("Proxy-Connection", "x"),
                    ("Accept", "a"),
                ],
                &["accept"],
            ),
            (
                &[
                    ("Upgrade", "h2c"),
                    ("Connection", "Upgrade, HTTP2-Settings"),
                    ("HTTP2-Settings", "AAM"),
                ],
                &[],
            ),
            (
                &[
                    ("Transfer-Encoding", "chunked"),
                    ("Trailer", "X-T"),
                    ("Upgrade-Insecure-Requests", "1"),
                ],
                &["upgrade-insecure-requests", "trailer"],
            ),
            (
                &[
                    (
                        "Connection",
                        "Authorization, impersonate-user, Content-Type",
                    ),
                    ("Authorization", "Bearer a"),
                    ("Impersonate-User", "b"),
                    ("Content-Type", "c"),
                ],
                &["content-type", "authorization", "impersonate-user"],
            ),
            (&[("TE", "trailers")], &["te"]),
            (&[("TE", "gzip, Trailers;q=0.5")], &["te"]),
            (&[("TE", "gzip")], &[]),
            (&[("Connection", "TE"), ("TE", "trailers")], &[]),
            (&[("Connection", "bad name, , x-a"), ("x-a", "1")], &[]),
            (
                &[("Via", "1.1 a"), ("Cookie", "c"), ("Forwarded", "for=b")],
                &["via", "cookie", "forwarded"],
            ),
        ];
        for (given, expected) in rows {
            assert_eq!(left(given), *expected, "{given:?}");
        }
    }

    #[test]
    fn only_protocols_of_kubernetes_are_upgrades() {
        let rows: &[(Lines, Option<&str>)] = &[
            (
                &[("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")],
                Some("spdy/3.1"),
            ),
            (
                &[
                    ("Connection", "keep-alive, upgrade"),
                    ("Upgrade", "WebSocket"),
                ],
                Some("websocket"),
            ),
            (&[("Connection", "Upgrade"), ("Upgrade", "h2c")], None),
            (
                &[("Connection", "Upgrade"), ("Upgrade", "h2c, websocket")],
                Some("websocket"),
            ),
            (&[("Connection", "Upgrade"), ("Upgrade", "made-up")], None),
            (&[("Connection", "Upgrade")], None),
            (&[("Upgrade", "websocket")], None),
            (&[("Connection", "close"), ("Upgrade", "websocket")], None),
        ];
        for (given, expected) in rows {
            assert_eq!(upgrade_protocol(&headers(given)), *expected, "{given:?}");
        }
    }

    #[test]
    fn the_client_is_appended_to_the_addresses_that_came() {
        let mut map = headers(&[
            ("X-Forwarded-For", "1.2.3.4"),
            ("X-Forwarded-For", "5.6.7.8,9.9.9.9"),
        ]);
        append_forwarded_for(&mut map, "::ffff:10.0.0.1".parse().unwrap());
        let lines: Vec<_> = map.get_all("x-forwarded-for").iter().collect();
        assert_eq!(lines, ["1.2.3.4, 5.6.7.8, 9.9.9.9, 10.0.0.1"]);
    }

    #[test]
    fn forwarded_fields_of_the_client_are_replaced() {
        let mut map = headers(&[("X-Forwarded-Proto", "http"), ("X-Forwarded-Host", "evil")]);
        set_forwarded(&mut map, "/apis/a?b=c", None, "https");
        assert_eq!(map["x-forwarded-uri"], "/apis/a");
        assert_eq!(map["x-forwarded-proto"], "https");
        assert!(!map.contains_key("x-forwarded-host"));
    }
}
