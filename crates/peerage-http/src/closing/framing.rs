//! Where one event of a watch ends and the next begins, for each form that Kubernetes writes watches in.
//!
//! JSON has a line for each event, protobuf a length of four bytes before it, CBOR one item. A form that is not known
//! has no place that is between two events.
//!
//! Invariant: bytes are counted, never kept.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

/// Follows a stream of events.
#[derive(Debug)]
pub(super) enum Framing {
    /// Each event ends with a line feed.
    Lines { between: bool },
    /// Each event follows its length.
    Lengths {
        /// Bytes of the length that have been seen, and their value so far.
        seen: u8,
        length: u32,
        /// Bytes of the event that are to come.
        left: u32,
    },
    /// Each event is one CBOR item of definite length (RFC 8742).
    Items(Item),
    /// Nothing has come yet, or no end will be recognised.
    Unknown { begun: bool },
}

impl Framing {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let unknown = Self::Unknown { begun: false };
        if headers.contains_key(CONTENT_ENCODING) {
            return unknown;
        }
        let content_type = headers.get(CONTENT_TYPE).and_then(|t| t.to_str().ok());
        let essence = content_type.and_then(|t| t.split(';').next());
        match essence.map(str::trim) {
            Some("application/json" | "application/yaml") | None => Self::Lines { between: true },
            Some("application/vnd.kubernetes.protobuf") => Self::Lengths {
                seen: 0,
                length: 0,
                left: 0,
            },
            Some("application/cbor-seq") => Self::Items(Item::default()),
            Some(_) => unknown,
        }
    }

    /// Takes in what comes next.
    pub(super) fn take(&mut self, data: &[u8]) {
        match self {
            Self::Lines { between } => {
                if let Some(last) = data.last() {
                    *between = *last == b'\n';
                }
            }
            Self::Lengths { seen, length, left } => lengths(seen, length, left, data),
            Self::Items(item) => item.take(data),
            Self::Unknown { begun } => *begun |= !data.is_empty(),
        }
    }

    /// Whether what has come so far ends with an event.
    pub(super) fn is_between(&self) -> bool {
        match self {
            Self::Lines { between } => *between,
            Self::Lengths { seen, left, .. } => *seen == 0 && *left == 0,
            Self::Items(item) => item.is_between(),
            Self::Unknown { begun } => !begun,
        }
    }
}

fn lengths(seen: &mut u8, length: &mut u32, left: &mut u32, mut data: &[u8]) {
    while let Some((first, rest)) = data.split_first() {
        if *left > 0 {
            let skipped = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= u32::try_from(skipped).unwrap_or(*left);
            data = &data[skipped..];
            continue;
        }
        *length = (*length << 8) | u32::from(*first);
        *seen += 1;
        data = rest;
        if *seen == 4 {
            (*left, *seen, *length) = (*length, 0, 0);
        }
    }
}

/// A CBOR item (RFC 8949 section 3) that is being skipped.
#[derive(Debug, Default)]
pub(super) struct Item {
    /// Items that are to come before the event is whole.
    items: u64,
    /// Bytes of a string that are to come.
    skip: u64,
    /// The head that is being read: its major type, bytes of its argument to come, the argument so far.
    head: Option<(u8, u8, u64)>,
    /// Something came that Kubernetes does not write.
    lost: bool,
}

impl Item {
    fn is_between(&self) -> bool {
        self.items == 0 && self.skip == 0 && self.head.is_none() && !self.lost
    }

    fn take(&mut self, mut data: &[u8]) {
        while let Some((first, rest)) = data.split_first() {
            if self.lost {
                return;
            }
            if self.skip > 0 {
                let skipped = data
                    .len()
                    .min(usize::try_from(self.skip).unwrap_or(usize::MAX));
                self.skip -= skipped as u64;
                data = &data[skipped..];
                continue;
            }
            self.byte(*first);
            data = rest;
        }
    }

    fn byte(&mut self, byte: u8) {
        let (major, missing, argument) = match self.head.take() {
            Some((major, missing, argument)) => {
                (major, missing - 1, (argument << 8) | u64::from(byte))
            }
            None => {
                if self.items == 0 {
                    self.items = 1;
                }
                match byte & 31 {
                    small @ 0..24 => (byte >> 5, 0, u64::from(small)),
                    wide @ 24..28 => (byte >> 5, 1 << (wide - 24), 0),
                    _ => {
                        self.lost = true;
                        return;
                    }
                }
            }
        };
        if missing > 0 {
            self.head = Some((major, missing, argument));
        } else {
            self.end_of_head(major, argument);
        }
    }

    fn end_of_head(&mut self, major: u8, argument: u64) {
        // A tag stands before the item that it is about.
        let within = match major {
            4 => argument,
            5 => argument.saturating_mul(2),
            6 => 1,
            _ => 0,
        };
        if matches!(major, 2 | 3) {
            self.skip = argument;
        }
        self.items = (self.items - 1).saturating_add(within);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn framing(content_type: &'static str) -> Framing {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Framing::of(&headers)
    }

    /// After which bytes the stream is between two events.
    fn ends(content_type: &'static str, bytes: &[u8]) -> Vec<usize> {
        let mut framing = framing(content_type);
        let between = |(at, byte): (usize, &u8)| {
            framing.take(std::slice::from_ref(byte));
            framing.is_between().then_some(at + 1)
        };
        bytes.iter().enumerate().filter_map(between).collect()
    }

    #[test]
    fn the_end_of_an_event_is_known_in_each_form() {
        assert_eq!(ends("application/json", b"{\"a\":1}\n{}\n"), [8, 11]);
        let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(
            ends(protobuf, b"\0\0\0\x03k8s\0\0\0\x01\n\0\0\0\0"),
            [7, 12, 16]
        );
        // 55799({"type": "ADDED", "n": [1, -500, true], h'00': 1.5})
        let event =
            b"\xd9\xd9\xf7\xa3\x64type\x65ADDED\x61n\x83\x01\x39\x01\xf3\xf5\x41\x00\xf9\x3e\x00";
        let twice = [&event[..], &event[..]].concat();
        assert_eq!(
            ends("application/cbor-seq", &twice),
            [event.len(), twice.len()]
        );
        // Of indefinite length, which nobody's watch is.
        assert_eq!(ends("application/cbor-seq", b"\x9f\x01\xff\x01"), [0; 0]);
        assert_eq!(ends("text/plain", b"a\nb\n"), [0; 0]);
    }

    #[test]
    fn a_compressed_watch_is_between_events_only_before_the_first() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        let mut framing = Framing::of(&headers);
        assert!(framing.is_between());
        framing.take(b"\x1f\x8b\n");
        assert!(!framing.is_between());
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_stream_is_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..200), cuts in prop::collection::vec(1usize..20, 0..20),
        ) {
            for form in ["application/json", "application/vnd.kubernetes.protobuf", "application/cbor-seq"] {
                let (mut whole, mut parts) = (framing(form), framing(form));
                whole.take(&bytes);
                let mut rest = &bytes[..];
                for cut in &cuts {
                    let (part, after) = rest.split_at((*cut).min(rest.len()));
                    parts.take(part);
                    rest = after;
                }
                parts.take(rest);
                prop_assert_eq!(whole.is_between(), parts.is_between());
            }
        }
    }
}
