//! PEM from a file or from memory, and what is read out of it.

use std::path::PathBuf;

use bytes::Bytes;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;
use crate::BoxError;
use crate::reload::Reloading;

/// Where PEM comes from. Files are followed, bytes never change.
#[derive(Debug, Clone)]
pub enum Pem {
    /// A file that is read again when it changes.
    File(PathBuf),
    /// Bytes in memory.
    Bytes(Bytes),
}

impl Pem {
    /// PEM in a file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Pem::File(path.into())
    }

    /// PEM in memory.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Pem::Bytes(bytes.into())
    }

    /// The file to name in errors.
    pub(crate) fn origin(&self, purpose: &str) -> String {
        match self {
            Pem::File(path) => path.display().to_string(),
            Pem::Bytes(_) => format!("the {purpose}"),
        }
    }

    fn read(&self) -> Result<Bytes, TlsError> {
        match self {
            Pem::Bytes(bytes) => Ok(bytes.clone()),
            Pem::File(path) => match std::fs::read(path) {
                Ok(bytes) => Ok(bytes.into()),
                Err(source) => Err(TlsError::Read {
                    path: path.clone(),
                    source,
                }),
            },
        }
    }
}

/// Several PEM sources of which the files are followed: their bytes by position.
pub(crate) struct Sources {
    sources: Vec<Pem>,
}

impl Sources {
    pub(crate) fn new(sources: Vec<Pem>) -> Self {
        Self { sources }
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let file = |source: &Pem| match source {
            Pem::File(path) => Some(path.clone()),
            Pem::Bytes(_) => None,
        };
        self.sources.iter().filter_map(file).collect()
    }

    /// Reads every source by itself, so that errors name the file.
    pub(crate) fn check(&self) -> Result<(), TlsError> {
        self.sources
            .iter()
            .try_for_each(|source| source.read().map(drop))
    }

    /// All sources' bytes, given those of the files in the order of [`files`](Self::files).
    pub(crate) fn fill(&self, files: &[Vec<u8>]) -> Vec<Bytes> {
        let mut files = files.iter();
        let fill = |source: &Pem| match source {
            Pem::Bytes(bytes) => bytes.clone(),
            Pem::File(_) => files
                .next()
                .map(|file| Bytes::copy_from_slice(file))
                .unwrap_or_default(),
        };
        self.sources.iter().map(fill).collect()
    }
}

/// The certificates of a PEM text, at least one.
///
/// # Errors
/// [`TlsError::NoCertificate`] with `origin` when there is none, or one cannot be decoded.
pub fn certificates(pem: &[u8], origin: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = || TlsError::NoCertificate {
        origin: origin.to_owned(),
        instead: holds(pem, CERTIFICATE),
    };
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(none()),
    }
}

/// The CAs of a PEM bundle. Entries that cannot be a trust anchor are left out, like Kubernetes does, as long
/// as one can.
///
/// # Errors
/// [`TlsError::NoCertificate`] when no entry is usable.
pub fn roots(pem: &[u8], origin: &str) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let (added, ignored) = store.add_parsable_certificates(certificates(pem, origin)?);
    if added == 0 {
        return Err(TlsError::NoCertificate {
            origin: origin.to_owned(),
            instead: None,
        });
    }
    if ignored > 0 {
        tracing::warn!(
            origin,
            ignored,
            "certificates that cannot be a CA are left out"
        );
    }
    Ok(store)
}

/// A value made from a CA bundle that follows its file. `name` says in reports what the bundle is.
///
/// # Errors
/// [`TlsError`], or what `make` found wrong with the bundle.
pub fn bundle<T, E>(
    name: &'static str,
    pem: Pem,
    make: impl Fn(RootCertStore) -> Result<T, E> + Send + Sync + 'static,
) -> Result<Reloading<T>, BoxError>
where
    T: Send + Sync + 'static,
    E: Into<BoxError>,
{
    let origin = pem.origin(name);
    let sources = Sources::new(vec![pem]);
    sources.check()?;
    Reloading::load(name, sources.files(), move |files| {
        let bytes = sources.fill(files);
        let all = bytes.first().map(AsRef::as_ref).unwrap_or_default();
        make(roots(all, &origin)?).map_err(Into::into)
    })
}

pub(crate) fn key(pem: &[u8], origin: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| TlsError::NoKey {
        origin: origin.to_owned(),
        instead: holds(pem, PRIVATE_KEY),
    })
}

/// How a certificate begins.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";
/// How private keys begin, of whatever kind.
const PRIVATE_KEY: &[u8] = b"PRIVATE KEY-----";

/// What a file that lacks what was looked for holds: the two files of a pair are easily taken for each other.
fn holds(pem: &[u8], wanted: &[u8]) -> Option<&'static str> {
    let has = |label: &[u8]| pem.windows(label.len()).any(|at| at == label);
    if has(wanted) {
        // It begins and cannot be read: a copy that broke off, mostly.
        return Some("a part of one, or a damaged one; copy the file again");
    }
    match (has(PRIVATE_KEY), has(CERTIFICATE)) {
        (true, false) => Some("a private key"),
        (false, true) => Some("a certificate"),
        _ if pem.trim_ascii().is_empty() => Some("nothing"),
        _ => None,
    }
}

/// As part of a message.
pub(super) fn found(instead: &Option<&'static str>) -> String {
    let holds = instead.map(|it| format!(": it holds {it}"));
    holds.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::Authority;

    #[test]
    fn who_swapped_the_two_files_of_a_pair_is_told_so() {
        let pair = Authority::new("ca").server("x", &[]);
        let (certificate, key_pem) = pair.pems();
        let read = |pem: Pem| pem.read().unwrap();
        let none = certificates(&read(key_pem), "f").unwrap_err();
        assert_eq!(
            none.to_string(),
            "no certificate in f: it holds a private key"
        );
        let none = key(&read(certificate), "f").unwrap_err();
        assert_eq!(
            none.to_string(),
            "no private key in f: it holds a certificate"
        );
        let half = read(pair.pems().0);
        let none = certificates(&half[..half.len() / 2], "f").unwrap_err();
        assert_eq!(
            none.to_string(),
            "no certificate in f: it holds a part of one, or a damaged one; copy the file again"
        );
        let none = certificates(b"\n", "f").unwrap_err();
        assert_eq!(none.to_string(), "no certificate in f: it holds nothing");
        let none = certificates(b"x", "f").unwrap_err();
        assert_eq!(none.to_string(), "no certificate in f");
    }
}
