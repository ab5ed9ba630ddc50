//! By what the same client is recognised: a salted hash of everything that decides whom a server takes it for.
//!
//! Impersonation is part of it: whoever asks in somebody's name asks as somebody else.
//!
//! Invariant: what a hash was made of cannot be had from it, and the salt dies with the process.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method};
use peerage_core::User;
use sha2::{Digest as _, Sha256};

/// What hashes are made with.
pub(super) struct Salt([u8; 32]);

/// A hash.
pub(super) type Hash = [u8; 32];

/// A client's credentials.
pub(super) struct Credential {
    pub(super) hash: Hash,
    pub(super) kind: Kind,
}

/// What is known of credentials before anybody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A certificate of the client CA, in its own name.
    Checked,
    /// None.
    Anonymous,
    /// Whatever a server makes of them.
    Unknown,
}

impl Salt {
    pub(super) fn new() -> Self {
        Self(rand::random())
    }
}

impl Credential {
    pub(super) fn of(parts: &Parts, salt: &Salt) -> Self {
        let user = parts.extensions.get::<Arc<User>>();
        let mut hash = Fields::new(salt);
        if let Some(user) = user {
            hash.user(user);
        }
        let told = hash.headers(&parts.headers, |name| {
            // A certificate decides alone who its bearer is.
            (name == AUTHORIZATION.as_str() && user.is_none()) || is_impersonation(name)
        });
        let kind = match (user, told) {
            (Some(_), 0) => Kind::Checked,
            (None, 0) => Kind::Anonymous,
            _ => Kind::Unknown,
        };
        Self {
            hash: hash.finish(),
            kind,
        }
    }

    /// Who asks for what.
    pub(super) fn asking(&self, method: &Method, path: &str, salt: &Salt) -> Hash {
        let mut hash = Fields::new(salt);
        hash.field(&self.hash);
        hash.field(method.as_str().as_bytes());
        hash.field(path.as_bytes());
        hash.finish()
    }
}

/// `-` and `_` are the same to some servers.
fn is_impersonation(name: &str) -> bool {
    name.starts_with("impersonate-") || name.starts_with("impersonate_")
}

/// A hash of several fields, of which none can be taken for a part of another.
struct Fields(Sha256);

impl Fields {
    fn new(salt: &Salt) -> Self {
        Self(Sha256::new_with_prefix(salt.0))
    }

    fn field(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn user(&mut self, user: &User) {
        self.field(b"user");
        self.field(user.name.as_bytes());
        self.field(user.uid.as_bytes());
        self.list(&user.groups);
        self.0.update((user.extra.len() as u64).to_le_bytes());
        for (key, values) in &user.extra {
            self.field(key.as_bytes());
            self.list(values);
        }
    }

    fn list(&mut self, values: &[String]) {
        self.0.update((values.len() as u64).to_le_bytes());
        for value in values {
            self.field(value.as_bytes());
        }
    }

    /// Hashes the fields with these names; returns how many there were.
    fn headers(&mut self, headers: &HeaderMap, which: impl Fn(&str) -> bool) -> usize {
        let mut found: Vec<_> = headers
            .iter()
            .filter(|(name, _)| which(name.as_str()))
            .collect();
        // Names in one order; the values of one name keep theirs.
        found.sort_by_key(|(name, _)| name.as_str());
        for (name, value) in &found {
            self.field(name.as_str().as_bytes());
            self.field(value.as_bytes());
        }
        found.len()
    }

    fn finish(self) -> Hash {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parts(user: Option<&str>, headers: &[(&'static str, &str)]) -> Parts {
        let mut request = http::Request::new(());
        if let Some(name) = user {
            let user = User::new(name, ["system:authenticated"]);
            request.extensions_mut().insert(Arc::new(user));
        }
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request.into_parts().0
    }

    #[test]
    fn whatever_decides_who_a_client_is_tells_it_from_others() {
        let salt = Salt::new();
        type Row = (
            Option<&'static str>,
            &'static [(&'static str, &'static str)],
            Kind,
        );
        let rows: &[Row] = &[
            (None, &[], Kind::Anonymous),
            (None, &[("authorization", "Bearer a")], Kind::Unknown),
            (None, &[("authorization", "Bearer b")], Kind::Unknown),
            (
                None,
                &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
                Kind::Unknown,
            ),
            (None, &[("impersonate-user", "a")], Kind::Unknown),
            (Some("jane"), &[], Kind::Checked),
            (Some("joe"), &[], Kind::Checked),
            (Some("jane"), &[("impersonate-user", "a")], Kind::Unknown),
            (Some("jane"), &[("impersonate-user", "b")], Kind::Unknown),
            (
                Some("jane"),
                &[("impersonate-user", "a"), ("impersonate-group", "b")],
                Kind::Unknown,
            ),
            (
                Some("jane"),
                &[("impersonate-user", "a"), ("impersonate-extra-b", "b")],
                Kind::Unknown,
            ),
        ];
        let mut seen = std::collections::HashSet::new();
        for (user, headers, kind) in rows {
            let credential = Credential::of(&parts(*user, headers), &salt);
            assert_eq!(credential.kind, *kind, "{user:?} {headers:?}");
            assert!(seen.insert(credential.hash), "{user:?} {headers:?}");
            let asking = |method, path| credential.asking(&method, path, &salt);
            assert!(seen.insert(asking(Method::GET, "/api")));
            assert!(seen.insert(asking(Method::HEAD, "/api")));
            assert!(seen.insert(asking(Method::GET, "/apis")));
        }
    }

    #[test]
    fn what_does_not_decide_it_does_not() {
        let salt = Salt::new();
        let hash = |user, headers: &[_]| Credential::of(&parts(user, headers), &salt).hash;
        let plain = hash(None, &[("authorization", "Bearer a")]);
        let more = [
            ("accept", "x"),
            ("authorization", "Bearer a"),
            ("user-agent", "y"),
        ];
        assert_eq!(hash(None, &more), plain);
        // A checked certificate comes before a token, which is not passed on with it.
        let jane = hash(Some("jane"), &[]);
        assert_eq!(hash(Some("jane"), &[("authorization", "Bearer a")]), jane);
        let other = Salt::new();
        let elsewhere = Credential::of(&parts(Some("jane"), &[]), &other);
        assert_ne!(elsewhere.hash, jane);
    }
}
