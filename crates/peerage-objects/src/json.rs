//! Reads JSON as Go does and keeps what `serde_json::Value` loses: the order of fields, fields given twice, and
//! how numbers were written. Errors have the texts of Go's `encoding/json`.
//!
//! As in Go, text that is not UTF-8 and escaped halves of surrogate pairs become U+FFFD.
//!
//! Differs: Go reads 10 000 levels; [`MAX_DEPTH`] is what every other reader here can follow.

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
    let mut reader = Reader { bytes, at: 0 };
    let node = reader.value(0)?;
    reader.space();
    match reader.peek() {
        None => Ok(node),
        Some(_) => reader.unexpected("after top-level value"),
    }
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

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn unexpected<T>(&self, context: &'static str) -> Result<T, SyntaxError> {
        match self.peek() {
            None => Err(SyntaxError::End),
            Some(byte) => Err(SyntaxError::Character {
                character: quote_byte(byte),
                context,
            }),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => Ok(Node::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(&TRUE, Node::Bool(true)),
            Some(b'f') => self.word(&FALSE, Node::Bool(false)),
            Some(b'n') => self.word(&NULL, Node::Null),
            _ => self.unexpected("looking for beginning of value"),
        }
    }

    fn word(
        &mut self,
        letters: &[(u8, &'static str)],
        node: Node<'a>,
    ) -> Result<Node<'a>, SyntaxError> {
        for (letter, context) in letters {
            if self.peek() != Some(*letter) {
                return self.unexpected(context);
            }
            self.at += 1;
        }
        Ok(node)
    }

    fn array(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        self.descend(depth)?;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return self.unexpected("after array element"),
            }
        }
        self.at += 1;
        Ok(Node::Array(items))
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        self.descend(depth)?;
        let mut fields = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(fields));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.unexpected("looking for beginning of object key string");
            }
            let name = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return self.unexpected("after object key");
            }
            self.at += 1;
            fields.push((name, self.value(depth)?));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return self.unexpected("after object key:value pair"),
            }
        }
        self.at += 1;
        Ok(Node::Object(fields))
    }

    /// Steps over an opening bracket.
    fn descend(&mut self, depth: usize) -> Result<(), SyntaxError> {
        self.at += 1;
        if depth > MAX_DEPTH {
            Err(SyntaxError::Depth)
        } else {
            Ok(())
        }
    }

    fn number(&mut self) -> Result<Node<'a>, SyntaxError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.unexpected("in numeric literal"),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return self.unexpected("after decimal point in numeric literal");
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return self.unexpected("in exponent of numeric literal");
            }
            self.digits();
        }
        Ok(Node::Number(String::from_utf8_lossy(
            &self.bytes[start..self.at],
        )))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        self.at += 1;
        let plain = self.plain_run();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(plain);
        }
        let mut text = plain.into_owned();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => text.push(self.escape()?),
                Some(byte) if byte >= 0x20 => text.push_str(&self.plain_run()),
                _ => return self.unexpected("in string literal"),
            }
        }
        self.at += 1;
        Ok(Cow::Owned(text))
    }

    /// What comes before the next quote, backslash or control character.
    fn plain_run(&mut self) -> Cow<'a, str> {
        let rest = &self.bytes[self.at..];
        let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        let length = rest.iter().position(stops).unwrap_or(rest.len());
        self.at += length;
        String::from_utf8_lossy(&rest[..length])
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        self.at += 1;
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return self.unexpected("in string escape code"),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode(&mut self) -> Result<char, SyntaxError> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before = self.at;
        if self.bytes[self.at..].starts_with(b"\\u") {
            self.at += 1;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        self.at = before;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    /// The four digits after the `u` at which the reader stands.
    fn hex(&mut self) -> Result<u32, SyntaxError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return self.unexpected("in \\u hexadecimal character escape");
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }
}

const TRUE: [(u8, &str); 4] = [
    (b't', ""),
    (b'r', "in literal true (expecting 'r')"),
    (b'u', "in literal true (expecting 'u')"),
    (b'e', "in literal true (expecting 'e')"),
];
const FALSE: [(u8, &str); 5] = [
    (b'f', ""),
    (b'a', "in literal false (expecting 'a')"),
    (b'l', "in literal false (expecting 'l')"),
    (b's', "in literal false (expecting 's')"),
    (b'e', "in literal false (expecting 'e')"),
];
const NULL: [(u8, &str); 4] = [
    (b'n', ""),
    (b'u', "in literal null (expecting 'u')"),
    (b'l', "in literal null (expecting 'l')"),
    (b'l', "in literal null (expecting 'l')"),
];

/// A byte in single quotes, as Go shows it: one byte is one character.
fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let quoted = crate::field::quote(&char::from(byte).to_string());
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_no_json_is_refused_in_the_words_of_go() {
        let cases = [
            ("", "unexpected end of JSON input"),
            (
                "plain words",
                "invalid character 'p' looking for beginning of value",
            ),
            ("{\"a\":{\"b\":\"trunc\"", "unexpected end of JSON input"),
            ("{} xyz", "invalid character 'x' after top-level value"),
            (
                "{a:1}",
                "invalid character 'a' looking for beginning of object key string",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1 2}",
                "invalid character '2' after object key:value pair",
            ),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("[01]", "invalid character '1' after array element"),
            ("-", "unexpected end of JSON input"),
            ("-x", "invalid character 'x' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            (
                "1ex",
                "invalid character 'x' in exponent of numeric literal",
            ),
            (
                "trux",
                "invalid character 'x' in literal true (expecting 'e')",
            ),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            (
                "\"\\u00g0\"",
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            (
                "'a'",
                "invalid character '\\'' looking for beginning of value",
            ),
        ];
        for (text, error) in cases {
            assert_eq!(
                parse(text.as_bytes()).unwrap_err().to_string(),
                error,
                "{text}"
            );
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(
            parse(nested(MAX_DEPTH + 1).as_bytes()),
            Err(SyntaxError::Depth)
        );
        assert!(parse("[".repeat(1_000_000).as_bytes()).is_err());
    }

    #[test]
    fn odd_text_is_repaired_as_go_does() {
        let text = |bytes: &[u8]| parse(bytes).unwrap().to_value();
        assert_eq!(text(b"\"a\xffb\""), json!("a\u{fffd}b"));
        assert_eq!(text(br#""\ud800x""#), json!("\u{fffd}x"));
        assert_eq!(text(br#""\ud83d\ude00\u00e9\/""#), json!("😀é/"));
    }

    #[test]
    fn fields_given_twice_are_found_with_their_paths() {
        let node = parse(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":1,"d":2}],"a":{}}"#).unwrap();
        assert_eq!(node.duplicate_fields(100), ["a.b", "c[0].d", "a"]);
        assert_eq!(node.duplicate_fields(1), ["a.b"]);
        assert_eq!(node.get("a"), Some(&Node::Object(Vec::new())));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9f64).prop_map(Value::from),
            "\\PC{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-c\"\\\\é]{0,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_writes_is_read_back(value in any_json()) {
            let text = value.to_string();
            let node = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(node.to_value(), value.clone());
            prop_assert_eq!(Node::from_value(&value).to_value(), value);
        }

        #[test]
        fn any_bytes_are_read_or_refused_as_serde_does(bytes in proptest::collection::vec(
            prop_oneof![Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b'"'), Just(b':'),
                Just(b','), Just(b'1'), Just(b'-'), Just(b'.'), Just(b'\\'), Just(b'n')], 0..12)) {
            let ours = parse(&bytes).is_ok();
            prop_assert_eq!(ours, serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    }
}
