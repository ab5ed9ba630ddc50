//! Who is asking, how servers tell each other, and what is recorded of it.
//!
//! [`Authenticator`] turns a connection and a request's headers into a user, in kube-apiserver's order of
//! credentials. [`identity_headers`] carry that user to the next server. [`audit`] records what was asked and
//! how it ended. What a user may do is decided elsewhere.

pub mod audit;
mod authenticator;
mod certificate;

pub mod identity_headers;
mod request_header;
mod token_keys;
mod tokens;

pub use audit::{AuditContext, AuditLog};
pub use authenticator::{
    AuthError, AuthSetupError, Authenticated, Authenticator, AuthenticatorOptions, Method,
    attempted,
};
pub use request_header::RequestHeaderOptions;
pub use token_keys::{TokenKeyError, TokenKeys};
pub use tokens::WEBSOCKET_PREFIX;

/// The header by which one server tells the next that the request has been forwarded once (KEP-4020).
pub const PEER_PROXIED: http::HeaderName =
    http::HeaderName::from_static("x-kubernetes-peer-proxied");

/// In a request's extensions: it came from a verified peer, that is over a connection with a front-proxy
/// certificate and with [`PEER_PROXIED`]. Such a request is never sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedPeer;

/// In a request's extensions: whatever credentials it has are still in it and are for the server that gets it to
/// judge. It goes out without any identity of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedCredentials;
