//! Holds the crates to ARCHITECTURE.md's table of which may use which, and each `Cargo.toml` to its sources.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

/// The workspace's packages, as cargo sees them.
fn packages() -> Vec<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap())
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The names of the dependencies whose kind passes; cargo calls the usual kind `null`.
fn dependencies(package: &Value, kinds: &[Option<&str>]) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().unwrap().iter();
    all.filter(|d| kinds.contains(&d["kind"].as_str()))
        .map(|d| text(&d["name"]).to_owned())
        .collect()
}

/// What each crate may use, from the table in ARCHITECTURE.md.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows: Vec<(String, &str)> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let name = cells.next()?.strip_suffix('`')?;
            Some((name.to_owned(), cells.next()?))
        })
        .filter(|(name, _)| name.starts_with("peerage") || name == "xtask")
        .collect();
    let full = |short: &str| format!("peerage-{short}");
    rows.iter()
        .enumerate()
        .map(|(at, (name, uses))| {
            let above = || -> BTreeSet<String> {
                rows[..at].iter().map(|(name, _)| name.clone()).collect()
            };
            let uses = match *uses {
                "–" => BTreeSet::new(),
                "all above" => above(),
                "all" => rows.iter().map(|(name, _)| name.clone()).collect(),
                but if but.starts_with("all above but ") => {
                    let not = full(&but["all above but ".len()..]);
                    above().into_iter().filter(|name| *name != not).collect()
                }
                listed => listed.split(", ").map(full).collect(),
            };
            (name.clone(), uses)
        })
        .collect()
}

#[test]
fn crates_use_each_other_as_the_architecture_says() {
    let allowed = allowed();
    for package in packages() {
        let name = text(&package["name"]);
        let may = allowed
            .get(name)
            .unwrap_or_else(|| panic!("ARCHITECTURE.md's table has no row for {name}"));
        let does = dependencies(&package, &[None, Some("build")]);
        let beyond: Vec<_> = does
            .iter()
            .filter(|used| used.starts_with("peerage") && !may.contains(*used))
            .collect();
        assert!(beyond.is_empty(), "{name} must not use {beyond:?}");
    }
}

/// Every Rust source below a folder, as one text.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|e| e == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

fn unused(names: BTreeSet<String>, text: &str) -> Vec<String> {
    let words: BTreeSet<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    names
        .into_iter()
        .filter(|name| !words.contains(name.replace('-', "_").as_str()))
        .collect()
}

#[test]
fn no_dependency_is_listed_and_not_used() {
    for package in packages() {
        let folder = Path::new(text(&package["manifest_path"])).parent().unwrap();
        let mut shipped = String::new();
        sources(&folder.join("src"), &mut shipped);
        shipped.push_str(&std::fs::read_to_string(folder.join("build.rs")).unwrap_or_default());
        let normal = dependencies(&package, &[None, Some("build")]);
        let mut all = shipped.clone();
        for other in ["tests", "benches", "examples"] {
            sources(&folder.join(other), &mut all);
        }
        let found = [
            unused(normal, &shipped),
            unused(dependencies(&package, &[Some("dev")]), &all),
        ]
        .concat();
        assert!(
            found.is_empty(),
            "{} does not use {found:?}",
            text(&package["name"])
        );
    }
}

#[test]
fn every_package_says_what_it_is_and_under_which_licence() {
    for package in packages() {
        for field in ["description", "license", "repository", "rust_version"] {
            assert!(
                package[field].is_string(),
                "{}: {field}",
                text(&package["name"])
            );
        }
    }
}
