//! Certificates, keys and CA bundles for both ends of a connection.
//!
//! [`ServerTls`] accepts any client certificate whose key the client holds and leaves to `peerage-auth` to say
//! what it is worth: a bad certificate is an answer (401), not a broken handshake. [`ClientTls`] trusts the CAs
//! of its bundle and nobody else. Both follow their files (see [`reload`](crate::reload)): a new connection
//! uses the newest content, connections that exist go on.

mod client;
pub(crate) mod names;
mod pem;
mod server;
mod verify;
pub(crate) mod words;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::{ClientTls, ClientTlsOptions, DEFAULT_SERVER_NAME, check_pair};
pub use names::issuer;
pub use pem::{Pem, bundle, certificates, roots};
pub use server::{ServerTls, ServerTlsOptions, TlsPeer};
pub(crate) use verify::noting_doubted;
pub use verify::shown;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// PEM that should hold certificates holds none that can be read.
    #[error("no certificate in {origin}{}", pem::found(instead))]
    NoCertificate {
        /// The file, or what the bytes were meant for.
        origin: String,
        /// What it holds instead.
        instead: Option<&'static str>,
    },
    /// PEM that should hold a private key holds none that can be read.
    #[error("no private key in {origin}{}", pem::found(instead))]
    NoKey {
        /// The file, or what the bytes were meant for.
        origin: String,
        /// What it holds instead.
        instead: Option<&'static str>,
    },
    /// The certificate and the key do not fit each other, or rustls refuses one of them.
    #[error(
        "the certificate in {certificate} cannot be used with the key in {key}: {}",
        words::of_error(refusal)
    )]
    Pair {
        /// Where the certificate came from.
        certificate: String,
        /// Where the key came from.
        key: String,
        /// What rustls said.
        refusal: rustls::Error,
    },
    /// A server name that is no DNS name and no IP address.
    #[error("{0:?} is no server name")]
    ServerName(String),
    /// The TLS library refused its own settings.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
    /// Files changed between two looks, or a watched value could not be built.
    #[error("TLS files cannot be used")]
    Files(#[source] crate::BoxError),
}

impl TlsError {
    /// The error of a first load, which is one of ours unless a file vanished meanwhile.
    pub(crate) fn from_load(error: crate::BoxError) -> Self {
        match error.downcast::<TlsError>() {
            Ok(own) => *own,
            Err(other) => TlsError::Files(other),
        }
    }
}

/// The one cryptography provider of the process.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The application protocols that both sides offer, most wanted first.
fn alpn() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}
