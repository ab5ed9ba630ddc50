//! What all of Kubernetes' protobuf has in common: the envelope around every value, and the fields of a message.
//!
//! A value is four magic bytes and a `runtime.Unknown`, which says of which kind and version the object is and holds its
//! message. What is in that message is the reader's business.
//!
//! Invariant: bytes of any kind are an envelope or an error, never a panic.

mod message;
mod wire;

pub(crate) use message::Message;
pub use wire::{Reader, Wire, WireError};

/// The bytes before every value (`k8s` and a zero).
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// Why bytes are no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The magic bytes are missing.
    #[error("the magic bytes are missing")]
    Magic,
    /// What follows is no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The version or the kind is no text.
    #[error("field {0} of TypeMeta is no text")]
    Type(u32),
}

/// A value as it is sent and stored: its type, and the message that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'b> {
    /// `apps/v1`; empty when it is not said.
    pub api_version: &'b str,
    /// `Deployment`; empty when it is not said.
    pub kind: &'b str,
    /// The object's message, if there is one.
    pub raw: Option<&'b [u8]>,
}

impl<'b> Envelope<'b> {
    /// Opens a value.
    ///
    /// # Errors
    /// [`EnvelopeError`] if it is none.
    pub fn open(value: &'b [u8]) -> Result<Envelope<'b>, EnvelopeError> {
        let inner = value.strip_prefix(MAGIC).ok_or(EnvelopeError::Magic)?;
        let mut envelope = Envelope::default();
        let mut fields = Reader::new(inner);
        while let Some(field) = fields.next_field()? {
            match field {
                (1, Wire::Bytes(type_meta)) => envelope.read_type(type_meta)?,
                (2, Wire::Bytes(raw)) => envelope.raw = Some(raw),
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, type_meta: &'b [u8]) -> Result<(), EnvelopeError> {
        let mut fields = Reader::new(type_meta);
        while let Some((number, wire)) = fields.next_field()? {
            let place = match number {
                1 => &mut self.api_version,
                2 => &mut self.kind,
                _ => continue,
            };
            let Wire::Bytes(bytes) = wire else {
                return Err(EnvelopeError::Type(number));
            };
            *place = std::str::from_utf8(bytes).map_err(|_| EnvelopeError::Type(number))?;
        }
        Ok(())
    }

    /// The value, byte for byte as Kubernetes' marshallers write it: with the encoding and the type of the content, which
    /// are empty.
    #[must_use]
    pub fn seal(&self) -> Vec<u8> {
        let mut type_meta = Message::default();
        type_meta.text(1, self.api_version);
        type_meta.text(2, self.kind);
        let mut value = Message::after(MAGIC);
        value.message(1, type_meta);
        value.bytes(2, self.raw.unwrap_or_default());
        value.text(3, "");
        value.text(4, "");
        value.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_is_written_as_kubernetes_writes_it() {
        let envelope = Envelope {
            api_version: "v1",
            kind: "Endpoints",
            raw: Some(&[7; 200]),
        };
        let value = envelope.seal();
        let mut expected = b"k8s\x00\n\x0f\n\x02v1\x12\tEndpoints\x12\xc8\x01".to_vec();
        expected.extend([7; 200]);
        expected.extend(b"\x1a\x00\"\x00");
        assert_eq!(value, expected);
        assert_eq!(Envelope::open(&value), Ok(envelope));
    }

    #[test]
    fn what_is_no_value_is_told_apart() {
        let damaged = |at| Err(EnvelopeError::Wire(WireError::Damaged(at)));
        for (value, expected) in [
            (&b"{}"[..], Err(EnvelopeError::Magic)),
            (b"k8s", Err(EnvelopeError::Magic)),
            (b"k8s\0", Ok(Envelope::default())),
            (b"k8s\0\x12", damaged(1)),
            (b"k8s\0\x12\x02a", damaged(2)),
            (b"k8s\0\x0b", Err(WireError::IllegalWireType(3).into())),
            (b"k8s\0\n\x03\n\x01\xff", Err(EnvelopeError::Type(1))),
            (b"k8s\0\n\x02\x10\x01", Err(EnvelopeError::Type(2))),
        ] {
            assert_eq!(Envelope::open(value), expected, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_damage_is_no_panic(
            kind in ".{0,9}", raw in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..400, byte: u8
        ) {
            let envelope = Envelope { api_version: "v1", kind: &kind, raw: Some(&raw) };
            let mut value = envelope.seal();
            prop_assert_eq!(Envelope::open(&value), Ok(envelope));
            if let Some(at) = value.get_mut(cut) {
                *at = byte;
            }
            let _ = Envelope::open(&value);
            value.truncate(cut);
            let _ = Envelope::open(&value);
        }
    }
}
