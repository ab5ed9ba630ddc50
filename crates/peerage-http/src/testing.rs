//! Certificates for the tests of this crate and those above it: an authority and what it signs, made anew for each
//! test.
//!
//! Behind the feature `testing`, which nothing that is shipped has. Certificates that people use are made by
//! `peerage pki`.

// It is called from tests alone, which may stop at the first surprise.
#![allow(clippy::unwrap_used)]

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::Pem;

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Whom a certificate is for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subject<'a> {
    /// The common name.
    pub name: &'a str,
    /// The organizations, which are a user's groups.
    pub groups: &'a [&'a str],
    /// DNS names and addresses.
    pub hosts: &'a [&'a str],
    /// What it may be used for; anything without.
    pub usage: Option<Usage>,
}

/// What a certificate may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// As a client's.
    Client,
    /// As a server's.
    Server,
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Pair {
    /// The certificate as PEM.
    pub certificate: String,
    /// The key as PEM.
    pub key: String,
    /// The certificate.
    pub der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Authority {
    /// One that signs itself.
    pub fn new(name: &str) -> Self {
        Self(CertifiedIssuer::self_signed(authority(name), KeyPair::generate().unwrap()).unwrap())
    }

    /// One that this one signs.
    pub fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::signed_by(authority(name), key, &self.0).unwrap())
    }

    /// Its certificate as PEM.
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// Its key as PEM.
    pub fn key(&self) -> String {
        self.0.key().serialize_pem()
    }

    /// Its certificate, for options.
    pub fn pem(&self) -> Pem {
        Pem::bytes(self.0.pem())
    }

    /// Its certificate.
    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A pair for a client of that name.
    pub fn client(&self, name: &str) -> Pair {
        self.issue(&Subject {
            name,
            usage: Some(Usage::Client),
            ..Subject::default()
        })
    }

    /// A pair for a server at these names.
    pub fn server(&self, name: &str, hosts: &[&str]) -> Pair {
        self.issue(&Subject {
            name,
            hosts,
            usage: Some(Usage::Server),
            ..Subject::default()
        })
    }

    /// A client's pair that ended at the beginning of a day: year, month, day.
    pub fn ended(&self, name: &str, (year, month, day): (i32, u8, u8)) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(year, month, day);
        self.sign(&params)
    }

    /// Any pair.
    pub fn issue(&self, subject: &Subject<'_>) -> Pair {
        let mut name = DistinguishedName::new();
        for group in subject.groups {
            name.push(DnType::OrganizationName, *group);
        }
        name.push(DnType::CommonName, subject.name);
        self.issue_to(name, subject)
    }

    /// Any pair, for this name in place of the subject's.
    pub fn issue_to(&self, name: DistinguishedName, subject: &Subject<'_>) -> Pair {
        let hosts: Vec<String> = subject.hosts.iter().map(|h| (*h).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = name;
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = subject
            .usage
            .map(|usage| match usage {
                Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
                Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            })
            .into_iter()
            .collect();
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.clone().signed_by(&key, &self.0).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Pair {
    /// Certificate and key, for options.
    pub fn pems(&self) -> (Pem, Pem) {
        (
            Pem::bytes(self.certificate.clone()),
            Pem::bytes(self.key.clone()),
        )
    }

    /// The key.
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key_der.clone()).into()
    }
}
