//! The scanner: bytes to [`Node`], one pass, with Go's texts for what is wrong.

use std::borrow::Cow;

use super::{MAX_DEPTH, Node, SyntaxError};

pub(super) fn read(bytes: &[u8]) -> Result<Node<'_>, SyntaxError> {
    let mut reader = Reader { bytes, at: 0 };
    let node = reader.value(0)?;
    reader.space();
    match reader.peek() {
        None => Ok(node),
        Some(_) => reader.unexpected("after top-level value"),
    }
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
