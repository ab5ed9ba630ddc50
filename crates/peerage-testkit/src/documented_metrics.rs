//! `docs/metrics.md` against the sources and against what a server exposes, so that none of the three says what another
//! does not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What metrics' names begin with, here and in kube-apiserver.
const FAMILIES: [&str; 6] = [
    "apiserver_",
    "aggregator_",
    "etcd_",
    "kubernetes_",
    "peerage_",
    "process_",
];

/// Crates that name metrics of others (what `peerage check` reads, what tests expect) and register none.
const READERS: [&str; 3] = ["peerage", "peerage-testkit", "xtask"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The metrics of the page: type and labels of each.
pub struct Documented(BTreeMap<String, (String, BTreeSet<String>)>);

impl Documented {
    /// Reads the page.
    pub fn read() -> Self {
        let text = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let row = |row: &str| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let labels = cells[2].split(", ").filter(|l| !l.is_empty());
            let labels = labels.map(|l| l.trim_matches('`').to_owned()).collect();
            let name = cells[0].trim_matches('`').to_owned();
            (name, (cells[1].to_owned(), labels))
        };
        Self(rows.map(row).collect())
    }

    /// The names.
    pub fn names(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    /// Panics unless every series of an exposition has its documented type and labels; the names of those that have a
    /// value.
    pub fn check(&self, text: &str) -> BTreeSet<String> {
        let (mut types, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                let known = self.0.get(name).map(|known| known.0.as_str());
                assert_eq!(known, Some(kind), "{name} is not as documented");
                types.insert(name.to_owned());
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let parts = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|s| name.strip_suffix(s));
                let name = parts.filter(|n| types.contains(*n)).unwrap_or(name);
                assert_eq!(labels(line), self.0[name].1, "{line}");
                seen.insert(name.to_owned());
            }
        }
        seen
    }
}

/// The names of a line's labels, without that of a bucket's bound.
fn labels(line: &str) -> BTreeSet<String> {
    let Some((_, rest)) = line.split_once('{') else {
        return BTreeSet::new();
    };
    let inner = rest.rsplit_once('}').unwrap().0;
    let names = inner.split("\",").filter_map(|pair| pair.split_once('='));
    names
        .map(|(name, _)| name.to_owned())
        .filter(|name| name != "le")
        .collect()
}

/// The names of metrics in the sources of every crate that may register some. Panics where one of the others does.
pub fn in_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let reads = READERS.iter().any(|name| folder.ends_with(name));
        for file in files(&folder.join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            if reads {
                let registers = text.contains(&["metrics", "Registry"].join("::"));
                assert!(!registers, "{} registers metrics", file.display());
            } else {
                names.extend(literals(&text));
            }
        }
    }
    // What the process uses is written to an encoder, which adds the suffix of a counter.
    names.remove("process_cpu_seconds");
    names
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Quoted words that are names of metrics.
fn literals(text: &str) -> impl Iterator<Item = String> {
    let is_name = |literal: &&str| {
        literal
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && FAMILIES.iter().any(|family| literal.starts_with(family))
            && !literal.ends_with('_')
    };
    text.split('"').skip(1).filter(is_name).map(str::to_owned)
}
