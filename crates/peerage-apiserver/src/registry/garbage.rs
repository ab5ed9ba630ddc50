//! Identity Leases of servers that are long gone: whoever is there removes them, as kube-apiserver does, so that
//! hosts with made-up names do not leave Leases behind for ever.
//!
//! Only labelled Leases of `kube-system` are looked at, and each is read again before it is removed: a server that
//! comes back in that moment keeps its Lease.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use peerage_proxy::IdentityLease;
use peerage_store::{StoreError, StoreExt as _, WriteError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{NAMESPACE, Registry, records};
use crate::cache::{Cache, CachedObject};

/// How often it is looked for; kube-apiserver's rhythm.
const EVERY: Duration = Duration::from_secs(3_600);

impl Registry {
    /// Removes what has run out, at once and every hour, until `stop`.
    pub(crate) async fn collect(self: Arc<Self>, cache: Arc<Cache>, stop: CancellationToken) {
        loop {
            let stopped = tokio::select! {
                () = self.collect_once(&cache, SystemTime::now()) => false,
                () = stop.cancelled() => true,
            };
            if stopped {
                return;
            }
            tokio::select! { () = tokio::time::sleep(EVERY) => {}, () = stop.cancelled() => return }
        }
    }

    pub(super) async fn collect_once(&self, cache: &Cache, now: SystemTime) {
        let Some(leases) = cache.kind(&self.leases) else {
            return;
        };
        for object in leases.snapshot(&format!("{NAMESPACE}/"), 0).objects {
            if object.own_name() == &*self.identity.id || !has_run_out(&object, now) {
                continue;
            }
            match self.remove_if_still_out(&object.name, now).await {
                Ok(true) => info!(
                    lease = &*object.name,
                    "removed the identity Lease of a server long gone"
                ),
                Ok(false) => {}
                Err(error) => {
                    warn!(%error, lease = &*object.name, "could not remove an old identity Lease");
                }
            }
        }
    }

    async fn remove_if_still_out(
        &self,
        name: &Arc<str>,
        now: SystemTime,
    ) -> Result<bool, StoreError> {
        let key = format!("{}{name}", self.leases);
        let Some(kv) = self.store.get(key.clone()).await? else {
            return Ok(false);
        };
        if !has_run_out(&CachedObject::load(name.clone(), &kv, None), now) {
            return Ok(false);
        }
        match self.store.delete(key, Some(kv.mod_revision)).await {
            Ok(_) => Ok(true),
            Err(WriteError::Conflict { .. }) => Ok(false),
            Err(WriteError::Store(error)) => Err(error),
        }
    }
}

/// Whether it is an identity Lease and its time is over. One that has no time has no end of its own and is over too.
fn has_run_out(object: &CachedObject, now: SystemTime) -> bool {
    let Some(lease) = records::lease(object) else {
        return false;
    };
    let IdentityLease {
        renew_time,
        duration,
        ..
    } = lease;
    match (renew_time, duration) {
        (Some(renewed), Some(duration)) => {
            renewed.checked_add(duration).is_none_or(|end| end < now)
        }
        _ => true,
    }
}
