//! How the file is changed: an event, a lease, a number, and what compaction removes.
//!
//! All of it within a transaction that the writer has begun.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::engine::{first_id, last_id, revision_of};
use super::schema::error;
use crate::error::StoreError;
use crate::types::{Event, EventKind, LeaseId, Revision};

/// Writes a number down.
pub(super) fn set(connection: &Connection, name: &str, value: i64) -> Result<(), StoreError> {
    let sql = "INSERT INTO setting (name, value) VALUES (?1, ?2)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    let write = || {
        connection
            .prepare_cached(sql)?
            .execute(params![name, value])
    };
    write().map_err(error).map(|_| ())
}

/// Writes a lease down, unless there is one of that number.
pub(super) fn insert_lease(
    connection: &Connection,
    id: LeaseId,
    ttl_ms: i64,
) -> Result<bool, StoreError> {
    let sql = "INSERT OR IGNORE INTO lease (id, ttl_ms) VALUES (?1, ?2)";
    let write = || connection.prepare_cached(sql)?.execute(params![id, ttl_ms]);
    Ok(write().map_err(error)? > 0)
}

/// Forgets a lease.
pub(super) fn delete_lease(connection: &Connection, id: LeaseId) -> Result<(), StoreError> {
    let write = || {
        connection
            .prepare_cached("DELETE FROM lease WHERE id = ?1")?
            .execute([id])
    };
    write().map_err(error).map(|_| ())
}

/// Writes an event down, the `index`th of its revision.
pub(super) fn apply(
    connection: &Connection,
    event: &Event,
    index: usize,
) -> Result<(), StoreError> {
    let write = || {
        let kv = &event.kv;
        let id = first_id(kv.mod_revision) + index as i64;
        let previous = previous_id(connection, event)?;
        let sql = "INSERT INTO event
            (id, key, deleted, create_revision, version, lease, previous, value)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let deleted = event.kind == EventKind::Delete;
        let (key, value) = (&kv.key[..], &kv.value[..]);
        let row = params![
            id,
            key,
            deleted,
            kv.create_revision,
            kv.version,
            kv.lease,
            previous,
            value
        ];
        connection.prepare_cached(sql)?.execute(row)?;
        if deleted {
            return connection
                .prepare_cached("DELETE FROM live WHERE key = ?1")?
                .execute([key]);
        }
        let sql = "INSERT INTO live (key, id, lease) VALUES (?1, ?2, ?3)
            ON CONFLICT (key) DO UPDATE SET id = excluded.id, lease = excluded.lease";
        connection
            .prepare_cached(sql)?
            .execute(params![key, id, kv.lease])
    };
    write().map_err(error).map(|_| ())
}

/// The number of the event that this one supersedes.
fn previous_id(connection: &Connection, event: &Event) -> rusqlite::Result<Option<i64>> {
    if event.previous.is_none() {
        return Ok(None);
    }
    let mut query = connection.prepare_cached("SELECT id FROM live WHERE key = ?1")?;
    query
        .query_row([&event.kv.key[..]], |row| row.get(0))
        .optional()
}

/// One step of removing what compaction at `target` made superfluous: looks at no more than `limit`
/// events after the number `from`. Returns the number it came to, or none when it is done.
///
/// What an event up to `target` superseded goes, and so does a deletion before `target`. One at
/// `target` itself stays until the next compaction, so that `target` can be watched from.
pub(super) fn purge(
    connection: &Connection,
    from: i64,
    target: Revision,
    limit: usize,
) -> Result<Option<i64>, StoreError> {
    let step = || -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT id, previous, deleted FROM event WHERE id > ?1 AND id <= ?2
            ORDER BY id LIMIT ?3";
        let mut query = connection.prepare_cached(sql)?;
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = query.query_map(params![from, last_id(target), limit], row)?;
        let rows = rows.collect::<rusqlite::Result<Vec<(i64, Option<i64>, bool)>>>()?;
        let mut delete = connection.prepare_cached("DELETE FROM event WHERE id = ?1")?;
        for &(id, previous, deleted) in &rows {
            if let Some(previous) = previous {
                delete.execute([previous])?;
            }
            if deleted && revision_of(id) < target {
                delete.execute([id])?;
            }
        }
        let more = rows.len() as i64 == limit;
        Ok(rows.last().map(|row| row.0).filter(|_| more))
    };
    step().map_err(error)
}
