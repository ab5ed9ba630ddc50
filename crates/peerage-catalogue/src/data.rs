//! The version files in the binary, compressed, and what they hold once unpacked.
//!
//! Invariant: a version is unpacked and read at most once in a process, and only when somebody asks for it.

use std::io::Read as _;
use std::sync::{Arc, OnceLock};

use flate2::read::GzDecoder;
use peerage_objects::protobuf::Messages;

use crate::catalogue::{Base, CatalogueError};
use crate::records::Records;

/// The version files, oldest first; each says what changed since the one before.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/versions.in"));

/// The Kubernetes minor versions that there is a catalogue of, oldest first.
pub fn versions() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| FILES.iter().map(|(name, _)| *name).collect())
}

/// What is known of a version, whatever of it is on.
pub(crate) fn base(version: &str) -> Result<Arc<Base>, CatalogueError> {
    static BASES: OnceLock<Vec<OnceLock<Arc<Base>>>> = OnceLock::new();
    let at = FILES
        .iter()
        .position(|(name, _)| *name == version)
        .ok_or_else(|| CatalogueError::UnknownVersion(version.to_owned()))?;
    let bases = BASES.get_or_init(|| FILES.iter().map(|_| OnceLock::new()).collect());
    if let Some(base) = bases[at].get() {
        return Ok(base.clone());
    }
    let base = Arc::new(Base::read(records(at)?)?);
    Ok(bases[at].get_or_init(|| base).clone())
}

/// The text of a version's file, which says what changed since the version before.
pub fn version_text(version: &str) -> Option<String> {
    let (_, packed) = FILES.iter().find(|(name, _)| *name == version)?;
    unpack(packed).ok()
}

/// The numbers of fields in protobuf, of all versions.
pub(crate) fn messages() -> Result<&'static Messages, CatalogueError> {
    static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/protobuf.gz"));
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    if let Some(messages) = MESSAGES.get() {
        return Ok(messages);
    }
    let messages = Messages::parse(&unpack(PACKED)?)?;
    Ok(MESSAGES.get_or_init(|| messages))
}

fn records(at: usize) -> Result<Records, CatalogueError> {
    let mut records = Records::new();
    for (_, packed) in &FILES[..=at] {
        records.apply(&unpack(packed)?)?;
    }
    Ok(records)
}

fn unpack(packed: &[u8]) -> Result<String, CatalogueError> {
    let mut text = String::new();
    GzDecoder::new(packed)
        .read_to_string(&mut text)
        .map_err(CatalogueError::Packing)?;
    Ok(text)
}
