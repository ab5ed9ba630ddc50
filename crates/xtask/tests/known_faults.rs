//! Holds docs/known-faults.md to the tests that it names.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

/// Every Rust source below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The tests that the document names, as the ends of their files' paths and their functions.
fn named(page: &str) -> Vec<(&str, &str)> {
    let words = page.split('`').filter_map(|word| word.split_once("::"));
    words.filter(|(file, _)| file.ends_with(".rs")).collect()
}

/// Whether a function of a name is a test: an attribute or a macro of tests stands before it.
fn is_test(source: &str, name: &str) -> bool {
    let Some(at) = source.find(&format!("fn {name}(")) else {
        return false;
    };
    let before: Vec<_> = source[..at].lines().rev().take(6).collect();
    before.iter().any(|line| line.contains("test"))
}

#[test]
fn every_test_that_the_list_of_known_faults_names_is_there() {
    let page = std::fs::read_to_string(root().join("docs/known-faults.md")).unwrap();
    let named = named(&page);
    assert!(named.len() > 80, "{}", named.len());
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let mut missing = Vec::new();
    for (file, name) in named {
        let fits: Vec<_> = files.iter().filter(|it| it.ends_with(file)).collect();
        match *fits {
            [one] if is_test(&std::fs::read_to_string(one).unwrap(), name) => {}
            [one] => missing.push(format!("{name} is no test of {}", one.display())),
            ref other => missing.push(format!("{file} is {} files", other.len())),
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_known_fault_has_a_test_or_says_why_it_has_none() {
    let page = std::fs::read_to_string(root().join("docs/known-faults.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    for row in rows.filter(|row| !row.starts_with("| report")) {
        let says = row.contains("::") || row.contains("not yet") || row.contains("No test");
        assert!(says, "{row}");
        assert_eq!(row.matches(" | ").count(), 3, "{row}");
    }
}
