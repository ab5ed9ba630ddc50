//! The connecting side: which servers are believed, and which certificate is shown to them.

use std::sync::Arc;

use bytes::Bytes;
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;

use super::verify::Servers;
use super::{Pem, TlsError, alpn, pem, provider, words};
use crate::reload::{Reload, Reloading};

/// The name that every kube-apiserver's certificate has, and that peers are checked against whatever their
/// address is (KEP-4020).
pub const DEFAULT_SERVER_NAME: &str = "kubernetes.default.svc";

/// What [`ClientTls`] is made of.
#[derive(Debug, Clone)]
pub struct ClientTlsOptions {
    /// The only CAs that are believed.
    pub roots: Pem,
    /// The certificate (leaf first) and key to show to servers that ask for one.
    pub identity: Option<(Pem, Pem)>,
    /// The name that servers' certificates must have.
    pub server_name: String,
}

impl ClientTlsOptions {
    /// These CAs, no client certificate, the name of every kube-apiserver.
    #[must_use]
    pub fn new(roots: Pem) -> Self {
        Self {
            roots,
            identity: None,
            server_name: DEFAULT_SERVER_NAME.to_owned(),
        }
    }

    fn sources(&self) -> Vec<Pem> {
        let mut sources = vec![self.roots.clone()];
        if let Some((certificate, key)) = &self.identity {
            sources.extend([certificate.clone(), key.clone()]);
        }
        sources
    }
}

/// How servers are connected to: TLS that follows its files, or plain text.
#[derive(Debug, Clone)]
pub struct ClientTls(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    server_name: ServerName<'static>,
    configs: Arc<Reloading<Configs>>,
}

/// The same settings with two offers of application protocols.
struct Configs {
    any: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    /// The certificate that is shown.
    identity: Option<CertificateDer<'static>>,
}

impl ClientTls {
    /// Plain HTTP/1.1, for loopback and tests.
    #[must_use]
    pub fn plain() -> Self {
        Self(None)
    }

    /// TLS with these files.
    ///
    /// # Errors
    /// [`TlsError`], with the file or name that cannot be used.
    pub fn load(options: ClientTlsOptions) -> Result<Self, TlsError> {
        let server_name = server_name(&options.server_name)?;
        let sources = pem::Sources::new(options.sources());
        sources.check()?;
        let loaded = Reloading::load(
            "client certificate and CA bundle",
            sources.files(),
            move |files| build(&options, &sources.fill(files)),
        );
        let configs = Arc::new(loaded.map_err(TlsError::from_load)?);
        Ok(Self(Some(Arc::new(Inner {
            server_name,
            configs,
        }))))
    }

    /// The same certificates and CAs (still following their files), with another name that servers must have.
    ///
    /// # Errors
    /// [`TlsError::ServerName`].
    pub fn with_server_name(&self, name: &str) -> Result<Self, TlsError> {
        let Some(inner) = &self.0 else {
            return Ok(self.clone());
        };
        let configs = inner.configs.clone();
        Ok(Self(Some(Arc::new(Inner {
            server_name: server_name(name)?,
            configs,
        }))))
    }

    /// What to hand to [`reload::watch`](crate::reload::watch).
    #[must_use]
    pub fn reloads(&self) -> Vec<Arc<dyn Reload>> {
        let reload = |inner: &Arc<Inner>| inner.configs.clone() as Arc<dyn Reload>;
        self.0.iter().map(reload).collect()
    }

    /// Why the certificate that is shown to servers is not valid now, to be put behind what it is called: when it ended or
    /// begins. None if it is, and if none is shown.
    #[must_use]
    pub fn identity_trouble(&self) -> Option<String> {
        let configs = self.0.as_ref()?.configs.get();
        configs.identity.as_ref().and_then(words::of_time)
    }

    /// Whether this is TLS at all.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.is_some()
    }

    /// How often the files have changed; connections of an older generation are not used for new requests.
    pub(crate) fn generation(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |inner| inner.configs.generation())
    }

    /// The rustls settings of the next connection, and the name the server must have.
    #[must_use]
    pub fn config(&self, http1_only: bool) -> Option<(Arc<ClientConfig>, ServerName<'static>)> {
        let inner = self.0.as_ref()?;
        let configs = inner.configs.get();
        let config = if http1_only {
            &configs.http1
        } else {
            &configs.any
        };
        Some((config.clone(), inner.server_name.clone()))
    }
}

/// Whether a certificate (leaf first) can be shown with a key; each is PEM with where it is from.
///
/// # Errors
/// What is wrong with which of them.
pub fn check_pair(certificate: (&[u8], &str), key: (&[u8], &str)) -> Result<(), TlsError> {
    let chain = pem::certificates(certificate.0, certificate.1)?;
    let private = pem::key(key.0, key.1)?;
    let checked = CertifiedKey::from_der(chain, private, &provider());
    checked.map(drop).map_err(|refusal| TlsError::Pair {
        certificate: certificate.1.to_owned(),
        key: key.1.to_owned(),
        refusal,
    })
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::ServerName(name.to_owned()))
}

fn build(options: &ClientTlsOptions, bytes: &[Bytes]) -> Result<Configs, TlsError> {
    let [roots, pair @ ..] = bytes else {
        return Err(TlsError::NoCertificate {
            origin: "no source".to_owned(),
            instead: None,
        });
    };
    let roots = pem::roots(roots, &options.roots.origin("CA bundle"))?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Servers::of(roots)?));
    let mut identity = None;
    let mut config = match (pair, &options.identity) {
        ([certificate, key], Some((certificate_pem, key_pem))) => {
            let certificate_origin = certificate_pem.origin("client certificate");
            let key_origin = key_pem.origin("client key");
            let chain = pem::certificates(certificate, &certificate_origin)?;
            identity = chain.first().cloned();
            builder
                .with_client_auth_cert(chain, pem::key(key, &key_origin)?)
                .map_err(|refusal| TlsError::Pair {
                    certificate: certificate_origin,
                    key: key_origin,
                    refusal,
                })?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let http1 = Arc::new(config.clone());
    config.alpn_protocols = alpn();
    Ok(Configs {
        any: Arc::new(config),
        http1,
        identity,
    })
}
