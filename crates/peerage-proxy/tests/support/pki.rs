//! A throw-away PKI: one CA that signs the peers' serving certificates and the front-proxy client certificate.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Once};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The name that every peer's certificate carries.
pub const PEER_NAME: &str = "kubernetes.default.svc";

/// A CA and what it signed.
#[derive(Clone)]
pub struct Pki {
    issuer: Arc<Issuer<'static, KeyPair>>,
    pub ca_pem: String,
    pub ca_der: CertificateDer<'static>,
}

/// A certificate with its key, as PEM.
pub struct Pair {
    pub cert_pem: String,
    pub key_pem: String,
    pub cert: CertificateDer<'static>,
    key: Vec<u8>,
}

/// Makes one crypto provider the process's own, once.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
}

impl Pki {
    pub fn new() -> Pki {
        install_crypto();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "front-proxy-ca");
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        Pki {
            ca_pem: cert.pem(),
            ca_der: cert.der().clone(),
            issuer: Arc::new(Issuer::new(params, key)),
        }
    }

    pub fn server(&self, name: &str) -> Pair {
        self.sign(name, &[name], ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self, common_name: &str) -> Pair {
        self.sign(common_name, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, common_name: &str, names: &[&str], usage: ExtendedKeyUsagePurpose) -> Pair {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Pair {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
            cert: cert.der().clone(),
            key: key.serialize_der(),
        }
    }
}

impl Pair {
    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()))
    }

    /// A server's TLS settings that demand a client certificate of this CA.
    pub fn server_config(&self, pki: &Pki, alpn: &[&str]) -> Arc<rustls::ServerConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(pki.ca_der.clone()).unwrap();
        let clients = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots))
            .build()
            .unwrap();
        let mut config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![self.cert.clone()], self.key())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}
