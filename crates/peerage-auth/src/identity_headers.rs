//! The headers that carry a user from one server to the next: `X-Remote-User`, `-Uid`, `-Group`, `-Extra-*`.
//!
//! Their form is client-go's (`transport/round_trippers.go`): one line for each group and each extra value, so
//! that commas in them mean nothing; extra keys escaped, and lower-cased on the way as header names are.
//!
//! Invariant: what a client sent of these never survives [`set`] or [`strip`], in whatever spelling.

use std::fmt::Write;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use peerage_core::User;

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";
const IMPERSONATE: &str = "impersonate-";

/// How a user is told to the next server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Family {
    /// `X-Remote-*`, believed from whoever shows a front-proxy certificate.
    #[default]
    FrontProxy,
    /// The same where servers were given other names for these headers (`--requestheader-*`).
    Named(Arc<HeaderNames>),
    /// `Impersonate-*`, believed from whoever may impersonate.
    Impersonation,
}

/// What the identity headers of front proxies are called where they have other names.
///
/// All of them are removed from what clients send: a server believes each of its names, and adds the groups of all. The
/// first of each kind tells a user; servers take the first that has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNames {
    users: Vec<HeaderName>,
    uids: Vec<HeaderName>,
    groups: Vec<HeaderName>,
    /// As they are in names of headers: lower case.
    extras: Vec<String>,
}

/// A name that no header can have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no header name")]
pub struct HeaderNameError(pub String);

impl HeaderNames {
    /// The names of each kind, the one that is sent first; an empty list stands for the usual name.
    ///
    /// # Errors
    /// [`HeaderNameError`] for a name that no header can have.
    pub fn new(
        users: &[String],
        uids: &[String],
        groups: &[String],
        extras: &[String],
    ) -> Result<Self, HeaderNameError> {
        Ok(Self {
            users: header_names(users, USER)?,
            uids: header_names(uids, UID)?,
            groups: header_names(groups, GROUP)?,
            extras: header_names(extras, EXTRA)?
                .into_iter()
                .map(|prefix| prefix.as_str().to_owned())
                .collect(),
        })
    }

    fn has(&self, name: &str) -> bool {
        let same = |known: &HeaderName| {
            name.len() == known.as_str().len() && starts_with_either(name, known.as_str())
        };
        let whole = [&self.users, &self.uids, &self.groups];
        whole.into_iter().flatten().any(same)
            || self
                .extras
                .iter()
                .any(|prefix| starts_with_either(name, prefix))
    }
}

fn header_names(given: &[String], usual: &'static str) -> Result<Vec<HeaderName>, HeaderNameError> {
    if given.is_empty() {
        return Ok(vec![HeaderName::from_static(usual)]);
    }
    let name = |text: &String| {
        HeaderName::try_from(text.as_str()).map_err(|_| HeaderNameError(text.clone()))
    };
    given.iter().map(name).collect()
}

/// The header names of a family.
struct FamilyNames<'a> {
    user: HeaderName,
    uid: HeaderName,
    group: HeaderName,
    extra: &'a str,
}

impl Family {
    fn names(&self) -> FamilyNames<'_> {
        let name = HeaderName::from_static;
        let first = |names: &[HeaderName], usual| names.first().cloned().unwrap_or(name(usual));
        match self {
            Self::FrontProxy => FamilyNames {
                user: name(USER),
                uid: name(UID),
                group: name(GROUP),
                extra: EXTRA,
            },
            Self::Named(names) => FamilyNames {
                user: first(&names.users, USER),
                uid: first(&names.uids, UID),
                group: first(&names.groups, GROUP),
                extra: names.extras.first().map_or(EXTRA, String::as_str),
            },
            Self::Impersonation => FamilyNames {
                user: name("impersonate-user"),
                uid: name("impersonate-uid"),
                group: name("impersonate-group"),
                extra: "impersonate-extra-",
            },
        }
    }

    /// Removes all headers that a front proxy of this family names users in, the usual names too, in either spelling.
    pub fn strip(&self, headers: &mut HeaderMap) {
        strip(headers);
        if let Self::Named(names) = self {
            remove_where(headers, |name| names.has(name));
        }
    }
}

/// A user that cannot be told to another server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the user's {part} cannot be sent in a header")]
pub struct IdentityError {
    part: &'static str,
}

/// Removes all identity headers, also those spelled with `_` instead of `-`, which some servers take for the
/// same.
pub fn strip(headers: &mut HeaderMap) {
    remove_where(headers, is_identity);
}

/// Removes all impersonation headers, in either spelling. Returns whether there were any.
pub fn strip_impersonation(headers: &mut HeaderMap) -> bool {
    let before = headers.keys_len();
    remove_where(headers, |name| starts_with_either(name, IMPERSONATE));
    headers.keys_len() < before
}

/// Removes the headers whose name fulfils a condition.
pub(crate) fn remove_where(headers: &mut HeaderMap, condition: impl Fn(&str) -> bool) {
    let found: Vec<HeaderName> = headers
        .keys()
        .filter(|name| condition(name.as_str()))
        .cloned()
        .collect();
    for name in found {
        headers.remove(name);
    }
}

fn is_identity(name: &str) -> bool {
    let same = |known: &str| name.len() == known.len() && starts_with_either(name, known);
    [USER, UID, GROUP].into_iter().any(same) || starts_with_either(name, EXTRA)
}

/// Whether the name begins like `prefix` if `_` is taken for `-` in both.
fn starts_with_either(name: &str, prefix: &str) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let (name_bytes, prefix_bytes) = (name.bytes().map(dashed), prefix.bytes().map(dashed));
    name.len() >= prefix.len() && name_bytes.zip(prefix_bytes).all(|(a, b)| a == b)
}

/// Replaces all identity headers by those of `user`. The UID is left out when it is empty.
///
/// # Errors
/// [`IdentityError`] for a user with more or other bytes than headers can carry; they then name nobody.
pub fn set(headers: &mut HeaderMap, user: &User) -> Result<(), IdentityError> {
    set_as(&Family::FrontProxy, headers, user)
}

/// The same in the headers of a family. Those of the other families are removed too.
///
/// # Errors
/// As [`set`].
pub fn set_as(family: &Family, headers: &mut HeaderMap, user: &User) -> Result<(), IdentityError> {
    family.strip(headers);
    if *family == Family::Impersonation {
        strip_impersonation(headers);
    }
    for (name, value) in lines(&family.names(), user)? {
        if headers.try_append(name, value).is_err() {
            family.strip(headers);
            strip_impersonation(headers);
            return Err(IdentityError {
                part: "number of groups or extra keys",
            });
        }
    }
    Ok(())
}

fn lines(
    names: &FamilyNames<'_>,
    user: &User,
) -> Result<Vec<(HeaderName, HeaderValue)>, IdentityError> {
    let mut lines = vec![(names.user.clone(), some_value(&user.name, "name")?)];
    if !user.uid.is_empty() {
        lines.push((names.uid.clone(), value(&user.uid, "UID")?));
    }
    for group in &user.groups {
        lines.push((names.group.clone(), some_value(group, "group")?));
    }
    for (key, values) in &user.extra {
        let name = extra_name(names.extra, key)?;
        for extra in values {
            lines.push((name.clone(), value(extra, "extra value")?));
        }
    }
    Ok(lines)
}

/// Differs: client-go sends empty names and groups too, which servers take for none: a user without a name would be whom
/// the certificate names that the header comes with.
fn some_value(text: &str, part: &'static str) -> Result<HeaderValue, IdentityError> {
    if text.is_empty() {
        return Err(IdentityError { part });
    }
    value(text, part)
}

/// Differs: client-go sends blanks at either end, which are no part of a header's value (RFC 9110 section 5.5): a group
/// ` system:masters`, which whoever lets in certificates takes for some other group, would be `system:masters` at the server.
fn value(text: &str, part: &'static str) -> Result<HeaderValue, IdentityError> {
    if text.trim_matches([' ', '\t']) != text {
        return Err(IdentityError { part });
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| IdentityError { part })
}

fn extra_name(prefix: &str, key: &str) -> Result<HeaderName, IdentityError> {
    let mut name = String::with_capacity(prefix.len() + key.len());
    name.push_str(prefix);
    for byte in key.bytes() {
        if is_token(byte) {
            name.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(name, "%{byte:02X}");
        }
    }
    HeaderName::try_from(name).map_err(|_| IdentityError { part: "extra key" })
}

/// Whether a byte may stand in a header name as it is; `%` may, but begins an escape here.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn user() -> User {
        let mut user = User::new(
            "jürgen k",
            ["system:masters", "b,c \"q\"", "system:authenticated"],
        );
        user.uid = "uid 77".to_owned();
        let mut extra = |key: &str, values: &[&str]| {
            let values = values.iter().map(ToString::to_string).collect();
            user.extra.insert(key.to_owned(), values);
        };
        extra("Acme.com/project Name", &["one", "two, three"]);
        extra("scopes", &["é"]);
        extra("a%b", &["pct"]);
        extra("none", &[]);
        user
    }

    #[test]
    fn a_user_travels_as_client_go_sends_it() {
        let mut headers = HeaderMap::new();
        set(&mut headers, &user()).unwrap();
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                "x-remote-extra-a%25b: pct",
                "x-remote-extra-acme.com%2fproject%20name: one",
                "x-remote-extra-acme.com%2fproject%20name: two, three",
                "x-remote-extra-scopes: é",
                "x-remote-group: b,c \"q\"",
                "x-remote-group: system:authenticated",
                "x-remote-group: system:masters",
                "x-remote-uid: uid 77",
                "x-remote-user: jürgen k",
            ]
        );
    }

    #[test]
    fn every_spelling_of_what_the_client_sent_is_replaced() {
        let mut headers = HeaderMap::new();
        for name in [
            "X-Remote-User",
            "x_remote_user",
            "X-REMOTE_GROUP",
            "x-remote-uid",
            "X-Remote-Extra-Scopes",
            "x_remote_extra_scopes",
            "X-Remote-Extra-",
        ] {
            headers.append(
                HeaderName::try_from(name).unwrap(),
                HeaderValue::from_static("system:masters"),
            );
        }
        headers.append("x-remote-users", HeaderValue::from_static("kept"));
        set(&mut headers, &User::new("bob", ["dev"])).unwrap();
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["x-remote-group", "x-remote-user", "x-remote-users"]);
        assert_eq!(
            headers.get_all("x-remote-group").iter().collect::<Vec<_>>(),
            ["dev"]
        );
    }

    #[test]
    fn other_names_are_told_by_the_first_and_all_are_removed() {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let names = HeaderNames::new(
            &list(&["X-Acme-User", "X_Old_User"]),
            &[],
            &list(&["X-Acme-Group", "X-Remote-Group"]),
            &list(&["X-Acme-Extra-"]),
        );
        let family = Family::Named(Arc::new(names.unwrap()));
        let mut headers = HeaderMap::new();
        for name in [
            "x-acme-user",
            "x_acme_user",
            "x-old-user",
            "X-Remote-User",
            "x-remote-uid",
            "x-acme-group",
            "x_remote_group",
            "x-acme_extra-a",
            "x-remote-extra-a",
        ] {
            let name = HeaderName::try_from(name).unwrap();
            headers.append(name, HeaderValue::from_static("root"));
        }
        set_as(&family, &mut headers, &user()).unwrap();
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "x-acme-extra-a%25b",
                "x-acme-extra-acme.com%2fproject%20name",
                "x-acme-extra-scopes",
                "x-acme-group",
                "x-acme-user",
                "x-remote-uid"
            ]
        );
        assert_eq!(headers["x-acme-user"].as_bytes(), "jürgen k".as_bytes());
        let wrong = HeaderNames::new(&list(&["X Acme"]), &[], &[], &[]);
        assert_eq!(wrong, Err(HeaderNameError("X Acme".to_owned())));
    }

    #[test]
    fn a_user_that_no_header_can_carry_is_an_error_and_leaves_nobody() {
        let of_uid = |uid: &str| {
            let mut user = User::new("alice", ["dev"]);
            uid.clone_into(&mut user.uid);
            user.extra.insert("scopes".to_owned(), vec![String::new()]);
            user
        };
        let mut of_extra = of_uid("");
        of_extra
            .extra
            .insert("a".to_owned(), vec!["\tb".to_owned()]);
        for (user, part) in [
            (User::default(), "name"),
            (User::new("alice", ["dev", ""]), "group"),
            (User::new("a\nb", ["dev"]), "name"),
            (User::new(" admin", ["dev"]), "name"),
            (User::new("alice", ["dev", " system:masters"]), "group"),
            (User::new("alice", ["system:masters\t"]), "group"),
            (of_uid("7 "), "UID"),
            (of_extra, "extra value"),
        ] {
            let mut headers = HeaderMap::new();
            headers.append("x-remote-user", HeaderValue::from_static("client"));
            let error = set(&mut headers, &user).unwrap_err();
            assert_eq!(error.part, part, "{user:?}");
            assert!(headers.is_empty(), "{user:?}");
        }
        assert!(set(&mut HeaderMap::new(), &of_uid("7")).is_ok());
    }

    #[test]
    fn a_user_with_more_extra_keys_than_there_can_be_header_names_is_an_error() {
        let mut user = User::new("alice", ["dev"]);
        let keys = (0..30_000).map(|number| (format!("k{number}"), vec![String::new()]));
        user.extra.extend(keys);
        let mut headers = HeaderMap::new();
        assert!(set(&mut headers, &user).is_err());
        assert!(headers.is_empty());
    }
}
