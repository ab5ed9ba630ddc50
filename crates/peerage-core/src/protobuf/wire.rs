//! Fields of a protobuf message, one after another.
//!
//! Invariant: no bytes make it panic, and nothing is copied.

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end within a field, or a number is too long.
    #[error("the message is cut off or damaged at byte {0}")]
    Damaged(usize),
    /// A field of a wire type that there is not, or that has gone out of use.
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
}

/// The value of a field as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire<'b> {
    /// A number in base 128.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// Bytes with their length before them.
    Bytes(&'b [u8]),
}

/// Reads the fields of a message in their order.
#[derive(Debug)]
pub struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    /// The fields of these bytes.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next field's number and value; `None` at the end.
    ///
    /// # Errors
    /// [`WireError`]; what comes after it cannot be told.
    pub fn next_field(&mut self) -> Result<Option<(u32, Wire<'b>)>, WireError> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| self.damaged())?;
        let wire = match (tag & 7) as u8 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| self.damaged())?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return Err(WireError::IllegalWireType(other)),
        };
        Ok(Some((number, wire)))
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.try_into().map_err(|_| self.damaged())
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], WireError> {
        let end = self
            .at
            .checked_add(length)
            .filter(|end| *end <= self.bytes.len())
            .ok_or_else(|| self.damaged())?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn damaged(&self) -> WireError {
        WireError::Damaged(self.at)
    }
}
