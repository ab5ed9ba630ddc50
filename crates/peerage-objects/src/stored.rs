//! A stored object as bytes that lists and watch frames are spliced from, without parsing them again.
//!
//! The bytes are the object's JSON as the store holds it. What a reader may have to change has known places: the
//! type fields (lists of built-in kinds leave them out), and `metadata.resourceVersion`, which is the revision of
//! the store and is put in, or replaced, while the bytes are copied.
//!
//! Invariant: the places are found once, when the value is loaded, and always lie on the borders of JSON tokens of
//! the bytes beside them.

use std::io::Write;
use std::ops::Range;

use bytes::{BufMut, Bytes};
use serde_json::Value;

/// A stored object and where its parts are.
#[derive(Clone, Debug)]
pub struct StoredJson {
    bytes: Bytes,
    api_version: Range<usize>,
    kind: Range<usize>,
    /// What is left out with the type fields: each run of them with its commas, in order.
    type_fields: [Range<usize>; 2],
    version: Version,
}

/// Where the resourceVersion goes.
#[derive(Clone, Debug)]
enum Version {
    /// There is one; its value is here, with the quotes.
    Replace(Range<usize>),
    /// There is none; it goes here, between these.
    Insert {
        at: usize,
        before: &'static str,
        after: &'static str,
    },
}

/// What becomes of `apiVersion` and `kind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeFields {
    /// They stay.
    Keep,
    /// They are left out, as in lists of built-in kinds.
    Omit,
}

/// Why bytes are no stored object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoredJsonError {
    /// The bytes are no JSON object.
    #[error("the stored value is no JSON object (byte {0})")]
    Syntax(usize),
    /// The object has no metadata.
    #[error("the stored object has no metadata")]
    NoMetadata,
}

impl StoredJson {
    /// Finds the places in the bytes of a stored object.
    pub fn new(bytes: Bytes) -> Result<StoredJson, StoredJsonError> {
        let mut scan = Scan {
            bytes: &bytes,
            at: 0,
        };
        let members = scan.members()?;
        scan.space();
        if scan.at != bytes.len() {
            return Err(StoredJsonError::Syntax(scan.at));
        }
        let metadata = find(&bytes, &members, METADATA).ok_or(StoredJsonError::NoMetadata)?;
        let mut scan = Scan {
            bytes: &bytes,
            at: metadata.value.start,
        };
        let inner = match scan.peek() {
            Some(b'{') => scan.members()?,
            _ => return Err(StoredJsonError::NoMetadata),
        };
        let version = match find(&bytes, &inner, RESOURCE_VERSION) {
            Some(member) => Version::Replace(member.value.clone()),
            None => insertion(&bytes, metadata.value.start + 1, &inner),
        };
        Ok(StoredJson {
            api_version: text(&bytes, &members, API_VERSION),
            kind: text(&bytes, &members, KIND),
            type_fields: type_fields(&bytes, &members),
            version,
            bytes,
        })
    }

    /// The bytes as they are stored.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The stored `apiVersion`; empty if it is absent or odd.
    pub fn api_version(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.api_version.clone()]).unwrap_or_default()
    }

    /// The stored `kind`; empty if it is absent or odd.
    pub fn kind(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.kind.clone()]).unwrap_or_default()
    }

    /// Copies the object with the revision as its resourceVersion, into a buffer that grows.
    pub fn write(&self, out: &mut impl BufMut, types: TypeFields, revision: i64) {
        let (version_at, version_end) = match &self.version {
            Version::Replace(range) => (range.start, range.end),
            Version::Insert { at, .. } => (*at, *at),
        };
        let cuts = match types {
            TypeFields::Keep => &[][..],
            TypeFields::Omit => &self.type_fields[..],
        };
        let (mut from, mut written) = (0, false);
        for cut in cuts.iter().filter(|cut| !cut.is_empty()) {
            if !written && version_at < cut.start {
                self.write_version(out, &mut from, version_at, version_end, revision);
                written = true;
            }
            out.put_slice(&self.bytes[from..cut.start]);
            from = cut.end;
        }
        if !written {
            self.write_version(out, &mut from, version_at, version_end, revision);
        }
        out.put_slice(&self.bytes[from..]);
    }

    fn write_version(
        &self,
        out: &mut impl BufMut,
        from: &mut usize,
        at: usize,
        end: usize,
        revision: i64,
    ) {
        out.put_slice(&self.bytes[*from..at]);
        *from = end;
        // A buffer that grows takes everything.
        let mut out = out.writer();
        let _ = match &self.version {
            Version::Replace(_) => write!(out, "\"{revision}\""),
            Version::Insert { before, after, .. } => {
                write!(out, "{before}\"resourceVersion\":\"{revision}\"{after}")
            }
        };
    }

    /// The object, parsed, with the revision as its resourceVersion.
    pub fn to_value(&self, revision: i64) -> Result<Value, serde_json::Error> {
        let mut value: Value = serde_json::from_slice(&self.bytes)?;
        crate::meta::set_resource_version(&mut value, &revision.to_string());
        Ok(value)
    }
}

/// A member as it was found: its name with the quotes, and its value.
struct Found {
    name: Range<usize>,
    value: Range<usize>,
}

const API_VERSION: &str = "\"apiVersion\"";
const KIND: &str = "\"kind\"";
const METADATA: &str = "\"metadata\"";
const RESOURCE_VERSION: &str = "\"resourceVersion\"";

fn find<'m>(bytes: &[u8], members: &'m [Found], quoted_name: &str) -> Option<&'m Found> {
    let named = |member: &&Found| bytes[member.name.clone()] == *quoted_name.as_bytes();
    members.iter().find(named)
}

/// Where the text of a member is, if that is plain.
fn text(bytes: &[u8], members: &[Found], quoted_name: &str) -> Range<usize> {
    let value = find(bytes, members, quoted_name).map_or(0..0, |member| member.value.clone());
    let plain = bytes.get(value.start) == Some(&b'"') && !bytes[value.clone()].contains(&b'\\');
    if plain && value.len() >= 2 {
        value.start + 1..value.end - 1
    } else {
        0..0
    }
}

/// The runs of type fields among the members, each with the commas that go with it.
fn type_fields(bytes: &[u8], members: &[Found]) -> [Range<usize>; 2] {
    let is_type = |member: &Found| {
        let name = &bytes[member.name.clone()];
        name == API_VERSION.as_bytes() || name == KIND.as_bytes()
    };
    let mut runs = [0..0, 0..0];
    let mut slots = runs.iter_mut();
    let mut at = 0;
    while at < members.len() {
        let length = members[at..]
            .iter()
            .take_while(|member| is_type(member))
            .count();
        if length > 0
            && let Some(slot) = slots.next()
        {
            let end = members[at + length - 1].value.end;
            *slot = match (members.get(at + length), at.checked_sub(1)) {
                (Some(next), _) => members[at].name.start..next.name.start,
                (None, Some(before)) => members[before].value.end..end,
                (None, None) => members[at].name.start..end,
            };
        }
        at += length.max(1);
    }
    runs
}

/// Where a resourceVersion goes so that sorted members stay sorted.
fn insertion(bytes: &[u8], start: usize, members: &[Found]) -> Version {
    let name = "\"resourceVersion\"".as_bytes();
    let next = members
        .iter()
        .find(|member| bytes[member.name.clone()] > *name);
    let (at, before, after) = match (next, members.last()) {
        (Some(next), _) => (next.name.start, "", ","),
        (None, Some(last)) => (last.value.end, ",", ""),
        (None, None) => (start, "", ""),
    };
    Version::Insert { at, before, after }
}

/// Steps over JSON without building anything.
struct Scan<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), StoredJsonError> {
        self.space();
        if self.peek() != Some(byte) {
            return Err(StoredJsonError::Syntax(self.at));
        }
        self.at += 1;
        Ok(())
    }

    fn members(&mut self) -> Result<Vec<Found>, StoredJsonError> {
        let mut members = Vec::new();
        self.expect(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(members);
        }
        loop {
            self.space();
            let name = self.string()?;
            self.expect(b':')?;
            self.space();
            let value = self.value()?;
            members.push(Found { name, value });
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(StoredJsonError::Syntax(self.at)),
            }
        }
        self.at += 1;
        Ok(members)
    }

    fn string(&mut self) -> Result<Range<usize>, StoredJsonError> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.peek() {
                None => return Err(StoredJsonError::Syntax(self.at)),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(start..self.at)
    }

    /// A value of any kind; brackets are counted, not matched by kind.
    fn value(&mut self) -> Result<Range<usize>, StoredJsonError> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            match self.peek() {
                None => return Err(StoredJsonError::Syntax(self.at)),
                Some(b'"') => {
                    self.string()?;
                }
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']' | b',') if depth == 0 => break,
                Some(b'}' | b']') => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b' ' | b'\t' | b'\r' | b'\n') if depth == 0 => break,
                Some(_) => self.at += 1,
            }
            let closed = matches!(
                self.bytes.get(self.at.wrapping_sub(1)),
                Some(b'"' | b'}' | b']')
            );
            if depth == 0 && closed {
                break;
            }
        }
        if start == self.at {
            return Err(StoredJsonError::Syntax(start));
        }
        Ok(start..self.at)
    }
}

#[cfg(test)]
mod tests;
