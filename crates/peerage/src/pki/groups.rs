//! Several organizations in one certificate.
//!
//! Kubernetes reads a client's groups from the organizations (`O`) of the subject, one attribute each; rcgen writes
//! each attribute type once. So a certificate for several groups is made with one, its subject is replaced, and the
//! result is signed again. This file knows just enough DER (X.690) for that.

use rcgen::{KeyPair, SigningKey};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::PkiError;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// id-at-organizationName, 2.5.4.10.
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The certificate `der` with this subject in place of its own, signed with the authority's key.
pub(super) fn with_subject(
    der: &[u8],
    organizations: &[String],
    common_name: &str,
    authority: &KeyPair,
) -> Result<Vec<u8>, PkiError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| PkiError::Encoding)?;
    let tbs = certificate.tbs_certificate.as_ref();
    let (_, content) = split(tbs).ok_or(PkiError::Encoding)?;
    let old = certificate.tbs_certificate.subject.as_raw();
    // The subject lies inside the content: both are slices of `der`.
    let start = (old.as_ptr() as usize)
        .checked_sub(content.as_ptr() as usize)
        .filter(|start| start + old.len() <= content.len())
        .ok_or(PkiError::Encoding)?;
    let mut changed = content[..start].to_vec();
    changed.extend(subject(organizations, common_name));
    changed.extend(&content[start + old.len()..]);
    let tbs_changed = element(SEQUENCE, &changed);

    let signature = authority.sign(&tbs_changed).map_err(PkiError::Issue)?;
    let (whole, _) = split(der).ok_or(PkiError::Encoding)?;
    let after_tbs = &der[whole + tbs.len()..];
    let (header, algorithm) = split(after_tbs).ok_or(PkiError::Encoding)?;
    let mut out = tbs_changed;
    out.extend(&after_tbs[..header + algorithm.len()]);
    let mut bits = vec![0]; // no unused bits
    bits.extend(signature);
    out.extend(element(BIT_STRING, &bits));
    Ok(element(SEQUENCE, &out))
}

fn subject(organizations: &[String], common_name: &str) -> Vec<u8> {
    let mut names = Vec::new();
    for organization in organizations {
        names.extend(attribute(&ORGANIZATION, organization));
    }
    names.extend(attribute(&COMMON_NAME, common_name));
    element(SEQUENCE, &names)
}

fn attribute(kind: &[u8], value: &str) -> Vec<u8> {
    let mut pair = element(OBJECT_IDENTIFIER, kind);
    pair.extend(element(UTF8_STRING, value.as_bytes()));
    element(SET, &element(SEQUENCE, &pair))
}

/// One DER element: tag, length, content.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = content.len().to_be_bytes();
            let used = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len());
            out.push(0x80 | (bytes.len() - used) as u8);
            out.extend(&bytes[used..]);
        }
    }
    out.extend(content);
    out
}

/// Length of the header of the element at the start of `der`, and the element's content.
fn split(der: &[u8]) -> Option<(usize, &[u8])> {
    let first = usize::from(*der.get(1)?);
    let (header, length) = if first < 0x80 {
        (2, first)
    } else {
        let count = first & 0x7f;
        let bytes = der.get(2..2 + count).filter(|_| count <= 4)?;
        (
            2 + count,
            bytes.iter().fold(0, |sum, b| sum << 8 | usize::from(*b)),
        )
    };
    Some((header, der.get(header..header + length)?))
}
