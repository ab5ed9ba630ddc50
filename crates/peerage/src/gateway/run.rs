//! From settings to a running gateway: reads the files, fills in the gateway crate's options, waits for signals.

use std::path::Path;
use std::sync::Arc;

use peerage_auth::audit::{AuditLog, AuditMetrics, AuditOptions, Rotation};
use peerage_auth::identity_headers::Family;
use peerage_auth::{AuthenticatorOptions, RequestHeaderOptions};
use peerage_core::User;
use peerage_gateway::sources::{
    DnsName, EtcdSource, Found, LeaseOptions, LeaseUser, SourceOptions, Sources,
};
use peerage_gateway::{GatewayError, GatewayOptions};
use peerage_http::tls::{ClientTlsOptions, ServerTlsOptions};
use peerage_http::{ClientTls, Pem, ServerTls, TlsError};
use peerage_proxy::{BoundClients, Rendering, Writes};

use super::flags::{IdentityFlag, WritesFlag};
use super::settings::{GatewaySettings, ServerAddress};
use crate::common_flags::{Audit, FrontProxy};
use crate::exit::{Failure, Kind};
use crate::signals::Signals;

/// Runs a gateway until it is asked to stop.
pub(super) async fn run(settings: GatewaySettings, signals: &Signals) -> Result<(), Failure> {
    let told = super::certificates::look(&settings);
    let watching = super::certificates::watch(settings.clone(), told);
    tokio::spawn(signals.shutdown.clone().run_until_cancelled_owned(watching));
    let options = tokio::select! {
        biased;
        options = options(settings) => options?,
        // A source that says nothing may keep the start waiting, and nobody is served yet.
        () = signals.shutdown.cancelled() => return Ok(()),
    };
    let mut running = peerage_gateway::start(options, signals.shutdown.clone()).await?;
    loop {
        tokio::select! {
            ended = running.wait() => return Ok(ended?),
            () = signals.refresh.notified() => running.refresh(),
        }
    }
}

/// Whether every certificate, key and CA bundle can be used, as at the start.
pub(super) fn read_certificates(settings: &GatewaySettings) -> Result<(), Failure> {
    serving_tls(settings)?;
    server_tls(settings, true)?;
    server_tls(settings, false)?;
    Ok(())
}

async fn options(settings: GatewaySettings) -> Result<GatewayOptions, Failure> {
    let beside = settings.upstream.as_ref().map(|it| found(it).record_id());
    let sources = Sources::start(sources(&settings)?).await;
    let audit_metrics = AuditMetrics::default();
    Ok(GatewayOptions {
        bind: settings.bind,
        admin: settings.admin,
        tls: serving_tls(&settings)?,
        authentication: AuthenticatorOptions {
            client_ca: settings.client_ca.as_ref().map(Pem::file),
            request_header: settings.front_proxy.as_ref().map(request_header),
            token_file: None,
            anonymous: true,
        },
        vouching: server_tls(&settings, true)?,
        passing: server_tls(&settings, false)?,
        family: family(&settings),
        max_streams: settings.max_streams,
        records: sources.records(),
        sources: Some(sources),
        beside,
        zone: settings.zone.as_deref().map(Into::into),
        writes: match settings.writes {
            WritesFlag::Newest => Writes::Newest,
            WritesFlag::Local => Writes::Local,
        },
        bound: BoundClients::new(settings.bound.iter().cloned()),
        hold: settings.hold,
        discovery_authorization_ttl: settings.discovery_authorization_ttl,
        name_server_to_all: settings.header_for_all,
        rendering: Rendering {
            // Differs: the newest servers do not any more; kubectl 1.26 to 1.29 sees everything in one request by it.
            serves_v2beta1: true,
            writes_protobuf: true,
            ..Rendering::default()
        },
        audit: audit_log(settings.audit.as_ref(), audit_metrics.clone())?,
        audit_metrics,
        shutdown_delay: settings.shutdown_delay,
        drain: settings.drain,
    })
}

/// Where servers come from.
fn sources(settings: &GatewaySettings) -> Result<SourceOptions, Failure> {
    let etcd = settings.etcd.as_ref().map(|etcd| -> Result<_, Failure> {
        Ok(EtcdSource {
            options: etcd.options()?,
            prefix: settings.etcd_prefix.clone(),
        })
    });
    let fixed = settings.upstream.iter().chain(&settings.peers);
    let user = settings.leases_user.as_deref();
    let leases = user.map(|name| -> Result<_, Failure> {
        let as_front_proxy = settings.identity == IdentityFlag::FrontProxy;
        Ok(LeaseOptions {
            tls: server_tls(settings, true)?,
            user: as_front_proxy.then(|| LeaseUser {
                user: User {
                    name: name.to_owned(),
                    ..User::default()
                },
                family: family(settings),
            }),
        })
    });
    let name = |it: &ServerAddress| DnsName {
        name: it.authority.clone(),
        zone: it.zone.as_deref().map(Into::into),
    };
    Ok(SourceOptions {
        fixed: fixed.map(found).collect(),
        file: settings.peers_file.clone(),
        names: settings.names.iter().map(name).collect(),
        leases: leases.transpose()?,
        etcd: etcd.transpose()?,
    })
}

fn family(settings: &GatewaySettings) -> Family {
    match (settings.identity, &settings.header_names) {
        (IdentityFlag::Impersonate, _) => Family::Impersonation,
        (IdentityFlag::FrontProxy, None) => Family::FrontProxy,
        (IdentityFlag::FrontProxy, Some(names)) => Family::Named(Arc::new(names.clone())),
    }
}

fn found(server: &ServerAddress) -> Found {
    Found {
        id: server.id.as_deref().map(Into::into),
        zone: server.zone.as_deref().map(Into::into),
        ..Found::at(server.authority.clone())
    }
}

fn serving_tls(settings: &GatewaySettings) -> Result<ServerTls, Failure> {
    let pair = &settings.pair;
    let mut tls = ServerTlsOptions::new(Pem::file(&pair.certificate), Pem::file(&pair.key));
    tls.client_cas
        .extend(settings.client_ca.iter().map(Pem::file));
    let front = settings.front_proxy.iter();
    tls.client_cas
        .extend(front.map(|front| Pem::file(&front.ca)));
    ServerTls::load(tls).map_err(|error| refused(settings, error))
}

/// How servers are connected to, with the client pair or without any.
fn server_tls(settings: &GatewaySettings, vouching: bool) -> Result<ClientTls, Failure> {
    let mut tls = ClientTlsOptions::new(Pem::file(&settings.server_ca));
    tls.server_name.clone_from(&settings.server_name);
    let pair = &settings.client_pair;
    tls.identity = vouching.then(|| (Pem::file(&pair.certificate), Pem::file(&pair.key)));
    ClientTls::load(tls).map_err(|error| refused(settings, error))
}

/// A file that cannot be used, behind the flags that name it.
fn refused(settings: &GatewaySettings, error: TlsError) -> Failure {
    let is = |path: &Path, origin: &String| path.display().to_string() == *origin;
    let flags: Vec<&str> = match &error {
        TlsError::NoCertificate { origin, .. } | TlsError::NoKey { origin, .. } => {
            let files = settings.files().into_iter();
            let named = files.filter(|(_, path)| is(path, origin));
            named.map(|(flag, _)| flag).collect()
        }
        TlsError::Pair {
            certificate, key, ..
        } => match &settings.pair {
            pair if is(&pair.certificate, certificate) && is(&pair.key, key) => {
                vec!["--tls-cert-file", "--tls-private-key-file"]
            }
            _ => vec!["--proxy-client-cert-file", "--proxy-client-key-file"],
        },
        TlsError::ServerName(_) => {
            return Failure::usage(format!(
                "--peer-server-name: {error}: write the DNS name or the address that the servers' certificates have"
            ));
        }
        _ => return Failure::new(Kind::Unavailable, error),
    };
    Failure::unavailable(format!("{}: {error}", flags.join(", ")))
}

fn request_header(front: &FrontProxy) -> RequestHeaderOptions {
    RequestHeaderOptions {
        client_ca: Pem::file(&front.ca),
        allowed_names: front.allowed_names.clone(),
        username_headers: front.user_headers.clone(),
        uid_headers: front.uid_headers.clone(),
        group_headers: front.group_headers.clone(),
        extra_header_prefixes: front.extra_prefixes.clone(),
    }
}

fn audit_log(audit: Option<&Audit>, metrics: AuditMetrics) -> Result<AuditLog, Failure> {
    let Some(audit) = audit else {
        return Ok(AuditLog::off());
    };
    let mut options = AuditOptions::new(audit.read_policy()?);
    options.path = Some(audit.log.clone());
    options.rotation = Rotation {
        max_bytes: audit.max_size << 20,
        max_age_days: audit.max_age,
        max_backups: audit.max_backups as usize,
    };
    options.metrics = metrics;
    AuditLog::open(options).map_err(|error| Failure::new(Kind::Unavailable, error))
}

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        let kind = match error {
            GatewayError::Broken => Kind::Failed,
            _ => Kind::Unavailable,
        };
        Self::new(kind, error)
    }
}
