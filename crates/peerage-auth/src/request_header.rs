//! Users named in headers by a front proxy, which its certificate proves to be one.
//!
//! The names of the headers are settings with kube-apiserver's flags `--requestheader-*`. Reading follows
//! apiserver's `authentication/request/headerrequest`: first user name, every group and extra value that is not
//! empty, extra keys unescaped.

use std::collections::BTreeMap;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use peerage_core::User;
use peerage_http::Pem;

use crate::identity_headers::remove_where;

/// Which front proxies are believed, and in which headers they name the user.
#[derive(Debug, Clone)]
pub struct RequestHeaderOptions {
    /// The CA of front-proxy certificates (`--requestheader-client-ca-file`).
    pub client_ca: Pem,
    /// The common names that are front proxies; empty for every certificate of the CA
    /// (`--requestheader-allowed-names`).
    pub allowed_names: Vec<String>,
    /// Headers of the user's name, the first that has one wins (`--requestheader-username-headers`).
    pub username_headers: Vec<String>,
    /// Headers of the user's UID (`--requestheader-uid-headers`).
    pub uid_headers: Vec<String>,
    /// Headers of the user's groups (`--requestheader-group-headers`).
    pub group_headers: Vec<String>,
    /// What the names of headers with extra values begin with (`--requestheader-extra-headers-prefix`).
    pub extra_header_prefixes: Vec<String>,
}

impl RequestHeaderOptions {
    /// The usual header names, any common name.
    ///
    /// Differs: the UID is read, which kube-apiserver does only when `--requestheader-uid-headers` is given, so
    /// that a user is the same on both sides of a hop.
    #[must_use]
    pub fn new(client_ca: Pem) -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            client_ca,
            allowed_names: Vec::new(),
            username_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_header_prefixes: one("X-Remote-Extra-"),
        }
    }
}

/// The header names, ready to look up.
#[derive(Debug)]
pub(crate) struct Names {
    username: Vec<String>,
    uid: Vec<String>,
    group: Vec<String>,
    extra: Vec<String>,
}

impl Names {
    pub(crate) fn new(options: &RequestHeaderOptions) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self {
            username: lower(&options.username_headers),
            uid: lower(&options.uid_headers),
            group: lower(&options.group_headers),
            extra: lower(&options.extra_header_prefixes),
        }
    }

    /// The user that the headers name; none if they name nobody.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let name = first(headers, &self.username)?;
        let groups = self
            .group
            .iter()
            .flat_map(|group| headers.get_all(group.as_str()))
            .filter(|value| !value.is_empty())
            .map(text)
            .collect();
        let uid = first(headers, &self.uid).unwrap_or_default();
        Some(User {
            name,
            uid,
            groups,
            extra: self.extra(headers),
        })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    extra.entry(unescape(key)).or_default().push(text(value));
                }
            }
        }
        extra
    }

    /// Removes the headers that name users.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        let named = |names: &[String], name: &str| names.iter().any(|own| own == name);
        remove_where(headers, |name| {
            named(&self.username, name)
                || named(&self.uid, name)
                || named(&self.group, name)
                || self.extra.iter().any(|prefix| name.starts_with(prefix))
        });
    }
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    let value = |name: &String| headers.get(name.as_str()).filter(|value| !value.is_empty());
    names.iter().find_map(value).map(text)
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Undoes `%XX`; a key with a malformed escape is kept as it is.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let Some((escaped, after)) = hex_pair(rest) else {
            return key.to_owned();
        };
        bytes.push(escaped);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex_pair(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (pair, rest) = bytes.split_at_checked(2)?;
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    Some((digit(pair[0])? << 4 | digit(pair[1])?, rest))
}

/// Whether a header of this name can be sent at all; settings are checked with it.
pub(crate) fn is_header_name(name: &str) -> bool {
    HeaderName::try_from(name).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::identity_headers;
    use proptest::prelude::*;

    fn names() -> Names {
        Names::new(&RequestHeaderOptions::new(Pem::bytes("")))
    }

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            map.append(HeaderName::try_from(*name).unwrap(), value);
        }
        map
    }

    #[test]
    fn headers_name_users_as_on_kube_apiserver() {
        let map = headers(&[
            ("X-Remote-User", "first"),
            ("X-Remote-User", "second"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", ""),
            ("X-Remote-Group", "b,c"),
            ("X-Remote-Uid", "u1"),
            ("X-Remote-Extra-Foo%2fBar%20Baz", "1"),
            ("X-Remote-Extra-foo%2Fbar%20baz", "2"),
            ("X-Remote-Extra-bad%zz", "3"),
            ("X-Remote-Extra-bad%2", "4"),
        ]);
        let user = names().user(&map).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("first", "u1"));
        assert_eq!(user.groups, ["a", "b,c"]);
        let extra: Vec<_> = user.extra.into_iter().collect();
        let one = |key: &str, values: &[&str]| {
            (
                key.to_owned(),
                values.iter().map(ToString::to_string).collect(),
            )
        };
        assert_eq!(
            extra,
            [
                one("bad%2", &["4"]),
                one("bad%zz", &["3"]),
                one("foo/bar baz", &["1", "2"])
            ]
        );
    }

    #[test]
    fn no_user_header_or_an_empty_one_names_nobody() {
        assert!(
            names()
                .user(&headers(&[("X-Remote-Group", "system:masters")]))
                .is_none()
        );
        assert!(names().user(&headers(&[("X-Remote-User", "")])).is_none());
    }

    proptest! {
        #[test]
        fn a_user_is_the_same_on_both_sides_of_a_hop(
            name in "[^\\p{Cc}\\s][^\\p{Cc}]{0,20}[^\\p{Cc}\\s]", uid in "[a-z0-9-]{0,8}",
            groups in prop::collection::vec("[a-zA-Z0-9:,=\"é]([a-zA-Z0-9:,=\" é]{0,10}[a-zA-Z0-9:,=\"é])?", 0..40),
            extra in prop::collection::btree_map("[^\\p{Lu}]{1,12}", prop::collection::vec("([a-z,é]([a-z, é]{0,7}[a-z,é])?)?", 1..3), 0..4),
        ) {
            let keys: Vec<_> = extra.keys().map(|key| key.to_ascii_lowercase()).collect();
            prop_assume!(keys.iter().zip(extra.keys()).all(|(lower, key)| lower == key));
            let user = User { name, uid, groups, extra };
            let mut map = HeaderMap::new();
            identity_headers::set(&mut map, &user).unwrap();
            prop_assert_eq!(names().user(&map).unwrap(), user);
            names().strip(&mut map);
            prop_assert!(map.is_empty());
        }
    }
}
