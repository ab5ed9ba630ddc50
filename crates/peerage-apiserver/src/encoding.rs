//! How stored values are encoded: JSON, or, of Leases, Kubernetes' protobuf.
//!
//! Everything is JSON once it has been read. A value is written in the encoding that it was found in, so that
//! kube-apiservers on the same store go on finding theirs; a new Lease is protobuf, as kube-apiserver writes it by
//! default. Other kinds in protobuf are not read here, and what is not read is never written.

use bytes::Bytes;
use peerage_catalogue::Resource;

use crate::wire;

/// How a value is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Encoding {
    #[default]
    Json,
    Protobuf,
}

/// What a new Lease is written in.
pub(crate) const LEASE_ENCODING: Encoding = Encoding::Protobuf;

/// What a new endpoint key is written in.
pub(crate) const ENDPOINT_ENCODING: Encoding = Encoding::Protobuf;

impl Encoding {
    /// What a stored value is encoded in.
    pub(crate) fn of(value: &[u8]) -> Self {
        if value.starts_with(wire::MAGIC) {
            Self::Protobuf
        } else {
            Self::Json
        }
    }

    /// What new objects of a kind are encoded in.
    pub(crate) fn of_new(stored: &Resource) -> Self {
        match (&*stored.group, &*stored.kind) {
            (wire::lease::GROUP, wire::lease::KIND) => LEASE_ENCODING,
            _ => Self::Json,
        }
    }
}

/// Why a value is not JSON and cannot be made JSON either.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// A kind in protobuf that is not read here.
    #[error("it is {kind} in protobuf, which this server reads of Leases only")]
    Kind {
        /// The kind, with its version.
        kind: String,
    },
    /// A Lease in protobuf.
    #[error("it is a Lease in protobuf that {0}")]
    Lease(#[from] wire::lease::LeaseError),
    /// Bytes that say that they are protobuf, and are not.
    #[error("it says that it is protobuf, and is damaged")]
    Damaged,
}

/// The JSON of a stored value, and how that was encoded. Whether it is JSON indeed is not looked at.
pub(crate) fn open(value: &Bytes) -> Result<(Bytes, Encoding), Unreadable> {
    if Encoding::of(value) == Encoding::Json {
        return Ok((value.clone(), Encoding::Json));
    }
    let (types, raw) = wire::open_typed(value).ok_or(Unreadable::Damaged)?;
    let (version, kind) = (types.api_version, types.kind);
    if (&*version, &*kind) != (wire::lease::API_VERSION, wire::lease::KIND) {
        let kind = format!("a {version} {kind}");
        return Err(Unreadable::Kind { kind });
    }
    let json = wire::lease::to_json(&raw)?;
    Ok((json.into(), Encoding::Protobuf))
}

/// The JSON of a value that an API server has stored, whatever that is encoded in; none if it cannot be read. For
/// those who look into a store.
pub fn stored_json(value: &Bytes) -> Option<Bytes> {
    open(value).ok().map(|(json, _)| json)
}

/// The value to store for an object's JSON. What protobuf has no place for stays JSON, which every server reads.
pub(crate) fn seal(encoding: Encoding, json: Bytes) -> Bytes {
    match encoding {
        Encoding::Json => json,
        Encoding::Protobuf => match wire::lease::from_json(&json) {
            Some(value) => value.into(),
            None => json,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_what_it_is() {
        let value = Bytes::from_static(b"{\"a\": 1}");
        let (json, encoding) = open(&value).expect("it is JSON");
        assert_eq!((&json, encoding), (&value, Encoding::Json));
        assert_eq!(seal(encoding, json), value);
    }

    #[test]
    fn other_kinds_in_protobuf_are_named() {
        let value = wire::endpoints("apiserver-a", "127.0.0.1", 6443, 1);
        let error = open(&value.into()).expect_err("it is no Lease");
        assert_eq!(
            error.to_string(),
            "it is a v1 Endpoints in protobuf, which this server reads of Leases only"
        );
        let error = open(&Bytes::from_static(b"k8s\0\xff")).expect_err("it is nothing");
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}
