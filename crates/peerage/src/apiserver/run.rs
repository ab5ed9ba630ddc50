//! From settings to a running server: opens the store, fills in the server crate's options, waits for signals.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use peerage_apiserver::options::{
    self, AuthorizationMode as Mode, Controller, Limits, ServiceAccounts,
};
use peerage_apiserver::{Options, RunError, Running};
use peerage_catalogue::RuntimeConfig;
use peerage_http::reload;
use peerage_store::sqlite::{SqliteOptions, SqliteStore};
use peerage_store::{OpenError, Store, memory::MemoryStore};

use super::own_pki;
use super::settings::{ApiserverSettings, AuthorizationMode, Storage};
use crate::common_flags::{Audit, FrontProxy};
use crate::exit::{Failure, Kind};
use crate::settings_error::SettingsError;
use crate::signals::Signals;

/// How long open requests may take when the server stops.
const DRAIN: Duration = Duration::from_secs(10);
/// How often the certificates towards the store are looked at.
const RELOAD: Duration = Duration::from_secs(1);
/// Name that every API server's certificate has, whatever its address is.
const SERVER_NAME: &str = "kubernetes.default.svc";
/// The controllers that can run.
const CONTROLLERS: [Controller; 1] = [Controller::Namespace];

/// Runs a server until it is asked to stop.
pub(super) async fn run(settings: ApiserverSettings, signals: &Signals) -> Result<(), Failure> {
    let running = tokio::select! {
        biased;
        running = start(settings, signals) => running,
        () = signals.shutdown.cancelled() => return Ok(()),
    };
    let mut running = match running {
        // Told to stop while it was starting, it stops in good order.
        Err(_) if signals.shutdown.is_cancelled() => return Ok(()),
        running => running?,
    };
    loop {
        tokio::select! {
            ended = running.wait() => return Ok(ended?),
            () = signals.refresh.notified() => running.refresh(),
        }
    }
}

async fn start(mut settings: ApiserverSettings, signals: &Signals) -> Result<Running, Failure> {
    // What the settings name is read before anything is made, so that a wrong one leaves nothing behind.
    version(&settings)?;
    runtime_config(&settings)?;
    controllers(&settings.controllers)?;
    make_directory(&settings.data_dir)?;
    let own_pki = own_pki::fill_in(&mut settings)?;
    let store = open(&settings, signals).await?;
    let options = options(&settings, store)?;
    let running = peerage_apiserver::start(options, signals.shutdown.clone()).await?;
    if let Some(pki) = own_pki {
        let path = own_pki::write_kubeconfig(&settings, &pki, running.address())?;
        tracing::info!("use it with: export KUBECONFIG={}", path.display());
    }
    Ok(running)
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|e| {
        Failure::unavailable(format!(
            "cannot make {}: {e}; give another --data-dir",
            path.display()
        ))
    })
}

async fn open(settings: &ApiserverSettings, signals: &Signals) -> Result<Arc<dyn Store>, Failure> {
    match &settings.storage {
        Storage::Memory => Ok(Arc::new(MemoryStore::new())),
        Storage::Sqlite(file) => Ok(Arc::new(
            SqliteStore::open(file, SqliteOptions::default()).await?,
        )),
        Storage::Etcd(etcd) => {
            let connected = super::etcd::connect(etcd).await?;
            let stop = signals.shutdown.clone();
            tokio::spawn(reload::watch(connected.files, RELOAD, stop, |_, _| {}));
            Ok(connected.store)
        }
    }
}

fn options(settings: &ApiserverSettings, store: Arc<dyn Store>) -> Result<Options, Failure> {
    let pair = settings.serving.pair.as_ref();
    let pair = pair.ok_or_else(|| Failure::failed("there is no serving certificate"))?;
    let front_proxy = settings.authentication.front_proxy.as_ref();
    let limit = |count: Option<u32>| count.map_or(usize::MAX >> 4, |count| count as usize);
    Ok(Options {
        version: version(settings)?,
        runtime_config: runtime_config(settings)?,
        store,
        key_prefix: settings.storage_prefix.clone(),
        serving: options::Serving {
            bind: settings.serving.bind,
            certificate: pair.certificate.clone(),
            key: pair.key.clone(),
            advertise: settings.serving.advertise_address,
        },
        authentication: options::Authentication {
            client_ca: settings.authentication.client_ca.clone(),
            request_header: front_proxy.map(request_header),
            token_file: settings.authentication.tokens.clone(),
            anonymous: settings.authentication.anonymous,
        },
        service_accounts: service_accounts(settings),
        authorization: match settings
            .authorization
            .contains(&AuthorizationMode::AlwaysAllow)
        {
            true => Mode::AlwaysAllow,
            false => Mode::Rbac,
        },
        audit: settings
            .audit
            .as_ref()
            .map(audit)
            .transpose()?
            .unwrap_or_default(),
        peers: peers(settings),
        limits: Limits {
            reads: limit(settings.serving.max_reads),
            writes: limit(settings.serving.max_writes),
            request_timeout: settings.serving.request_timeout,
            ..Limits::default()
        },
        controllers: controllers(&settings.controllers)?,
        service_cluster_ip_range: settings
            .service_ranges
            .first()
            .map(|(ip, bits)| format!("{ip}/{bits}")),
        shutdown_delay: settings.serving.shutdown_delay,
        drain: DRAIN,
        event_ttl: settings.event_ttl,
        compaction_interval: match &settings.storage {
            Storage::Etcd(_) => settings.compaction_interval,
            Storage::Memory | Storage::Sqlite(_) => None,
        },
    })
}

/// Whose token keys are published: the first issuer's, if there are keys.
fn service_accounts(settings: &ApiserverSettings) -> Option<ServiceAccounts> {
    let given = &settings.authentication.service_accounts;
    let mut keys = given.keys.clone();
    if keys.is_empty() {
        keys.extend(given.signing_key.clone());
    }
    let issuer = given.issuers.first().filter(|_| !keys.is_empty())?.clone();
    Some(ServiceAccounts {
        issuer,
        keys,
        jwks_uri: None,
    })
}

fn version(settings: &ApiserverSettings) -> Result<String, SettingsError> {
    let known = peerage_catalogue::versions();
    match &settings.version {
        None => Ok(known.last().copied().unwrap_or_default().to_owned()),
        Some(version) if known.contains(&version.as_str()) => Ok(version.clone()),
        Some(version) => Err(SettingsError::UnknownVersion {
            version: version.clone(),
            known: known.join(", "),
        }),
    }
}

fn runtime_config(settings: &ApiserverSettings) -> Result<RuntimeConfig, SettingsError> {
    let pairs = settings
        .runtime_config
        .iter()
        .map(|(name, on)| format!("{name}={on}"));
    let text = pairs.collect::<Vec<_>>().join(",");
    RuntimeConfig::parse(&text).map_err(|e| SettingsError::RuntimeConfigKey {
        problem: e.to_string(),
    })
}

fn request_header(front_proxy: &FrontProxy) -> options::RequestHeader {
    options::RequestHeader {
        client_ca: front_proxy.ca.clone(),
        allowed_names: front_proxy.allowed_names.clone(),
        username_headers: front_proxy.user_headers.clone(),
        group_headers: front_proxy.group_headers.clone(),
        uid_headers: front_proxy.uid_headers.clone(),
        extra_prefixes: front_proxy.extra_prefixes.clone(),
    }
}

fn audit(audit: &Audit) -> Result<options::Audit, SettingsError> {
    Ok(options::Audit {
        policy: Some(audit.read_policy()?),
        path: Some(audit.log.clone()),
        max_size: audit.max_size,
        max_age: audit.max_age,
        max_backup: audit.max_backups,
    })
}

fn peers(settings: &ApiserverSettings) -> options::Peers {
    let proxy = settings.peers.proxy.as_ref();
    options::Peers {
        enabled: settings.gates.proxy,
        ca: proxy.map(|proxy| proxy.ca.clone()),
        client: proxy.map(|proxy| (proxy.pair.certificate.clone(), proxy.pair.key.clone())),
        advertise: settings.peers.advertise,
        hostname: Some(settings.hostname.clone()),
        hold: settings.peers.hold,
        server_name: SERVER_NAME.to_owned(),
        show_peer: settings.peers.header_for_all,
    }
}

/// `*` for all, a name for one, `-name` for all `*` but one.
fn controllers(words: &[String]) -> Result<Vec<Controller>, SettingsError> {
    let mut chosen: Vec<Controller> = Vec::new();
    if words.iter().any(|word| word == "*") {
        chosen.extend(CONTROLLERS);
    }
    for word in words.iter().filter(|word| *word != "*") {
        let name = word.strip_prefix('-').unwrap_or(word);
        let known = CONTROLLERS
            .into_iter()
            .find(|controller| controller.name() == name);
        let controller = known.ok_or_else(|| SettingsError::UnknownController {
            name: name.to_owned(),
            known: CONTROLLERS.map(Controller::name).join(", "),
        })?;
        chosen.retain(|chosen| *chosen != controller);
        if !word.starts_with('-') {
            chosen.push(controller);
        }
    }
    Ok(chosen)
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::new(Kind::Unavailable, error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let kind = match error {
            RunError::Listen { .. } | RunError::Tls(_) | RunError::Authentication(_) => {
                Kind::Unavailable
            }
            RunError::Catalogue(_) | RunError::Hostname => Kind::Usage,
            _ => Kind::Failed,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn controllers_are_chosen_by_name() {
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            controllers(&words)
                .map(|chosen| chosen.len())
                .map_err(|e| e.to_string())
        };
        assert_eq!(chosen(&["*"]), Ok(1));
        assert_eq!(chosen(&[]), Ok(0));
        assert_eq!(chosen(&["namespace"]), Ok(1));
        assert_eq!(chosen(&["*", "-namespace"]), Ok(0));
        assert!(chosen(&["nope"]).unwrap_err().contains("namespace"));
    }
}
