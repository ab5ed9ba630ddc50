//! A Status in Kubernetes' protobuf form: the field numbers are those of its generated `meta/v1`.

use super::{Status, StatusDetails};
use crate::protobuf::{Envelope, Message};

impl Status {
    /// The Status as a protobuf value, byte for byte as Kubernetes' marshallers write it.
    #[must_use]
    pub fn to_protobuf(&self) -> Vec<u8> {
        let mut meta = Message::default();
        // The first is the link to itself, which nobody sets any more.
        meta.text(1, "");
        meta.text(2, &self.metadata.resource_version);
        meta.text(3, &self.metadata.continue_token);
        let mut message = Message::default();
        message.message(1, meta);
        message.text(2, &self.status);
        message.text(3, &self.message);
        message.text(4, &self.reason);
        if let Some(details) = &self.details {
            message.message(5, about(details));
        }
        message.number(6, self.code.into());
        let envelope = Envelope {
            api_version: &self.api_version,
            kind: &self.kind,
            raw: Some(message.as_bytes()),
        };
        envelope.seal()
    }
}

fn about(details: &StatusDetails) -> Message {
    let mut message = Message::default();
    message.text(1, &details.name);
    message.text(2, &details.group);
    message.text(3, &details.kind);
    for cause in &details.causes {
        let mut written = Message::default();
        written.text(1, &cause.reason);
        written.text(2, &cause.message);
        written.text(3, &cause.field);
        message.message(4, written);
    }
    message.number(5, details.retry_after_seconds);
    message.text(6, &details.uid);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_written_as_kubernetes_writes_it() {
        let status = Status::service_unavailable("away").with_retry_after(1);
        let content: &[u8] = b"\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x04away\
            \x22\x12ServiceUnavailable\x2a\x0a\x0a\0\x12\0\x1a\0\x28\x01\x32\0\x30\xf7\x03";
        let envelope = Envelope {
            api_version: "v1",
            kind: "Status",
            raw: Some(content),
        };
        assert_eq!(Envelope::open(&status.to_protobuf()), Ok(envelope));
    }
}
