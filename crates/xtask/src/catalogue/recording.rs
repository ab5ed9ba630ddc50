//! Reads a recording and answers questions about it. What becomes of the answers is left to the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// One server's documents, with its default APIs and, where recorded, with all of them.
pub(crate) struct Recording {
    pub(crate) version: Value,
    /// The widest set of APIs recorded.
    pub(crate) all: Documents,
    /// The set that is on without flags.
    pub(crate) default: Documents,
    /// Kind and group to key prefix and stored apiVersion.
    pub(crate) keys: BTreeMap<(String, String), String>,
}

/// The documents of one run.
pub(crate) struct Documents {
    pub(crate) aggregated: Vec<Value>,
    pub(crate) legacy: BTreeMap<String, Value>,
    pub(crate) openapi: BTreeMap<String, Value>,
    pub(crate) tables: BTreeMap<String, Value>,
    pub(crate) bootstrap: Vec<Value>,
}

impl Recording {
    pub(crate) fn read(dir: &Path) -> Result<Recording> {
        let mut all: PathBuf = dir.to_owned();
        let name = dir
            .file_name()
            .and_then(|n| n.to_str())
            .context("a folder name")?;
        all.set_file_name(format!("{name}-all"));
        let default = Documents::read(dir)?;
        let all = if all.is_dir() {
            Documents::read(&all)?
        } else {
            Documents::read(dir)?
        };
        Ok(Recording {
            version: json(&dir.join("version.json"))?,
            all,
            default,
            keys: keys(&dir.with_file_name("etcd-keys.json"))?,
        })
    }

    /// Such as `1.37`.
    pub(crate) fn minor_version(&self) -> Result<String> {
        let text = |field: &str| {
            self.version[field]
                .as_str()
                .with_context(|| format!("version.json: no {field}"))
        };
        Ok(format!("{}.{}", text("major")?, text("minor")?))
    }

    /// Whether aggregated discovery prints `creationTimestamp: null`.
    pub(crate) fn has_null_creation_timestamps(&self) -> bool {
        self.default.aggregated.iter().any(|document| {
            document["items"][0]["metadata"]
                .as_object()
                .is_some_and(|m| m.contains_key("creationTimestamp"))
        })
    }
}

impl Documents {
    fn read(dir: &Path) -> Result<Documents> {
        Ok(Documents {
            aggregated: vec![
                json(&dir.join("aggregated-api.json"))?,
                json(&dir.join("aggregated-apis.json"))?,
            ],
            legacy: json(&dir.join("legacy.json"))?,
            openapi: json(&dir.join("openapi-v3.json"))?,
            tables: json(&dir.join("tables.json"))?,
            bootstrap: json(&dir.join("bootstrap.json"))?,
        })
    }

    /// The resource lists of all group-versions: group-version and resources.
    pub(crate) fn resource_lists(&self) -> impl Iterator<Item = (&str, &Vec<Value>)> {
        self.legacy.values().filter_map(|document| {
            let resources = document["resources"].as_array()?;
            Some((document["groupVersion"].as_str()?, resources))
        })
    }

    /// Whether the group-version has that resource.
    pub(crate) fn has(&self, group_version: &str, resource: &str) -> bool {
        self.resource_lists()
            .any(|(gv, list)| gv == group_version && list.iter().any(|r| r["name"] == resource))
    }
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn keys(path: &Path) -> Result<BTreeMap<(String, String), String>> {
    let mut keys = BTreeMap::new();
    for entry in json::<Vec<Value>>(path)? {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let prefix = text("key")
            .trim_start_matches("/registry/")
            .trim_end_matches("/{name}")
            .trim_end_matches("/{namespace}");
        let group = text("storedAs")
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        keys.insert(
            (text("kind").to_owned(), group.to_owned()),
            prefix.to_owned(),
        );
    }
    Ok(keys)
}
