//! Following header blocks of HTTP/2 (HPACK, RFC 7541) for as much as it takes to know each `:path`.
//!
//! The library has the same table of headers that were sent before, and gives nobody a look at it. Here are kept their
//! sizes, by which they fall out of the table, and which of them is a `:path` with a `#`.
//!
//! Invariant: the table is what the library's is, or following ends with an error.

use std::collections::VecDeque;

use super::huffman;

/// The table's size until a client makes it smaller; the library lets none make it larger (RFC 7541, 4.2).
const TABLE: usize = 4096;

/// What an entry takes beside its octets (RFC 7541, 4.1).
const OVERHEAD: usize = 32;

/// Octets of the names of the static table's entries (RFC 7541, appendix A).
const STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];

/// Which of these are `:path`, counted from 1.
const STATIC_PATHS: std::ops::RangeInclusive<usize> = 4..=5;

const PATH: &[u8] = b":path";

/// A block was not encoded by the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotHpack;

/// The headers that were sent before.
pub(super) struct Table {
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
}

struct Entry {
    size: usize,
    name: Name,
    /// The whole target, where it is a `:path` with a `#`.
    target: Option<Box<[u8]>>,
}

#[derive(Clone, Copy)]
struct Name {
    length: usize,
    is_path: bool,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            most: TABLE,
        }
    }
}

impl Table {
    /// Reads a whole block and hands over each `:path` with a `#`.
    pub(super) fn read(
        &mut self,
        block: &[u8],
        mut found: impl FnMut(&[u8]),
    ) -> Result<(), NotHpack> {
        let mut block = Block(block);
        while let Some(first) = block.0.first().copied() {
            match first {
                0x80.. => {
                    let index = block.integer(7)?;
                    if let Some(target) = self.indexed(index)? {
                        found(target);
                    }
                }
                0x40.. => {
                    let name = self.name(&mut block, 6)?;
                    let value = block.string()?;
                    let (length, target) = match name.is_path {
                        true => {
                            let path = value.octets()?;
                            let length = path.len();
                            let target = path.contains(&b'#').then(|| path.into_boxed_slice());
                            (length, target)
                        }
                        false => (value.length()?, None),
                    };
                    if let Some(target) = &target {
                        found(target);
                    }
                    self.insert(name, length, target);
                }
                0x20.. => {
                    let most = block.integer(5)?;
                    if most > TABLE {
                        return Err(NotHpack);
                    }
                    self.most = most;
                    self.evict(0);
                }
                _ => {
                    let name = self.name(&mut block, 4)?;
                    let value = block.string()?;
                    if name.is_path {
                        let path = value.octets()?;
                        if path.contains(&b'#') {
                            found(&path);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The target of a header that was sent before, if it is one with a `#`.
    fn indexed(&self, index: usize) -> Result<Option<&[u8]>, NotHpack> {
        match index.checked_sub(STATIC_NAMES.len() + 1) {
            None if index == 0 => Err(NotHpack),
            None => Ok(None),
            Some(at) => {
                let entry = self.entries.get(at).ok_or(NotHpack)?;
                Ok(entry.target.as_deref())
            }
        }
    }

    /// The name of a header with a value of its own, by its number or spelled out.
    fn name(&self, block: &mut Block<'_>, bits: u8) -> Result<Name, NotHpack> {
        let index = block.integer(bits)?;
        if index == 0 {
            let name = block.string()?;
            let mut is_path = true;
            let mut length = 0;
            name.each(|octet| {
                is_path &= PATH.get(length) == Some(&octet);
                length += 1;
            })?;
            let is_path = is_path && length == PATH.len();
            return Ok(Name { length, is_path });
        }
        match index.checked_sub(STATIC_NAMES.len() + 1) {
            None => Ok(Name {
                length: usize::from(STATIC_NAMES[index - 1]),
                is_path: STATIC_PATHS.contains(&index),
            }),
            Some(at) => Ok(self.entries.get(at).ok_or(NotHpack)?.name),
        }
    }

    fn insert(&mut self, name: Name, value: usize, target: Option<Box<[u8]>>) {
        let size = name.length + value + OVERHEAD;
        self.evict(size);
        // One that is larger than the table empties it and is no error (RFC 7541, 4.4).
        if size <= self.most {
            self.size += size;
            self.entries.push_front(Entry { size, name, target });
        }
    }

    /// Makes room for so much.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.most {
            let Some(last) = self.entries.pop_back() else {
                return;
            };
            self.size -= last.size;
        }
    }
}

/// What is left of a block.
struct Block<'b>(&'b [u8]);

/// A string as it was sent.
struct Text<'b> {
    octets: &'b [u8],
    is_huffman: bool,
}

impl<'b> Block<'b> {
    /// A number that begins in the last bits of the next octet (RFC 7541, 5.1).
    fn integer(&mut self, bits: u8) -> Result<usize, NotHpack> {
        let (first, mut rest) = self.0.split_first().ok_or(NotHpack)?;
        let mask = (1usize << bits) - 1;
        let mut value = usize::from(*first) & mask;
        if value == mask {
            let mut shift = 0;
            loop {
                let (octet, left) = rest.split_first().ok_or(NotHpack)?;
                rest = left;
                value += usize::from(octet & 0x7f) << shift;
                if octet & 0x80 == 0 {
                    break;
                }
                shift += 7;
                if shift > 28 {
                    return Err(NotHpack);
                }
            }
        }
        self.0 = rest;
        Ok(value)
    }

    fn string(&mut self) -> Result<Text<'b>, NotHpack> {
        let is_huffman = self.0.first().ok_or(NotHpack)? & 0x80 != 0;
        let length = self.integer(7)?;
        let (octets, rest) = self.0.split_at_checked(length).ok_or(NotHpack)?;
        self.0 = rest;
        Ok(Text { octets, is_huffman })
    }
}

impl Text<'_> {
    fn each(&self, mut each: impl FnMut(u8)) -> Result<(), NotHpack> {
        match self.is_huffman {
            true => huffman::decode(self.octets, each).map_err(|_| NotHpack),
            false => {
                self.octets.iter().for_each(|octet| each(*octet));
                Ok(())
            }
        }
    }

    fn octets(&self) -> Result<Vec<u8>, NotHpack> {
        let mut octets = Vec::with_capacity(self.octets.len() * 2);
        self.each(|octet| octets.push(octet))?;
        Ok(octets)
    }

    fn length(&self) -> Result<usize, NotHpack> {
        if !self.is_huffman {
            return Ok(self.octets.len());
        }
        let mut length = 0;
        self.each(|_| length += 1)?;
        Ok(length)
    }
}
