//! What the options say, as the parts of a server take it: TLS, who is asking, audit, who this server is.
//!
//! Files are read here and followed later; nothing here waits for the store or starts a task.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use peerage_auth::audit::{AuditError, AuditLog, AuditOptions, Rotation};
use peerage_auth::{AuthenticatorOptions, RequestHeaderOptions, TokenKeys};
use peerage_http::metrics::Registry as Metrics;
use peerage_http::tls::{ClientTlsOptions, ServerTlsOptions};
use peerage_http::{ClientTls, Pem, ServerTls, TlsError, own_address};
use tracing::warn;

use super::RunError;
use crate::local::Issuer;
use crate::options::{Options, Peers, RequestHeader};
use crate::registry::{Identity, server_id};

/// Who this server is to others, and where.
pub(super) fn identity(options: &Options, bound: SocketAddr) -> Result<Identity, RunError> {
    let hostname = match &options.peers.hostname {
        Some(name) => name.clone(),
        None => gethostname::gethostname()
            .into_string()
            .map_err(|_| RunError::Hostname)?,
    };
    let ip = options.serving.advertise.unwrap_or(bound.ip());
    let own = SocketAddr::new(reachable(ip), bound.port());
    Ok(Identity {
        id: server_id(&hostname).into(),
        hostname,
        address: options.peers.advertise.unwrap_or(own),
        hold: options.peers.hold,
        announced: options.peers.enabled,
    })
}

/// The address itself, or, of "all addresses", the one that this host uses towards others.
pub(super) fn reachable(ip: IpAddr) -> IpAddr {
    if !ip.is_unspecified() {
        return ip;
    }
    // These addresses are for documentation: the way there is the way to everybody.
    let (other, own) = match ip {
        IpAddr::V4(_) => (([192, 0, 2, 1], 9).into(), Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(_) => (
            ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into(),
            Ipv6Addr::LOCALHOST.into(),
        ),
    };
    own_address(other).unwrap_or(own)
}

pub(super) fn serving_tls(options: &Options) -> Result<ServerTls, TlsError> {
    let serving = &options.serving;
    let mut tls = ServerTlsOptions::new(Pem::file(&serving.certificate), Pem::file(&serving.key));
    let authentication = &options.authentication;
    tls.client_cas
        .extend(authentication.client_ca.iter().map(Pem::file));
    tls.client_cas.extend(
        authentication
            .request_header
            .iter()
            .map(|r| Pem::file(&r.client_ca)),
    );
    ServerTls::load(tls)
}

/// Whose token keys are published, if somebody's are. Only an https URL can be discovered.
pub(super) fn issuer(options: &Options, address: SocketAddr) -> Result<Option<Issuer>, RunError> {
    let Some(given) = &options.service_accounts else {
        return Ok(None);
    };
    let keys = TokenKeys::load(&given.keys)?;
    if !given.issuer.starts_with("https://") {
        warn!(
            issuer = given.issuer,
            "the issuer of service account tokens is no https URL; its keys are not published"
        );
        return Ok(None);
    }
    Ok(Some(Issuer {
        issuer: given.issuer.clone(),
        jwks_uri: given
            .jwks_uri
            .clone()
            .unwrap_or_else(|| format!("https://{address}/openid/v1/jwks")),
        keys,
    }))
}

/// How peers are reached; `None` when they are not.
pub(super) fn peer_tls(peers: &Peers) -> Result<Option<ClientTls>, TlsError> {
    let (true, Some(ca), Some((certificate, key))) = (peers.enabled, &peers.ca, &peers.client)
    else {
        return Ok(None);
    };
    let mut tls = ClientTlsOptions::new(Pem::file(ca));
    tls.identity = Some((Pem::file(certificate), Pem::file(key)));
    tls.server_name = peers.server_name.clone();
    ClientTls::load(tls).map(Some)
}

pub(super) fn authentication(options: &Options) -> AuthenticatorOptions {
    let authentication = &options.authentication;
    AuthenticatorOptions {
        client_ca: authentication.client_ca.as_ref().map(Pem::file),
        request_header: authentication.request_header.as_ref().map(request_header),
        token_file: authentication.token_file.clone(),
        anonymous: authentication.anonymous,
    }
}

fn request_header(given: &RequestHeader) -> RequestHeaderOptions {
    RequestHeaderOptions {
        client_ca: Pem::file(&given.client_ca),
        allowed_names: given.allowed_names.clone(),
        username_headers: given.username_headers.clone(),
        uid_headers: given.uid_headers.clone(),
        group_headers: given.group_headers.clone(),
        extra_header_prefixes: given.extra_prefixes.clone(),
    }
}

/// Records nothing without a policy.
pub(super) fn audit_log(options: &Options, counts: &Metrics) -> Result<AuditLog, AuditError> {
    let given = &options.audit;
    let Some(policy) = &given.policy else {
        return Ok(AuditLog::off());
    };
    let mut audit = AuditOptions::new(policy.clone());
    audit.path = given.path.clone();
    audit.rotation = Rotation {
        max_bytes: given.max_size << 20,
        max_age_days: given.max_age,
        max_backups: given.max_backup as usize,
    };
    audit.metrics.register(counts);
    AuditLog::open(audit)
}
