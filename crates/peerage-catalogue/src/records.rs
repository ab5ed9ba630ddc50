//! The text form of the catalogue: records, and versions as what changed since the one before.
//!
//! A file is a list of records. A record is a header line and the indented lines that follow it; the first two
//! words of the header are its key. A file states only the records that differ from those of the next older
//! version; `- type NAME` takes a record of the older version away. What is in a record is left to the modules
//! that read its kind.
//!
//! Invariant: the keys of a set of records are unique, and applying a delta that [`Records::delta`] made gives
//! back the newer set.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What is wrong with a catalogue text.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// An indented line before any header.
    #[error("line {0}: an indented line without a record before it")]
    Orphan(usize),
    /// A header with fewer than two words.
    #[error("line {0}: a record needs a kind and a name")]
    NoName(usize),
    /// A record that is there twice.
    #[error("line {line}: `{key}` is there twice")]
    Twice {
        /// Where the second one is.
        line: usize,
        /// Its key.
        key: String,
    },
}

/// A set of records by key. A record's text has no final line feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    records: BTreeMap<String, String>,
}

impl Records {
    /// No records.
    pub fn new() -> Records {
        Records::default()
    }

    /// Applies a file: its records replace older ones of the same key, its removals take them away.
    pub fn apply(&mut self, text: &str) -> Result<(), RecordError> {
        let mut seen = BTreeMap::new();
        let mut lines = text.lines().enumerate().peekable();
        while let Some((at, header)) = lines.next() {
            let line = at + 1;
            if header.is_empty() || header.starts_with('#') {
                continue;
            }
            if header.starts_with(' ') {
                return Err(RecordError::Orphan(line));
            }
            if let Some(key) = header.strip_prefix("- ") {
                self.records.remove(key);
                continue;
            }
            let key = key_of(header).ok_or(RecordError::NoName(line))?.to_owned();
            let mut record = header.to_owned();
            while let Some((_, more)) = lines.next_if(|(_, l)| l.starts_with(' ')) {
                record.push('\n');
                record.push_str(more);
            }
            if seen.insert(key.clone(), ()).is_some() {
                return Err(RecordError::Twice { line, key });
            }
            self.records.insert(key, record);
        }
        Ok(())
    }

    /// Adds a record or replaces the one with its key; false when the text has no key.
    pub fn insert(&mut self, record: &str) -> bool {
        let Some(key) = record.lines().next().and_then(key_of) else {
            return false;
        };
        self.records
            .insert(key.to_owned(), record.trim_end().to_owned());
        true
    }

    /// A record by kind and name.
    pub fn get(&self, kind: &str, name: &str) -> Option<&str> {
        self.records.get(&format!("{kind} {name}")).map(|r| &**r)
    }

    /// All records of a kind in the order of their names: name and text.
    pub fn of_kind<'a>(&'a self, kind: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let prefix = format!("{kind} ");
        let from = prefix.clone();
        let skip = prefix.len();
        self.records
            .range(from..)
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(move |(key, text)| (&key[skip..], &**text))
    }

    /// The file that makes these records out of the older ones.
    pub fn delta(&self, older: &Records) -> String {
        let mut text = String::new();
        for key in older.records.keys() {
            if !self.records.contains_key(key) {
                let _ = writeln!(text, "- {key}");
            }
        }
        for (key, record) in &self.records {
            if older.records.get(key) != Some(record) {
                let _ = writeln!(text, "{record}");
            }
        }
        text
    }
}

/// The first two words of a header.
fn key_of(header: &str) -> Option<&str> {
    let first = header.find(' ')?;
    let rest = &header[first + 1..];
    let second = rest.find(' ').unwrap_or(rest.len());
    (second > 0).then(|| &header[..first + 1 + second])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn records(text: &str) -> Records {
        let mut records = Records::new();
        records.apply(text).unwrap();
        records
    }

    #[test]
    fn a_delta_applied_to_the_older_set_gives_the_newer_one() {
        let older = records("info 1 x\ntype A\n  a string\ntype B\n  b int32\n");
        let newer = records("info 1 y\ntype B\n  b int32\ntype C\n");
        let delta = newer.delta(&older);
        assert_eq!(delta, "- type A\ninfo 1 y\ntype C\n");
        let mut again = older;
        again.apply(&delta).unwrap();
        assert_eq!(again, newer);
    }

    proptest::proptest! {
        #[test]
        fn any_delta_applied_to_the_older_set_gives_the_newer_one(
            older: std::collections::BTreeMap<u8, Vec<u8>>,
            newer: std::collections::BTreeMap<u8, Vec<u8>>,
        ) {
            let make = |all: std::collections::BTreeMap<u8, Vec<u8>>| {
                let mut records = Records::new();
                for (name, lines) in all {
                    let lines: String = lines.iter().map(|l| format!("\n  {l}")).collect();
                    records.insert(&format!("type t{name}{lines}"));
                }
                records
            };
            let (mut again, newer) = (make(older), make(newer));
            again.apply(&newer.delta(&again)).unwrap();
            proptest::prop_assert_eq!(again, newer);
        }
    }

    #[test]
    fn a_record_goes_to_the_end_of_its_indented_lines() {
        let set = records("# note\ntype A x=1\n  a string\n\ntype B\n");
        assert_eq!(set.get("type", "A"), Some("type A x=1\n  a string"));
        let names: Vec<_> = set.of_kind("type").map(|(name, _)| name).collect();
        assert_eq!(names, ["A", "B"]);
    }

    #[test]
    fn faults_are_told_with_their_line() {
        for (text, message) in [
            (
                "  a\n",
                "line 1: an indented line without a record before it",
            ),
            ("type A\nword\n", "line 2: a record needs a kind and a name"),
            ("type A\ntype A\n", "line 2: `type A` is there twice"),
        ] {
            let error = Records::new().apply(text).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
