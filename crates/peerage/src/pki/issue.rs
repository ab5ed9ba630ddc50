//! Making certificates: authorities that sign, and the serving and client certificates they sign.
//!
//! ECDSA P-256 keys throughout; serial numbers are random; each certificate carries exactly the usages of its purpose
//! (RFC 5280 4.2.1.3 and 4.2.1.12), because TLS libraries refuse a server certificate in the client's place and the
//! reverse. Where the files are is `directory.rs`'s matter.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};

use super::{PkiError, groups};

/// How far certificates reach back, for machines whose clocks are behind.
const BACKDATED: Duration = Duration::from_secs(5 * 60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What a certificate may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Signs other certificates.
    Authority,
    /// A server's side of TLS.
    Serving,
    /// A client's side of TLS.
    Client,
    /// Either side: an etcd member shows the certificate that it serves with when it asks itself.
    Both,
}

/// A name that a serving certificate is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AltName {
    /// A DNS name, perhaps with `*.` in front.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

impl std::str::FromStr for AltName {
    type Err = PkiError;

    fn from_str(text: &str) -> Result<Self, PkiError> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        let host = text.strip_prefix("*.").unwrap_or(text);
        let label_is_good = |label: &str| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if host.len() <= 253 && host.split('.').all(label_is_good) {
            Ok(Self::Dns(text.to_ascii_lowercase()))
        } else {
            Err(PkiError::AltName {
                text: text.to_owned(),
            })
        }
    }
}

impl std::fmt::Display for AltName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

/// What a certificate is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Common name: to Kubernetes, a client's user name.
    pub common_name: String,
    /// Organizations: to Kubernetes, a client's groups.
    pub organizations: Vec<String>,
    /// Names of a server.
    pub alt_names: Vec<AltName>,
    /// What it may be used for.
    pub purpose: Purpose,
    /// Days from now that it is valid.
    pub days: u32,
}

/// A certificate and its private key, both PEM.
#[derive(Debug, Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// PKCS #8 private key.
    pub key: String,
}

/// An authority that signs.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a new authority, signed by itself.
    pub fn create(common_name: &str, days: u32) -> Result<(Self, Issued), PkiError> {
        let subject = Subject {
            common_name: common_name.to_owned(),
            organizations: Vec::new(),
            alt_names: Vec::new(),
            purpose: Purpose::Authority,
            days,
        };
        let params = params(&subject)?;
        let key = new_key()?;
        let certificate = params.self_signed(&key).map_err(PkiError::Issue)?.pem();
        let issued = Issued {
            certificate: certificate.clone(),
            key: key.serialize_pem(),
        };
        let issuer = Issuer::new(params, key);
        Ok((
            Self {
                certificate,
                issuer,
            },
            issued,
        ))
    }

    /// An authority from its PEM certificate and key.
    pub fn load(certificate: &str, key: &str) -> Result<Self, PkiError> {
        let key = KeyPair::from_pem(key).map_err(PkiError::Issue)?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(PkiError::Issue)?;
        Ok(Self {
            certificate: certificate.to_owned(),
            issuer,
        })
    }

    /// The authority's own certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Signs a certificate, for the given PEM private key or for a new one.
    pub fn issue(&self, subject: &Subject, key: Option<&str>) -> Result<Issued, PkiError> {
        let key = match key {
            Some(pem) => KeyPair::from_pem(pem).map_err(PkiError::Issue)?,
            None => new_key()?,
        };
        let certificate = params(subject)?
            .signed_by(&key, &self.issuer)
            .map_err(PkiError::Issue)?;
        let certificate = if subject.organizations.len() > 1 {
            let der = groups::with_subject(
                certificate.der(),
                &subject.organizations,
                &subject.common_name,
                self.issuer.key(),
            )?;
            pem_block(&der)
        } else {
            certificate.pem()
        };
        Ok(Issued {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

/// A key pair without a certificate, for signing tokens: private (PKCS #8) and public (SPKI) PEM.
pub fn signing_key() -> Result<(String, String), PkiError> {
    let key = new_key()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn pem_block(der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn new_key() -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(PkiError::Issue)
}

fn params(subject: &Subject) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + DAY * subject.days).into();
    // The top bit is cleared: serial numbers are positive integers.
    let mut serial = *uuid::Uuid::new_v4().as_bytes();
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.distinguished_name = DistinguishedName::new();
    for organization in &subject.organizations {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization.as_str());
    }
    params
        .distinguished_name
        .push(DnType::CommonName, subject.common_name.as_str());
    for name in &subject.alt_names {
        params.subject_alt_names.push(match name {
            AltName::Dns(name) => {
                SanType::DnsName(name.clone().try_into().map_err(PkiError::Issue)?)
            }
            AltName::Ip(ip) => SanType::IpAddress(*ip),
        });
    }
    set_usages(&mut params, subject.purpose);
    Ok(params)
}

fn set_usages(params: &mut CertificateParams, purpose: Purpose) {
    match purpose {
        Purpose::Authority => {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![
                KeyUsagePurpose::DigitalSignature,
                KeyUsagePurpose::KeyCertSign,
                KeyUsagePurpose::CrlSign,
            ];
        }
        Purpose::Serving | Purpose::Client | Purpose::Both => {
            params.is_ca = IsCa::ExplicitNoCa;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            let (serving, client) = (
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            );
            params.extended_key_usages = match purpose {
                Purpose::Serving => vec![serving],
                Purpose::Both => vec![serving, client],
                _ => vec![client],
            };
            params.use_authority_key_identifier_extension = true;
        }
    }
}
