//! Writing messages.

/// A message as it is written. No field number here needs more than four bits.
#[derive(Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// A message that has bytes before its fields.
    pub(super) fn after(magic: &[u8]) -> Self {
        Self(magic.to_vec())
    }

    pub(crate) fn text(&mut self, field: u8, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub(crate) fn texts(&mut self, field: u8, texts: &[String]) {
        for text in texts {
            self.text(field, text);
        }
    }

    pub(crate) fn message(&mut self, field: u8, message: Self) {
        self.bytes(field, &message.0);
    }

    pub(crate) fn flag(&mut self, field: u8, flag: bool) {
        self.number(field, u32::from(flag));
    }

    pub(crate) fn number(&mut self, field: u8, number: u32) {
        self.0.push(field << 3);
        self.varint(u64::from(number));
    }

    pub(crate) fn bytes(&mut self, field: u8, bytes: &[u8]) {
        const LENGTH_DELIMITED: u8 = 2;
        self.0.push(field << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut rest: u64) {
        while rest >= 0x80 {
            // The lowest seven bits fit.
            self.0.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_numbers_grow_by_seven_bits() {
        let mut message = Message::default();
        message.text(1, &"v".repeat(300));
        assert_eq!(message.0[..3], [0x0a, 0xac, 0x02]);
        assert_eq!(message.0.len(), 303);
        let mut message = Message::default();
        message.number(6, 503);
        message.flag(2, true);
        assert_eq!(message.as_bytes(), [0x30, 0xf7, 0x03, 0x10, 0x01]);
    }
}
