//! Which tokens the servers behind a front accept, so that what they do not accept travels apart.
//!
//! kube-apiserver closes an HTTP/2 connection (GOAWAY) over which a request comes whose sender it does not know: one that
//! it takes for anonymous, or that it answers 401 (`UnauthenticatedHTTP2DOSMitigation`). Behind a gateway that connection
//! is many clients', and all who have just sent something over it are turned away. So a token counts for nothing until a
//! server has answered it as only who is known is answered. A request with another token, or none, or anything else in
//! `Authorization`, cannot be told from one that costs the connection.
//!
//! What one server accepts counts for all: they judge by the same keys, and who is known to one need not start anew when it
//! goes. Where that is not so, a server that has refused an accepted token is an exception for it.
//!
//! Invariants: no token is kept, only numbers that cannot be found without a key that is this process's own; the tables have
//! a fixed size, and what nobody has accepted never gets into them, so that no flood of tokens pushes out the good ones.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, Method, StatusCode};
use peerage_auth::WEBSOCKET_PREFIX;
use tokio::time::Instant;

use crate::recent::Recent;

/// Places for tokens: half a mebibyte. Tens of thousands of pods have one each.
const TOKENS: usize = 1 << 16;

/// How long a token that is not used is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Tokens that were accepted lately.
pub(crate) struct Accepted {
    key: RandomState,
    tokens: Recent,
    /// Those among them that a server has refused, with that server.
    refused: Recent,
}

/// A bearer token as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

impl Accepted {
    pub(crate) fn new(now: Instant) -> Accepted {
        Accepted {
            key: RandomState::new(),
            tokens: Recent::new(TOKENS, REMEMBERED, now),
            refused: Recent::new(TOKENS, REMEMBERED, now),
        }
    }

    /// The token with this server, as a number.
    fn at(&self, token: Token, server: &str) -> u64 {
        self.key.hash_one((token.0, server))
    }

    /// The bearer token of a request, as kube-apiserver would find it; none if it might not find one, as where all of it is
    /// white space of Unicode. What is behind a further space is no part of it; and beside a token among WebSocket
    /// subprotocols nobody can tell by which of the two a server knew its client.
    pub(crate) fn token(&self, headers: &HeaderMap) -> Option<Token> {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (line, None) = (lines.next()?.as_bytes(), lines.next()) else {
            return None;
        };
        let mut protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        let prefix = WEBSOCKET_PREFIX.as_bytes();
        let names_token = |it: &[u8]| it.windows(prefix.len()).any(|it| it == prefix);
        if protocols.any(|it| names_token(it.as_bytes())) {
            return None;
        }
        let line = line.trim_ascii();
        let mut words = line.split(|byte| *byte == b' ');
        let (scheme, token) = (words.next()?, words.next()?);
        let is_plain = line.iter().all(|byte| matches!(byte, b' '..=b'~'));
        let is_bearer = scheme.eq_ignore_ascii_case(b"bearer") && is_plain && !token.is_empty();
        is_bearer.then(|| Token(self.key.hash_one(token)))
    }

    /// Whether this server will accept the token, as far as can be told.
    pub(crate) fn has(&self, token: Token, server: &str, now: Instant) -> bool {
        self.tokens.has(token.0, now) && !self.refused.has(self.at(token, server), now)
    }

    /// Notes what a server answered to a request with the token.
    pub(crate) fn judge(&self, token: Token, server: &str, method: &Method, status: StatusCode) {
        let now = Instant::now();
        if status == StatusCode::UNAUTHORIZED {
            if self.tokens.has(token.0, now) {
                self.refused.note(self.at(token, server), now);
            }
            self.tokens.forget(token.0);
        } else if is_for_the_known(method, status) {
            self.tokens.note(token.0, now);
            self.refused.forget(self.at(token, server));
        }
    }
}

/// Whether a server answers so only whom it knows. Others hear from it too before it looks who asks: that a parameter is
/// wrong (400), to come again (429, 503), what pages may do (the answer to `OPTIONS`).
fn is_for_the_known(method: &Method, status: StatusCode) -> bool {
    method != Method::OPTIONS
        && (status.is_success()
            || matches!(
                status.as_u16(),
                101 | 304 | 403 | 404 | 405 | 409 | 410 | 422
            ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[&str]) -> HeaderMap {
        let value = |it: &&str| HeaderValue::from_bytes(it.as_bytes()).unwrap();
        let lines = lines.iter().map(|it| (AUTHORIZATION, value(it)));
        lines.collect()
    }

    #[test]
    fn only_what_kube_apiserver_takes_for_a_token_is_one() {
        let accepted = Accepted::new(Instant::now());
        for lines in [
            &["Bearer a"][..],
            &["bearer a"],
            &["BEARER a "],
            &["Bearer a b"],
        ] {
            assert!(accepted.token(&headers(lines)).is_some(), "{lines:?}");
        }
        for lines in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer  a"],
            &["Bearer \u{a0}"],
            &["Bearer \u{85}"],
            &["Bearer \u{3000}"],
            &["Bearer \u{a0}a"],
            &["Bearer\ta"],
            &["Basic YTpi"],
            &["a"],
            &["Bearer a", "Bearer a"],
        ] {
            assert!(accepted.token(&headers(lines)).is_none(), "{lines:?}");
        }
    }

    /// One good token must not make many.
    #[test]
    fn what_stands_beside_a_token_makes_no_other_of_it() {
        let accepted = Accepted::new(Instant::now());
        let alone = accepted.token(&headers(&["Bearer a"]));
        assert_eq!(accepted.token(&headers(&["Bearer a b"])), alone);
        assert_eq!(accepted.token(&headers(&["bearer a  c "])), alone);
        let mut beside = headers(&["Bearer bogus"]);
        let protocols = "base64url.bearer.authorization.k8s.io.YQ, base64.binary.k8s.io";
        beside.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
        assert!(accepted.token(&beside).is_none());
        let protocols = HeaderValue::from_static("v5.channel.k8s.io");
        beside.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
        assert!(accepted.token(&beside).is_some());
    }

    #[test]
    fn a_token_counts_once_it_was_answered_as_only_the_known_are_and_until_it_is_refused() {
        let now = Instant::now();
        let accepted = Accepted::new(now);
        let token = accepted.token(&headers(&["Bearer a"])).unwrap();
        let other = accepted.token(&headers(&["Bearer b"])).unwrap();
        let judge = |method: Method, status: u16| {
            accepted.judge(token, "a", &method, StatusCode::from_u16(status).unwrap());
            accepted.has(token, "a", now)
        };
        for status in [400, 401, 408, 413, 429, 500, 502, 503, 504] {
            assert!(!judge(Method::GET, status), "{status}");
        }
        assert!(!judge(Method::OPTIONS, 204), "nobody was asked who it is");
        for status in [200, 201, 101, 304, 403, 404, 409, 410, 422] {
            assert!(judge(Method::GET, status), "{status}");
            assert!(judge(Method::GET, 503), "that says nothing of it");
            assert!(accepted.has(token, "b", now), "who has not refused it");
            assert!(!accepted.has(other, "a", now));
            assert!(!judge(Method::GET, 401));
        }
    }

    #[test]
    fn a_server_that_refuses_what_another_accepts_is_asked_apart_until_it_accepts_it() {
        let now = Instant::now();
        let accepted = Accepted::new(now);
        let token = accepted.token(&headers(&["Bearer a"])).unwrap();
        let judge = |server: &str, status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            accepted.judge(token, server, &Method::GET, status);
        };
        judge("a", 200);
        assert!(accepted.has(token, "b", now));
        for _ in 0..3 {
            judge("b", 401);
            judge("a", 200);
            assert!(accepted.has(token, "a", now) && !accepted.has(token, "b", now));
        }
        judge("b", 200);
        assert!(accepted.has(token, "b", now));

        // What nobody has accepted is no exception of anybody's.
        let other = accepted.token(&headers(&["Bearer b"])).unwrap();
        accepted.judge(other, "b", &Method::GET, StatusCode::UNAUTHORIZED);
        accepted.judge(other, "a", &Method::GET, StatusCode::OK);
        assert!(accepted.has(other, "b", now));
    }
}
