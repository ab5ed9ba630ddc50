//! How many requests are handled at once: reads and writes each have their number, and one too many is told
//! to come back. Health checks and those who may do anything are always let in, so that a flood can be seen and
//! ended.

use std::sync::Arc;

use http::Method;
use peerage_core::{PlainError, RequestInfo, User};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::authz::SYSTEM_MASTERS;
use crate::error::ApiError;

/// Seconds after which a refused client may try again.
const RETRY_AFTER: u32 = 1;

/// Whether a request is let in however many there are.
pub(super) fn is_exempt(user: &User, info: &RequestInfo<'_>) -> bool {
    let is_page = |page: &str| {
        let rest = info.path().strip_prefix(page);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    user.is_in(SYSTEM_MASTERS) || ["/healthz", "/livez", "/readyz"].into_iter().any(is_page)
}

/// The two bounds.
#[derive(Debug)]
pub(crate) struct Inflight {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl Inflight {
    /// At most so many reads and writes at once; 0 is no bound.
    pub(crate) fn new(reads: usize, writes: usize) -> Self {
        let bound = |n| {
            Arc::new(Semaphore::new(if n == 0 {
                Semaphore::MAX_PERMITS
            } else {
                n
            }))
        };
        Self {
            reads: bound(reads),
            writes: bound(writes),
        }
    }

    /// A place for a request of that method, until the permit is dropped.
    pub(super) fn enter(&self, method: &Method) -> Result<OwnedSemaphorePermit, ApiError> {
        let places = if super::is_read(method) {
            &self.reads
        } else {
            &self.writes
        };
        places
            .clone()
            .try_acquire_owned()
            .map_err(|_| PlainError::too_many_requests(RETRY_AFTER).into())
    }
}
