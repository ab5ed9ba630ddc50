//! Judging the other end's certificate within a handshake.
//!
//! rustls has one trait for each side and calls own verifiers dangerous. These decide as little as there is to decide:
//! [`Servers`] is webpki's verdict, with the certificates kept that came with a refusal; [`Clients`] takes whatever key
//! the client proves to hold; [`shown`] looks at certificates without a verdict and sends nothing on such a connection.
//! Signatures are always checked, by rustls.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{TlsError, provider};

/// The methods of a verifier, of either side, that check what the other end signed with its key.
macro_rules! signatures_are_checked {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            leaf: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls12_signature(message, leaf, signature, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            leaf: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, leaf, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            let algorithms = &self.provider.signature_verification_algorithms;
            algorithms.supported_schemes()
        }
    };
}

tokio::task_local! {
    /// What the handshake under way was shown and did not believe, leaf first.
    static DOUBTED: RefCell<Vec<CertificateDer<'static>>>;
}

/// Runs a handshake. The server's certificates come with its outcome if they were not believed: rustls' errors do not
/// say whose they are.
pub(crate) async fn noting_doubted<F: Future>(
    handshake: F,
) -> (F::Output, Vec<CertificateDer<'static>>) {
    let run = async {
        let outcome = handshake.await;
        (outcome, DOUBTED.with(RefCell::take))
    };
    DOUBTED.scope(RefCell::default(), run).await
}

/// The certificates, leaf first, that a server shows for this name, however bad they are. Nothing is sent to it.
///
/// # Errors
/// What rustls says when there is no handshake or no such name. A server that ends the handshake after having shown its
/// certificates wants one of ours, which is no error.
pub async fn shown(tcp: TcpStream, name: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let invalid =
        |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, e.to_string());
    let name = ServerName::try_from(name.to_owned()).map_err(|e| invalid(&e))?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| invalid(&e))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Servers::looked_at()))
        .with_no_client_auth();
    config.alpn_protocols = super::alpn();
    let connect = TlsConnector::from(Arc::new(config)).connect(name, tcp);
    match noting_doubted(connect).await {
        (Err(error), none) if none.is_empty() => Err(error),
        (_, certificates) => Ok(certificates),
    }
}

/// Judges servers.
#[derive(Debug)]
pub(super) struct Servers {
    provider: Arc<CryptoProvider>,
    /// None: they are looked at only.
    judge: Option<Arc<WebPkiServerVerifier>>,
}

impl Servers {
    /// Believes those whom one of these authorities vouches for.
    pub(super) fn of(roots: RootCertStore) -> Result<Self, TlsError> {
        let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| TlsError::Setup(rustls::Error::General(error.to_string())))?;
        Ok(Self {
            provider: provider(),
            judge: Some(judge),
        })
    }

    fn looked_at() -> Self {
        Self {
            provider: provider(),
            judge: None,
        }
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self
            .judge
            .as_ref()
            .map(|judge| judge.verify_server_cert(leaf, intermediates, name, ocsp, now));
        if !matches!(verdict, Some(Ok(_))) {
            let all = std::iter::once(leaf).chain(intermediates);
            let all = all.map(|it| it.clone().into_owned()).collect();
            // Elsewhere than in such a handshake nobody asks for them.
            let _ = DOUBTED.try_with(|it| it.replace(all));
        }
        verdict.unwrap_or_else(|| Ok(ServerCertVerified::assertion()))
    }

    signatures_are_checked!();
}

/// Takes every certificate whose private key the client proves to hold; `peerage-auth` verifies the chain.
#[derive(Debug)]
pub(super) struct Clients {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

impl Clients {
    /// These subjects are told to clients as acceptable issuers; they decide nothing.
    pub(super) fn any(hints: Vec<DistinguishedName>) -> Self {
        Self {
            provider: provider(),
            hints,
        }
    }
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    signatures_are_checked!();
}
