//! Reading YAML that people wrote, and saying in our own words what is wrong with it.
//!
//! Invariant: a message has the place and the kind of the mistake and nothing of the text: the files that are read hold
//! tokens and keys, and messages end in logs and tickets. Only [`read_open`], for files that hold none, names keys. What
//! the library says is never passed on: its advice is about its own options.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
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

/// The entries of a map as they come.
#[derive(Debug, Default)]
pub struct Entries(pub Vec<Entry>);

/// One of them.
#[derive(Debug)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Where that is.
    pub place: Place,
    /// Its value.
    pub value: Value,
    /// If that is a list, where each of its items is.
    pub items: Vec<Place>,
}

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
            let Placed { value, items } = map.next_value()?;
            let key = key.value;
            entries.push(Entry {
                key,
                place,
                value,
                items,
            });
        }
        Ok(Entries(entries))
    }
}

/// A value and, if it is a list, where its items are.
struct Placed {
    value: Value,
    items: Vec<Place>,
}

impl From<Value> for Placed {
    fn from(value: Value) -> Self {
        let items = Vec::new();
        Self { value, items }
    }
}

impl<'de> Deserialize<'de> for Placed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlacedVisitor)
    }
}

struct PlacedVisitor;

impl<'de> de::Visitor<'de> for PlacedVisitor {
    type Value = Placed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Placed, E> {
        Ok(Value::from(value).into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Placed, E> {
        Ok(Value::from(value).into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Placed, E> {
        Ok(Value::from(value).into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Placed, E> {
        Ok(Value::from(value).into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Placed, E> {
        Ok(Value::from(value).into())
    }

    fn visit_unit<E>(self) -> Result<Placed, E> {
        Ok(Value::Null.into())
    }

    fn visit_none<E>(self) -> Result<Placed, E> {
        Ok(Value::Null.into())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Placed, D::Error> {
        Placed::deserialize(deserializer)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Placed, A::Error> {
        let (mut values, mut items) = (Vec::new(), Vec::new());
        while let Some(item) = list.next_element::<Spanned<Value>>()? {
            items.push(Place::from(&item.referenced));
            values.push(item.value);
        }
        let value = Value::Array(values);
        Ok(Placed { value, items })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Placed, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(map)).map(Placed::from)
    }
}

/// Whether messages may name the keys of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Named,
    Hidden,
}

/// Reads a document that may hold secrets.
///
/// # Errors
/// What is wrong and where.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| problem(&error, Keys::Hidden))
}

/// Reads a document that holds no secrets, so that its keys may be named.
///
/// # Errors
/// What is wrong and where.
pub fn read_open<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| problem(&error, Keys::Named))
}

/// What is wrong and where.
fn problem(error: &Error, keys: Keys) -> String {
    let error = error.without_snippet();
    let says = in_words(error, keys);
    match error.location().filter(|at| at.line() > 0) {
        Some(at) => format!("{says} at {}", Place::from(&at)),
        None => says,
    }
}

fn in_words(error: &Error, keys: Keys) -> String {
    let named = keys == Keys::Named;
    match error {
        Error::AliasError { error, .. } => in_words(error, keys),
        Error::DuplicateMappingKey { key: Some(key), .. } if named => {
            format!("the key {key:?} is given for the second time; leave one of them out")
        }
        Error::DuplicateMappingKey { .. } => {
            "a key is given for the second time; leave one of them out".to_owned()
        }
        Error::SerdeUnknownField {
            field, expected, ..
        } if named => format!(
            "the key {field:?} is not known; known are {}",
            expected.join(", ")
        ),
        Error::SerdeUnknownField { expected, .. } => {
            format!("a key is not known; known are {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("the key {field} is missing"),
        Error::SerdeUnknownVariant { expected, .. } => {
            format!("expected one of {}", expected.join(", "))
        }
        // The library would name the value that it found.
        Error::SerdeInvalidType { expected, .. }
        | Error::SerdeInvalidValue { expected, .. }
        | Error::SerdeInvalidLength { expected, .. } => format!("expected {}", kind(expected)),
        Error::Unexpected { expected, .. } => format!("expected {}", kind(expected)),
        Error::InvalidScalar { ty, .. } => format!("expected {}", kind(ty)),
        Error::NullIntoString { .. } => "expected a text, and there is nothing".to_owned(),
        Error::Message { msg, .. } | Error::ExternalMessage { msg, .. } => syntax(msg).to_owned(),
        other => of_the_file(other).to_owned(),
    }
}

/// A kind of value in the words of people who write files.
fn kind(expected: &str) -> &str {
    match expected {
        "map" | "mapping" | "mapping start" => "a map (name: value)",
        "seq" | "sequence" | "sequence start" => "a list (- value)",
        "string" | "a string" | "scalar" | "string scalar" => "a text",
        other => other,
    }
}

/// What is no YAML, by what the scanner stumbled over; it stumbles late, so the mistake may be above.
fn syntax(scanner: &str) -> &'static str {
    let has = |word: &str| scanner.contains(word);
    if has("bracket") || has("flow") {
        "this is no YAML: a bracket that is not closed, or a comma that is missing,"
    } else if has("unclosed quote") || has("quoted scalar") {
        "this is no YAML: a quote that is not closed"
    } else if has("tabs") {
        "this is no YAML: indent with blanks, not with a tab,"
    } else {
        "this is no YAML: look for a bracket or quote that is not closed, a colon in a text that is not quoted, or wrong \
         indentation"
    }
}

/// What is wrong with the file as a whole, or with what few files have.
fn of_the_file(error: &Error) -> &'static str {
    match error {
        Error::Eof { .. } => {
            "it ends too early: a quote or bracket is not closed, or a value is missing"
        }
        Error::MultipleDocuments { .. } => {
            "a second document begins, and one is read: leave the others out, with the line ---,"
        }
        Error::UnknownAnchor { .. } => {
            "nothing is named so (&name): quote a text that begins with *"
        }
        Error::UnsupportedTag { .. } => "an unknown tag: quote a text that begins with !",
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "it is too large, too deep, or repeats too much by aliases (*name)"
        }
        Error::InvalidUtf8Input | Error::BinaryNotUtf8 { .. } => "it is not written in UTF-8",
        _ => "this cannot be read: another kind of value is expected",
    }
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

    fn entries(text: &str) -> Result<Vec<Entry>, String> {
        read_open::<Option<Entries>>(text).map(|it| it.unwrap_or_default().0)
    }

    #[test]
    fn entries_and_their_items_have_their_places() {
        let text = "# a\nb: 1\n\na:\n  - x\n  - 2\n\"c\": {d: e}\nf: \ng: -1.5\nh: [true]\n";
        let shown = entries(text).unwrap().into_iter().map(|it| {
            let items: Vec<String> = it.items.iter().map(Place::to_string).collect();
            format!("{} {} {} {}", it.key, it.place, it.value, items.join("; "))
        });
        let shown: Vec<String> = shown.collect();
        assert_eq!(
            shown,
            [
                "b line 2, column 1 1 ",
                "a line 4, column 1 [\"x\",2] line 5, column 5; line 6, column 5",
                "c line 7, column 1 {\"d\":\"e\"} ",
                "f line 8, column 1 null ",
                "g line 9, column 1 -1.5 ",
                "h line 10, column 1 [true] line 10, column 5",
            ]
        );
        for empty in ["", "# nothing\n", "---\n"] {
            assert!(entries(empty).unwrap().is_empty(), "{empty:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_our_own_words() {
        let cases: Vec<(&str, &str)> = vec![
            ("[1]", "expected a map (name: value) at line 1, column 1"),
            ("x", "expected a map (name: value) at line 1, column 1"),
            (
                "a: 1\nb: 2\na: 3",
                "the key \"a\" is given for the second time; leave one of them out at line 3, column 1",
            ),
            (
                "a: 1\n---\nb: 2",
                "a second document begins, and one is read: leave the others out, with the line ---, at line 3, column 1",
            ),
            (
                "a: [1\nb: 2\n",
                "look for a bracket or quote that is not closed",
            ),
            ("a: [1", "a bracket that is not closed"),
            ("a: \"x\n", "a quote that is not closed"),
            ("a: b: c\n", "a colon in a text that is not quoted"),
            ("a:\n\tb: c\n", "not with a tab"),
            ("a: *x\n", "quote a text that begins with *"),
            ("a: &a [*a]\n", "at line"),
            ("a: !x y\n? [1]\n: b", "at line"),
        ];
        for (text, says) in cases {
            let problem = entries(text).unwrap_err();
            assert!(problem.contains(says), "{text:?}: {problem}");
            for theirs in ["Option", "from_", "serde", "polic", "deserialize", "scann"] {
                assert!(!problem.contains(theirs), "{text:?}: {problem}");
            }
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
            ("users:\n- {SECRET: 1, SECRET: 1}\n", "line 2"),
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
