//! Where `peerage diff` has a side from: the catalogue, files, or a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use peerage_catalogue::{Catalogue, RuntimeConfig};
use peerage_core::discovery::{ApiGroupDiscoveryList, read_core, read_groups};
use serde_json::Value;

use super::DiffFlags;
use super::compare::Inventory;
use super::lifecycle::Release;
use crate::client::chain;
use crate::discovery::{self, Discovery, Form};
use crate::exit::Failure;
use crate::pki::PkiError;
use crate::pki::kubeconfig;
use crate::targets::{self, Target};

/// The side that a word names.
pub(super) async fn side(flags: &DiffFlags, word: &str) -> Result<Inventory, Failure> {
    if targets::is_server(word) {
        return server(flags, targets::target(&flags.servers, word)?).await;
    }
    let looks_like_release = word
        .trim_start_matches('v')
        .split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let is_context = targets::is_context(&flags.servers, word);
    let is_there = Path::new(word).exists();
    if is_there && !word.contains('/') && (looks_like_release || is_context) {
        return Err(several(word, looks_like_release));
    }
    if is_there || word.contains(',') {
        return saved(word);
    }
    if looks_like_release {
        return catalogue(flags, word.trim_start_matches('v'));
    }
    if is_context {
        return server(flags, targets::of_context(&flags.servers, word)?).await;
    }
    Err(targets::bare_address(word).unwrap_or_else(|| nothing(flags, word)))
}

/// For a word that is a file's name and something else.
fn several(word: &str, is_release: bool) -> Failure {
    let (other, written) = match (is_release, word.strip_prefix('v')) {
        (true, Some(bare)) => ("a Kubernetes version", bare.to_owned()),
        (true, None) => ("a Kubernetes version", format!("v{word}")),
        (false, _) => ("a context of the kubeconfig", format!("context:{word}")),
    };
    let what = what_is_there(word);
    Failure::usage(format!(
        "{word} is {what} here and {other}: write ./{word} for the one or {written} for the other"
    ))
}

fn what_is_there(word: &str) -> &'static str {
    match Path::new(word).is_dir() {
        true => "a directory",
        false => "a file",
    }
}

/// For a word that is nothing.
fn nothing(flags: &DiffFlags, word: &str) -> Failure {
    let file = flags.servers.kubeconfig.display();
    let context = match kubeconfig::contexts(&flags.servers.kubeconfig) {
        Ok(_) => format!("no context of {file}"),
        // What to do instead is said here for more than contexts.
        Err(PkiError::NoKubeconfig { source, .. }) => {
            format!("no context, because of the kubeconfig: cannot read {file}: {source};")
        }
        Err(why) => format!("no context, because of the kubeconfig: {why};"),
    };
    Failure::usage(format!(
        "{word}: no file or directory, {context} and no Kubernetes version of that name; \
         write https://HOST:PORT for a server, context:NAME for a kubeconfig's, or one of {}",
        peerage_catalogue::versions().join(", ")
    ))
}

fn catalogue(flags: &DiffFlags, version: &str) -> Result<Inventory, Failure> {
    let words = if flags.all_apis { "api/all" } else { "" };
    let config = RuntimeConfig::parse(words).map_err(Failure::usage)?;
    let minor = Release::parse(version).map(|it| it.to_string());
    let minor = minor.filter(|it| it != version && peerage_catalogue::versions().contains(&&**it));
    if let Some(minor) = minor {
        return Err(Failure::usage(format!(
            "{version}: write {minor}; all patch releases of it serve the same APIs"
        )));
    }
    let catalogue = Catalogue::load(version, &config).map_err(Failure::usage)?;
    Ok(Inventory {
        label: version.to_owned(),
        release: Release::parse(version),
        apis: Some(catalogue.groups_discovery()),
        core: Some(catalogue.core_discovery()),
    })
}

async fn server(flags: &DiffFlags, target: Target) -> Result<Inventory, Failure> {
    let client = target.client(flags.timeout)?;
    let asked = async { futures::join!(discovery::read(&client), client.get("/version")) };
    let (found, version) = tokio::time::timeout(flags.timeout, asked)
        .await
        .map_err(|_| Failure::unavailable(format!("{}: no answer in time", target.name)))?;
    let named = |e| Failure::unavailable(format!("{}: {}", target.name, chain(&e)));
    let found = found.map_err(named)?;
    let version = version.map(|answer| answer.json()).unwrap_or_default();
    Ok(inventory(target.name, release(&version), found))
}

fn inventory(label: String, release: Option<Release>, found: Discovery) -> Inventory {
    Inventory {
        label,
        release,
        apis: Some(found.apis),
        core: Some(found.core),
    }
}

/// The release whose API a server shows: the one it emulates, where it says so.
fn release(version: &Value) -> Option<Release> {
    let text = |key: &str| version[key].as_str().unwrap_or_default();
    let emulated = format!("{}.{}", text("emulationMajor"), text("emulationMinor"));
    Release::parse(&emulated).or_else(|| Release::parse(text("gitVersion")))
}

/// What files hold of a side: of each part the best form counts, whatever the files' order.
#[derive(Default)]
struct Saved {
    apis: Option<(Form, ApiGroupDiscoveryList)>,
    core: Option<(Form, ApiGroupDiscoveryList)>,
    release: Option<Release>,
}

/// A side from files: one, several after commas, or all `.json` files of a directory.
fn saved(word: &str) -> Result<Inventory, Failure> {
    let mut saved = Saved::default();
    for file in files(word)? {
        let bytes = std::fs::read(&file)
            .map_err(|e| Failure::unavailable(format!("cannot read {}: {e}", file.display())))?;
        saved
            .take(&bytes)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", file.display())))?;
    }
    if saved.apis.is_none() && saved.core.is_none() {
        let json = match Path::new(word).is_dir() {
            true => ", in .json files",
            false => "",
        };
        return Err(Failure::usage(format!(
            "{word} is {} here, and there is no discovery document in it{json}; a server is written https://HOST:PORT or \
             context:NAME, a Kubernetes version is one of {}",
            what_is_there(word),
            peerage_catalogue::versions().join(", ")
        )));
    }
    Ok(Inventory {
        label: word.to_owned(),
        release: saved.release,
        apis: saved.apis.map(|it| it.1),
        core: saved.core.map(|it| it.1),
    })
}

impl Saved {
    /// Takes a file's content; other JSON than discovery and `/version` says nothing here.
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        match discovery::form(bytes) {
            Some(Form::Legacy) => Err(
                "a legacy document alone lists no resources; save the aggregated one, or all legacy ones by path"
                    .to_owned(),
            ),
            Some(form) => {
                match (read_core(bytes), read_groups(bytes)) {
                    (Ok(core), _) => keep_better(&mut self.core, form, core),
                    (_, Ok(apis)) => keep_better(&mut self.apis, form, apis),
                    (_, Err(e)) => return Err(chain(&e)),
                }
                Ok(())
            }
            None => self.take_other(bytes),
        }
    }

    fn take_other(&mut self, bytes: &[u8]) -> Result<(), String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|e| format!("not JSON: {e}"))?;
        if value.get("gitVersion").is_some() {
            self.release = release(&value);
        } else if value.get("/apis").is_some() {
            let walk: BTreeMap<String, Value> =
                serde_json::from_value(value).map_err(|e| e.to_string())?;
            let found = discovery::from_saved_walk(&walk).map_err(|e| chain(&e))?;
            keep_better(&mut self.apis, Form::Legacy, found.apis);
            keep_better(&mut self.core, Form::Legacy, found.core);
        }
        Ok(())
    }
}

fn keep_better(
    kept: &mut Option<(Form, ApiGroupDiscoveryList)>,
    form: Form,
    list: ApiGroupDiscoveryList,
) {
    if kept.as_ref().is_none_or(|(best, _)| form < *best) {
        *kept = Some((form, list));
    }
}

fn files(word: &str) -> Result<Vec<PathBuf>, Failure> {
    let path = Path::new(word);
    if !path.is_dir() {
        return Ok(word.split(',').map(PathBuf::from).collect());
    }
    let unreadable = |e| Failure::unavailable(format!("cannot read {word}: {e}"));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_some_and(|it| it == "json") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::exit::Kind;

    #[test]
    fn the_release_is_the_one_that_a_server_emulates() {
        let both = serde_json::json!({"emulationMajor": "1", "emulationMinor": "34", "gitVersion": "v1.37.2"});
        assert_eq!(release(&both), Some(Release(1, 34)));
        let old = serde_json::json!({"gitVersion": "v1.20.15"});
        assert_eq!(release(&old), Some(Release(1, 20)));
        assert_eq!(release(&Value::Null), None);
    }

    #[test]
    fn a_word_that_is_nothing_is_answered_with_what_there_is() {
        let temp = tempfile::tempdir().unwrap();
        let failure = saved(&temp.path().display().to_string()).unwrap_err();
        assert!(failure.to_string().contains("1.33, 1.34"), "{failure}");
        assert_eq!(failure.kind(), Kind::Usage);
    }
}
