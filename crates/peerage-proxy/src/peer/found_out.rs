//! What requests found out about APIs that a peer lists: that it does not have one, or that it has one after all.
//!
//! Both are remembered for a short while, of the documents that were in force when it was found out. How it is found out
//! is the forwarder's.
//!
//! Invariant: what was found out of old documents is never held against new ones.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use peerage_core::RequestInfo;
use tokio::time::Instant;

use super::Peer;

/// How many APIs a peer may be remembered not to have, or to have, against what it said. Beyond that it is asked each time.
const MAX_FOUND_OUT: usize = 256;

/// How long a peer is not asked for an API that it turned out not to have, if its documents stay as they are: what is
/// defined a moment before it is served is there soon.
const DISPROVED_FOR: Duration = Duration::from_secs(30);

/// How long it is believed to have one that it listed when it was asked.
const CONFIRMED_FOR: Duration = Duration::from_secs(5);

/// Says which documents were in force: when they last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edition(Option<Instant>);

/// Some APIs, and when each was found out about.
#[derive(Debug, Default)]
pub(super) struct FoundOut(Mutex<HashMap<ApiKey, Instant>>);

/// An API as requests name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ApiKey {
    group: String,
    version: String,
    resource: String,
    subresource: String,
}

impl Peer {
    /// Which documents are in force, for what is found out about them.
    pub(crate) fn edition(&self) -> Edition {
        Edition(self.documents.load().as_ref().map(|it| it.changed))
    }

    /// Remembers for a while that the peer does not have an API that its documents list, unless others than these are in
    /// force by now.
    pub(crate) fn disprove(&self, info: &RequestInfo<'_>, of: Edition) {
        let is_current = || self.edition() == of;
        self.disproved.remember(info, DISPROVED_FOR, is_current);
        self.recheck();
    }

    /// Whether the peer turned out not to have this API, lately and since its documents last changed.
    pub(crate) fn is_disproved(&self, info: &RequestInfo<'_>) -> bool {
        self.disproved.has(info, DISPROVED_FOR)
    }

    /// Remembers for a moment that the peer has an API, unless other documents than these are in force by now.
    pub(crate) fn confirm(&self, info: &RequestInfo<'_>, of: Edition) {
        let is_current = || self.edition() == of;
        self.confirmed.remember(info, CONFIRMED_FOR, is_current);
    }

    /// Whether the peer turned out to have this API just before.
    pub(crate) fn is_confirmed(&self, info: &RequestInfo<'_>) -> bool {
        self.confirmed.has(info, CONFIRMED_FOR)
    }
}

impl FoundOut {
    pub(super) fn clear(&self) {
        if let Ok(mut known) = self.0.lock() {
            known.clear();
        }
    }

    fn remember(&self, info: &RequestInfo<'_>, time: Duration, is_current: impl Fn() -> bool) {
        let now = Instant::now();
        let Ok(mut known) = self.0.lock() else {
            return;
        };
        // Under the lock: new documents are in force before they clear what is here.
        if !is_current() {
            return;
        }
        if known.len() >= MAX_FOUND_OUT {
            known.retain(|_, at| now < *at + time);
        }
        if known.len() < MAX_FOUND_OUT {
            known.insert(ApiKey::of(info), now);
        }
    }

    fn has(&self, info: &RequestInfo<'_>, time: Duration) -> bool {
        self.0.lock().is_ok_and(|known| {
            let at = (!known.is_empty()).then(|| known.get(&ApiKey::of(info)));
            at.flatten().is_some_and(|at| Instant::now() < *at + time)
        })
    }
}

impl ApiKey {
    fn of(info: &RequestInfo<'_>) -> ApiKey {
        ApiKey {
            group: info.api_group().to_owned(),
            version: info.api_version().to_owned(),
            resource: info.resource().to_owned(),
            subresource: info.subresource().to_owned(),
        }
    }
}
