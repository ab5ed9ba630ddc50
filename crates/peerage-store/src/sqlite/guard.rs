//! One process at a time.
//!
//! SQLite itself would let two processes share the file, but then neither would hear of the other's
//! writes. The lock is on a file beside the database, because closing any handle of the database itself
//! would drop SQLite's own locks. It holds the number of the process, for the message to the second
//! one; the operating system releases it however the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// The right to use a store's file.
#[derive(Debug)]
pub(super) struct Guard {
    path: PathBuf,
    _lock: File,
}

impl Guard {
    /// Takes it, and makes the file, readable by its owner only, if there is none.
    pub(super) fn take(path: &Path) -> Result<Guard, OpenError> {
        let failed = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        drop(open(path).map_err(failed)?);
        // The same file under another name is the same file.
        let path = path.canonicalize().map_err(failed)?;
        let mut name = path.clone().into_os_string();
        name.push(".lock");
        let failed = |source| OpenError::Io {
            path: PathBuf::from(&name),
            source,
        };
        let mut lock = open(Path::new(&name)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(failed(source)),
            Err(TryLockError::WouldBlock) => {
                let pid = read_pid(&mut lock);
                return Err(OpenError::InUse { path, pid });
            }
        }
        write_pid(&mut lock).map_err(failed)?;
        Ok(Guard { path, _lock: lock })
    }

    /// The database's file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

fn read_pid(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}
