//! JSON bytes as Kubernetes writes them.
//!
//! Go's encoder writes `<`, `>`, `&`, U+2028 and U+2029 as escapes, ends a document with a newline, and
//! indents with two spaces when asked to. Which of the two a client gets is negotiated in [`crate::media`].

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Compact JSON and a newline: the usual body of an answer.
///
/// # Errors
/// A value that has no JSON form (a map with keys that are no strings).
pub fn to_body(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Vec<u8>> {
    let mut out = to_vec(value)?;
    out.push(b'\n');
    Ok(out)
}

/// Compact JSON without a newline.
///
/// # Errors
/// As [`to_body`].
pub fn to_vec(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Vec<u8>> {
    write(value, CompactFormatter)
}

/// JSON indented by two spaces, without a newline at the end.
///
/// # Errors
/// As [`to_body`].
pub fn to_vec_pretty(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Vec<u8>> {
    write(value, PrettyFormatter::with_indent(b"  "))
}

fn write<F: Formatter>(
    value: &(impl Serialize + ?Sized),
    formatter: F,
) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, GoFormatter(formatter));
    value.serialize(&mut serializer)?;
    Ok(out)
}

/// Adds Go's escapes to another formatter.
struct GoFormatter<F>(F);

impl<F: Formatter> Formatter for GoFormatter<F> {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (before, from) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            let mut chars = from.chars();
            if let Some(special) = chars.next() {
                write!(writer, "\\u{:04x}", u32::from(special))?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writes_what_go_would_write() {
        let value = json!({"a": "<b>&\u{2028}é\u{1}\n\"", "<": [1, {"c": null}], "d": {}, "e": []});
        assert_eq!(
            String::from_utf8(to_body(&value).unwrap()).unwrap(),
            concat!(
                r#"{"\u003c":[1,{"c":null}],"a":"\u003cb\u003e\u0026\u2028é\u0001\n\"","d":{},"e":[]}"#,
                "\n"
            )
        );
        assert_eq!(
            String::from_utf8(to_vec_pretty(&json!({"a": [1, "<"], "d": {}, "e": []})).unwrap())
                .unwrap(),
            "{\n  \"a\": [\n    1,\n    \"\\u003c\"\n  ],\n  \"d\": {},\n  \"e\": []\n}"
        );
    }

    #[test]
    fn raw_values_pass_unchanged() {
        let raw = serde_json::value::RawValue::from_string(r#"{"b":"<"}"#.to_owned()).unwrap();
        assert_eq!(to_vec(&raw).unwrap(), br#"{"b":"<"}"#);
    }
}
