//! Connecting to a store behind etcd's v3 protocol.

use std::sync::Arc;
use std::time::{Duration, Instant};

use peerage_etcd::{ConnectError, EtcdStore};
use peerage_http::reload::Reload;
use peerage_store::Store;

use crate::client::chain;
use crate::etcd::EtcdSettings;
use crate::exit::{Failure, Kind};

/// How long the store may take to appear, for servers that are started together with it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// A store, and the files that are to be followed: certificates and the password.
pub(super) struct Connected {
    pub(super) store: Arc<dyn Store>,
    pub(super) files: Vec<Arc<dyn Reload>>,
}

/// Connects, and waits a while for a store that does not answer yet.
pub(super) async fn connect(etcd: &EtcdSettings) -> Result<Connected, Failure> {
    let options = etcd.options()?;
    let files = options.reloads();
    let begun = Instant::now();
    let mut told = false;
    loop {
        match EtcdStore::connect(options.clone()).await {
            Ok(store) => {
                let store = Arc::new(store);
                return Ok(Connected { store, files });
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
