//! Reading keys a part at a time, page by page: as many requests, keys and bytes as are allowed, whatever is in the store.
//!
//! A value that is too large to be read costs its own key; after the last part comes the first one.

use std::time::Duration;

use bytes::Bytes;
use peerage_store::{KeyRange, KeyValue, RangeRequest, RangeResponse, Revision, Store, StoreError};
use tokio::time::{Instant, timeout};

use super::{Trouble, WAIT};

/// Keys that are asked for at a time.
pub(super) const PAGE: usize = 500;
/// Keys that are read at a time; more than so many are a mistake.
pub(super) const MOST: usize = 5000;
/// Requests of one read.
const REQUESTS: usize = 100;
/// How long a part of the keys is read before another one.
pub(super) const PART: Duration = Duration::from_secs(300);

/// Some keys: all from one on, up to another.
pub(super) struct Part {
    pub(super) kvs: Vec<KeyValue>,
    /// Keys whose values are too large to be read.
    pub(super) oversize: Vec<Bytes>,
    pub(super) revision: Revision,
    from: Bytes,
    /// Where the next part begins; none if this is the last one.
    to: Option<Bytes>,
}

impl Part {
    pub(super) fn count(&self) -> usize {
        self.kvs.len() + self.oversize.len()
    }

    pub(super) fn covers(&self, key: &Bytes) -> bool {
        *key >= self.from && self.to.as_ref().is_none_or(|to| key < to)
    }

    pub(super) fn is_one_of_several(&self, all: &KeyRange) -> bool {
        self.from != all.start() || self.to.is_some()
    }
}

/// Which part of the keys is read.
pub(super) struct Parts {
    first: Bytes,
    from: Bytes,
    next: Option<Bytes>,
    since: Instant,
}

impl Parts {
    pub(super) fn new(first: Bytes) -> Parts {
        Parts {
            from: first.clone(),
            first,
            next: None,
            since: Instant::now(),
        }
    }

    /// Where to begin: where it was begun before, for a while. After the last part comes the first one.
    pub(super) fn from(&mut self, now: Instant) -> Bytes {
        if now.saturating_duration_since(self.since) >= PART {
            self.since = now;
            self.from = self.next.take().unwrap_or_else(|| self.first.clone());
        }
        self.from.clone()
    }

    pub(super) fn was_read(&mut self, part: Part) {
        self.next = part.to;
    }
}

/// Reads keys page by page, from one on, as many as are read at a time.
pub(super) async fn read(store: &dyn Store, keys: &KeyRange, from: Bytes) -> Result<Part, Trouble> {
    let mut part = Part {
        kvs: Vec::new(),
        oversize: Vec::new(),
        revision: 0,
        from: from.clone(),
        to: Some(from),
    };
    let mut limit = PAGE;
    for _ in 0..REQUESTS {
        let Some(at) = part.to.clone().filter(|_| part.count() < MOST) else {
            break;
        };
        let rest = match keys.end() {
            Some(end) => KeyRange::between(at, end.clone()),
            None => KeyRange::from(at),
        };
        match ask(store, RangeRequest::new(rest.clone()).limit(limit)).await {
            Ok(page) => {
                part.take(page);
                limit = (limit * 2).min(PAGE);
            }
            Err(Trouble::Read(StoreError::AnswerTooLarge)) if limit > 1 => limit = 1.max(limit / 8),
            Err(Trouble::Read(StoreError::AnswerTooLarge)) => {
                let key = ask(store, RangeRequest::new(rest).limit(1).keys_only()).await?;
                part.pass_over(key);
            }
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(part)
}

impl Part {
    pub(super) fn take(&mut self, page: RangeResponse) {
        self.came_to(&page);
        self.kvs.extend(page.kvs);
    }

    /// The key of a value that is too large.
    pub(super) fn pass_over(&mut self, page: RangeResponse) {
        self.came_to(&page);
        self.oversize.extend(page.kvs.into_iter().map(|kv| kv.key));
    }

    pub(super) fn came_to(&mut self, page: &RangeResponse) {
        if self.revision == 0 {
            self.revision = page.revision;
        }
        let last = page.kvs.last().filter(|_| page.more);
        self.to = last.map(|kv| [&*kv.key, &[0]].concat().into());
    }
}

async fn ask(store: &dyn Store, request: RangeRequest) -> Result<RangeResponse, Trouble> {
    let answer = timeout(WAIT, store.range(request)).await;
    Ok(answer.map_err(|_| Trouble::Late)??)
}
