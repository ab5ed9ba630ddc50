//! Servers from a file: a YAML or JSON list of `{url, zone, id}`, read again when it changes.
//!
//! A change counts when the file has stayed as it is for a moment: half of a list is a list too, and a file that is
//! written in place is read in halves.
//!
//! Invariants: a file that cannot be read or is no list changes nothing, and neither does an empty one, which is what a
//! file looks like while it is being written (`[]` says that there are none), or one in which nothing can be used; a bad
//! entry costs that entry alone.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use http::uri::Authority;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout};

use super::publish::Publisher;
use super::{Found, LONGEST_ID};
use crate::yaml::{self, Place};

/// How often the file is looked at. Its content counts, not its time: mounted files are swapped by symlink.
const LOOK: Duration = Duration::from_secs(1);
/// For how long it has to stay as it is before a change of it counts.
const SETTLE: Duration = Duration::from_millis(250);
/// After how long it is told that it does not.
const RESTLESS: Duration = Duration::from_secs(10);
/// For opening and reading it: a file of a server that is away has nothing to say for as long as it likes.
const DEADLINE: Duration = Duration::from_secs(5);
/// More than any list of servers has.
const MOST_BYTES: u64 = 1 << 20;
/// Mistakes that are told when it is only looked at.
const MOST_TOLD: usize = 8;

/// Why an address was not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EntryError {
    /// It is no URL of a server.
    #[error("url: {0:?} is no server; write https://HOST:PORT")]
    Url(String),
    /// It is not what an entry looks like.
    #[error("it is not {{url: …, zone: …, id: …}}: {0}")]
    Shape(String),
    /// Its ID is longer than any name.
    #[error("id: it has {0} bytes, and no server's has more than {LONGEST_ID}")]
    Id(usize),
}

/// Why a file says nothing.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: String,
        source: std::io::Error,
    },
    #[error("{0} is no regular file, so that it cannot be read again and again")]
    Kind(String),
    #[error("{0} is not read after {DEADLINE:?}; is it on a file system that can be reached?")]
    Late(String),
    #[error("{0} is larger than {MOST_BYTES} bytes")]
    TooLarge(String),
    #[error("{0} is empty; write [] for no servers")]
    Empty(String),
    #[error(
        "{0} was written again and again for {RESTLESS:?}; it counts when it stays as it is for {SETTLE:?}"
    )]
    Restless(String),
    #[error("{path} has {count} entries and none that can be used; the first is in {place}: {why}")]
    Entries {
        path: String,
        count: usize,
        place: String,
        why: EntryError,
    },
    #[error("{path} is no list of servers ([{{url: https://HOST:PORT}}, …]): {problem}")]
    Shape { path: String, problem: String },
}

impl FileError {
    fn reason(&self) -> &'static str {
        match self {
            FileError::Read { .. } => "read",
            FileError::Kind(_) => "kind",
            FileError::Late(_) => "deadline",
            FileError::TooLarge(_) => "too_large",
            FileError::Empty(_) => "empty",
            FileError::Restless(_) => "restless",
            FileError::Entries { .. } => "entries",
            FileError::Shape { .. } => "shape",
        }
    }
}

/// What the file has, and when it was last written.
#[derive(PartialEq)]
struct Content {
    text: String,
    written: Option<SystemTime>,
}

/// Follows the file for ever.
pub(super) async fn follow(path: PathBuf, mut publisher: Publisher) {
    let mut file = Followed::default();
    let mut reading = Box::pin(read(&path));
    loop {
        let Ok(content) = timeout(DEADLINE, &mut reading).await else {
            // Still the same read: one that hangs keeps a thread.
            let late = FileError::Late(path.display().to_string());
            publisher.failed(late.reason(), late.to_string());
            continue;
        };
        let pause = file.take(&path, content, &mut publisher);
        tokio::time::sleep(pause).await;
        reading.set(read(&path));
    }
}

/// The file as it was read before.
#[derive(Default)]
struct Followed {
    /// The text in force.
    text: Option<String>,
    /// What it was at the last look, if that is something else.
    other: Option<Content>,
    /// Since when it has not been twice the same.
    restless: Option<Instant>,
}

impl Followed {
    /// Takes in what was read; returns when to look again.
    fn take(
        &mut self,
        path: &Path,
        read: Result<Content, FileError>,
        publisher: &mut Publisher,
    ) -> Duration {
        let content = match read {
            Ok(content) => content,
            Err(error) => {
                publisher.failed(error.reason(), error.to_string());
                return LOOK;
            }
        };
        if self.text.as_ref() == Some(&content.text) {
            (self.other, self.restless) = (None, None);
            publisher.confirmed();
            return LOOK;
        }
        if self.other.as_ref() != Some(&content) {
            self.other = Some(content);
            let since = *self.restless.get_or_insert_with(Instant::now);
            if since.elapsed() >= RESTLESS {
                let restless = FileError::Restless(path.display().to_string());
                publisher.failed(restless.reason(), restless.to_string());
            }
            return SETTLE;
        }
        self.restless = None;
        match parse(path, &content.text) {
            Ok(list) => {
                for bad in &list.bad {
                    let why = format!("{}, {}: {}", path.display(), bad.place, bad.why);
                    publisher.skipped(&bad.entry, &why);
                }
                publisher.found(list.servers, list.bad.len());
                self.text = Some(content.text);
            }
            Err(error) => publisher.failed(error.reason(), error.to_string()),
        }
        LOOK
    }
}

async fn read(path: &Path) -> Result<Content, FileError> {
    let failed = |source| FileError::Read {
        path: path.display().to_string(),
        source,
    };
    // To open a pipe would already wait for who writes it.
    if !tokio::fs::metadata(path).await.map_err(failed)?.is_file() {
        return Err(FileError::Kind(path.display().to_string()));
    }
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut text = String::new();
    // A file may say that it is small and have no end.
    let mut some = file.take(MOST_BYTES + 1);
    some.read_to_string(&mut text).await.map_err(failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(FileError::TooLarge(path.display().to_string()));
    }
    let now = tokio::fs::metadata(path).await.map_err(failed)?;
    let written = now.modified().ok();
    Ok(Content { text, written })
}

#[derive(Debug, Default, PartialEq)]
struct List {
    servers: Vec<Found>,
    bad: Vec<Bad>,
}

/// An entry that is of no use.
#[derive(Debug, PartialEq)]
struct Bad {
    /// As it is written.
    entry: String,
    /// Line and column.
    place: String,
    why: EntryError,
}

fn parse(path: &Path, text: &str) -> Result<List, FileError> {
    let path = path.display().to_string();
    if text.trim().is_empty() {
        return Err(FileError::Empty(path));
    }
    let entries: Vec<Spanned<Value>> = match yaml::read_open(text) {
        Ok(entries) => entries,
        Err(problem) => return Err(FileError::Shape { path, problem }),
    };
    let mut list = List::default();
    for Spanned {
        value, referenced, ..
    } in entries
    {
        let shown = value.to_string();
        match entry(value) {
            Ok(found) => list.servers.push(found),
            Err(why) => list.bad.push(Bad {
                entry: shown,
                place: Place::from(&referenced).to_string(),
                why,
            }),
        }
    }
    let count = list.bad.len();
    if !list.servers.is_empty() || count == 0 {
        return Ok(list);
    }
    let Bad { place, why, .. } = list.bad.swap_remove(0);
    Err(FileError::Entries {
        path,
        count,
        place,
        why,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of url, zone and id")]
struct Entry {
    url: String,
    zone: Option<String>,
    id: Option<String>,
}

fn entry(value: Value) -> Result<Found, EntryError> {
    let entry: Entry =
        serde_json::from_value(value).map_err(|error| EntryError::Shape(error.to_string()))?;
    if let Some(id) = entry.id.as_ref().filter(|id| id.len() > LONGEST_ID) {
        return Err(EntryError::Id(id.len()));
    }
    let given = |text: Option<String>| text.filter(|it| !it.is_empty()).map(Into::into);
    Ok(Found {
        zone: given(entry.zone),
        id: given(entry.id),
        ..Found::at(server_address(&entry.url)?)
    })
}

/// How many servers a file lists, for who wants to know before it is followed.
///
/// # Errors
/// What is wrong with it, each with its line and column: at most eight mistakes.
pub fn listed(path: &Path) -> Result<usize, Vec<String>> {
    let said = |error: FileError| vec![error.to_string()];
    let (shown, failed) = (path.display().to_string(), |source| FileError::Read {
        path: path.display().to_string(),
        source,
    });
    let there = std::fs::metadata(path).map_err(|error| said(failed(error)))?;
    if !there.is_file() {
        return Err(said(FileError::Kind(shown)));
    }
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| said(failed(error)))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(said(FileError::TooLarge(shown)));
    }
    let list = parse(path, &text).map_err(said)?;
    if list.bad.is_empty() {
        return Ok(list.servers.len());
    }
    let bad = list.bad.iter().take(MOST_TOLD);
    Err(bad
        .map(|bad| format!("{shown}, {}: {}", bad.place, bad.why))
        .collect())
}

/// The host and port in `https://HOST[:PORT][/]`; the port of HTTPS where none is given.
///
/// # Errors
/// [`EntryError::Url`].
pub fn server_address(url: &str) -> Result<Authority, EntryError> {
    let wrong = || EntryError::Url(url.to_owned());
    let rest = url.strip_prefix("https://").ok_or_else(wrong)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let authority: Authority = rest.parse().map_err(|_| wrong())?;
    if authority.host().is_empty() || rest.contains('@') {
        return Err(wrong());
    }
    if authority.port_u16().is_some() {
        return Ok(authority);
    }
    if rest
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .ends_with(':')
        && !rest.ends_with(']')
    {
        // A colon with no number, or one that is none.
        return Err(wrong());
    }
    format!("{rest}:443").parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (url, expected) in [
            ("https://10.0.0.1:6443", Some("10.0.0.1:6443")),
            ("https://a.example", Some("a.example:443")),
            ("https://a.example/", Some("a.example:443")),
            ("https://[fd00::1]:6443/", Some("[fd00::1]:6443")),
            ("https://[fd00::1]", Some("[fd00::1]:443")),
            ("http://10.0.0.1:6443", None),
            ("10.0.0.1:6443", None),
            ("https://", None),
            ("https://user@host:1", None),
            ("https://host:99999", None),
            ("https://host:", None),
            ("https://host/path", None),
        ] {
            let read = server_address(url).ok();
            assert_eq!(read.as_ref().map(Authority::as_str), expected, "{url}");
        }
    }

    #[test]
    fn a_list_is_read_and_a_bad_entry_costs_that_entry_alone() {
        let text = "- url: https://10.0.0.1:6443\n  zone: a\n- {url: 'https://b', id: apiserver-b}\n- url: nonsense\n\
                    - {urll: https://c}\n- 7\n";
        let list = parse(Path::new("f"), text).unwrap();
        let shown: Vec<_> = list
            .servers
            .iter()
            .map(|s| (s.record_id().to_string(), s.zone.as_deref()))
            .collect();
        let expected = [
            ("10.0.0.1:6443".to_owned(), Some("a")),
            ("apiserver-b".to_owned(), None),
        ];
        assert_eq!(shown, expected);
        assert_eq!(list.bad.len(), 3);
        let why = list.bad[2].why.to_string();
        assert!(why.contains("expected a mapping of url"), "{why}");
        assert_eq!(list.bad[0].why, EntryError::Url("nonsense".to_owned()));
        let why = list.bad[1].why.to_string();
        assert!(why.contains("unknown field `urll`"), "{why}");
        let places: Vec<&str> = list.bad.iter().map(|it| &*it.place).collect();
        assert_eq!(
            places,
            ["line 4, column 3", "line 5, column 3", "line 6, column 3"]
        );
        let json = r#"[{"url": "https://10.0.0.1:6443"}]"#;
        assert_eq!(parse(Path::new("f"), json).unwrap().servers.len(), 1);
        assert_eq!(parse(Path::new("f"), "[]").unwrap(), List::default());
    }

    #[tokio::test]
    async fn what_is_too_large_or_no_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large");
        std::fs::write(&large, vec![b'-'; MOST_BYTES as usize + 1]).unwrap();
        for (path, reason) in [
            (large.as_path(), "too_large"),
            (Path::new("/dev/zero"), "kind"),
            (directory.path(), "kind"),
            (Path::new("/nowhere"), "read"),
        ] {
            let Err(error) = read(path).await else {
                panic!("{} can be read", path.display());
            };
            assert_eq!(error.reason(), reason, "{error}");
        }
    }

    #[test]
    fn a_list_in_which_nothing_can_be_used_is_told_with_its_first_entry() {
        let long = format!(
            "- {{url: 'https://a', id: {}}}\n",
            "x".repeat(LONGEST_ID + 1)
        );
        let text = format!("{long}{}", "- {url: bad}\n".repeat(20_000));
        let error = parse(Path::new("f"), &text).unwrap_err().to_string();
        let expected = "f has 20001 entries and none that can be used; the first is in line 1, column 3: id: it has 254 \
                        bytes, and no server's has more than 253";
        assert_eq!(error, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_being_written_is_believed_when_it_stays() {
        use super::super::SourceName;
        use super::super::publish::Publisher;
        let (mut publisher, said) =
            Publisher::new(SourceName::File, Default::default(), Default::default());
        let path = Path::new("f");
        let whole = "- url: https://a:1\n- url: https://b:1\n";
        let content = |text: &str, written: u64| {
            let written = SystemTime::UNIX_EPOCH + Duration::from_millis(written);
            let text = text.to_owned();
            Ok(Content {
                text,
                written: Some(written),
            })
        };
        let count = || said.borrow().servers.len();
        let mut file = Followed::default();
        assert_eq!(file.take(path, content(whole, 0), &mut publisher), SETTLE);
        assert_eq!(file.take(path, content(whole, 0), &mut publisher), LOOK);
        assert_eq!(count(), 2);
        // In place, and each half of it is a list; also the same half again, written anew.
        for (at, end) in [(1, 19), (2, 19), (3, 0), (4, 32), (5, 19)] {
            assert_eq!(
                file.take(path, content(&whole[..end], at), &mut publisher),
                SETTLE
            );
            assert_eq!((count(), &said.borrow().trouble), (2, &None));
        }
        assert_eq!(file.take(path, content(whole, 6), &mut publisher), LOOK);
        // It never comes to rest.
        for at in 7..60 {
            tokio::time::advance(SETTLE).await;
            file.take(path, content(&whole[..19], at), &mut publisher);
        }
        assert_eq!(count(), 2);
        let trouble = said.borrow().trouble.clone().unwrap();
        assert!(trouble.contains("again and again"), "{trouble}");
        file.take(path, content(&whole[..19], 59), &mut publisher);
        assert_eq!((count(), &said.borrow().trouble), (1, &None));
    }

    #[test]
    fn what_is_no_list_says_nothing() {
        for (text, reason) in [
            ("", "empty"),
            (" \n", "empty"),
            ("url: https://a", "shape"),
            ("- [", "shape"),
            ("- {url: 'https://a', url: 'https://b'}", "shape"),
            ("- url: https://a\n---\n- url: https://b\n", "shape"),
            ("\"https://a\"", "shape"),
            ("- url: nonsense\n- 7\n", "entries"),
        ] {
            let error = parse(Path::new("f"), text).unwrap_err();
            assert_eq!(error.reason(), reason, "{text:?}: {error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            let has_place = error.to_string().contains("line ");
            assert!(has_place || reason == "empty", "{error}");
            assert!(!error.to_string().contains("ption"), "{error}");
        }
    }
}
