//! What the file says as of one moment.
//!
//! An event's number is its revision and its place within it in one, so that a range of revisions is
//! a range of numbers.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::schema::error;
use crate::error::StoreError;
use crate::hub::Page;
use crate::txn::{Engine, check_revision};
use crate::types::{
    Event, EventKind, KeyRange, KeyValue, LeaseId, RangeRequest, RangeResponse, Revision,
    StoreStatus,
};

/// How many bits of an event's number are its place: a million events per revision, and more
/// revisions than a store can make in a thousand years.
const PLACE_BITS: u32 = 20;

/// The most events and bytes in a page of history.
const PAGE_EVENTS: usize = 1000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The number of the first event that a revision can have.
pub(super) fn first_id(revision: Revision) -> i64 {
    // Revisions beyond what can be numbered are beyond all that exist.
    revision.min(i64::MAX >> PLACE_BITS) << PLACE_BITS
}

/// The number of the last event that a revision can have.
pub(super) fn last_id(revision: Revision) -> i64 {
    first_id(revision) | ((1 << PLACE_BITS) - 1)
}

/// The revision of an event.
pub(super) fn revision_of(id: i64) -> Revision {
    id >> PLACE_BITS
}

/// What the file says as of one moment: within one transaction of SQLite's.
pub(super) struct Snapshot<'c> {
    pub(super) connection: &'c Connection,
    pub(super) revision: Revision,
    pub(super) compact_revision: Revision,
    /// Whether dropping it ends the transaction.
    own: bool,
}

impl<'c> Snapshot<'c> {
    /// Begins to read.
    pub(super) fn begin(connection: &'c mut Connection) -> Result<Self, StoreError> {
        let connection = &*connection;
        connection.execute_batch("BEGIN DEFERRED").map_err(error)?;
        let mut snapshot = Snapshot {
            connection,
            revision: 0,
            compact_revision: 0,
            own: true,
        };
        snapshot.revision = revision(connection)?;
        snapshot.compact_revision = setting(connection, "compact_revision")?;
        Ok(snapshot)
    }

    /// Reads within a transaction that has begun.
    pub(super) fn within(
        connection: &'c Connection,
        revision: Revision,
        compact_revision: Revision,
    ) -> Self {
        Snapshot {
            connection,
            revision,
            compact_revision,
            own: false,
        }
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
        check_revision(request.revision, self.revision, self.compact_revision)?;
        self.select(request).map_err(error)
    }

    fn select(&self, request: &RangeRequest) -> rusqlite::Result<RangeResponse> {
        let mut response = RangeResponse {
            revision: self.revision,
            kvs: Vec::new(),
            more: false,
            count: 0,
        };
        // Within a transaction the live keys may be its own changes, which no revision that has a number holds.
        let past = request.revision != 0 && (!self.own || request.revision != self.revision);
        if request.keys.is_empty() {
            return Ok(response);
        }
        if !request.count_only {
            response.kvs = self.read(request, past)?;
        }
        let limited = request.limit > 0 && response.kvs.len() > request.limit;
        response.count = if request.count_only || limited {
            self.count(request, past)?
        } else {
            response.kvs.len() as u64
        };
        if limited {
            response.more = true;
            response.kvs.truncate(request.limit);
        }
        Ok(response)
    }

    /// One key more than the limit, if there is one.
    fn read(&self, request: &RangeRequest, past: bool) -> rusqlite::Result<Vec<KeyValue>> {
        let value = if request.keys_only { "x''" } else { "e.value" };
        let columns = format!("e.key, e.id, e.create_revision, e.version, e.lease, {value}");
        let key = if past { "e.key" } else { "l.key" };
        let from = select_from(&request.keys, past, EVENT_OF_LIVE);
        let sql = format!("SELECT {columns} {from} ORDER BY {key} LIMIT ?4");
        let limit = match request.limit {
            0 => -1,
            limit => i64::try_from(limit).map_or(-1, |limit| limit.saturating_add(1)),
        };
        let (start, end) = bounds(&request.keys);
        let mut query = self.connection.prepare_cached(&sql)?;
        let until = last_id(request.revision);
        let rows = query.query_map(params![start, end, until, limit], key_value)?;
        rows.collect()
    }

    fn count(&self, request: &RangeRequest, past: bool) -> rusqlite::Result<u64> {
        let (start, end) = bounds(&request.keys);
        let from = select_from(&request.keys, past, "");
        let sql = format!("SELECT count(*) {from}");
        let mut query = self.connection.prepare_cached(&sql)?;
        let until = last_id(request.revision);
        let count: i64 = query.query_row(params![start, end, until], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        let sql = "SELECT e.key, e.id, e.create_revision, e.version, e.lease, e.value
            FROM live l CROSS JOIN event e ON e.id = l.id WHERE l.key = ?1";
        let read = || {
            let mut query = self.connection.prepare_cached(sql)?;
            query.query_row([key], key_value).optional()
        };
        read().map_err(error)
    }

    pub(super) fn keys_of(&self, lease: LeaseId) -> Result<Vec<Bytes>, StoreError> {
        let sql = "SELECT key FROM live WHERE lease = ?1 AND lease <> 0 ORDER BY key";
        let read = || {
            let mut query = self.connection.prepare_cached(sql)?;
            let keys = query.query_map([lease], |row| row.get::<_, Vec<u8>>(0).map(Bytes::from))?;
            keys.collect::<rusqlite::Result<_>>()
        };
        read().map_err(error)
    }

    /// See [`crate::hub::History`].
    pub(super) fn page(
        &self,
        keys: &KeyRange,
        from: Revision,
        to: Revision,
    ) -> Result<Page, StoreError> {
        if from < self.compact_revision {
            return Err(StoreError::Compacted {
                compact_revision: self.compact_revision,
            });
        }
        self.events(keys, from, to.min(self.revision))
            .map_err(error)
    }

    fn events(&self, keys: &KeyRange, from: Revision, to: Revision) -> rusqlite::Result<Page> {
        let sql = "SELECT e.key, e.id, e.create_revision, e.version, e.lease, e.value, e.deleted,
                p.key, p.id, p.create_revision, p.version, p.lease, p.value
            FROM event e LEFT JOIN event p ON p.id = e.previous
            WHERE e.id BETWEEN ?1 AND ?2 AND +e.key >= ?3 AND (?4 IS NULL OR +e.key < ?4)
            ORDER BY e.id";
        let mut query = self.connection.prepare_cached(sql)?;
        let (start, end) = bounds(keys);
        let mut rows = query.query(params![first_id(from), last_id(to), start, end])?;
        let mut page = Page {
            events: Vec::new(),
            through: to,
        };
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            let event = event(row)?;
            let revision = event.kv.mod_revision;
            let last = page
                .events
                .last()
                .map_or(revision, |e: &Event| e.kv.mod_revision);
            let full = page.events.len() >= PAGE_EVENTS || bytes >= PAGE_BYTES;
            if full && revision > last {
                page.through = last;
                break;
            }
            let previous = event.previous.as_ref().map_or(0, |kv| kv.value.len());
            bytes += event.kv.value.len() + previous;
            page.events.push(event);
        }
        Ok(page)
    }

    pub(super) fn status(&self) -> Result<StoreStatus, StoreError> {
        let pragma = |name| {
            let value = self
                .connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            value.map(i64::unsigned_abs).map_err(error)
        };
        let page = pragma("page_size")?;
        let pages = pragma("page_count")?;
        Ok(StoreStatus {
            revision: self.revision,
            compact_revision: self.compact_revision,
            size: pages * page,
            size_in_use: pages.saturating_sub(pragma("freelist_count")?) * page,
            version: concat!("peerage-sqlite-", env!("CARGO_PKG_VERSION")).to_owned(),
        })
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if self.own && !self.connection.is_autocommit() {
            // Nothing was written; if it fails, the next BEGIN on this connection says so.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

const EVENT_OF_LIVE: &str = "CROSS JOIN event e ON e.id = l.id";

/// Where keys as they are, or as they were at the end of event `?3`, are selected from.
///
/// As they were: of each key the last event up to then, unless that was a deletion. A range without
/// an end is a statement of its own, for with "or it has no end" SQLite would not use the end at all.
///
/// `join` is for what is wanted of a key as it is beyond its being there.
fn select_from(keys: &KeyRange, past: bool, join: &str) -> String {
    let bounded = keys.single().is_some() || keys.end().is_some();
    let end = |key: &str| match bounded {
        true => format!("{key} < ?2"),
        false => "?2 IS NULL".to_owned(),
    };
    if past {
        return format!(
            "FROM event e WHERE e.key >= ?1 AND {} AND e.id <= ?3 AND e.deleted = 0 AND NOT EXISTS
            (SELECT 1 FROM event n WHERE n.key = e.key AND n.id > e.id AND n.id <= ?3)",
            end("e.key")
        );
    }
    format!(
        "FROM live l {join} WHERE l.key >= ?1 AND {} AND ?3 IS NOT NULL",
        end("l.key")
    )
}

/// The first key, and the first one after the range if there is one. Of a single key that is the key
/// with a zero byte more, the very next one.
fn bounds(keys: &KeyRange) -> (&[u8], Option<Vec<u8>>) {
    let end = match keys.single() {
        Some(key) => Some([key, &b"\0"[..]].concat()),
        None => keys.end().map(|end| end.to_vec()),
    };
    (keys.start(), end)
}

fn key_value(row: &Row<'_>) -> rusqlite::Result<KeyValue> {
    key_value_at(row, 0)
}

fn key_value_at(row: &Row<'_>, column: usize) -> rusqlite::Result<KeyValue> {
    Ok(KeyValue {
        key: Bytes::from(row.get::<_, Vec<u8>>(column)?),
        mod_revision: revision_of(row.get(column + 1)?),
        create_revision: row.get(column + 2)?,
        version: row.get(column + 3)?,
        lease: row.get(column + 4)?,
        value: Bytes::from(row.get::<_, Vec<u8>>(column + 5)?),
    })
}

fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let kv = key_value(row)?;
    let kind = match row.get(6)? {
        false => EventKind::Put,
        true => EventKind::Delete,
    };
    let previous = match row.get::<_, Option<i64>>(8)? {
        Some(_) => Some(key_value_at(row, 7)?),
        None => None,
    };
    Ok(Event { kind, kv, previous })
}

/// The store's revision.
pub(super) fn revision(connection: &Connection) -> Result<Revision, StoreError> {
    let read = || -> rusqlite::Result<Option<i64>> {
        let mut query = connection.prepare_cached("SELECT max(id) FROM event")?;
        query.query_row([], |row| row.get(0))
    };
    Ok(read().map_err(error)?.map_or(1, revision_of))
}

/// A number that is written down, 0 if it is not.
pub(super) fn setting(connection: &Connection, name: &str) -> Result<i64, StoreError> {
    let read = || {
        let mut query = connection.prepare_cached("SELECT value FROM setting WHERE name = ?1")?;
        query.query_row([name], |row| row.get(0)).optional()
    };
    Ok(read().map_err(error)?.unwrap_or(0))
}

/// Reads are transactions without a write.
impl Engine for Snapshot<'_> {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn compact_revision(&self) -> Revision {
        self.compact_revision
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        Snapshot::get(self, key)
    }

    fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
        Snapshot::range(self, request)
    }

    fn lease_is_alive(&mut self, _: LeaseId) -> bool {
        false
    }

    fn apply(&mut self, _: &Event, _: usize) -> Result<(), StoreError> {
        Err(StoreError::Invalid {
            reason: "a read cannot write".to_owned(),
        })
    }
}
