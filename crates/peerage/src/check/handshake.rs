//! The beginning of a TLS connection: that a port answers, and which certificates it shows, however bad they are.
//!
//! Nothing is sent on such a connection: whoever wants to talk to a server checks its certificate first. Judging the
//! certificates is [`verify`]'s, with the verifier of every other connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use peerage_http::tls;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpStream;

/// What a server showed.
#[derive(Debug, Clone)]
pub(super) struct Handshake {
    /// Its certificate and what it sent to prove it.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// How long it took.
    pub(super) took: Duration,
    /// The address that its name stood for.
    pub(super) at: Option<SocketAddr>,
}

impl Handshake {
    /// SHA-256 of its certificate, written as gateways write it.
    pub(super) fn fingerprint(&self) -> Option<String> {
        let digest = Sha256::digest(self.certificates.first()?);
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Why there was no handshake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The port cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Something else than a TLS server answers.
    #[error("no TLS handshake: {0}")]
    Tls(String),
    /// Nothing came in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

/// Connects to `host:port` and asks for the certificate of `server_name`.
pub(super) async fn shake(
    address: &str,
    server_name: &str,
    wait: Duration,
) -> Result<Handshake, HandshakeError> {
    tokio::time::timeout(wait, try_shake(address, server_name))
        .await
        .unwrap_or(Err(HandshakeError::Timeout(wait)))
}

async fn try_shake(address: &str, server_name: &str) -> Result<Handshake, HandshakeError> {
    let begun = Instant::now();
    let tcp = TcpStream::connect(address)
        .await
        .map_err(|e| HandshakeError::Connect(e.to_string()))?;
    let at = tcp.peer_addr().ok();
    let certificates = tls::shown(tcp, server_name).await;
    Ok(Handshake {
        certificates: certificates.map_err(|e| HandshakeError::Tls(e.to_string()))?,
        took: begun.elapsed(),
        at,
    })
}

/// What is wrong with a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It has ended.
    Expired,
    /// It is not valid yet.
    NotYet,
    /// No authority of the bundle signed it.
    Issuer,
    /// It may not be used by a server.
    Usage,
    /// It does not have the name; the chain is good.
    Name,
    /// Something else.
    Other(String),
}

/// Whether a chain proves `name` at `now` by the authorities of a PEM bundle.
pub(super) fn verify(
    authorities: &str,
    chain: &[CertificateDer<'static>],
    name: &str,
    now: Timestamp,
) -> Result<(), Wrong> {
    let other = |e: &dyn std::fmt::Display| Wrong::Other(e.to_string());
    let roots = tls::roots(authorities.as_bytes(), "CA bundle").map_err(|e| other(&e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| other(&e))?;
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(Wrong::Other("it shows no certificate".to_owned()));
    };
    let name = ServerName::try_from(name.to_owned()).map_err(|e| other(&e))?;
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    match verifier.verify_server_cert(leaf, intermediates, &name, &[], now) {
        Ok(_) => Ok(()),
        Err(Error::InvalidCertificate(error)) => Err(match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Wrong::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Wrong::NotYet
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Wrong::Issuer,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Wrong::Usage
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Wrong::Name
            }
            error => Wrong::Other(format!("{error:?}")),
        }),
        Err(error) => Err(other(&error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn ports_that_are_closed_or_speak_something_else_are_told_apart() {
        let wait = Duration::from_secs(20);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let talks = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad\r\n\r\n").await;
        });
        let error = shake(&address, "localhost", wait).await.unwrap_err();
        assert!(matches!(error, HandshakeError::Tls(_)), "{error}");
        talks.await.unwrap();
        let error = shake(&address, "localhost", wait).await.unwrap_err();
        assert!(matches!(error, HandshakeError::Connect(_)), "{error}");
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let wait = Duration::from_millis(1);
        let error = shake(&address, "localhost", wait).await.unwrap_err();
        assert_eq!(error, HandshakeError::Timeout(wait));
    }
}
