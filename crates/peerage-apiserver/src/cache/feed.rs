//! Keeps every kind's cache in step with the store: one list of the whole prefix, then one watch from there.
//!
//! A watch that ends is resumed after the last revision seen, so that nothing is missed or repeated; only
//! when the store has compacted that revision away is everything listed again, and the watchers of that time
//! are told to list as well.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::StreamExt as _;
use peerage_catalogue::Resource;
use peerage_store::{
    Event as StoreEvent, EventKind, KeyRange, KeyValue, ProgressRequester, Revision, Store,
    StoreError, StoreExt as _, WatchRequest,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{CachedObject, Change, KindCache};

/// Reads that may wait for the store's current revision at once; more are refused.
const FRESH_QUEUE: usize = 4_096;
/// How long a read waits for the cache to catch up with the store. Kubernetes' watch cache waits three seconds.
pub(crate) const REACH: Duration = Duration::from_secs(3);
/// Pauses before the store is read or watched again.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// A read could not be answered from the cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    /// The store did not say its current revision.
    #[error("the store did not answer: {0}")]
    Store(Arc<StoreError>),
    /// The cache did not reach a revision in time.
    #[error("the cache is at revision {at} and did not reach {wanted} within three seconds")]
    Behind {
        /// The revision that was waited for.
        wanted: Revision,
        /// The revision that the cache was at.
        at: Revision,
    },
    /// Too many reads wait for the store.
    #[error("too many reads wait for the store")]
    Busy,
}

/// What one key prefix holds.
#[derive(Debug)]
struct Kind {
    resource: Option<Arc<Resource>>,
    cache: Arc<KindCache>,
}

type Fresh = oneshot::Sender<Result<Revision, Arc<StoreError>>>;

/// All kinds of one store.
#[derive(Debug)]
pub(crate) struct Cache {
    kinds: BTreeMap<Box<str>, Kind>,
    /// Everything up to this revision has been applied; 0 until the first list is complete.
    revision: watch::Sender<Revision>,
    fresh: mpsc::Sender<Fresh>,
    /// Asks the running watch how far it has come: writes outside of the prefix move the store's revision too.
    progress: ArcSwapOption<ProgressRequester>,
}

impl Cache {
    /// Starts following `prefix` (ends in `/`) of the store. `kinds` are the prefixes of what is kept; other keys are passed over.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        prefix: &str,
        kinds: impl IntoIterator<Item = (String, Option<Arc<Resource>>)>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let kinds = kinds
            .into_iter()
            .map(|(at, resource)| {
                (
                    at.into_boxed_str(),
                    Kind {
                        resource,
                        cache: Arc::default(),
                    },
                )
            })
            .collect();
        let (fresh, asked) = mpsc::channel(FRESH_QUEUE);
        let cache = Arc::new(Self {
            kinds,
            revision: watch::Sender::new(0),
            fresh,
            progress: ArcSwapOption::empty(),
        });
        let feed = Feed {
            store: store.clone(),
            prefix: prefix.to_owned(),
            cache: cache.clone(),
        };
        tokio::spawn(async move {
            tokio::select! { () = feed.run() => {}, () = stop.cancelled() => {} }
        });
        tokio::spawn(answer_fresh(store, asked));
        cache
    }

    /// The cache of the kind whose keys begin with `prefix`.
    pub(crate) fn kind(&self, prefix: &str) -> Option<&Arc<KindCache>> {
        self.kinds.get(prefix).map(|k| &k.cache)
    }

    /// The revision up to which everything is known.
    pub(crate) fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// Wakes when the revision moves.
    pub(crate) fn revisions(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// Waits until the cache holds everything that the store had acknowledged when this was called: what a
    /// read without a `resourceVersion` promises. Concurrent calls share one question to the store.
    pub(crate) async fn fresh(&self) -> Result<Revision, CacheError> {
        let (answer, revision) = oneshot::channel();
        self.fresh.try_send(answer).map_err(|_| CacheError::Busy)?;
        let wanted = revision
            .await
            .map_err(|_| CacheError::Busy)?
            .map_err(CacheError::Store)?;
        self.reach(wanted, REACH).await
    }

    /// Waits until the cache is at `wanted` or later.
    pub(crate) async fn reach(
        &self,
        wanted: Revision,
        wait: Duration,
    ) -> Result<Revision, CacheError> {
        if self.revision() >= wanted {
            return Ok(self.revision());
        }
        let mut revision = self.revision.subscribe();
        if let Some(progress) = &*self.progress.load() {
            progress.request();
        }
        let reached =
            tokio::time::timeout(wait, revision.wait_for(|at| *at >= wanted.max(1))).await;
        match reached {
            Ok(Ok(at)) => Ok(*at),
            _ => Err(CacheError::Behind {
                wanted,
                at: self.revision(),
            }),
        }
    }

    /// Waits for the end of the first list.
    pub(crate) async fn ready(&self) {
        let mut revision = self.revision.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = revision.wait_for(|at| *at > 0).await;
    }

    /// The kind that a key belongs to, with its prefix, and the object's name within it.
    fn locate(&self, key: &str) -> Option<(&str, &Kind, Arc<str>)> {
        let (prefix, kind) = self
            .kinds
            .range::<str, _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()?;
        Some((
            prefix,
            kind,
            key.strip_prefix(&**prefix)
                .filter(|name| !name.is_empty())?
                .into(),
        ))
    }
}

/// Answers all waiting questions for the store's current revision with one look at it.
async fn answer_fresh(store: Arc<dyn Store>, mut asked: mpsc::Receiver<Fresh>) {
    let mut waiting = Vec::new();
    while asked.recv_many(&mut waiting, FRESH_QUEUE).await > 0 {
        let revision = store.current_revision().await.map_err(Arc::new);
        for answer in waiting.drain(..) {
            // A reader that has gone does not want it.
            let _ = answer.send(revision.clone());
        }
    }
}

struct Feed {
    store: Arc<dyn Store>,
    prefix: String,
    cache: Arc<Cache>,
}

impl Feed {
    async fn run(self) {
        let mut pause = RETRY_MIN;
        loop {
            let Err(error) = self.list_and_follow(&mut pause).await;
            warn!(%error, "reading the store again from the start");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Lists, then follows for as long as the revisions are there.
    async fn list_and_follow(
        &self,
        pause: &mut Duration,
    ) -> Result<std::convert::Infallible, StoreError> {
        let mut at = self.list().await?;
        *pause = RETRY_MIN;
        loop {
            match self.follow(&mut at).await {
                Ok(()) => {}
                Err(error @ StoreError::Compacted { .. }) => return Err(error),
                Err(error) => warn!(%error, revision = at, "the store's watch ended; resuming it"),
            }
            tokio::time::sleep(RETRY_MIN).await;
        }
    }

    async fn list(&self) -> Result<Revision, StoreError> {
        let mut found: BTreeMap<&str, BTreeMap<Arc<str>, Arc<CachedObject>>> = BTreeMap::new();
        let listing = self
            .store
            .list(KeyRange::prefix(self.prefix.clone()))
            .await?;
        for kv in &listing.kvs {
            if let Some((prefix, name, object)) = self.load(kv) {
                found.entry(prefix).or_default().insert(name, object);
            }
        }
        let revision = listing.revision;
        for (prefix, kind) in &self.cache.kinds {
            kind.cache
                .replace(found.remove(&**prefix).unwrap_or_default(), revision);
        }
        self.cache.revision.send_replace(revision);
        info!(revision, "the store has been read");
        Ok(revision)
    }

    fn load(&self, kv: &KeyValue) -> Option<(&str, Arc<str>, Arc<CachedObject>)> {
        let key = std::str::from_utf8(&kv.key).ok()?;
        let (prefix, kind, name) = self.cache.locate(key)?;
        let object = CachedObject::load(name.clone(), kv, kind.resource.as_deref());
        Some((prefix, name, Arc::new(object)))
    }

    async fn follow(&self, at: &mut Revision) -> Result<(), StoreError> {
        let request = WatchRequest::new(KeyRange::prefix(self.prefix.clone()), *at + 1).progress();
        let mut watch = self.store.watch(request).await?;
        self.cache
            .progress
            .store(Some(Arc::new(watch.progress_requester())));
        while let Some(batch) = watch.next().await {
            let batch = batch?;
            self.apply(&batch.events);
            *at = (*at).max(batch.revision);
            self.cache
                .revision
                .send_if_modified(|r| std::mem::replace(r, *at) != *at);
        }
        Ok(())
    }

    /// Applies the events of a batch, those of each kind together.
    fn apply(&self, events: &[StoreEvent]) {
        let mut kinds: BTreeMap<&str, Vec<Change>> = BTreeMap::new();
        for event in events {
            let Some((prefix, kind, name)) = std::str::from_utf8(&event.kv.key)
                .ok()
                .and_then(|key| self.cache.locate(key))
            else {
                continue;
            };
            let put = event.kind == EventKind::Put;
            let object = put.then(|| {
                CachedObject::load(name.clone(), &event.kv, kind.resource.as_deref()).into()
            });
            kinds.entry(prefix).or_default().push(Change {
                name,
                revision: event.kv.mod_revision,
                object,
            });
        }
        for (prefix, changes) in kinds {
            if let Some(kind) = self.cache.kind(prefix) {
                kind.apply(changes);
            }
        }
    }
}
