//! Connecting to a store behind etcd's v3 protocol.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peerage_etcd::{ConnectError, EtcdOptions, EtcdStore};
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{ClientTls, Pem};
use peerage_store::Store;

use super::SettingsError;
use super::storage::Etcd;
use crate::client::chain;
use crate::exit::{Failure, Kind};

/// How long the store may take to appear, for servers that are started together with it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// A store, and the TLS settings whose files are to be followed.
pub(super) struct Connected {
    pub(super) store: Arc<dyn Store>,
    pub(super) tls: ClientTls,
}

/// Connects, and waits a while for a store that does not answer yet.
pub(super) async fn connect(etcd: &Etcd) -> Result<Connected, Failure> {
    let tls = tls(etcd)?;
    let mut options = EtcdOptions::new(etcd.servers.iter().cloned());
    options.tls = tls.clone();
    options.user = etcd.user.as_ref().map(user).transpose()?;
    let begun = Instant::now();
    let mut told = false;
    loop {
        match EtcdStore::connect(options.clone()).await {
            Ok(store) => {
                let store = Arc::new(store);
                return Ok(Connected { store, tls });
            }
            Err(error @ ConnectError::Unreachable { .. }) if begun.elapsed() < PATIENCE => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(error = chain(&error), "waiting for the store");
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error @ ConnectError::Unreachable { .. }) => {
                return Err(Failure::new(Kind::Unavailable, error));
            }
            Err(error) => return Err(Failure::new(Kind::Usage, error)),
        }
    }
}

/// The name, and the first line of the file with the password.
fn user((name, file): &(String, PathBuf)) -> Result<(String, String), Failure> {
    let text = std::fs::read_to_string(file).map_err(|source| SettingsError::ReadFile {
        flag: "--etcd-password-file",
        path: file.clone(),
        source,
    })?;
    let password = text.lines().next().unwrap_or_default();
    Ok((name.clone(), password.to_owned()))
}

fn tls(etcd: &Etcd) -> Result<ClientTls, Failure> {
    if !etcd.servers.iter().any(|url| url.starts_with("https://")) {
        return Ok(ClientTls::plain());
    }
    let ca = etcd.ca.as_ref().ok_or(SettingsError::NoEtcdCa)?;
    let mut options = ClientTlsOptions::new(Pem::file(ca));
    let pair = etcd.pair.as_ref();
    options.identity = pair.map(|pair| (Pem::file(&pair.certificate), Pem::file(&pair.key)));
    ClientTls::load(options).map_err(|e| Failure::new(Kind::Unavailable, e))
}
