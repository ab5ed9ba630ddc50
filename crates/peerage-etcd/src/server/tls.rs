//! TLS that follows its files, and lets in only whom a CA has signed if one is given.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peerage_http::reload::{Reload, Reloading};
use peerage_http::{BoxError, tls};
use tokio_rustls::rustls;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;

use super::ServeError;

/// How a store's listener proves who it is, and whom it lets in.
#[derive(Clone)]
pub struct StoreTls(Arc<Reloading<ServerConfig>>);

impl std::fmt::Debug for StoreTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreTls")
    }
}

impl StoreTls {
    /// A certificate (leaf first) and its key, and, if connections are to show one that it has signed,
    /// a bundle of CAs; all PEM files.
    pub fn load(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
    ) -> Result<Self, ServeError> {
        let files: Vec<PathBuf> = [Some(certificate), Some(key), client_ca]
            .into_iter()
            .flatten()
            .map(Path::to_owned)
            .collect();
        let what = certificate.display().to_string();
        let loaded = Reloading::load("the store's serving certificate", files, build);
        let loaded = loaded.map_err(|source| ServeError::Tls { what, source })?;
        Ok(StoreTls(Arc::new(loaded)))
    }

    /// A configuration that the caller has made. It must offer `h2`.
    pub fn fixed(config: ServerConfig) -> Self {
        StoreTls(Arc::new(Reloading::fixed("the store's TLS", config)))
    }

    /// What to hand to [`peerage_http::reload::watch`].
    pub fn reload(&self) -> Arc<dyn Reload> {
        self.0.clone()
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.0.get()
    }
}

fn build(files: &[Vec<u8>]) -> Result<ServerConfig, BoxError> {
    let [certificate, key, client_ca @ ..] = files else {
        return Err("a certificate and a key are needed".into());
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        [] => builder.with_no_client_auth(),
        [bundle, ..] => {
            let roots = Arc::new(tls::roots(bundle, "the store's client CA")?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let chain = tls::certificates(certificate, "the store's serving certificate")?;
    let mut config = builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
