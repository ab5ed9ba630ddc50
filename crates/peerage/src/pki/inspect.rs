//! What a certificate says, for `pki show` and for making the same one again.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::Serialize;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use super::issue::{AltName, Purpose};
use super::{PkiError, Subject};

/// The facts of one certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// What it may be used for.
    pub purpose: Purpose,
    /// Common name.
    pub common_name: String,
    /// Organizations: a client's groups.
    pub organizations: Vec<String>,
    /// Names and addresses of a server.
    pub alt_names: Vec<String>,
    /// Common name of the authority that signed it.
    pub issuer: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// Valid from.
    #[serde(serialize_with = "as_text")]
    pub not_before: Timestamp,
    /// Valid until.
    #[serde(serialize_with = "as_text")]
    pub not_after: Timestamp,
}

impl Facts {
    /// Reads the first certificate of a PEM text.
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        Self::from_der(&first_certificate(pem)?)
    }

    /// Reads a certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, PkiError> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| PkiError::Encoding)?;
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| PkiError::Encoding);
        Ok(Self {
            purpose: purpose(&certificate),
            common_name: first_text(certificate.subject().iter_common_name()),
            organizations: certificate
                .subject()
                .iter_organization()
                .filter_map(|name| name.as_str().ok())
                .map(str::to_owned)
                .collect(),
            alt_names: alt_names(&certificate)
                .iter()
                .map(AltName::to_string)
                .collect(),
            issuer: first_text(certificate.issuer().iter_common_name()),
            serial: certificate
                .raw_serial()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            not_before: time(certificate.validity().not_before.timestamp())?,
            not_after: time(certificate.validity().not_after.timestamp())?,
        })
    }

    /// The subject for a certificate that says the same, valid for `days` from now.
    pub fn renewed(&self, days: u32) -> Result<Subject, PkiError> {
        Ok(Subject {
            common_name: self.common_name.clone(),
            organizations: self.organizations.clone(),
            alt_names: self
                .alt_names
                .iter()
                .map(|name| name.parse())
                .collect::<Result<_, _>>()?,
            purpose: self.purpose,
            days,
        })
    }

    /// Whole days that it was made for.
    pub fn days_made_for(&self) -> u32 {
        let seconds = self.not_after.as_second() - self.not_before.as_second();
        u32::try_from(seconds / (24 * 3600)).unwrap_or(1).max(1)
    }

    /// When it ended, in words: `ended 2026-01-31`.
    pub fn ended(&self) -> String {
        format!("ended {}", day(self.not_after))
    }

    /// From when on it counts, in words: `begins 2026-01-31 only`.
    pub fn begins(&self) -> String {
        format!("begins {} only", day(self.not_before))
    }

    /// Whole days left at `now`; negative when it is over.
    pub fn days_left(&self, now: Timestamp) -> i64 {
        (self.not_after.as_second() - now.as_second()).div_euclid(24 * 3600)
    }
}

/// A date, as people write it.
pub fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// What a certificate may be shown for; for everything if it does not say (RFC 5280, 4.2.1.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usages {
    /// A server's side of TLS.
    pub serving: bool,
    /// A client's side of TLS.
    pub client: bool,
}

/// The usages of the first certificate of a PEM text.
pub fn usages(pem: &str) -> Result<Usages, PkiError> {
    let der = first_certificate(pem)?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| PkiError::Encoding)?;
    Ok(usages_of(&certificate))
}

fn usages_of(certificate: &X509Certificate<'_>) -> Usages {
    match certificate.extended_key_usage() {
        Ok(Some(usage)) => Usages {
            serving: usage.value.server_auth || usage.value.any,
            client: usage.value.client_auth || usage.value.any,
        },
        _ => Usages {
            serving: true,
            client: true,
        },
    }
}

/// Whether the certificate `pem` was signed by `authority`'s key.
pub fn signed_by(pem: &str, authority: &str) -> Result<bool, PkiError> {
    let (der, authority) = (first_certificate(pem)?, first_certificate(authority)?);
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| PkiError::Encoding)?;
    let (_, authority) = X509Certificate::from_der(&authority).map_err(|_| PkiError::Encoding)?;
    Ok(certificate.issuer() == authority.subject()
        && certificate
            .verify_signature(Some(authority.public_key()))
            .is_ok())
}

fn as_text<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

fn first_certificate(pem: &str) -> Result<Vec<u8>, PkiError> {
    for block in x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()) {
        let block = block.map_err(|_| PkiError::Encoding)?;
        if block.label == "CERTIFICATE" {
            return Ok(block.contents);
        }
    }
    Err(PkiError::Encoding)
}

fn first_text<'a>(
    mut names: impl Iterator<Item = &'a x509_parser::x509::AttributeTypeAndValue<'a>>,
) -> String {
    names
        .next()
        .and_then(|name| name.as_str().ok())
        .unwrap_or_default()
        .to_owned()
}

fn purpose(certificate: &X509Certificate<'_>) -> Purpose {
    if certificate.is_ca() {
        return Purpose::Authority;
    }
    match certificate.extended_key_usage() {
        Ok(Some(usage)) if usage.value.server_auth && usage.value.client_auth => Purpose::Both,
        Ok(Some(usage)) if usage.value.server_auth => Purpose::Serving,
        _ => Purpose::Client,
    }
}

fn alt_names(certificate: &X509Certificate<'_>) -> Vec<AltName> {
    let names =
        certificate
            .extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
                _ => None,
            });
    names.into_iter().flatten().filter_map(alt_name).collect()
}

fn alt_name(name: &GeneralName<'_>) -> Option<AltName> {
    match name {
        GeneralName::DNSName(name) => Some(AltName::Dns((*name).to_owned())),
        GeneralName::IPAddress(bytes) => {
            let ip = if let Ok(four) = <[u8; 4]>::try_from(*bytes) {
                IpAddr::from(four)
            } else {
                IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?)
            };
            Some(AltName::Ip(ip))
        }
        _ => None,
    }
}
