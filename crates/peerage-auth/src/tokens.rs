//! Bearer tokens, and the file that says whose they are (`--token-auth-file`).
//!
//! The file is CSV with the columns token, user, UID and, optionally, groups separated by commas inside quotes.
//! Tokens are kept and compared as digests, so neither memory dumps nor timing show them.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use peerage_core::User;
use sha2::{Digest, Sha256};

/// The WebSocket subprotocol by which browsers send a bearer token.
pub const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

type TokenDigest = [u8; 32];

/// Whose the known tokens are.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<TokenDigest, Arc<User>>);

/// A token file that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum TokenFileError {
    #[error("the token file is no UTF-8 text")]
    NoText,
    #[error(
        "line {line} of the token file has {columns} columns, not token, user, UID and perhaps groups"
    )]
    Columns { line: usize, columns: usize },
    #[error("a quote in line {line} of the token file is not closed, or text follows it")]
    Quote { line: usize },
}

impl Tokens {
    /// Reads the CSV. A line with an empty token is ignored, of two equal tokens the last counts.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, TokenFileError> {
        let text = std::str::from_utf8(bytes).map_err(|_| TokenFileError::NoText)?;
        let mut users = HashMap::new();
        for (line, record) in records(text)? {
            let [token, name, uid, rest @ ..] = record.as_slice() else {
                return Err(TokenFileError::Columns {
                    line,
                    columns: record.len(),
                });
            };
            if token.is_empty() {
                tracing::warn!(line, "a line of the token file without a token is ignored");
                continue;
            }
            let groups = rest.first().filter(|groups| !groups.is_empty());
            let groups = groups.into_iter().flat_map(|groups| groups.split(','));
            let mut user = User::new(name.as_str(), groups);
            user.uid.clone_from(uid);
            user.mark_authenticated();
            if users.insert(digest(token), Arc::new(user)).is_some() {
                tracing::warn!(
                    line,
                    "a token is in the token file twice; the last line counts"
                );
            }
        }
        Ok(Self(users))
    }

    pub(crate) fn user(&self, token: &str) -> Option<Arc<User>> {
        self.0.get(&digest(token)).cloned()
    }
}

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

/// The records of a CSV text with the number of the line each begins on; empty lines are none.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let mut records = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let mut record = Vec::new();
        let start = line;
        loop {
            let (field, after, lines) = field(rest, line)?;
            record.push(field);
            line += lines;
            if let Some(more) = after.strip_prefix(',') {
                rest = more;
                continue;
            }
            rest = after
                .strip_prefix("\r\n")
                .or_else(|| after.strip_prefix('\n'))
                .unwrap_or(after);
            line += 1;
            break;
        }
        if record.len() > 1 || !record[0].is_empty() {
            records.push((start, record));
        }
    }
    Ok(records)
}

/// One field, what follows it, and how many line ends it contains.
fn field(text: &str, line: usize) -> Result<(String, &str, usize), TokenFileError> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let (field, mut rest) = text.split_at(end);
        let bare = match field.strip_suffix('\r') {
            Some(bare) if !rest.starts_with(',') => bare,
            _ => field,
        };
        if bare.len() < field.len() {
            rest = &text[bare.len()..];
            if rest == "\r" {
                rest = "";
            }
        }
        return Ok((bare.to_owned(), rest, 0));
    };
    let mut field = String::new();
    let mut rest = quoted;
    loop {
        let end = rest.find('"').ok_or(TokenFileError::Quote { line })?;
        field.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                rest = more;
            }
            None if rest.is_empty()
                || rest.starts_with([',', '\n'])
                || rest.starts_with("\r\n") =>
            {
                let lines = field.matches('\n').count();
                return Ok((field, rest, lines));
            }
            None => return Err(TokenFileError::Quote { line }),
        }
    }
}

/// The bearer token of a request, of whatever octets: what nobody can have given out is still an attempt. Anything else in
/// `Authorization`, and `Bearer` with nothing behind it, is none.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let line = headers.get(AUTHORIZATION)?.as_bytes();
    // As kube-apiserver trims it: by every kind of white space that Unicode knows.
    let line = match std::str::from_utf8(line) {
        Ok(text) => text.trim().as_bytes(),
        Err(_) => line.trim_ascii(),
    };
    let mut parts = line.splitn(3, |octet| *octet == b' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// The bearer token among the subprotocols a WebSocket client offers. There must be another subprotocol, and
/// only one token.
pub(crate) fn websocket_bearer(headers: &HeaderMap) -> Option<String> {
    if peerage_http::hop::upgrade_protocol(headers) != Some("websocket") {
        return None;
    }
    let mut token = None;
    let mut others = 0;
    for protocol in subprotocols(headers) {
        match protocol.strip_prefix(WEBSOCKET_PREFIX) {
            None => others += 1,
            Some(_) if token.is_some() => return None,
            Some(encoded) => token = Some(encoded),
        }
    }
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(token?).ok()?;
    let token = String::from_utf8(decoded).ok()?;
    (others > 0 && !token.is_empty()).then_some(token)
}

/// Removes the token from the subprotocols, so that it goes no further.
pub(crate) fn strip_websocket_bearer(headers: &mut HeaderMap) {
    if !subprotocols(headers).any(|protocol| protocol.starts_with(WEBSOCKET_PREFIX)) {
        return;
    }
    let kept: Vec<_> = subprotocols(headers)
        .filter(|protocol| !protocol.starts_with(WEBSOCKET_PREFIX))
        .collect();
    let line = HeaderValue::try_from(kept.join(","));
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Ok(line) = line {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, line);
    }
}

/// Whether there is a bearer token, in either place.
pub(crate) fn has_bearer(headers: &HeaderMap) -> bool {
    bearer(headers).is_some() || websocket_bearer(headers).is_some()
}

fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_file_names_users_with_their_groups() {
        let file = "t1,alice,u1\n\nt2,\"bob \"\"b\"\"\",u2,\"dev,ops\"\r\n,nobody,u\nt3,carol,u3,\r\nt1,eve,u4";
        let tokens = Tokens::parse(file.as_bytes()).unwrap();
        let user = |token| {
            tokens
                .user(token)
                .map(|u| (u.name.clone(), u.uid.clone(), u.groups.join(" ")))
        };
        let row = |n: &str, u: &str, g: &str| Some((n.to_owned(), u.to_owned(), g.to_owned()));
        assert_eq!(user("t1"), row("eve", "u4", "system:authenticated"));
        assert_eq!(
            user("t2"),
            row("bob \"b\"", "u2", "dev ops system:authenticated")
        );
        assert_eq!(user("t3"), row("carol", "u3", "system:authenticated"));
        assert_eq!(user(""), None);
        assert_eq!(user("t4"), None);
    }

    #[test]
    fn a_wrong_token_file_says_where() {
        let rows: &[(&[u8], TokenFileError)] = &[
            (
                b"t1,a,u\nt2,b",
                TokenFileError::Columns {
                    line: 2,
                    columns: 2,
                },
            ),
            (b"t1,a,u\n\"t2,b,u", TokenFileError::Quote { line: 2 }),
            (b"t1,\"a\"x,u", TokenFileError::Quote { line: 1 }),
            (b"\xff,a,u", TokenFileError::NoText),
        ];
        for (file, expected) in rows {
            assert_eq!(Tokens::parse(file).unwrap_err(), *expected);
        }
    }

    #[test]
    fn only_bearer_with_something_behind_it_is_a_token() {
        let rows: &[(&str, Option<&str>)] = &[
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("BEARER abc def", Some("abc")),
            ("  Bearer abc  ", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
            ("Token x", None),
            ("", None),
            ("\u{a0}Bearer abc\u{2003}", Some("abc")),
            ("Bearer \u{a0}", None),
            ("Bearer \u{e4}bc", Some("\u{e4}bc")),
        ];
        for (line, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(
                AUTHORIZATION,
                HeaderValue::from_bytes(line.as_bytes()).unwrap(),
            );
            assert_eq!(bearer(&headers), expected.map(str::as_bytes), "{line:?}");
        }
        let mut headers = HeaderMap::new();
        let odd = HeaderValue::from_bytes(b" Bearer \xff\xa0 ").unwrap();
        headers.insert(AUTHORIZATION, odd);
        assert_eq!(bearer(&headers), Some(&b"\xff\xa0"[..]));
    }

    #[test]
    fn a_websocket_token_is_read_and_goes_no_further() {
        let mut headers = HeaderMap::new();
        headers.insert("connection", "Upgrade".parse().unwrap());
        headers.insert("upgrade", "websocket".parse().unwrap());
        let offer = format!("{WEBSOCKET_PREFIX}dDE, base64.binary.k8s.io");
        headers.insert(SEC_WEBSOCKET_PROTOCOL, offer.parse().unwrap());
        assert_eq!(websocket_bearer(&headers).as_deref(), Some("t1"));
        strip_websocket_bearer(&mut headers);
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "base64.binary.k8s.io");
        assert_eq!(websocket_bearer(&headers), None);
    }
}
