//! A throw-away PKI: one CA that signs the peers' serving certificates and the front-proxy client certificate.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Once};

use peerage_http::Pem;
use peerage_http::testing::{Authority, Pair};

/// The name that every peer's certificate carries.
pub const PEER_NAME: &str = "kubernetes.default.svc";

/// A CA and what it signed.
#[derive(Clone)]
pub struct Pki(Arc<Authority>);

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
        Pki(Arc::new(Authority::new("front-proxy-ca")))
    }

    pub fn ca(&self) -> Pem {
        self.0.pem()
    }

    pub fn server(&self, name: &str) -> Pair {
        self.0.server(name, &[name])
    }

    pub fn client(&self, common_name: &str) -> Pair {
        self.0.client(common_name)
    }

    /// A server's TLS settings for the pair, which demand a client certificate of this CA.
    pub fn server_config(&self, pair: &Pair, alpn: &[&str]) -> Arc<rustls::ServerConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.0.der()).unwrap();
        let clients = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots))
            .build()
            .unwrap();
        let mut config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![pair.der.clone()], pair.key_der())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}
