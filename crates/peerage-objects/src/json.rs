//! Reads JSON as Go does and keeps what `serde_json::Value` loses: the order of fields, fields given twice, and
//! how numbers were written. Errors have the texts of Go's `encoding/json`.
//!
//! As in Go, text that is not UTF-8 and escaped halves of surrogate pairs become U+FFFD.
//!
//! Differs: Go reads 10 000 levels; [`MAX_DEPTH`] is what every other reader here can follow.

mod reader;

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

/// How deep arrays and objects may be nested: below the 128 levels at which `serde_json` stops, so that what was
/// stored can be read again, also inside of a list or a watch frame.
pub const MAX_DEPTH: usize = 120;

/// A JSON value as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Node<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as written.
    Number(Cow<'a, str>),
    /// Text, without escapes.
    String(Cow<'a, str>),
    /// A list.
    Array(Vec<Node<'a>>),
    /// Fields in their order; a name may come twice.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// Why bytes are not JSON; the texts are Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// The bytes end too early.
    #[error("unexpected end of JSON input")]
    End,
    /// A character that cannot stand there.
    #[error("invalid character {character} {context}")]
    Character {
        /// The character in single quotes.
        character: String,
        /// Where it stands.
        context: &'static str,
    },
    /// Nested too deep.
    #[error("exceeded max depth")]
    Depth,
}

/// Reads one JSON value.
pub fn parse(bytes: &[u8]) -> Result<Node<'_>, SyntaxError> {
    reader::read(bytes)
}

impl<'a> Node<'a> {
    /// The same value without what [`Value`] cannot hold. Of a field given twice the last counts.
    pub fn to_value(&self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Bool(truth) => Value::Bool(*truth),
            Node::Number(text) => Value::Number(number(text)),
            Node::String(text) => Value::String(text.to_string()),
            Node::Array(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Node::Object(fields) => {
                let fields = fields.iter();
                let map: Map<String, Value> = fields
                    .map(|(name, value)| (name.to_string(), value.to_value()))
                    .collect();
                Value::Object(map)
            }
        }
    }

    /// A value as a node; borrows its texts.
    pub fn from_value(value: &'a Value) -> Node<'a> {
        match value {
            Value::Null => Node::Null,
            Value::Bool(truth) => Node::Bool(*truth),
            Value::Number(number) => Node::Number(Cow::Owned(number.to_string())),
            Value::String(text) => Node::String(Cow::Borrowed(text)),
            Value::Array(items) => Node::Array(items.iter().map(Node::from_value).collect()),
            Value::Object(fields) => {
                let fields = fields.iter();
                let pairs = fields
                    .map(|(name, value)| (Cow::Borrowed(name.as_str()), Node::from_value(value)));
                Node::Object(pairs.collect())
            }
        }
    }

    /// A field; the last of that name.
    pub fn get(&self, name: &str) -> Option<&Node<'a>> {
        match self {
            Node::Object(fields) => {
                let found = fields.iter().rev().find(|(field, _)| field == name);
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Node::String(text) => Some(text),
            _ => None,
        }
    }

    /// What Go's errors call this kind of value.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "bool",
            Node::Number(_) => "number",
            Node::String(_) => "string",
            Node::Array(_) => "array",
            Node::Object(_) => "object",
        }
    }

    /// The paths of fields that are given twice, `a.b[0].c`, in their order; at most `limit`.
    pub fn duplicate_fields(&self, limit: usize) -> Vec<String> {
        let mut found = Vec::new();
        self.find_duplicates("", limit, &mut found);
        found
    }

    fn find_duplicates(&self, path: &str, limit: usize, found: &mut Vec<String>) {
        match self {
            Node::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    item.find_duplicates(&crate::field::index(path, at), limit, found);
                }
            }
            Node::Object(fields) => {
                let mut seen = Seen::new(fields.len());
                for (at, (name, value)) in fields.iter().enumerate() {
                    let path = crate::field::child(path, name);
                    if !seen.insert(fields, at) && found.len() < limit && !found.contains(&path) {
                        found.push(path.clone());
                    }
                    value.find_duplicates(&path, limit, found);
                }
            }
            _ => {}
        }
    }
}

/// The field names of one object that have come already: a scan for few, a set for many.
pub(crate) enum Seen<'n> {
    Few,
    Many(std::collections::HashSet<&'n str>),
}

impl<'n> Seen<'n> {
    pub(crate) fn new(fields: usize) -> Seen<'n> {
        const FEW: usize = 24;
        if fields <= FEW {
            Seen::Few
        } else {
            Seen::Many(Default::default())
        }
    }

    /// Whether the name of the field at that position is new.
    pub(crate) fn insert(&mut self, fields: &'n [(Cow<'_, str>, Node<'_>)], at: usize) -> bool {
        let name = &*fields[at].0;
        match self {
            Seen::Few => !fields[..at].iter().any(|(earlier, _)| *earlier == *name),
            Seen::Many(names) => names.insert(name),
        }
    }
}

/// A number as Go keeps it in untyped content: whole if it fits into 64 bits, else a float, at most the largest.
fn number(text: &str) -> Number {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    let float = text.parse::<f64>().unwrap_or_default();
    let float = float.clamp(f64::MIN, f64::MAX);
    Number::from_f64(float).unwrap_or_else(|| 0.into())
}

#[cfg(test)]
mod tests;
