//! What a client certificate is worth: its chain, its subject, and whom it names.
//!
//! Verification is webpki's, for the usage "client authentication". The user of a certificate is its common
//! name, the groups are its organisations (apiserver's `authentication/request/x509`).
//!
//! Differs: webpki refuses X.509 v1 certificates and CAs used as leaves, which Go accepts.

use std::fmt::Write;
use std::sync::Arc;

use peerage_core::User;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest, Sha256};
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{FromDer, X509Certificate};

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
        let subject = certificate.subject();
        let texts = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().ok().map(str::to_owned)
        };
        let uid = Oid::from(UID_ATTRIBUTE).map_err(|_| CertificateError::Subject)?;
        Ok(Self {
            // Of several common names Go takes the last.
            common_name: subject
                .iter_common_name()
                .filter_map(texts)
                .last()
                .unwrap_or_default(),
            organisations: subject.iter_organization().filter_map(texts).collect(),
            uids: subject.iter_by_oid(&uid).map(texts).collect(),
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
