//! Keys, ranges of keys, and what a store keeps under a key.

use bytes::Bytes;

use super::{LeaseId, Revision};

/// A key with its value and its history in short.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// Its value; empty when only keys were asked for.
    pub value: Bytes,
    /// The revision that created it.
    pub create_revision: Revision,
    /// The revision that wrote it last.
    pub mod_revision: Revision,
    /// How often it was written since it was created; 1 for a new key.
    pub version: i64,
    /// The lease it is attached to, 0 for none.
    pub lease: LeaseId,
}

/// One key or all keys between two.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyRange {
    start: Bytes,
    end: End,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum End {
    /// The start is the only key.
    Single,
    /// Up to this key, which is not part of it.
    Before(Bytes),
    /// To the last key.
    Open,
}

impl KeyRange {
    /// The one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        KeyRange {
            start: key.into(),
            end: End::Single,
        }
    }

    /// From `start` on, up to `end`, which is not part of it. Empty when `end` is not after `start`.
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        KeyRange {
            start: start.into(),
            end: End::Before(end.into()),
        }
    }

    /// From `start` on, to the last key.
    pub fn from(start: impl Into<Bytes>) -> Self {
        KeyRange {
            start: start.into(),
            end: End::Open,
        }
    }

    /// Every key.
    pub fn all() -> Self {
        KeyRange::from(Bytes::new())
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let prefix = prefix.into();
        match prefix_end(&prefix) {
            Some(end) => KeyRange::between(prefix, end),
            None => KeyRange::from(prefix),
        }
    }

    /// As etcd writes it: an empty `range_end` is the one key, one zero byte is "to the last key",
    /// anything else is where the range ends. A `key` of one zero byte is the first of all keys.
    pub fn from_etcd(key: Bytes, range_end: Bytes) -> Self {
        match &range_end[..] {
            [] => KeyRange::key(key),
            [0] if key[..] == [0] => KeyRange::all(),
            [0] => KeyRange::from(key),
            _ => KeyRange::between(key, range_end),
        }
    }

    /// The `key` and `range_end` that etcd knows it by.
    pub fn to_etcd(&self) -> (Bytes, Bytes) {
        const ZERO: Bytes = Bytes::from_static(&[0]);
        match &self.end {
            End::Single => (self.start.clone(), Bytes::new()),
            End::Open if self.start.is_empty() => (ZERO, ZERO),
            End::Open => (self.start.clone(), ZERO),
            // etcd takes no empty key; the zero byte is the first key that can exist.
            End::Before(end) if self.start.is_empty() => (ZERO, end.clone()),
            End::Before(end) => (self.start.clone(), end.clone()),
        }
    }

    /// The one key, if it is one.
    pub fn single(&self) -> Option<&Bytes> {
        matches!(self.end, End::Single).then_some(&self.start)
    }

    /// The first key that can be in it.
    pub fn start(&self) -> &Bytes {
        &self.start
    }

    /// The first key after it, if it is a range that ends before the last key. For a single key use
    /// [`KeyRange::single`].
    pub fn end(&self) -> Option<&Bytes> {
        match &self.end {
            End::Before(end) => Some(end),
            End::Single | End::Open => None,
        }
    }

    /// Whether `key` is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => self.start == key,
            End::Before(end) => self.start <= key && key < &end[..],
            End::Open => self.start <= key,
        }
    }

    /// Whether no key can be in it.
    pub fn is_empty(&self) -> bool {
        matches!(&self.end, End::Before(end) if *end <= self.start)
    }
}

/// The first key after all those that begin with `prefix`, if there is one.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_ends_where_its_last_byte_that_can_grow_has_grown() {
        for (prefix, end) in [
            (&b"/a/"[..], Some(&b"/a0"[..])),
            (b"a\xff", Some(b"b")),
            (b"\xff\xff", None),
            (b"", None),
        ] {
            assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
        }
    }

    #[test]
    fn etcds_range_ends_mean_one_key_all_after_it_or_up_to_another() {
        let range = |key: &'static str, end: &'static str| {
            KeyRange::from_etcd(Bytes::from(key), Bytes::from(end))
        };
        assert!(range("a", "").contains(b"a") && !range("a", "").contains(b"ab"));
        assert!(range("a", "\0").contains(b"zz") && !range("b", "\0").contains(b"a"));
        assert!(range("\0", "\0").contains(b"\0") && range("\0", "\0").contains(b"x"));
        assert!(range("a", "c").contains(b"b") && !range("a", "c").contains(b"c"));
        assert!(range("b", "a").is_empty());
    }

    proptest! {
        #[test]
        fn a_range_means_the_same_after_a_trip_through_etcds_form(
            start in proptest::collection::vec(any::<u8>(), 0..4),
            end in proptest::option::of(proptest::collection::vec(any::<u8>(), 1..4)),
            key in proptest::collection::vec(any::<u8>(), 1..5),
        ) {
            let range = match end {
                Some(end) => KeyRange::between(start, end),
                None => KeyRange::from(start),
            };
            // "Before the key of one zero byte" holds no key, and etcd has no way to say it.
            prop_assume!(range.end().is_none_or(|end| end[..] != [0]));
            let (from, to) = range.to_etcd();
            let back = KeyRange::from_etcd(from, to);
            prop_assert_eq!(range.contains(&key), back.contains(&key));
        }

        #[test]
        fn a_prefix_holds_exactly_the_keys_that_begin_with_it(
            prefix in proptest::collection::vec(any::<u8>(), 0..3),
            key in proptest::collection::vec(any::<u8>(), 1..5),
        ) {
            let range = KeyRange::prefix(prefix.clone());
            prop_assert_eq!(range.contains(&key), key.starts_with(&prefix));
        }
    }
}
