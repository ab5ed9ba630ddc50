//! From a connection and a request to a user, in kube-apiserver's order: front proxy, client certificate,
//! bearer token, anonymous.
//!
//! The first that succeeds wins. One that was tried and failed makes the request unauthenticated unless another
//! succeeds: a certificate that does not verify is never taken for "no certificate". What certificates say is
//! found out once for each connection, and again after a minute and when a CA bundle changes.
//!
//! Invariant: after success no credential and no identity header of the client is left in the request.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::request::Parts;
use peerage_core::User;
use peerage_http::reload::{Reload, Reloading};
use peerage_http::{BoxError, ConnInfo, Pem, TlsPeer, tls};

use crate::certificate::{self, CertificateError, Subject, Verifier};
use crate::request_header::{Names, RequestHeaderOptions, is_header_name};
use crate::tokens::{self, Tokens};
use crate::{PEER_PROXIED, identity_headers};

/// How long what a certificate says is believed without looking again: it may run out meanwhile.
const RECHECK: Duration = Duration::from_secs(60);

/// Tells authenticators apart, for what connections remember.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Whom an [`Authenticator`] believes.
#[derive(Debug, Clone, Default)]
pub struct AuthenticatorOptions {
    /// The CA of client certificates (`--client-ca-file`).
    pub client_ca: Option<Pem>,
    /// Front proxies (`--requestheader-*`).
    pub request_header: Option<RequestHeaderOptions>,
    /// Static bearer tokens (`--token-auth-file`).
    pub token_file: Option<PathBuf>,
    /// Whether requests without credentials are let through as `system:anonymous` (`--anonymous-auth`).
    pub anonymous: bool,
}

/// An authenticator that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthSetupError {
    /// The bundle of `--client-ca-file`.
    #[error("the client CA bundle (--client-ca-file) cannot be used")]
    ClientCa(#[source] BoxError),
    /// The bundle of `--requestheader-client-ca-file`.
    #[error("the front-proxy CA bundle (--requestheader-client-ca-file) cannot be used")]
    RequestHeaderCa(#[source] BoxError),
    /// A header name of `--requestheader-*`.
    #[error("{0:?} (--requestheader-*) is no header name")]
    HeaderName(String),
    /// The file of `--token-auth-file`.
    #[error("the token file (--token-auth-file) cannot be used")]
    TokenFile(#[source] BoxError),
}

/// A request whose sender is not known: 401.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A client certificate was presented and nobody vouches for it.
    #[error("the client certificate is not accepted")]
    Certificate(#[source] BoxError),
    /// A bearer token that is nobody's.
    #[error("the bearer token is not known")]
    Token,
    /// No credentials, and anonymous requests are not let through.
    #[error("no credentials")]
    NoCredentials,
}

/// What the audit log says of a request that failed to authenticate: which credentials it had, in
/// kube-apiserver's words.
#[must_use]
pub fn attempted(request: &Parts, connection: &ConnInfo) -> String {
    let line = request
        .headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let scheme = line
        .and_then(|line| line.trim().split_once(' '))
        .map(|(scheme, _)| scheme);
    let is = |name: &str| scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(name));
    let certificate = connection
        .tls
        .as_ref()
        .is_some_and(|tls| !tls.certificates.is_empty());
    let found: Vec<&str> = [
        ("basic", is("basic")),
        ("bearer", is("bearer")),
        ("x509", certificate),
    ]
    .into_iter()
    .filter_map(|(name, there)| there.then_some(name))
    .collect();
    if found.is_empty() {
        return "Authentication failed, no credentials provided".to_owned();
    }
    format!("Authentication failed, attempted: {}", found.join(", "))
}

/// By what a user was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// By the headers of a front proxy.
    FrontProxy,
    /// By the client certificate.
    Certificate,
    /// By a bearer token.
    Token,
    /// Not at all.
    Anonymous,
}

/// A request whose sender is known.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// The sender.
    pub user: Arc<User>,
    /// By what it was recognised.
    pub method: Method,
    /// Whether the request comes from a peer: a front proxy that sent
    /// [`PEER_PROXIED`](crate::PEER_PROXIED). Such a request is never sent on.
    pub verified_peer: bool,
}

/// Finds out who sends requests.
#[derive(Debug)]
pub struct Authenticator {
    id: u64,
    client: Option<Arc<Reloading<Verifier>>>,
    front_proxy: Option<FrontProxy>,
    tokens: Option<Arc<Reloading<Tokens>>>,
    anonymous: bool,
}

#[derive(Debug)]
struct FrontProxy {
    verifier: Arc<Reloading<Verifier>>,
    allowed_names: Vec<String>,
    names: Names,
}

/// What is known of the client of a connection.
struct Known {
    by: u64,
    generations: (u64, u64),
    at: Instant,
    front_proxy: Option<Result<(), CertificateError>>,
    client: Option<Result<Option<Arc<User>>, CertificateError>>,
}

impl Authenticator {
    /// Reads the files.
    ///
    /// # Errors
    /// [`AuthSetupError`], by the setting that is wrong.
    pub fn load(options: AuthenticatorOptions) -> Result<Self, AuthSetupError> {
        let client = options
            .client_ca
            .map(|pem| tls::bundle("client CA bundle", pem, certificate::verifier));
        let client = client.transpose().map_err(AuthSetupError::ClientCa)?;
        let front_proxy = options.request_header.map(FrontProxy::load).transpose()?;
        let tokens = options.token_file.map(|file| {
            Reloading::load("token file", vec![file], |bytes| {
                Tokens::parse(bytes.first().map(Vec::as_slice).unwrap_or_default())
            })
        });
        let tokens = tokens.transpose().map_err(AuthSetupError::TokenFile)?;
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            client: client.map(Arc::new),
            front_proxy,
            tokens: tokens.map(Arc::new),
            anonymous: options.anonymous,
        })
    }

    /// What to hand to [`reload::watch`](peerage_http::reload::watch).
    #[must_use]
    pub fn reloads(&self) -> Vec<Arc<dyn Reload>> {
        let mut all: Vec<Arc<dyn Reload>> = Vec::new();
        all.extend(
            self.client
                .iter()
                .map(|client| client.clone() as Arc<dyn Reload>),
        );
        all.extend(
            self.front_proxy
                .iter()
                .map(|proxy| proxy.verifier.clone() as Arc<dyn Reload>),
        );
        all.extend(
            self.tokens
                .iter()
                .map(|tokens| tokens.clone() as Arc<dyn Reload>),
        );
        all
    }

    /// Finds out who sends this request, and removes the credentials and identity headers from it.
    ///
    /// # Errors
    /// [`AuthError`]; the request is unchanged then.
    pub fn authenticate(
        &self,
        request: &mut Parts,
        connection: &ConnInfo,
    ) -> Result<Authenticated, AuthError> {
        let found = match self.by_certificate(request, connection) {
            Ok(Some(found)) => found,
            Ok(None) => self.without_certificate(request)?,
            Err(error) => self.by_token(request)?.ok_or(error)?,
        };
        self.strip(request);
        Ok(found)
    }

    /// For whoever leaves all credentials but certificates to the next server: the sender, if a certificate tells it,
    /// and then neither credentials nor identity headers are left in the request. Of any other request only the
    /// identity headers are removed.
    ///
    /// # Errors
    /// [`AuthError::Certificate`] when nobody vouches for the certificate and there is no token that the next server
    /// might accept.
    pub fn authenticate_certificate(
        &self,
        request: &mut Parts,
        connection: &ConnInfo,
    ) -> Result<Option<Authenticated>, AuthError> {
        let found = match self.by_certificate(request, connection) {
            Err(error) if !tokens::has_bearer(&request.headers) => return Err(error),
            Err(_) => None,
            Ok(found) => found,
        };
        match found {
            Some(_) => self.strip(request),
            None => self.strip_identity(request),
        }
        Ok(found)
    }

    /// Whom the client certificate stands for, if there is one: the user that a front proxy names, or its own.
    /// Leaves the request as it is.
    ///
    /// # Errors
    /// [`AuthError::Certificate`] when there is a certificate and nobody vouches for it.
    pub fn by_certificate(
        &self,
        request: &Parts,
        connection: &ConnInfo,
    ) -> Result<Option<Authenticated>, AuthError> {
        let Some(peer) = connection
            .tls
            .as_deref()
            .filter(|peer| !peer.certificates.is_empty())
        else {
            return Ok(None);
        };
        let known = self.know(peer);
        let mut error = None;
        match (&self.front_proxy, &known.front_proxy) {
            (Some(proxy), Some(Ok(()))) => {
                if let Some(mut user) = proxy.names.user(&request.headers) {
                    user.mark_authenticated();
                    let verified_peer = is_peer_proxied(request);
                    let user = Arc::new(user);
                    return Ok(Some(Authenticated {
                        user,
                        method: Method::FrontProxy,
                        verified_peer,
                    }));
                }
            }
            (_, Some(Err(refused))) => error = Some(refused.clone()),
            _ => {}
        }
        match &known.client {
            Some(Ok(Some(user))) => {
                let (user, method) = (user.clone(), Method::Certificate);
                return Ok(Some(Authenticated {
                    user,
                    method,
                    verified_peer: false,
                }));
            }
            Some(Err(refused)) => error = Some(refused.clone()),
            Some(Ok(None)) | None => {}
        }
        error.map_or(Ok(None), |error| Err(AuthError::Certificate(error.into())))
    }

    fn without_certificate(&self, request: &Parts) -> Result<Authenticated, AuthError> {
        if let Some(found) = self.by_token(request)? {
            return Ok(found);
        }
        if !self.anonymous {
            return Err(AuthError::NoCredentials);
        }
        let user = Arc::new(User::anonymous());
        Ok(Authenticated {
            user,
            method: Method::Anonymous,
            verified_peer: false,
        })
    }

    /// Whose bearer token this is.
    #[must_use]
    pub fn user_of_token(&self, token: &str) -> Option<Arc<User>> {
        self.tokens
            .as_ref()
            .and_then(|tokens| tokens.get().user(token))
    }

    fn by_token(&self, request: &Parts) -> Result<Option<Authenticated>, AuthError> {
        let websocket;
        let token = match tokens::bearer(&request.headers) {
            Some(token) => token,
            None => match tokens::websocket_bearer(&request.headers) {
                Some(token) => {
                    websocket = token;
                    websocket.as_bytes()
                }
                None => return Ok(None),
            },
        };
        // A token is never taken for "no token", also where there is nobody to know it.
        let token = std::str::from_utf8(token).ok();
        let user = token.and_then(|token| self.user_of_token(token));
        let user = user.ok_or(AuthError::Token)?;
        Ok(Some(Authenticated {
            user,
            method: Method::Token,
            verified_peer: false,
        }))
    }

    /// What the certificates of this connection say, found out now or before.
    fn know(&self, peer: &TlsPeer) -> Arc<Known> {
        let generations = (
            self.client.as_ref().map_or(0, |client| client.generation()),
            self.front_proxy
                .as_ref()
                .map_or(0, |proxy| proxy.verifier.generation()),
        );
        let fresh = |known: &Arc<Known>| {
            known.by == self.id && known.generations == generations && known.at.elapsed() < RECHECK
        };
        if let Some(known) = peer.recall::<Known>().filter(fresh) {
            return known;
        }
        let known = Arc::new(Known {
            by: self.id,
            generations,
            at: Instant::now(),
            front_proxy: self.front_proxy.as_ref().map(|proxy| proxy.vouch(peer)),
            client: self
                .client
                .as_ref()
                .map(|client| user_of(&client.get(), peer)),
        });
        peer.remember(known.clone());
        known
    }

    fn strip(&self, request: &mut Parts) {
        request.headers.remove(AUTHORIZATION);
        tokens::strip_websocket_bearer(&mut request.headers);
        self.strip_identity(request);
    }

    fn strip_identity(&self, request: &mut Parts) {
        identity_headers::strip(&mut request.headers);
        if let Some(proxy) = &self.front_proxy {
            proxy.names.strip(&mut request.headers);
        }
    }
}

impl FrontProxy {
    fn load(options: RequestHeaderOptions) -> Result<Self, AuthSetupError> {
        let configured = [
            &options.username_headers,
            &options.uid_headers,
            &options.group_headers,
            &options.extra_header_prefixes,
        ];
        for name in configured.into_iter().flatten() {
            if !is_header_name(name) {
                return Err(AuthSetupError::HeaderName(name.clone()));
            }
        }
        let names = Names::new(&options);
        let verifier = tls::bundle(
            "front-proxy CA bundle",
            options.client_ca,
            certificate::verifier,
        )
        .map_err(AuthSetupError::RequestHeaderCa)?;
        Ok(Self {
            verifier: Arc::new(verifier),
            allowed_names: options.allowed_names,
            names,
        })
    }

    /// Whether the certificate is that of a front proxy.
    fn vouch(&self, peer: &TlsPeer) -> Result<(), CertificateError> {
        certificate::verify(&self.verifier.get(), &peer.certificates)?;
        if self.allowed_names.is_empty() {
            return Ok(());
        }
        let leaf = peer.certificates.first().ok_or(CertificateError::Subject)?;
        let name = Subject::read(leaf)?.common_name;
        if self.allowed_names.contains(&name) {
            return Ok(());
        }
        Err(CertificateError::NotAllowed(name))
    }
}

fn user_of(verifier: &Verifier, peer: &TlsPeer) -> Result<Option<Arc<User>>, CertificateError> {
    certificate::verify(verifier, &peer.certificates)?;
    let leaf = peer.certificates.first().ok_or(CertificateError::Subject)?;
    Ok(Subject::read(leaf)?.user(leaf)?.map(Arc::new))
}

/// Whether any value of the guard header is `true`: a peer may have added its own behind what a client sent.
fn is_peer_proxied(request: &Parts) -> bool {
    request
        .headers
        .get_all(PEER_PROXIED)
        .iter()
        .any(|value| value == "true")
}
