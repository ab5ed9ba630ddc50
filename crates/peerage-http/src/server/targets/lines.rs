//! Lines of HTTP/1.1 that end like a request line and have a `#` in the target.
//!
//! A request line may follow a body without a line break between them, so how a line begins says nothing.

use std::io;

/// Octets of a line's end that are looked at: the library takes no longer request line.
const LONGEST: usize = 80 << 10;

/// What has arrived of a connection's current line, or the end of it.
#[derive(Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Takes what arrived and tells of each target with a `#`.
    pub(super) fn read(
        &mut self,
        mut bytes: &[u8],
        found: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (part, rest) = bytes.split_at(end + 1);
            bytes = rest;
            if self.0.is_empty() {
                judge(part, found)?;
            } else {
                self.keep(part);
                judge(&self.0, found)?;
                self.0.clear();
            }
        }
        self.keep(bytes);
        Ok(())
    }

    fn keep(&mut self, part: &[u8]) {
        let part = &part[part.len().saturating_sub(LONGEST)..];
        let over = (self.0.len() + part.len()).saturating_sub(LONGEST);
        self.0.drain(..over);
        self.0.extend_from_slice(part);
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.0.len()
    }
}

/// `METHOD TARGET HTTP/1.1`, whatever is before the method.
fn judge(line: &[u8], found: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    if !line.contains(&b'#') {
        return Ok(());
    }
    let mut words = line.trim_ascii_end().rsplitn(3, |byte| *byte == b' ');
    match (words.next(), words.next(), words.next()) {
        (Some(version), Some(target), Some(_))
            if version.starts_with(b"HTTP/") && is_one(target) =>
        {
            found(target)
        }
        _ => Ok(()),
    }
}

/// Whether it is a path, with or without a host before it: the library takes no other with a `#`.
fn is_one(target: &[u8]) -> bool {
    target.starts_with(b"/") || target.windows(3).any(|it| it == b"://")
}
