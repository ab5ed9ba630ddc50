//! The store's leases that Events live by: one lease for all Events of a while, not one for each.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use peerage_store::{LeaseId, Store, StoreError};

/// For how long one lease takes new Events. It lives that much longer than `--event-ttl` says.
const SHARED: Duration = Duration::from_secs(60);

/// The lease in use.
#[derive(Debug)]
pub(crate) struct EventLeases {
    ttl: Duration,
    current: Mutex<Option<(LeaseId, Instant)>>,
}

impl EventLeases {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            current: Mutex::default(),
        }
    }

    /// A lease for an Event that is written now; 0 when Events are kept for ever.
    pub(crate) async fn current(&self, store: &dyn Store) -> Result<LeaseId, StoreError> {
        if self.ttl.is_zero() {
            return Ok(0);
        }
        if let Some((id, _)) = self.held().filter(|(_, since)| since.elapsed() < SHARED) {
            return Ok(id);
        }
        // Two writers may both get a new one; the later stays, the other runs out.
        let lease = store.lease_grant(self.ttl + SHARED, None).await?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((lease.id, Instant::now()));
        Ok(lease.id)
    }

    fn held(&self) -> Option<(LeaseId, Instant)> {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
