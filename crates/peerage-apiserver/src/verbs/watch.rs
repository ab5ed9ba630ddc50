//! Watches: a stream of frames from the cache, each written as soon as its event is there.
//!
//! A watch keeps a cursor into its kind's recent events and no queue of its own. What its selector does not
//! match is not sent; an object that leaves the selection is sent as deleted, one that enters it as added.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use peerage_store::Revision;
use tokio::time::{Instant, sleep_until};

use crate::cache::{CachedObject, Cursor, Event, Expired};
use crate::call::{Call, Selection};
use crate::error::ApiError;
use crate::list_options::ListOptions;
use crate::render::{Ended, FrameKind, Frames};
use crate::resources::Place;

/// Events or objects that are rendered before the stream lets others run.
const BATCH: usize = 256;
/// How often a watch that allows bookmarks gets one. Kubernetes: about once a minute.
const BOOKMARK: Duration = Duration::from_secs(60);
/// Shortest and longest life of a watch without `timeoutSeconds` (`--min-request-timeout`, and its double).
const LIFE_MIN: Duration = Duration::from_secs(1_800);
/// Longest life of a watch, whatever it asks for.
const LIFE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Where a watch begins.
enum Begin {
    /// With the objects that are there, as added, then with what changes.
    Initial {
        objects: Vec<Arc<CachedObject>>,
        revision: Revision,
        cursor: Cursor,
        say_end: bool,
    },
    /// With the changes after a revision.
    After(Cursor),
    /// With nothing until the store reaches a revision of the future.
    Future(Revision),
    /// Not at all: the revision is too old.
    Expired(Expired),
}

/// Answers a watch.
pub(crate) async fn watch(call: Call) -> Result<peerage_http::Response, ApiError> {
    let options = ListOptions::parse(&call.query(), true)?;
    let selection = call.selection(&options)?;
    let frames = Frames::new(&call)?;
    let begin = begin(&call, &options).await?;
    let life = options.timeout.map_or_else(
        || LIFE_MIN.mul_f64(1.0 + rand::random::<f64>()),
        |asked| asked.min(LIFE_MAX),
    );
    let place = call.place()?.clone();
    let watcher = Watcher::new(
        call,
        place,
        selection,
        options.bookmarks,
        frames,
        begin,
        Instant::now() + life,
    );
    let body = stream::unfold(watcher, |mut watcher| async move {
        let bytes = watcher.next().await?;
        Some((Ok::<_, peerage_http::BoxError>(bytes), watcher))
    });
    Ok(crate::respond::streaming("application/json", body))
}

async fn begin(call: &Call, options: &ListOptions) -> Result<Begin, ApiError> {
    let place = call.place()?;
    let version = options
        .revision()
        .map_err(|e| ApiError::untyped(e.to_string()))?;
    let initial = match (options.send_initial_events, version) {
        (Some(wanted), _) => wanted,
        (None, version) => version.is_none_or(|v| v == 0),
    };
    if initial {
        match version {
            None => call.fresh().await?,
            Some(0) => {}
            Some(wanted) => {
                call.api()
                    .cache
                    .reach(wanted, crate::cache::REACH)
                    .await
                    .map_err(|_| {
                        ApiError::too_large_version(wanted, call.api().cache.revision())
                    })?;
            }
        }
        let snapshot = place
            .cache
            .snapshot(&call.prefix(), call.api().cache.revision());
        return Ok(Begin::Initial {
            objects: snapshot.objects,
            revision: snapshot.revision,
            cursor: snapshot.cursor,
            say_end: options.bookmarks,
        });
    }
    let from = version.unwrap_or(0);
    if from == 0 {
        let snapshot = place.cache.snapshot("\u{0}", call.api().cache.revision());
        return Ok(Begin::After(snapshot.cursor));
    }
    if from > call.api().cache.revision() {
        return Ok(Begin::Future(from));
    }
    Ok(place
        .cache
        .watch_from(from)
        .map_or_else(Begin::Expired, Begin::After))
}

struct Watcher {
    call: Call,
    place: Place,
    selection: Selection,
    bookmarks: bool,
    frames: Frames,
    begin: Option<Begin>,
    cursor: Option<Cursor>,
    /// Objects of the beginning that have not been sent yet, the last one first.
    initial: Vec<Arc<CachedObject>>,
    /// Whether the end of the beginning is to be said.
    say_end: bool,
    changes: tokio::sync::watch::Receiver<u64>,
    /// Everything up to here has been sent, or did not match.
    revision: Revision,
    end: Instant,
    bookmark: Instant,
}

impl Watcher {
    fn new(
        call: Call,
        place: Place,
        selection: Selection,
        bookmarks: bool,
        frames: Frames,
        begin: Begin,
        end: Instant,
    ) -> Self {
        let changes = place.cache.changes();
        let jitter = BOOKMARK.mul_f64(0.2 * rand::random::<f64>());
        let bookmark = Instant::now() + BOOKMARK - jitter;
        Self {
            call,
            place,
            selection,
            bookmarks,
            frames,
            begin: Some(begin),
            cursor: None,
            initial: Vec::new(),
            say_end: false,
            changes,
            revision: 0,
            end,
            bookmark,
        }
    }

    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(begin) = self.begin.take()
            && let Err(expired) = self.start(begin).await?
        {
            return Some(self.give_up(expired));
        }
        while !self.initial.is_empty() || self.say_end {
            let bytes = self.send_initial();
            if !bytes.is_empty() {
                return Some(bytes);
            }
            tokio::task::yield_now().await;
        }
        loop {
            let now = Instant::now();
            if now >= self.end {
                return None;
            }
            if self.bookmarks && now >= self.bookmark && self.revision > 0 {
                return Some(self.send_bookmark());
            }
            let mut cursor = self.cursor?;
            self.changes.borrow_and_update();
            // Read before the events: everything up to it is among them.
            let revision = self.call.api().cache.revision();
            let events = match self.place.cache.events(&mut cursor, BATCH) {
                Ok(events) => events,
                Err(expired) => {
                    return Some(self.give_up(Expired {
                        asked: self.revision,
                        ..expired
                    }));
                }
            };
            self.cursor = Some(cursor);
            if events.is_empty() {
                self.revision = self.revision.max(revision);
                match self.wait().await {
                    Wake::Changed | Wake::Bookmark => continue,
                    Wake::End => return None,
                }
            }
            let mut out = Vec::new();
            for event in &events {
                self.revision = event.revision;
                if self.write(event, &mut out) == Err(Ended) {
                    self.end_now();
                    break;
                }
            }
            if !out.is_empty() {
                return Some(out.into());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Finds the place to go on from; `None` when the watch is over before it began.
    async fn start(&mut self, begin: Begin) -> Option<Result<(), Expired>> {
        let found = match begin {
            Begin::After(cursor) => Ok(cursor),
            Begin::Expired(expired) => Err(expired),
            Begin::Future(revision) => {
                let mut revisions = self.call.api().cache.revisions();
                tokio::select! {
                    reached = revisions.wait_for(|at| *at >= revision) => drop(reached.ok()?),
                    () = sleep_until(self.end) => return None,
                    () = self.call.api().stopping.cancelled() => return None,
                }
                self.place.cache.watch_from(revision)
            }
            Begin::Initial {
                mut objects,
                revision,
                cursor,
                say_end,
            } => {
                objects.reverse();
                self.initial = objects;
                self.say_end = say_end;
                self.revision = revision;
                Ok(cursor)
            }
        };
        Some(found.map(|cursor| self.cursor = Some(cursor)))
    }

    /// The next part of what the watch begins with; empty when none of it is selected.
    fn send_initial(&mut self) -> Bytes {
        let (mut out, mut ended) = (Vec::new(), false);
        let rest = self.initial.len().saturating_sub(BATCH);
        for object in self
            .initial
            .drain(rest..)
            .rev()
            .filter(|o| self.selection.matches(o))
        {
            let revision = object.revision;
            let added = FrameKind::Added;
            let frame = self
                .frames
                .object(&self.call, added, &object, revision, &mut out);
            ended = frame.is_err();
            if ended {
                break;
            }
        }
        if ended {
            self.end_now();
            return out.into();
        }
        if self.initial.is_empty() && std::mem::take(&mut self.say_end) {
            self.frames
                .bookmark(&self.call, self.revision, true, &mut out);
        }
        out.into()
    }

    fn write(&self, event: &Event, out: &mut Vec<u8>) -> Result<(), Ended> {
        let selected = |object: &Option<Arc<CachedObject>>| {
            object.as_ref().is_some_and(|o| self.selection.matches(o))
        };
        let shown = match (selected(&event.previous), selected(&event.object)) {
            (false, true) => (FrameKind::Added, &event.object),
            (true, true) => (FrameKind::Modified, &event.object),
            // What left the selection is shown as it was last selected, at the revision of the change.
            (true, false) => (FrameKind::Deleted, &event.previous),
            (false, false) => return Ok(()),
        };
        match shown {
            (kind, Some(object)) => {
                self.frames
                    .object(&self.call, kind, object, event.revision, out)
            }
            (_, None) => Ok(()),
        }
    }

    /// Nothing comes after what has been written.
    fn end_now(&mut self) {
        self.cursor = None;
        self.initial.clear();
        self.say_end = false;
    }

    async fn wait(&mut self) -> Wake {
        let bookmark = self.bookmark;
        tokio::select! {
            changed = self.changes.changed() => if changed.is_ok() { Wake::Changed } else { Wake::End },
            () = sleep_until(bookmark), if self.bookmarks => Wake::Bookmark,
            () = sleep_until(self.end) => Wake::End,
            () = self.call.api().stopping.cancelled() => Wake::End,
        }
    }

    fn send_bookmark(&mut self) -> Bytes {
        self.bookmark = Instant::now() + BOOKMARK;
        let mut out = Vec::new();
        self.frames
            .bookmark(&self.call, self.revision, false, &mut out);
        out.into()
    }

    /// Says that the client has to list again; the stream ends after it.
    fn give_up(&mut self, expired: Expired) -> Bytes {
        self.end_now();
        let mut out = Vec::new();
        self.frames
            .error(&ApiError::expired(expired.to_string()), &mut out);
        out.into()
    }
}

enum Wake {
    Changed,
    Bookmark,
    End,
}
