//! The accepting side: one certificate, and any client certificate.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use rustls::{DistinguishedName, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::verify::Clients;
use super::{Pem, TlsError, alpn, pem, provider};
use crate::reload::{Reload, Reloading};

/// What [`ServerTls`] is made of.
#[derive(Debug, Clone)]
pub struct ServerTlsOptions {
    /// The serving certificate, leaf first.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
    /// CA bundles to advertise to clients as acceptable issuers. They decide nothing here.
    pub client_cas: Vec<Pem>,
    /// The application protocols to offer, most wanted first.
    pub alpn: Vec<Vec<u8>>,
}

impl ServerTlsOptions {
    /// This pair, no client CAs, HTTP/2 before HTTP/1.1.
    #[must_use]
    pub fn new(certificate: Pem, key: Pem) -> Self {
        Self {
            certificate,
            key,
            client_cas: Vec::new(),
            alpn: alpn(),
        }
    }

    fn sources(&self) -> Vec<Pem> {
        let pair = [&self.certificate, &self.key];
        pair.into_iter().chain(&self.client_cas).cloned().collect()
    }
}

/// How a listener speaks: TLS that follows its files, or plain text.
#[derive(Debug, Clone)]
pub struct ServerTls(Option<Arc<Reloading<ServerConfig>>>);

impl ServerTls {
    /// Plain HTTP, for loopback and tests.
    #[must_use]
    pub fn plain() -> Self {
        Self(None)
    }

    /// TLS with these files.
    ///
    /// # Errors
    /// [`TlsError`], with the file that cannot be used.
    pub fn load(options: ServerTlsOptions) -> Result<Self, TlsError> {
        let sources = pem::Sources::new(options.sources());
        sources.check()?;
        let loaded = Reloading::load("serving certificate", sources.files(), move |files| {
            build(&options, &sources.fill(files))
        });
        Ok(Self(Some(Arc::new(loaded.map_err(TlsError::from_load)?))))
    }

    /// What to hand to [`reload::watch`](crate::reload::watch).
    #[must_use]
    pub fn reloads(&self) -> Vec<Arc<dyn Reload>> {
        let reload = |tls: &Arc<Reloading<ServerConfig>>| tls.clone() as Arc<dyn Reload>;
        self.0.iter().map(reload).collect()
    }

    /// The rustls settings of the next connection, for listeners that are not [`Server`](crate::Server).
    #[must_use]
    pub fn config(&self) -> Option<Arc<ServerConfig>> {
        self.0.as_ref().map(|tls| tls.get())
    }
}

fn build(options: &ServerTlsOptions, bytes: &[Bytes]) -> Result<ServerConfig, TlsError> {
    let [certificate, key, client_cas @ ..] = bytes else {
        return Err(TlsError::NoCertificate {
            origin: "no source".to_owned(),
            instead: None,
        });
    };
    let certificate_origin = options.certificate.origin("serving certificate");
    let key_origin = options.key.origin("serving key");
    let mut hints = Vec::new();
    for (bundle, source) in client_cas.iter().zip(&options.client_cas) {
        let roots = pem::roots(bundle, &source.origin("client CA bundle"))?;
        for subject in roots.subjects() {
            if !hints
                .iter()
                .any(|hint: &DistinguishedName| hint.as_ref() == subject.as_ref())
            {
                hints.push(subject);
            }
        }
    }
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(Arc::new(Clients::any(hints)))
        .with_single_cert(
            pem::certificates(certificate, &certificate_origin)?,
            pem::key(key, &key_origin)?,
        )
        .map_err(|refusal| TlsError::Pair {
            certificate: certificate_origin,
            key: key_origin,
            refusal,
        })?;
    config.alpn_protocols.clone_from(&options.alpn);
    Ok(config)
}

/// What the TLS handshake told about the client. Shared by all requests of the connection.
pub struct TlsPeer {
    /// The certificates the client presented, leaf first; empty if it presented none. Not verified.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The application protocol agreed on.
    pub alpn: Option<Vec<u8>>,
    memo: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl TlsPeer {
    /// A client with these certificates.
    #[must_use]
    pub fn new(certificates: Vec<CertificateDer<'static>>, alpn: Option<Vec<u8>>) -> Self {
        Self {
            certificates,
            alpn,
            memo: Mutex::new(None),
        }
    }

    pub(crate) fn of<S>(stream: &TlsStream<S>) -> Self {
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates().unwrap_or_default();
        let owned = certificates
            .iter()
            .map(|c| c.clone().into_owned())
            .collect();
        Self::new(owned, session.alpn_protocol().map(<[u8]>::to_vec))
    }

    /// What [`remember`](Self::remember) left here, if it is a `T`.
    #[must_use]
    pub fn recall<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let memo = self
            .memo
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        memo?.downcast().ok()
    }

    /// Keeps what was found out about this client for the next request of the connection.
    pub fn remember<T: Send + Sync + 'static>(&self, value: Arc<T>) {
        *self.memo.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }
}

impl fmt::Debug for TlsPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPeer")
            .field("certificates", &self.certificates.len())
            .field("alpn", &self.alpn.as_deref().map(String::from_utf8_lossy))
            .finish_non_exhaustive()
    }
}
