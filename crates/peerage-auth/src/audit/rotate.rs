//! A file that is set aside when it is full, and whose oldest predecessors are removed.
//!
//! Names are those of kube-apiserver's log (lumberjack): `audit.log` is set aside as
//! `audit-2026-11-29T08-30-00.000.log` (UTC) in the same directory. Only files named so are ever removed.
//! Invariant: a line is in one file whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The time in the name of a file set aside.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// Bytes of a file when nothing is said.
const USUAL_BYTES: u64 = 100 << 20;

/// When files are set aside and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file (`--audit-log-maxsize`, there in megabytes); 0 for the 100 MB of kube-apiserver without that flag.
    pub max_bytes: u64,
    /// Days that files set aside are kept (`--audit-log-maxage`); 0 for as long as their number allows.
    pub max_age_days: u32,
    /// Files set aside that are kept (`--audit-log-maxbackup`); 0 for all.
    pub max_backups: usize,
}

impl Default for Rotation {
    /// 100 MB a file, none removed: kube-apiserver without flags.
    fn default() -> Self {
        Self {
            max_bytes: USUAL_BYTES,
            max_age_days: 0,
            max_backups: 0,
        }
    }
}

impl Rotation {
    fn limit(&self) -> u64 {
        match self.max_bytes {
            0 => USUAL_BYTES,
            bytes => bytes,
        }
    }
}

/// The file, open at its end.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    file: BufWriter<File>,
    size: u64,
    /// The time in the newest name given: names grow even when several files fill up in a millisecond.
    named: Timestamp,
}

impl RotatingFile {
    pub(super) fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        if let Some(directory) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            std::fs::create_dir_all(directory)?;
        }
        let (file, size) = append(&path)?;
        let opened = Self {
            path,
            rotation,
            file,
            size,
            named: Timestamp::MIN,
        };
        opened.remove_old();
        Ok(opened)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let aside = self.aside();
        match std::fs::rename(&self.path, aside) {
            // Somebody moved it, or it was set aside before and a new one could not be opened then.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        (self.file, self.size) = append(&self.path)?;
        self.remove_old();
        Ok(())
    }

    /// A name for the full file that no other has, later than those given before.
    fn aside(&mut self) -> PathBuf {
        let (stem, extension) = parts(&self.path);
        let mut time = Timestamp::now().max(later(self.named));
        loop {
            let path = self
                .path
                .with_file_name(format!("{stem}-{}{extension}", time.strftime(STAMP)));
            if !path.exists() {
                self.named = time;
                return path;
            }
            time = later(time);
        }
    }

    /// Removes what is too old or too much. What cannot be removed is reported and tried again the next time.
    fn remove_old(&self) {
        let mut aside = match set_aside(&self.path) {
            Ok(aside) => aside,
            Err(error) => return tracing::warn!(%error, "old audit logs cannot be listed"),
        };
        aside.sort_by(|a, b| b.cmp(a));
        let age = jiff::SignedDuration::from_hours(24 * i64::from(self.rotation.max_age_days));
        let oldest = Timestamp::now().checked_sub(age).unwrap_or(Timestamp::MIN);
        for (number, (time, path)) in aside.iter().enumerate() {
            let too_many = self.rotation.max_backups > 0 && number >= self.rotation.max_backups;
            let too_old = self.rotation.max_age_days > 0 && *time < oldest;
            if !too_many && !too_old {
                continue;
            }
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!(%error, path = %path.display(), "an old audit log cannot be removed");
            }
        }
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.size > 0 && self.size + line.len() as u64 > self.rotation.limit() {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A millisecond later, the resolution of names.
fn later(time: Timestamp) -> Timestamp {
    let millisecond = jiff::SignedDuration::from_millis(1);
    time.checked_add(millisecond).unwrap_or(Timestamp::MAX)
}

fn append(path: &Path) -> io::Result<(BufWriter<File>, u64)> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    let size = file.metadata()?.len();
    Ok((BufWriter::new(file), size))
}

/// The name before and from its last dot.
fn parts(path: &Path) -> (String, String) {
    let text =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = path
        .extension()
        .map(|_| format!(".{}", text(path.extension())));
    (text(path.file_stem()), extension.unwrap_or_default())
}

/// The files that were set aside, with their times.
fn set_aside(path: &Path) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let (stem, extension) = parts(path);
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory.unwrap_or(Path::new(".")))? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let stamp = name
            .strip_prefix(&stem)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(&extension));
        let time = stamp.and_then(|stamp| DateTime::strptime(STAMP, stamp).ok());
        if let Some(Ok(time)) = time.map(|time| TimeZone::UTC.to_timestamp(time)) {
            found.push((time, path.with_file_name(name)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_full_file_is_set_aside_and_only_so_many_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs").join("audit.log");
        let rotation = Rotation {
            max_bytes: 20,
            max_age_days: 0,
            max_backups: 2,
        };
        let mut file = RotatingFile::open(path.clone(), rotation).unwrap();
        for number in 0..10 {
            file.write_all(format!("line {number:04}\n").as_bytes())
                .unwrap();
        }
        file.flush().unwrap();
        let kept = names(path.parent().unwrap());
        assert_eq!(kept.len(), 3, "{kept:?}");
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "line 0008\nline 0009\n"
        );
        let newest = path.with_file_name(&kept[1]);
        assert_eq!(
            std::fs::read_to_string(newest).unwrap(),
            "line 0006\nline 0007\n"
        );
        drop(file);
        let mut again = RotatingFile::open(path.clone(), rotation).unwrap();
        again.write_all(b"line 0010\n").unwrap();
        again.flush().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "line 0010\n");
    }

    #[test]
    fn a_size_of_nought_is_the_usual_one_and_not_a_file_per_event() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let rotation = Rotation {
            max_bytes: 0,
            ..Rotation::default()
        };
        let mut file = RotatingFile::open(path, rotation).unwrap();
        for _ in 0..3 {
            file.write_all(b"event\n").unwrap();
        }
        file.flush().unwrap();
        assert_eq!(names(dir.path()), ["audit.log"]);
    }

    #[test]
    fn old_files_are_removed_and_others_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let today = Timestamp::now().strftime(STAMP).to_string();
        let young = format!("audit-{today}.log");
        for name in [
            "audit-2020-01-02T03-04-05.678.log",
            &young,
            "audit-notes.log",
            "other-2020-01-02T03-04-05.678.log",
        ] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let rotation = Rotation {
            max_age_days: 30,
            ..Rotation::default()
        };
        RotatingFile::open(dir.path().join("audit.log"), rotation).unwrap();
        let mut expected = [
            young.as_str(),
            "audit-notes.log",
            "audit.log",
            "other-2020-01-02T03-04-05.678.log",
        ];
        expected.sort_unstable();
        assert_eq!(names(dir.path()), expected);
    }

    #[test]
    fn a_file_that_somebody_moved_is_begun_anew_when_it_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let rotation = Rotation {
            max_bytes: 20,
            ..Rotation::default()
        };
        let mut file = RotatingFile::open(path.clone(), rotation).unwrap();
        file.write_all(b"line 0000\n").unwrap();
        file.flush().unwrap();
        std::fs::rename(&path, dir.path().join("moved.log")).unwrap();
        for number in 1..4 {
            let line = format!("line {number:04}\n");
            file.write_all(line.as_bytes()).unwrap();
        }
        file.flush().unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("moved.log"), "line 0000\nline 0001\n");
        assert_eq!(read("audit.log"), "line 0002\nline 0003\n");
    }

    #[test]
    fn a_line_larger_than_a_file_is_still_written_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = RotatingFile::open(
            path.clone(),
            Rotation {
                max_bytes: 4,
                ..Rotation::default()
            },
        )
        .unwrap();
        file.write_all(b"a long line\n").unwrap();
        file.flush().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a long line\n");
    }
}
