//! The file: its tables, its settings, its format's number.
//!
//! * `event` has a row per change of a key, numbered by revision and place within it. `previous` is
//!   the event that it superseded. The value is last, so that it is not read when it is not wanted.
//! * `live` has, for each key that exists, its last event. The current state is read by it.
//! * `lease` has the leases, `setting` what else must not be forgotten.
//!
//! The store's revision is that of the last event: compaction never removes that one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{OpenError, StoreError};
use crate::types::Lease;

/// "Peer", in SQLite's field for whose database it is.
const APPLICATION: i64 = 0x5065_6572;
/// The newest format known here.
const FORMAT: i64 = 1;

const TABLES: &str = "
    CREATE TABLE event (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL,
        deleted INTEGER NOT NULL,
        create_revision INTEGER NOT NULL,
        version INTEGER NOT NULL,
        lease INTEGER NOT NULL,
        previous INTEGER,
        value BLOB NOT NULL
    ) STRICT;
    CREATE INDEX event_by_key ON event (key, id);
    CREATE TABLE live (
        key BLOB PRIMARY KEY,
        id INTEGER NOT NULL,
        lease INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX live_by_lease ON live (lease) WHERE lease <> 0;
    CREATE TABLE lease (id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL) STRICT;
    CREATE TABLE setting (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

/// How long a statement waits for another program that looks at the file.
const BUSY: Duration = Duration::from_secs(10);
/// The writer's page cache, in KiB.
const WRITER_CACHE: i64 = 64 * 1024;
/// What the log may keep after it was copied to the database, in bytes.
const LOG_SIZE: i64 = 64 * 1024 * 1024;
/// Enough for every statement there is.
const STATEMENTS: usize = 64;

/// Opens the file for writing; a new one gets its tables.
pub(super) fn open(path: &Path, max_page_count: Option<u32>) -> Result<Connection, OpenError> {
    let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotAStore {
            path: path.to_owned(),
        },
        _ => OpenError::Database {
            path: path.to_owned(),
            reason: error.to_string(),
        },
    };
    let mut connection = Connection::open_with_flags(path, flags(false)).map_err(failed)?;
    prepare(&connection).map_err(failed)?;
    check(&connection, path, failed)?;
    configure(&connection, max_page_count).map_err(failed)?;
    create(&mut connection).map_err(failed)?;
    Ok(connection)
}

/// Opens the file for reading only.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags(true))?;
    prepare(&connection)?;
    Ok(connection)
}

fn flags(read_only: bool) -> OpenFlags {
    let mode = if read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    mode | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Refuses a database that is not one of ours, before anything in it is changed.
fn check(
    connection: &Connection,
    path: &Path,
    failed: impl Fn(rusqlite::Error) -> OpenError,
) -> Result<(), OpenError> {
    if pragma(connection, "schema_version").map_err(&failed)? == 0 {
        return Ok(());
    }
    if pragma(connection, "application_id").map_err(&failed)? != APPLICATION {
        return Err(OpenError::NotAStore {
            path: path.to_owned(),
        });
    }
    let found = pragma(connection, "user_version").map_err(&failed)?;
    if found > FORMAT {
        return Err(OpenError::TooNew {
            path: path.to_owned(),
            found,
            known: FORMAT,
        });
    }
    Ok(())
}

fn configure(connection: &Connection, max_page_count: Option<u32>) -> rusqlite::Result<()> {
    let ignore = |_: &rusqlite::Row<'_>| Ok(());
    connection.pragma_update_and_check(None, "journal_mode", "WAL", ignore)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE)?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_SIZE, ignore)?;
    limit_pages(connection, max_page_count, 0)
}

/// Bounds the file's size, `reserve` pages further than told.
pub(super) fn limit_pages(
    connection: &Connection,
    max_page_count: Option<u32>,
    reserve: u32,
) -> rusqlite::Result<()> {
    let Some(pages) = max_page_count else {
        return Ok(());
    };
    let pages = pages.saturating_add(reserve);
    connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    if pragma(connection, "schema_version")? != 0 {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}

/// The leases that are written down.
pub(super) fn leases(connection: &Connection) -> Result<Vec<Lease>, StoreError> {
    let read = || {
        let mut query = connection.prepare("SELECT id, ttl_ms FROM lease")?;
        let leases = query.query_map([], |row| {
            Ok(Lease {
                id: row.get(0)?,
                ttl: Duration::from_millis(row.get::<_, i64>(1)?.unsigned_abs()),
            })
        })?;
        leases.collect::<rusqlite::Result<_>>()
    };
    read().map_err(error)
}

/// Copies the database to a new file, which appears under its name when it is complete.
pub(super) fn copy(connection: &mut Connection, to: &Path) -> Result<(), StoreError> {
    let failed = |source: std::io::Error| {
        StoreError::unavailable(format!("cannot write {}: {source}", to.display()))
    };
    if to.try_exists().map_err(failed)? {
        return Err(StoreError::Invalid {
            reason: format!("{} exists already", to.display()),
        });
    }
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let name = partial.to_str().ok_or_else(|| StoreError::Invalid {
        reason: format!("{} is not a name in UTF-8", to.display()),
    })?;
    // A copy that was interrupted; whether there was one does not matter.
    let _ = std::fs::remove_file(&partial);
    connection
        .execute("VACUUM INTO ?1", [name])
        .map_err(error)?;
    let file = std::fs::File::open(&partial).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&partial, to).map_err(failed)
}

/// What an error of SQLite means to a store.
pub(super) fn error(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::NoSpace,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt {
            reason: error.to_string(),
        },
        _ => StoreError::unavailable(error.to_string()),
    }
}
