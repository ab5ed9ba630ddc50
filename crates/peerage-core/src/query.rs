//! Query parameters by the rules of Go's `net/url`, which are what every Kubernetes client was tested with.
//!
//! Pairs are split on `&` only; `+` is a space; a pair that contains `;` or a bad `%` escape is silently
//! dropped; the order of the values of one key is kept. Bytes that are no UTF-8 after decoding become U+FFFD.
//! Nothing is allocated for the text of a pair without `%` and `+`.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The parsed query of a request target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query<'a> {
    pairs: SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>,
}

impl<'a> Query<'a> {
    /// Parses what follows the `?`. Every input parses: what does not fit the rules is left out.
    #[must_use]
    pub fn parse(raw: &'a str) -> Self {
        let pairs = raw
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
            .filter_map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((unescape(key)?, unescape(value)?))
            })
            .collect();
        Query { pairs }
    }

    /// Parses the query of a path-and-query; empty without a `?`.
    #[must_use]
    pub fn of_target(target: &'a str) -> Self {
        target
            .split_once('?')
            .map_or_else(Self::default, |(_, query)| Self::parse(query))
    }

    /// The first value of a key; `Some("")` when the key is there without a value.
    #[must_use]
    pub fn first(&self, key: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_ref())
    }

    /// All values of a key, in their order.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.pairs
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_ref())
    }

    /// Whether the key is there, with or without a value.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.first(key).is_some()
    }

    /// A flag as Kubernetes decodes one: false when absent, `0` or any-case `false`; true for everything else,
    /// also the empty value.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.first(key)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// The decoded pairs, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Whether no pair survived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(crate) fn take_first(&mut self, key: &str) -> Option<Cow<'a, str>> {
        let found = self.pairs.iter_mut().find(|(name, _)| name == key)?;
        Some(std::mem::take(&mut found.1))
    }
}

/// Decodes `%XX` and `+`; nothing for a malformed escape.
fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('+') {
        return percent_decode(text);
    }
    let spaced = text.replace('+', " ");
    percent_decode(&spaced).map(|decoded| Cow::Owned(decoded.into_owned()))
}

/// Decodes `%XX`; nothing for a malformed escape. Borrows when there is no `%`.
pub(crate) fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => (hex_value(bytes.next()?)? << 4) | hex_value(bytes.next()?)?,
            other => other,
        });
    }
    Some(Cow::Owned(String::from_utf8(decoded).unwrap_or_else(
        |error| String::from_utf8_lossy(error.as_bytes()).into_owned(),
    )))
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(raw: &str) -> Vec<(String, String)> {
        Query::parse(raw)
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn parses_by_gos_rules() {
        let table: &[(&str, &[(&str, &str)])] = &[
            ("", &[]),
            ("watch", &[("watch", "")]),
            ("watch=", &[("watch", "")]),
            ("a=1&b=2&a=3", &[("a", "1"), ("b", "2"), ("a", "3")]),
            ("a=b=c", &[("a", "b=c")]),
            ("=x", &[("", "x")]),
            ("&&a&", &[("a", "")]),
            ("a=+x%20y%2B", &[("a", " x y+")]),
            ("b;c=2&ok=1", &[("ok", "1")]),
            ("bad=%zz&ok=1", &[("ok", "1")]),
            ("%zz=1&ok=1&half=%4", &[("ok", "1")]),
            ("%61=%41", &[("a", "A")]),
            ("a=%ff", &[("a", "\u{fffd}")]),
            ("a=é", &[("a", "é")]),
            ("a=1?b=2", &[("a", "1?b=2")]),
        ];
        for (raw, expected) in table {
            let expected: Vec<(String, String)> = expected
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect();
            assert_eq!(pairs(raw), expected, "{raw:?}");
        }
    }

    #[test]
    fn looks_up_first_and_all_values() {
        let query = Query::of_target("/api?a=1&b&a=2");
        assert_eq!(query.first("a"), Some("1"));
        assert_eq!(query.first("b"), Some(""));
        assert_eq!(query.first("c"), None);
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert!(Query::of_target("/api").is_empty());
    }

    #[test]
    fn flags_are_true_unless_they_say_false() {
        for (raw, expected) in [
            ("", false),
            ("watch=0", false),
            ("watch=False", false),
            ("watch=FALSE", false),
            ("watch", true),
            ("watch=", true),
            ("watch=no", true),
            ("watch=true&watch=false", true),
            ("watch=00", true),
        ] {
            assert_eq!(Query::parse(raw).flag("watch"), expected, "{raw:?}");
        }
    }
}
