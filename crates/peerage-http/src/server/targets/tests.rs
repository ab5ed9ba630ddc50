#![allow(clippy::unwrap_used)]
use super::*;

fn uri(target: &str) -> Uri {
    target.parse().unwrap()
}

/// What is remembered after these bytes, which arrive in pieces of so many.
fn cut_after(http2: Option<bool>, bytes: &[u8], pieces: usize) -> (Arc<Cut>, io::Result<()>) {
    let cut = Arc::new(Cut::default());
    let mut targets = Targets::new(cut.clone(), http2);
    let read = bytes
        .chunks(pieces)
        .try_for_each(|piece| targets.read(piece));
    (cut, read)
}

#[test]
fn a_request_line_with_a_fragment_is_noticed_however_it_arrives() {
    for (bytes, left) in [
        ("GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", Some("/a")),
        ("DELETE /a?b=c#d&e=f HTTP/1.1\r\n\r\n", Some("/a?b=c")),
        ("\r\n\r\nGET /a/#b HTTP/1.1\n\n", Some("/a/")),
        ("GET https://host/a?b#c HTTP/1.1\r\n\r\n", Some("/a?b")),
        ("GET https://host#c HTTP/1.0\r\n\r\n", Some("/")),
        (
            "POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\n{#}GET /b#c HTTP/1.1\r\n\r\n",
            Some("/b"),
        ),
        (
            "POST /a HTTP/1.1\r\nContent-Length: 4\r\n\r\n{#}\nGET /b#c HTTP/1.1\r\n\r\n",
            Some("/b"),
        ),
        ("GET /a HTTP/1.1\r\nX: /b#c\r\n\r\n", None),
        ("GET /a%23b HTTP/1.1\r\nReferer: /b#c\r\n\r\n", None),
        (
            "PUT /a HTTP/1.1\r\n\r\n# a comment\nkey: value # HTTP/1\n",
            None,
        ),
    ] {
        for pieces in [1, 7, 4096] {
            for http2 in [Some(false), None] {
                let (cut, read) = cut_after(http2, bytes.as_bytes(), pieces);
                read.unwrap();
                let is_cut = left.map(|left| cut.is_cut(&uri(left)));
                assert_eq!(is_cut, left.map(|_| true), "{bytes:?} in {pieces}");
                assert!(!cut.is_cut(&uri("/other")), "{bytes:?}");
                assert_eq!(cut.any.load(Ordering::Acquire), left.is_some(), "{bytes:?}");
            }
        }
    }
}

#[test]
fn of_lines_that_never_end_only_so_much_is_kept_as_a_request_line_may_have() {
    let cut = Arc::new(Cut::default());
    let mut targets = Targets::new(cut, Some(false));
    targets.read(b"GET /").unwrap();
    for _ in 0..100 {
        targets.read(&[b'a'; 10_000]).unwrap();
    }
    let Speaks::Http1(lines) = &targets.speaks else {
        panic!("it speaks HTTP/1.1");
    };
    assert!(lines.kept() <= 80 << 10);
}

#[test]
fn more_fragments_than_anybody_has_use_for_end_the_connection() {
    let many: String = (0..=MOST)
        .map(|n| format!("GET /{n}#x HTTP/1.1\r\n\r\n"))
        .collect();
    let (_, read) = cut_after(Some(false), many.as_bytes(), 4096);
    assert!(read.is_err());
}

/// The string, in Huffman code or as it is.
fn string(text: &[u8], is_huffman: bool) -> Vec<u8> {
    let octets = match is_huffman {
        true => huffman::encode(text),
        false => text.to_vec(),
    };
    let mut string = Vec::new();
    let mark = if is_huffman { 0x80 } else { 0 };
    match octets.len() {
        short @ ..127 => string.push(mark | short as u8),
        long => {
            string.push(mark | 0x7f);
            let mut left = long - 127;
            while left >= 128 {
                string.push(0x80 | (left % 128) as u8);
                left /= 128;
            }
            string.push(left as u8);
        }
    }
    string.extend(octets);
    string
}

/// A header with an indexed name, which the table is to keep.
fn kept(name: u8, value: &[u8], is_huffman: bool) -> Vec<u8> {
    let mut header = vec![0x40 | name];
    header.extend(string(value, is_huffman));
    header
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, 1]);
    frame.extend(payload);
    frame
}

#[test]
fn a_path_with_a_fragment_is_noticed_however_its_block_is_made() {
    let path = b"/a?b=c#d";
    let plain = kept(4, path, false);
    let mut with_name = vec![0x00];
    with_name.extend(string(b":path", true));
    with_name.extend(string(path, true));
    let mut never = vec![0x14];
    never.extend(string(path, false));
    let mut padded = vec![3, 0, 0, 0, 0, 9];
    padded.extend(&plain);
    padded.extend([0; 3]);
    let split = plain.split_at(4);
    let mut continued = frame(1, 0, split.0);
    continued.extend(frame(9, 4, split.1));
    let again = {
        // Kept by the first block, among others, and named by its number in the second.
        let mut first = plain.clone();
        first.extend(kept(1, b"host", true));
        let mut bytes = frame(1, 4, &first);
        bytes.extend(frame(1, 4, &[0x80 | 63]));
        bytes
    };
    for (name, frames) in [
        ("plain", frame(1, 4, &plain)),
        ("Huffman", frame(1, 4, &kept(4, path, true))),
        ("with its name", frame(1, 4, &with_name)),
        ("never kept", frame(1, 4, &never)),
        ("padded, with priority", frame(1, 4 | 8 | 0x20, &padded)),
        ("continued", continued),
        ("kept", again),
    ] {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(4, 0, &[0, 1, 0, 0, 0x10, 0]));
        bytes.extend(frame(0, 0, b"GET /b#c HTTP/1.1\r\n"));
        bytes.extend(frames);
        for pieces in [1, 5, 4096] {
            for http2 in [Some(true), None] {
                let (cut, read) = cut_after(http2, &bytes, pieces);
                read.unwrap_or_else(|error| panic!("{name} in {pieces}: {error}"));
                assert!(cut.is_cut(&uri("/a?b=c")), "{name} in {pieces}");
                assert!(!cut.is_cut(&uri("/b")), "{name}: what a body says is none");
            }
        }
    }
}

#[test]
fn a_block_that_the_library_leaves_unread_ends_the_connection() {
    let mut bytes = PREFACE.to_vec();
    let mut block = vec![0x80, 0, 0, 1, 9];
    block.extend(kept(4, b"/a", false));
    bytes.extend(frame(1, 4 | 0x20, &block));
    let (_, read) = cut_after(Some(true), &bytes, 4096);
    assert!(read.is_err(), "stream 1 depends on itself");
}

#[test]
fn headers_fall_out_of_the_table_as_they_do_for_the_library() {
    let mut table = headers::Table::default();
    let mut found = 0;
    table
        .read(&kept(4, b"/a#b", false), |_| found += 1)
        .unwrap();
    table.read(&[0x80 | 62], |_| found += 1).unwrap();
    assert_eq!(found, 2);
    // 5 + 4 + 32 octets; another of 4096 - 41 fits beside it, and one octet more does not.
    let other = |octets: usize| kept(1, &vec![b'x'; octets - 32 - 10], false);
    table.read(&other(4096 - 41), |_| found += 1).unwrap();
    table.read(&[0x80 | 63], |_| found += 1).unwrap();
    assert_eq!(found, 3);
    table.read(&other(60), |_| found += 1).unwrap();
    assert!(table.read(&[0x80 | 64], |_| ()).is_err(), "it is gone");
    assert!(table.read(&[0x3f, 0xe2, 0x1f], |_| ()).is_err(), "4097");
    table.read(&[0x20], |_| ()).unwrap();
    assert!(table.read(&[0x80 | 62], |_| ()).is_err(), "all are gone");
    for bad in [
        &[0x80][..],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x44, 0x05, b'/'],
        &[0x44],
    ] {
        assert!(
            headers::Table::default().read(bad, |_| ()).is_err(),
            "{bad:?}"
        );
    }
}

#[test]
fn strings_are_read_as_the_standard_shows_them() {
    // RFC 7541, C.4 and C.6.
    for (encoded, text) in [
        (
            &[
                0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
            ][..],
            "www.example.com",
        ),
        (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
        (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
        (
            &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f],
            "custom-key",
        ),
        (&[], ""),
    ] {
        let mut octets = Vec::new();
        huffman::decode(encoded, |octet| octets.push(octet)).unwrap();
        assert_eq!(octets, text.as_bytes());
        assert_eq!(huffman::encode(text.as_bytes()), encoded);
    }
    let all: Vec<u8> = (0..=255).collect();
    let mut octets = Vec::new();
    huffman::decode(&huffman::encode(&all), |octet| octets.push(octet)).unwrap();
    assert_eq!(octets, all);
    for bad in [&[0xff][..], &[0xff, 0xff, 0xff, 0xfc], &[0x00], &[0xff; 9]] {
        assert!(huffman::decode(bad, |_| ()).is_err(), "{bad:?}");
    }
}

proptest::proptest! {
    #[test]
    fn nothing_that_arrives_ends_in_a_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), pieces in 1..50usize) {
        for http2 in [Some(true), Some(false), None] {
            let _ = cut_after(http2, &bytes, pieces);
        }
        let mut bytes_of_http2 = PREFACE.to_vec();
        bytes_of_http2.extend(frame(1, 4, &bytes));
        let _ = cut_after(None, &bytes_of_http2, pieces);
    }
}
