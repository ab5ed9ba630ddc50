//! Which values of a subject are text, and which text.
//!
//! Go's `crypto/x509` is the reference, in all the versions that kube-apiservers of today are built with:
//!
//! | type | Go | here |
//! |---|---|---|
//! | UTF8String | text if it is UTF-8, else the certificate is refused | the same |
//! | PrintableString | its characters, `*` and `&`, else refused | the same |
//! | IA5String, NumericString | ASCII; digits and spaces, else refused | the same |
//! | T61String | the bytes as they are, of late as Latin-1 | ASCII, which is the same; nothing else is text |
//! | BMPString | UTF-16, of late without surrogates and noncharacters; one zero at the end is dropped | without these |
//! | UniversalString and all others | refused, of late as if the attribute was not there | no text |
//!
//! Invariant: what is text is the same text for every server that takes the certificate.

use x509_parser::der_parser::asn1_rs::{Any, Class, Tag};

/// The text of an attribute.
pub(super) fn read(value: &Any<'_>) -> Option<String> {
    if value.class() != Class::Universal || value.header.constructed() {
        return None;
    }
    let is_made_of = |fits: fn(&u8) -> bool| value.data.iter().all(fits);
    let is_text = match value.tag() {
        Tag::BmpString => return bmp(value.data),
        Tag::Utf8String => true,
        Tag::PrintableString => is_made_of(is_printable),
        Tag::NumericString => is_made_of(|byte| byte.is_ascii_digit() || *byte == b' '),
        Tag::Ia5String | Tag::T61String => is_made_of(u8::is_ascii),
        _ => false,
    };
    let text = str::from_utf8(value.data).ok()?;
    is_text.then(|| text.to_owned())
}

fn is_printable(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(byte)
}

fn bmp(bytes: &[u8]) -> Option<String> {
    let (pairs, odd) = bytes.as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let pairs = pairs.strip_suffix(&[[0, 0]]).unwrap_or(pairs);
    let character = |pair: &[u8; 2]| {
        let point = u16::from_be_bytes(*pair);
        let is_none = matches!(point, 0xfdd0..=0xfdef | 0xfffe..);
        // A surrogate is no character.
        char::from_u32(point.into()).filter(|_| !is_none)
    };
    pairs.iter().map(character).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use x509_parser::prelude::FromDer;

    const NUMERIC: u8 = 18;
    const PRINTABLE: u8 = 19;
    const T61: u8 = 20;
    const IA5: u8 = 22;
    const UTF8: u8 = 12;
    const BMP: u8 = 30;

    #[test]
    fn text_is_what_every_version_of_go_reads_in_the_same_way() {
        for (tag, bytes, expected) in [
            (
                UTF8,
                "zo\u{eb} \u{1f980}".as_bytes(),
                Some("zo\u{eb} \u{1f980}"),
            ),
            (UTF8, b"", Some("")),
            (UTF8, b"a\0b", Some("a\0b")),
            (UTF8, b"\xff", None),
            (UTF8, b"\xed\xa0\x80", None),
            (
                PRINTABLE,
                b"system:node.a-1 (x)",
                Some("system:node.a-1 (x)"),
            ),
            (PRINTABLE, b"*.a&b", Some("*.a&b")),
            (PRINTABLE, b"a_b", None),
            (PRINTABLE, b"a@b", None),
            (PRINTABLE, "\u{e9}".as_bytes(), None),
            (IA5, b"a_b@c", Some("a_b@c")),
            (IA5, "\u{e9}".as_bytes(), None),
            (NUMERIC, b"12 3", Some("12 3")),
            (NUMERIC, b"12a", None),
            (T61, b"alice_1", Some("alice_1")),
            (T61, b"", Some("")),
            (T61, b"ren\xe9", None),
            (T61, "\u{e9}".as_bytes(), None),
            (BMP, b"\0a\0\xeb", Some("a\u{eb}")),
            (BMP, b"\x20\xac", Some("\u{20ac}")),
            (BMP, b"\0a\0\0", Some("a")),
            (BMP, b"\0a\0\0\0\0", Some("a\0")),
            (BMP, b"", Some("")),
            (BMP, b"\0a\0", None),
            (BMP, b"\xd8\x3e\xdd\x80", None),
            (BMP, b"\xff\xfe", None),
            (BMP, b"\xff\xff", None),
            (BMP, b"\xfd\xd0", None),
            (28, b"\0\0\0a", None),
            (27, b"general", None),
            (4, b"octets", None),
            (5, b"", None),
            (0x80 | UTF8, b"of another class", None),
            (0x20 | UTF8, b"\x0c\x01a", None),
        ] {
            let der = [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat();
            let read = Any::from_der(&der).ok().and_then(|(_, any)| read(&any));
            assert_eq!(read.as_deref(), expected, "{tag} {bytes:?}");
        }
    }
}
