//! Writing files that hold keys and certificates: whole or not at all, and readable by whom they should be.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::PkiError;

/// Mode of what holds a private key: the owner alone reads it.
pub(crate) const SECRET: u32 = 0o600;
/// Mode of certificates: anyone may read them.
pub(crate) const PUBLIC: u32 = 0o644;
/// Mode of the directory.
const DIRECTORY: u32 = 0o700;

/// Writes `bytes` to `path` through a temporary file beside it, so that a reader sees the old content or the new,
/// and a crash leaves one of the two.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), PkiError> {
    let failed = |source| PkiError::Write {
        path: path.to_owned(),
        source,
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))
        .map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

/// Reads a whole text file.
pub(crate) fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|source| PkiError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Makes the directory, for its owner alone if it is new.
pub(crate) fn make_directory(path: &Path) -> Result<(), PkiError> {
    if path.is_dir() {
        return Ok(());
    }
    let failed = |source| PkiError::Write {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY)).map_err(failed)
}
