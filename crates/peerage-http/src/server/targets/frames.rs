//! Finding the header blocks among the frames of HTTP/2 (RFC 9113, 4.1, 6.2 and 6.10); everything else is passed over.

use std::io;

use super::PREFACE;
use super::headers::Table;

/// Octets before each frame's payload.
const HEAD: usize = 9;

const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The longest block that is followed, as it is sent. The library takes no such long headers either.
const LONGEST: usize = 2 << 20;

/// Where in the frames of a connection one is.
pub(super) struct Frames {
    /// Octets of the preface that are still to come.
    preface: usize,
    /// What has arrived of a frame's head.
    head: Vec<u8>,
    /// Octets of a payload that are still to come.
    left: usize,
    /// What the payload is.
    payload: Payload,
    /// What has arrived of a block.
    block: Vec<u8>,
    table: Table,
}

/// What is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Payload {
    /// Nothing that matters here.
    Other,
    /// A block of a stream, or a part of one that begins there in what has arrived of it.
    Block { flags: u8, stream: u32, at: usize },
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            preface: PREFACE.len(),
            head: Vec::with_capacity(HEAD),
            left: 0,
            payload: Payload::Other,
            block: Vec::new(),
            table: Table::default(),
        }
    }
}

impl Frames {
    pub(super) fn behind_the_preface() -> Self {
        Self {
            preface: 0,
            ..Self::default()
        }
    }

    /// Takes what arrived and tells of each target with a `#`.
    pub(super) fn read(
        &mut self,
        mut bytes: &[u8],
        found: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let before = self.preface.min(bytes.len());
        self.preface -= before;
        bytes = &bytes[before..];
        while !bytes.is_empty() {
            if self.left == 0 {
                let part = bytes.len().min(HEAD - self.head.len());
                self.head.extend_from_slice(&bytes[..part]);
                bytes = &bytes[part..];
                if self.head.len() < HEAD {
                    return Ok(());
                }
                self.begin()?;
            }
            let part = bytes.len().min(self.left);
            if self.payload != Payload::Other {
                self.block.extend_from_slice(&bytes[..part]);
            }
            self.left -= part;
            bytes = &bytes[part..];
            if self.left == 0 {
                self.end(found)?;
            }
        }
        Ok(())
    }

    /// A frame's head is there.
    fn begin(&mut self) -> io::Result<()> {
        let head = std::mem::take(&mut self.head);
        let [a, b, c, kind, flags, s, t, r, e] = head[..] else {
            return Err(unreadable());
        };
        self.head = head;
        self.head.clear();
        let stream = number([s, t, r, e]);
        self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let at = self.block.len();
        self.payload = match kind {
            HEADERS => Payload::Block { flags, stream, at },
            CONTINUATION => Payload::Block {
                flags: flags & END_HEADERS,
                stream,
                at,
            },
            _ => Payload::Other,
        };
        match self.payload != Payload::Other && at + self.left > LONGEST {
            true => Err(unreadable()),
            false => Ok(()),
        }
    }

    /// A frame's payload is there.
    fn end(&mut self, found: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let Payload::Block { flags, stream, at } =
            std::mem::replace(&mut self.payload, Payload::Other)
        else {
            return Ok(());
        };
        strip(&mut self.block, at, flags, stream).ok_or_else(unreadable)?;
        if flags & END_HEADERS == 0 {
            return Ok(());
        }
        let mut noted = Ok(());
        let read = self.table.read(&self.block, |target| {
            if noted.is_ok() {
                noted = found(target);
            }
        });
        self.block.clear();
        self.block.shrink_to(16 << 10);
        read.map_err(|_| unreadable())?;
        noted
    }
}

/// The number of a stream, without the bit before it that says something else or nothing.
fn number(octets: [u8; 4]) -> u32 {
    u32::from_be_bytes(octets) & 0x7fff_ffff
}

/// Takes padding and priority off the part of a block that begins there. A stream that depends on itself is an error of
/// the stream's for the library, which then leaves the block unread.
fn strip(block: &mut Vec<u8>, at: usize, flags: u8, stream: u32) -> Option<()> {
    let mut begin = at;
    if flags & PADDED != 0 {
        let padding = usize::from(*block.get(begin)?);
        begin += 1;
        let end = block
            .len()
            .checked_sub(padding)
            .filter(|end| *end >= begin)?;
        block.truncate(end);
    }
    if flags & PRIORITY != 0 {
        let on = block.get(begin..begin + 4)?.try_into().ok()?;
        if number(on) == stream {
            return None;
        }
        begin += 5;
    }
    if begin > block.len() {
        return None;
    }
    block.drain(at..begin);
    Some(())
}

fn unreadable() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "headers over HTTP/2 that cannot be followed",
    )
}
