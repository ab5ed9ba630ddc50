//! From settings to a served store.

use std::sync::Arc;
use std::time::Duration;

use peerage_etcd::{ServeError, ServeOptions, StoreTls, serve};
use peerage_http::reload;
use peerage_store::Store;
use peerage_store::memory::{MemoryOptions, MemoryStore};
use peerage_store::sqlite::{SqliteOptions, SqliteStore};
use tokio::net::TcpListener;

use super::{Place, StoreFlags, StoreSettings, Tls};
use crate::exit::{Failure, Kind};
use crate::signals::Signals;

/// How often certificates are looked at.
const RELOAD: Duration = Duration::from_secs(1);

/// Runs `peerage store` until it is asked to stop.
pub fn run(flags: &StoreFlags) -> Result<(), Failure> {
    let settings = StoreSettings::new(flags)?;
    crate::logging::start(&flags.log)?;
    crate::serve(crate::runtime()?, async {
        let signals = Signals::listen()?;
        if flags.exit_with_stdin {
            signals.stop_with_stdin();
        }
        offer(&settings, &signals).await
    })
}

async fn offer(settings: &StoreSettings, signals: &Signals) -> Result<(), Failure> {
    let mut options = ServeOptions::default();
    options.tls = settings.tls.as_ref().map(load).transpose()?;
    if let Some(tls) = &options.tls {
        let stop = signals.shutdown.clone();
        tokio::spawn(reload::watch(vec![tls.reload()], RELOAD, stop, |_, _| {}));
    }
    // The address first: it is the cheaper thing to find taken, and nothing has to be closed again.
    let listener = TcpListener::bind(settings.listen).await.map_err(|e| {
        Failure::unavailable(format!(
            "cannot listen on {}: {e}; is another store running there? (--listen-client-urls)",
            settings.listen
        ))
    })?;
    let store = open(settings).await?;
    let address = listener.local_addr().unwrap_or(settings.listen);
    let scheme = if options.tls.is_some() {
        "https"
    } else {
        "http"
    };
    options.client_urls = vec![format!("{scheme}://{address}")];
    tracing::info!(url = options.client_urls[0], place = %settings.place, "serving the store");
    serve(store, listener, options, signals.shutdown.clone()).await?;
    Ok(())
}

fn load(tls: &Tls) -> Result<StoreTls, ServeError> {
    StoreTls::load(
        &tls.pair.certificate,
        &tls.pair.key,
        tls.client_ca.as_deref(),
    )
}

async fn open(settings: &StoreSettings) -> Result<Arc<dyn Store>, Failure> {
    let Place::Sqlite { file, max_pages } = &settings.place else {
        let mut options = MemoryOptions::default();
        options.watch.progress_interval = settings.progress;
        return Ok(Arc::new(MemoryStore::with_options(options)));
    };
    if let Some(parent) = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::create_dir_all(parent)
            .map_err(|e| Failure::unavailable(format!("cannot make {}: {e}", parent.display())))?;
    }
    let mut options = SqliteOptions::default();
    options.max_page_count = *max_pages;
    options.watch.progress_interval = settings.progress;
    let store = SqliteStore::open(file, options).await;
    Ok(Arc::new(
        store.map_err(|e| Failure::new(Kind::Unavailable, e))?,
    ))
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let kind = match error {
            ServeError::Tls { .. } => Kind::Unavailable,
            _ => Kind::Failed,
        };
        Self::new(kind, error)
    }
}
