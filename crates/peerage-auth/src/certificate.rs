//! What a client certificate is worth: its chain, its subject, and whom it names.
//!
//! Verification is webpki's, for the usage "client authentication". The user of a certificate is its common
//! name, the groups are its organisations (apiserver's `authentication/request/x509`).
//!
//! A subject that servers read differently from one another, or cannot read at all, names nobody; what is text is
//! `certificate/text.rs`'s.
//!
//! Differs: webpki refuses X.509 v1 certificates and CAs used as leaves, which Go accepts. Go refuses a certificate with a
//! subject that it cannot read within the TLS handshake and whichever attribute that is; here the answer is 401, and only
//! for the attributes that name someone.

mod text;

use std::fmt::Write;
use std::sync::Arc;

use peerage_core::User;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest, Sha256};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

/// The extra key under which a certificate's digest travels with its user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The subject attribute that holds a user's UID.
const UID_ATTRIBUTE: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// Verifies chains against one bundle.
pub(crate) type Verifier = Arc<dyn ClientCertVerifier>;

/// Why a certificate is not accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("the certificate does not verify")]
    Chain(#[source] rustls::Error),
    #[error("the certificate's subject cannot be read")]
    Subject,
    #[error(
        "the {0} in the certificate's subject is in an encoding that API servers read differently or not at all; a \
         UTF8String is read by all"
    )]
    Encoding(&'static str),
    #[error("the common name {0:?} is none of the allowed front proxies")]
    NotAllowed(String),
    #[error("the certificate's UID attribute is there twice, empty or no text")]
    Uid,
}

pub(crate) fn verifier(
    roots: RootCertStore,
) -> Result<Verifier, rustls::server::VerifierBuilderError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()
}

/// Whether the chain leads to the verifier's bundle now.
pub(crate) fn verify(
    verifier: &Verifier,
    chain: &[CertificateDer<'_>],
) -> Result<(), CertificateError> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(CertificateError::Subject);
    };
    verifier
        .verify_client_cert(leaf, intermediates, UnixTime::now())
        .map(drop)
        .map_err(CertificateError::Chain)
}

/// The subject of a certificate as far as it names someone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) common_name: String,
    organisations: Vec<String>,
    uids: Vec<Option<String>>,
}

impl Subject {
    pub(crate) fn read(leaf: &CertificateDer<'_>) -> Result<Self, CertificateError> {
        let (_, certificate) =
            X509Certificate::from_der(leaf).map_err(|_| CertificateError::Subject)?;
        Self::of(certificate.subject())
    }

    fn of(name: &X509Name<'_>) -> Result<Self, CertificateError> {
        let texts = |oid: &Oid<'_>| -> Vec<Option<String>> {
            let attributes = name.iter_attributes();
            let attributes = attributes.filter(|it| it.attr_type() == oid);
            attributes.map(|it| text::read(it.attr_value())).collect()
        };
        let all = |oid: Oid<'_>, what| -> Result<Vec<String>, CertificateError> {
            let texts: Option<Vec<String>> = texts(&oid).into_iter().collect();
            texts.ok_or(CertificateError::Encoding(what))
        };
        let uid = Oid::from(UID_ATTRIBUTE).map_err(|_| CertificateError::Subject)?;
        let mut names = all(OID_X509_COMMON_NAME, "common name (CN)")?;
        Ok(Self {
            // Of several common names Go takes the last.
            common_name: names.pop().unwrap_or_default(),
            organisations: all(OID_X509_ORGANIZATION_NAME, "organization (O)")?,
            uids: texts(&uid),
        })
    }

    /// The user, if there is a common name.
    pub(crate) fn user(self, leaf: &CertificateDer<'_>) -> Result<Option<User>, CertificateError> {
        let uid = match self.uids.as_slice() {
            [] => String::new(),
            [Some(uid)] if !uid.is_empty() => uid.clone(),
            _ => return Err(CertificateError::Uid),
        };
        if self.common_name.is_empty() {
            return Ok(None);
        }
        let mut user = User::new(self.common_name, self.organisations);
        user.uid = uid;
        user.extra
            .insert(CREDENTIAL_ID.to_owned(), vec![credential_id(leaf)]);
        user.mark_authenticated();
        Ok(Some(user))
    }
}

fn credential_id(leaf: &CertificateDer<'_>) -> String {
    let mut id = String::from("X509SHA256=");
    for byte in Sha256::digest(leaf) {
        // Writing to a String cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// O=dev, CN=first, O="ops, all", CN=alice, UID=uid-7.
    const SEVERAL: &str = "\
-----BEGIN CERTIFICATE-----
MIIBqjCCAVECFFwaGHdFI+hJ+Sf1FQtRas2MraVhMAoGCCqGSM49BAMCMFcxDDAK
BgNVBAoMA2RldjEOMAwGA1UEAwwFZmlyc3QxETAPBgNVBAoMCG9wcywgYWxsMQ4w
DAYDVQQDDAVhbGljZTEUMBIGCSsGAQQBg8JTAgwFdWlkLTcwIBcNMjYxMTI5MjAx
MjA1WhgPMjEyNjExMDUyMDEyMDVaMFcxDDAKBgNVBAoMA2RldjEOMAwGA1UEAwwF
Zmlyc3QxETAPBgNVBAoMCG9wcywgYWxsMQ4wDAYDVQQDDAVhbGljZTEUMBIGCSsG
AQQBg8JTAgwFdWlkLTcwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARJoVZ0VJSH
07chjTWoAQLnxaNNtcs3lcBslt8oJXzhwESj3n4U+0KrEPLfFSSBdCuEQCsnSyEx
lu3rIPeDQQDcMAoGCCqGSM49BAMCA0cAMEQCIFxR+q63CaKNGNEeNsokeAK28MDQ
lBTnB+U7thuLMLQ0AiBRuJf5V9TNkpfakYZKKS2T8o6gLmOXzuKGF5vt6hkWVg==
-----END CERTIFICATE-----
";

    #[test]
    fn a_subject_with_several_names_is_read_as_go_reads_it() {
        let leaf = peerage_http::tls::certificates(SEVERAL.as_bytes(), "test")
            .unwrap()
            .remove(0);
        let user = Subject::read(&leaf).unwrap().user(&leaf).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", "uid-7"));
        assert_eq!(user.groups, ["dev", "ops, all", "system:authenticated"]);
    }

    /// A subject with these attributes: the last number of the OID, the tag, the bytes.
    fn subject(attributes: &[(u8, u8, &[u8])]) -> Result<Subject, CertificateError> {
        let wrap = |tag: u8, content: Vec<u8>| {
            let length = u8::try_from(content.len()).unwrap();
            [vec![tag, length], content].concat()
        };
        let set = |(oid, tag, bytes): &(u8, u8, &[u8])| {
            let oid = vec![0x06, 3, 0x55, 4, *oid];
            let value = wrap(*tag, bytes.to_vec());
            wrap(0x31, wrap(0x30, [oid, value].concat()))
        };
        let der = wrap(0x30, attributes.iter().flat_map(set).collect());
        let (_, name) = X509Name::from_der(&der).map_err(|_| CertificateError::Subject)?;
        Subject::of(&name)
    }

    #[test]
    fn a_name_that_servers_read_differently_is_refused_wherever_it_stands() {
        const CN: u8 = 3;
        const O: u8 = 10;
        const OU: u8 = 11;
        const UTF8: u8 = 12;
        const T61: u8 = 20;
        const UNIVERSAL: u8 = 28;
        let latin: &[u8] = b"ren\xe9";
        let alice: (u8, u8, &[u8]) = (CN, UTF8, b"alice");
        let refused = |attributes: &[(u8, u8, &[u8])]| match subject(attributes) {
            Err(CertificateError::Encoding(what)) => what,
            other => panic!("{other:?}"),
        };
        // Also where another one would count. Older servers take the bytes as they are, newer ones for Latin-1.
        for row in [&[(CN, T61, latin)][..], &[(CN, T61, latin), alice]] {
            assert_eq!(refused(row), "common name (CN)");
        }
        // Older servers refuse the certificate, newer ones leave the group out.
        let masters = (O, UNIVERSAL, &b"\0\0\0m"[..]);
        assert_eq!(refused(&[masters, alice]), "organization (O)");
        let invalid = (O, UTF8, &b"\xff"[..]);
        assert_eq!(refused(&[alice, invalid]), "organization (O)");

        let unit = (OU, T61, latin);
        let several = [(O, UTF8, &b""[..]), unit, (O, T61, b"dev"), alice];
        let read = subject(&several).unwrap();
        assert_eq!(read.common_name, "alice");
        assert_eq!(read.organisations, ["", "dev"], "as kube-apiserver has it");
    }

    #[test]
    fn a_uid_must_be_one_text_and_a_name_must_be_there() {
        let leaf = CertificateDer::from(Vec::new());
        let subject = |name: &str, uids: &[Option<&str>]| Subject {
            common_name: name.to_owned(),
            organisations: Vec::new(),
            uids: uids.iter().map(|uid| uid.map(str::to_owned)).collect(),
        };
        assert!(subject("", &[]).user(&leaf).unwrap().is_none());
        for uids in [&[None][..], &[Some("")], &[Some("a"), Some("b")]] {
            assert!(matches!(
                subject("a", uids).user(&leaf),
                Err(CertificateError::Uid)
            ));
        }
    }
}
