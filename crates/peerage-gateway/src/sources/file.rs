//! Servers from a file: a YAML or JSON list of `{url, zone, id}`, read again when it changes.
//!
//! Invariants: a file that cannot be read or is no list changes nothing, and neither does an empty one, which is what a
//! file looks like while it is being written (`[]` says that there are none); a bad entry costs that entry alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::Authority;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::Found;
use super::publish::Publisher;

/// How often the file is looked at. Its content counts, not its time: mounted files are swapped by symlink.
const LOOK: Duration = Duration::from_secs(1);
/// For opening and reading it: a file of a server that is away has nothing to say for as long as it likes.
const DEADLINE: Duration = Duration::from_secs(5);
/// More than any list of servers has.
const MOST_BYTES: u64 = 1 << 20;

/// Why an address was not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EntryError {
    /// It is no URL of a server.
    #[error("url: {0:?} is no server; write https://HOST:PORT")]
    Url(String),
    /// It is not what an entry looks like.
    #[error("it is not {{url: …, zone: …, id: …}}: {0}")]
    Shape(String),
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
    #[error("{path} is no list of servers: {problem}")]
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
            FileError::Shape { .. } => "shape",
        }
    }
}

/// Follows the file for ever.
pub(super) async fn follow(path: PathBuf, mut publisher: Publisher) {
    let mut before = None;
    let mut reading = Box::pin(read(&path));
    loop {
        let Ok(text) = timeout(DEADLINE, &mut reading).await else {
            // Still the same read: one that hangs keeps a thread.
            let late = FileError::Late(path.display().to_string());
            publisher.failed(late.reason(), late.to_string());
            continue;
        };
        match text {
            Ok(text) if before.as_ref() == Some(&text) => publisher.confirmed(),
            Ok(text) => match parse(&path, &text) {
                Ok(list) => {
                    for bad in &list.bad {
                        let why = format!("{}, {}: {}", path.display(), bad.place, bad.why);
                        publisher.skipped(&bad.entry, &why);
                    }
                    publisher.found(list.servers, list.bad.len());
                    before = Some(text);
                }
                Err(error) => publisher.failed(error.reason(), error.to_string()),
            },
            Err(error) => publisher.failed(error.reason(), error.to_string()),
        }
        tokio::time::sleep(LOOK).await;
        reading.set(read(&path));
    }
}

async fn read(path: &Path) -> Result<String, FileError> {
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
    Ok(text)
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
    let entries: Vec<Spanned<Value>> = match serde_saphyr::from_str(text) {
        Ok(entries) => entries,
        Err(error) => {
            let problem = in_one_line(&error.without_snippet().to_string());
            return Err(FileError::Shape { path, problem });
        }
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
                place: format!("line {}, column {}", referenced.line(), referenced.column()),
                why,
            }),
        }
    }
    Ok(list)
}

/// What the parser says, without lines of its own.
fn in_one_line(text: &str) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty());
    let words = first.unwrap_or_default().chars().take(200);
    words.collect::<String>().trim().to_owned()
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
    let given = |text: Option<String>| text.filter(|it| !it.is_empty()).map(Into::into);
    Ok(Found {
        zone: given(entry.zone),
        id: given(entry.id),
        ..Found::at(server_address(&entry.url)?)
    })
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
            let error = read(path).await.unwrap_err();
            assert_eq!(error.reason(), reason, "{error}");
        }
    }

    #[test]
    fn what_is_no_list_says_nothing() {
        for (text, reason) in [
            ("", "empty"),
            (" \n", "empty"),
            ("url: https://a", "shape"),
            ("- [", "shape"),
            ("\"https://a\"", "shape"),
        ] {
            let error = parse(Path::new("f"), text).unwrap_err();
            assert_eq!(error.reason(), reason, "{text:?}: {error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            let has_place = error.to_string().contains("line 1");
            assert!(has_place || reason == "empty", "{error}");
        }
    }
}
