//! Quoting strings in messages the way Kubernetes' messages quote them (Go's `%q`).
//!
//! Clients and tests compare messages, so the quotes in them must be Go's: Rust's `{:?}` differs for control
//! characters (`\x01`, not `\u{1}`) and single quotes.

use std::fmt::Write;

/// The string in double quotes with Go's escapes.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        push_escaped(&mut out, c);
    }
    out.push('"');
    out
}

fn push_escaped(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String cannot fail.
    let _ = match c {
        '"' | '\\' => write!(out, "\\{c}"),
        '\u{7}' => write!(out, "\\a"),
        '\u{8}' => write!(out, "\\b"),
        '\u{c}' => write!(out, "\\f"),
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        '\u{b}' => write!(out, "\\v"),
        c if is_printable(c) => write!(out, "{c}"),
        _ if code < 0x20 || code == 0x7f => write!(out, "\\x{code:02x}"),
        _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space.
///
/// The standard library knows this set only through its debug escapes, which leave a printable character
/// alone when it is not the first of its string.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    let mut buffer = [b'a', 0, 0, 0, 0];
    let length = c.encode_utf8(&mut buffer[1..]).len();
    std::str::from_utf8(&buffer[..=length]).is_ok_and(|text| text.escape_debug().count() == 2)
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn quotes_as_go_does() {
        for (text, quoted) in [
            ("", r#""""#),
            ("plain text", r#""plain text""#),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("it's", r#""it's""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}", r#""\a\b\f\n\r\t\v""#),
            ("\u{0}\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("jürgen ☺ 日本", r#""jürgen ☺ 日本""#),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#),
            ("\u{e000}\u{10ffff}", r#""\ue000\U0010ffff""#),
        ] {
            assert_eq!(quote(text), quoted, "{text:?}");
        }
    }
}
