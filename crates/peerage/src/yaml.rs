//! Reading YAML that people wrote, without showing it when it is wrong.
//!
//! Invariant: a message has the place and the kind of the mistake and nothing of the text: the files that are read hold
//! tokens and keys, and messages end in logs and tickets.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;
use serde_saphyr::{Error, Location, Spanned};

/// Where something is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    line: u64,
    column: u64,
}

impl From<&Location> for Place {
    fn from(at: &Location) -> Self {
        Self {
            line: at.line(),
            column: at.column(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The entries of a map as they come, each key with its place.
#[derive(Debug, Default)]
pub struct Entries(pub Vec<(String, Place, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> de::Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of names and values")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let place = Place::from(&key.referenced);
            entries.push((key.value, place, map.next_value()?));
        }
        Ok(Entries(entries))
    }
}

/// Reads a document.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| problem(&error))
}

/// What is wrong and where.
fn problem(error: &Error) -> String {
    let error = error.without_snippet();
    let at = |says: String| match error.location() {
        Some(at) => format!("{says} at {}", Place::from(&at)),
        None => says,
    };
    // The reader would name the value that it found.
    let expected = match error {
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            expected
        }
        Error::DuplicateMappingKey { .. } => {
            return at("a key is given for the second time".to_owned());
        }
        other => return other.to_string(),
    };
    at(format!("expected {expected}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct File {
        #[serde(rename = "users")]
        _users: Vec<User>,
    }

    #[derive(Debug, Deserialize)]
    struct User {
        #[serde(rename = "token")]
        _token: Option<u16>,
    }

    #[test]
    fn entries_have_the_places_of_their_keys() {
        let read = |text| read::<Option<Entries>>(text).map(|it| it.unwrap_or_default().0);
        let entries = read("# a\nb: 1\n\na:\n  - x\n\"c\": {d: e}\n").unwrap();
        let shown = entries
            .iter()
            .map(|(key, place, value)| format!("{key} {place} {value}"));
        let shown: Vec<String> = shown.collect();
        assert_eq!(
            shown,
            [
                "b line 2, column 1 1",
                "a line 4, column 1 [\"x\"]",
                "c line 6, column 1 {\"d\":\"e\"}",
            ]
        );
        for empty in ["", "# nothing\n", "---\n"] {
            assert!(read(empty).unwrap().is_empty(), "{empty:?}");
        }
        for (text, says) in [
            ("[1]", "expected mapping"),
            (
                "a: 1\nb: 2\na: 3",
                "a key is given for the second time at line 3",
            ),
        ] {
            let problem = read(text).unwrap_err();
            assert!(
                problem.contains(says) && problem.contains("column"),
                "{problem}"
            );
        }
    }

    #[test]
    fn a_mistake_is_told_without_the_secret_beside_it() {
        for (text, place) in [
            ("users:\n- token: SECRET: x\n", "line 2"),
            ("users:\n- token: \"SECRET\n", "line 2"),
            ("users:\n- token: SECRET\n", "line 2"),
            ("users: SECRET\n", "line 1"),
            ("users:\n- SECRET\n", "line 2"),
            ("users:\n- token: [SECRET]\n", "line 2"),
            ("users:\n- {token: 1, token: SECRET}\n", "line 2"),
        ] {
            let problem = read::<File>(text).unwrap_err();
            assert!(!problem.contains("SECRET"), "{text:?}: {problem}");
            assert!(problem.contains(place), "{text:?}: {problem}");
            assert!(!problem.contains('\n') && !problem.contains("<input>"));
        }
        let problem = read::<Value>("token: SECRET: x\n").unwrap_err();
        assert!(!problem.contains("SECRET"), "{problem}");
    }
}
