//! The watch cache: what the store holds, in memory, one [`KindCache`] per kind of stored object.
//!
//! One [`feed`] reads the whole key prefix and then follows the store's watch, so that every kind is at the
//! same revision and a bookmark's revision is valid for all of them. Reads take a kind's lock only to copy
//! `Arc`s out; no lock is held across a wait. Watchers own no queue: each keeps a [`Cursor`] into its kind's
//! ring of recent events and is told `Expired` when the ring has moved past it, so that a slow client costs
//! no memory.
//!
//! Who may read, selectors and encodings are the verbs' business.

mod feed;
mod object;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use peerage_store::Revision;
use tokio::sync::watch;

pub(crate) use feed::{Cache, CacheError, REACH};
pub(crate) use object::{CachedObject, Content, Stored};

/// Events that a kind remembers for watches that start in the past. Kubernetes' watch cache adapts between
/// 100 and 102 400; a fixed window that covers a few minutes of a busy kind is enough, because a client that
/// fell out of it lists again.
const RING_EVENTS: usize = 16_384;
/// Bytes of objects that those events may hold on to, so that a kind of large objects cannot fill the memory.
const RING_BYTES: usize = 64 << 20;

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Revision of the store that made the change.
    pub(crate) revision: Revision,
    /// The object after the change; `None` when it was deleted.
    pub(crate) object: Option<Arc<CachedObject>>,
    /// The object before the change; `None` when it was created.
    pub(crate) previous: Option<Arc<CachedObject>>,
}

impl Event {
    fn bytes(&self) -> usize {
        self.object.as_ref().map_or(0, |o| o.size())
            + self.previous.as_ref().map_or(0, |o| o.size())
    }
}

/// A watcher's place among a kind's events: the number of the next one it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor(u64);

/// The ring no longer has the events that a watcher asks for; it has to list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub(crate) struct Expired {
    /// The revision that was asked for.
    pub(crate) asked: Revision,
    /// The oldest revision from which a watch could start.
    pub(crate) oldest: Revision,
}

/// What a list reads: the objects at one revision, and where a watch goes on from there.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) objects: Vec<Arc<CachedObject>>,
    pub(crate) revision: Revision,
    pub(crate) cursor: Cursor,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Arc<str>, Arc<CachedObject>>,
    ring: VecDeque<Event>,
    ring_bytes: usize,
    /// Number of the first event in `ring`.
    first: u64,
    /// A watch may start at any revision from here on.
    floor: Revision,
    /// Revision of the last event.
    last: Revision,
}

impl State {
    fn next(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    fn apply(&mut self, change: Change) {
        let previous = match &change.object {
            Some(object) => self.objects.insert(change.name, object.clone()),
            None => self.objects.remove(&change.name),
        };
        if change.object.is_some() || previous.is_some() {
            self.push(Event {
                revision: change.revision,
                object: change.object,
                previous,
            });
        }
    }

    fn push(&mut self, event: Event) {
        self.ring_bytes += event.bytes();
        self.last = event.revision;
        self.ring.push_back(event);
        while self.ring.len() > RING_EVENTS || (self.ring_bytes > RING_BYTES && self.ring.len() > 1)
        {
            let Some(gone) = self.ring.pop_front() else {
                break;
            };
            self.ring_bytes -= gone.bytes();
            self.first += 1;
            self.floor = gone.revision;
        }
    }
}

/// One change of one object, as the store reports it.
#[derive(Debug)]
struct Change {
    /// Its name within the kind.
    name: Arc<str>,
    revision: Revision,
    /// The object after the change.
    object: Option<Arc<CachedObject>>,
}

/// The objects of one kind and its recent events.
#[derive(Debug)]
pub(crate) struct KindCache {
    state: RwLock<State>,
    /// Number of the next event; watchers wait on it.
    next: watch::Sender<u64>,
}

impl Default for KindCache {
    fn default() -> Self {
        Self {
            state: RwLock::default(),
            next: watch::Sender::new(0),
        }
    }
}

impl KindCache {
    fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        f(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The object of that name within the kind (`namespace/name`, or `name` in cluster scope).
    pub(crate) fn get(&self, name: &str) -> Option<Arc<CachedObject>> {
        self.read(|s| s.objects.get(name).cloned())
    }

    /// All objects whose name begins with `prefix` (`""`, or `namespace/`), in the order of their keys.
    /// `revision` is the cache's; the snapshot says the kind's own when that is newer.
    pub(crate) fn snapshot(&self, prefix: &str, revision: Revision) -> Snapshot {
        self.read(|s| Snapshot {
            objects: prefixed(&s.objects, prefix).cloned().collect(),
            revision: revision.max(s.last),
            cursor: Cursor(s.next()),
        })
    }

    /// A cursor at the first event after `revision`.
    pub(crate) fn watch_from(&self, revision: Revision) -> Result<Cursor, Expired> {
        self.read(|s| {
            if revision < s.floor {
                return Err(Expired {
                    asked: revision,
                    oldest: s.floor,
                });
            }
            let at = s.ring.partition_point(|e| e.revision <= revision);
            Ok(Cursor(s.first + at as u64))
        })
    }

    /// About `max` events from the cursor on, which moves past them: a revision's events come together, so that
    /// whoever goes on after the last one's revision has seen them all.
    pub(crate) fn events(&self, cursor: &mut Cursor, max: usize) -> Result<Vec<Event>, Expired> {
        self.read(|s| {
            let Some(at) = cursor.0.checked_sub(s.first) else {
                return Err(Expired {
                    asked: 0,
                    oldest: s.floor,
                });
            };
            let mut left = s.ring.iter().skip(at as usize).peekable();
            let mut events: Vec<Event> = left.by_ref().take(max).cloned().collect();
            let last = events.last().map(|e| e.revision);
            while let Some(more) = left.next_if(|e| Some(e.revision) == last) {
                events.push(more.clone());
            }
            cursor.0 += events.len() as u64;
            Ok(events)
        })
    }

    /// Grows with every event: tells whether anything has changed.
    pub(crate) fn generation(&self) -> u64 {
        *self.next.borrow()
    }

    /// Wakes whenever there are new events (or the kind was read anew).
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    /// Applies what the store reported in one go: a revision that changed several objects of the kind is seen whole
    /// or not at all.
    fn apply(&self, changes: Vec<Change>) {
        let next = self.write(|s| {
            for change in changes {
                s.apply(change);
            }
            s.next()
        });
        self.next.send_replace(next);
    }

    /// Replaces everything with what the store held at `revision`: cursors from before are expired.
    fn replace(&self, objects: BTreeMap<Arc<str>, Arc<CachedObject>>, revision: Revision) {
        let next = self.write(|s| {
            s.first = s.next() + u64::from(s.floor != 0);
            s.ring.clear();
            s.ring_bytes = 0;
            s.floor = revision;
            // What was deleted before the list has left no trace: the kind may have changed up to now.
            s.last = revision;
            s.objects = objects;
            s.next()
        });
        self.next.send_replace(next);
    }
}

fn prefixed<'a>(
    objects: &'a BTreeMap<Arc<str>, Arc<CachedObject>>,
    prefix: &'a str,
) -> impl Iterator<Item = &'a Arc<CachedObject>> {
    objects
        .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(move |(name, _)| name.starts_with(prefix))
        .map(|(_, object)| object)
}
