//! Keeps every kind's cache in step with the store: one list of the whole prefix, then one watch from there.
//!
//! A watch that ends is resumed after the last revision seen, so that nothing is missed or repeated. Only when the
//! store no longer has that revision (it was compacted away, or the store is another, older one) is everything
//! listed again, and the watchers of that time are told to list as well.
//!
//! Which prefixes are kept is fixed at the start; keys outside of them are passed over. Values are copied out of
//! what the store delivered: a small object must not keep the whole page alive that it came in.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures::StreamExt as _;
use peerage_store::{
    Event as StoreEvent, EventKind, KeyRange, KeyValue, ProgressRequester, RangeRequest, Revision,
    Store, StoreError, WatchRequest,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{CachedObject, Change, KindCache, Stored};

/// Reads that may wait for the store's current revision at once; more are refused.
const FRESH_QUEUE: usize = 4_096;
/// Objects that one request for a list asks the store for.
const PAGE: usize = 500;
/// How long a read waits for the cache to catch up with the store. Kubernetes' watch cache waits three seconds.
pub(crate) const REACH: Duration = Duration::from_secs(3);
/// Pauses before the store is read or watched again.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Longest pause before a watch is resumed: what was read stays useful, and its readers wait for news.
const RESUME_MAX: Duration = Duration::from_secs(1);

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
    stored: Option<Arc<Stored>>,
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
    /// How long a read waits for the store to say its revision.
    patience: Duration,
    asked: Asked,
    /// Asks the running watch how far it has come: writes outside of the prefix move the store's revision too.
    progress: ArcSwapOption<ProgressRequester>,
}

impl Cache {
    /// Starts following `prefix` (ends in `/`) of the store, whose calls take at most `patience`. `kinds` are the prefixes of what is kept; other keys are passed over.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        prefix: &str,
        kinds: impl IntoIterator<Item = (String, Option<Arc<Stored>>)>,
        patience: Duration,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let kinds = kinds
            .into_iter()
            .map(|(at, stored)| {
                (
                    at.into_boxed_str(),
                    Kind {
                        stored,
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
            patience,
            asked: Asked(store.clone()),
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
        tokio::spawn(answer_fresh(store, prefix.to_owned(), asked));
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
        // A look that is under way may be too old for this read, which then needs the next one.
        let wanted = tokio::time::timeout(self.patience, revision)
            .await
            .map_err(|_| CacheError::Store(Arc::new(self.asked.silent(self.patience))))?
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

    /// Of each kind with objects that cannot be read: its prefix, how many they are, and the first one.
    pub(crate) fn unreadable(&self) -> Vec<(String, usize, Arc<CachedObject>)> {
        let mut found = Vec::new();
        for (prefix, kind) in &self.kinds {
            let objects = kind.cache.snapshot("", 0).objects.into_iter();
            let mut unread = objects.filter(|object| object.unreadable().is_some());
            // What is no resource's is not read as an object in the first place.
            if let Some(first) = unread.next().filter(|_| kind.stored.is_some()) {
                found.push((prefix.to_string(), 1 + unread.count(), first));
            }
        }
        found
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

/// Answers all waiting questions for the store's current revision with one look at it, which is an ordinary read:
/// etcd's status is that of one member and may lag behind. Questions that come meanwhile wait for the next look.
async fn answer_fresh(store: Arc<dyn Store>, key: String, mut asked: mpsc::Receiver<Fresh>) {
    let mut waiting = Vec::new();
    while asked.recv_many(&mut waiting, FRESH_QUEUE).await > 0 {
        let revision = current_revision(&*store, &key).await.map_err(Arc::new);
        for answer in waiting.drain(..) {
            // A reader that has gone does not want it.
            let _ = answer.send(revision.clone());
        }
    }
}

async fn current_revision(store: &dyn Store, key: &str) -> Result<Revision, StoreError> {
    let look = RangeRequest::new(KeyRange::key(key.to_owned()));
    Ok(store.range(look).await?.revision)
}

/// The store that is asked for its revision.
struct Asked(Arc<dyn Store>);

impl Asked {
    fn silent(&self, wait: Duration) -> StoreError {
        let reason = format!("it did not say its revision within {wait:?}");
        StoreError::Unavailable {
            reason: match self.0.trouble() {
                Some(trouble) => format!("{reason}: {trouble}"),
                None => reason,
            },
        }
    }
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").finish_non_exhaustive()
    }
}

struct Feed {
    store: Arc<dyn Store>,
    prefix: String,
    cache: Arc<Cache>,
}

/// Why everything has to be listed again.
#[derive(Debug, thiserror::Error)]
enum Restart {
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store's revision is before the last one seen: it is not the store that it was.
    #[error(
        "the store is at revision {now}, and was at {before}: it has been replaced by an older one"
    )]
    Older { now: Revision, before: Revision },
}

impl Feed {
    async fn run(self) {
        let mut pause = RETRY_MIN;
        loop {
            let Err(error) = self.list_and_follow(&mut pause).await;
            warn!(%error, retry_in = ?pause, "the store has to be read from the start");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Lists, then follows for as long as the revisions are there.
    async fn list_and_follow(
        &self,
        pause: &mut Duration,
    ) -> Result<std::convert::Infallible, Restart> {
        let mut at = self.list().await?;
        *pause = RETRY_MIN;
        let mut failures = Failures::default();
        loop {
            let before = at;
            match self.follow(&mut at).await {
                Ok(()) => {}
                Err(Restart::Store(error)) if !matches!(error, StoreError::Compacted { .. }) => {
                    if at > before {
                        // A watch that brought something is resumed at once: a slow reader must catch up.
                        failures = Failures::default();
                        continue;
                    }
                    failures.note(&error, at);
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(failures.pause()).await;
        }
    }

    /// Reads everything as of one revision, a page at a time, and then replaces what the cache holds.
    async fn list(&self) -> Result<Revision, StoreError> {
        let mut found: BTreeMap<&str, BTreeMap<Arc<str>, Arc<CachedObject>>> = BTreeMap::new();
        let keys = KeyRange::prefix(self.prefix.clone());
        let mut request = RangeRequest::new(keys.clone()).limit(PAGE);
        let mut revision = 0;
        loop {
            let page = self.store.range(request.clone()).await?;
            if revision == 0 {
                revision = page.revision;
            }
            for kv in &page.kvs {
                if let Some((prefix, name, object)) = self.load(kv) {
                    found.entry(prefix).or_default().insert(name, object);
                }
            }
            let Some(last) = page.kvs.last().filter(|_| page.more) else {
                break;
            };
            request = RangeRequest::new(after(&last.key, &keys))
                .limit(PAGE)
                .at(revision);
        }
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
        let object = CachedObject::load(name.clone(), &own(kv), kind.stored.as_deref());
        Some((prefix, name, Arc::new(object)))
    }

    async fn follow(&self, at: &mut Revision) -> Result<(), Restart> {
        // A watch from a revision that the store has not reached would wait in silence.
        let now = current_revision(&*self.store, &self.prefix).await?;
        if now < *at {
            return Err(Restart::Older { now, before: *at });
        }
        let request = WatchRequest::new(KeyRange::prefix(self.prefix.clone()), *at + 1).progress();
        let mut watch = self.store.watch(request).await?;
        let progress = watch.progress_requester();
        if now > *at {
            // Readers may have asked the watch before this one, in vain.
            progress.request();
        }
        self.cache.progress.store(Some(Arc::new(progress)));
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
                CachedObject::load(name.clone(), &own(&event.kv), kind.stored.as_deref()).into()
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

/// The same value in memory of its own.
fn own(kv: &KeyValue) -> KeyValue {
    KeyValue {
        value: Bytes::copy_from_slice(&kv.value),
        ..kv.clone()
    }
}

/// What of `keys` comes after `key`.
fn after(key: &Bytes, keys: &KeyRange) -> KeyRange {
    let next = [key, &b"\0"[..]].concat();
    match keys.end() {
        Some(end) => KeyRange::between(next, end.clone()),
        None => KeyRange::from(next),
    }
}

/// Watches that ended one after the other without bringing anything.
#[derive(Default)]
struct Failures(u32);

impl Failures {
    /// Says so the first time; a store that stays away is the health check's to report.
    fn note(&mut self, error: &StoreError, at: Revision) {
        if self.0 == 0 {
            warn!(%error, revision = at, "the store's watch ended; resuming it");
        }
        self.0 = self.0.saturating_add(1);
    }

    fn pause(&self) -> Duration {
        (RETRY_MIN * 2u32.saturating_pow(self.0.min(8))).min(RESUME_MAX)
    }
}
