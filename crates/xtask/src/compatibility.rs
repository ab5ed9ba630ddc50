//! `docs/compatibility.md`: where Peerage deliberately does something else than Kubernetes.
//!
//! The text is that of the `Differs:` comments in the sources, so that it cannot be forgotten beside the code; a
//! paragraph ends with the first comment line that is empty, or with the comment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

const MARK: &str = "Differs:";
const HEAD: &str = "# Compatibility

Peerage does what Kubernetes does. Where it deliberately does something else, a comment beside the code says
`Differs:` and why; this page collects those comments. It is written by `cargo xtask compatibility`.
";

/// Writes the page, or, with `check`, fails when it is not what would be written.
pub(crate) fn run(check: bool) -> Result<()> {
    let page = Path::new("docs/compatibility.md");
    let text = render(&collect(Path::new("crates"))?);
    if !check {
        return fs::write(page, text).with_context(|| format!("writing {}", page.display()));
    }
    let found = fs::read_to_string(page).unwrap_or_default();
    if found != text {
        bail!(
            "{} is not up to date: run `cargo xtask compatibility`",
            page.display()
        );
    }
    Ok(())
}

/// Paragraphs by crate, each with the file that it stands in.
type Found = BTreeMap<String, Vec<(PathBuf, String)>>;

fn collect(crates: &Path) -> Result<Found> {
    let mut found = Found::new();
    let mut folders: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(crates).context("run this in the project's folder")? {
        folders.push(entry?.path());
    }
    for folder in folders {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut files = Vec::new();
        rust_files(&folder.join("src"), &mut files)?;
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file)?;
            for paragraph in paragraphs(&text) {
                found
                    .entry(name.clone())
                    .or_default()
                    .push((file.clone(), paragraph));
            }
        }
    }
    found.remove("xtask");
    Ok(found)
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The paragraphs after the mark, on one line each.
fn paragraphs(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut current: Option<String> = None;
    for line in source.lines() {
        let comment = line
            .trim_start()
            .strip_prefix("//")
            .map(|c| c.trim_start_matches(['/', '!']).trim());
        let text = comment.filter(|c| !c.is_empty());
        match (
            text.and_then(|t| t.split_once(MARK)),
            text,
            current.as_mut(),
        ) {
            (Some((_, after)), ..) => found.extend(current.replace(after.trim().to_owned())),
            (None, Some(text), Some(paragraph)) => {
                paragraph.push(' ');
                paragraph.push_str(text);
            }
            (None, None, Some(_)) => found.extend(current.take()),
            _ => {}
        }
    }
    found.extend(current);
    found
}

fn render(found: &Found) -> String {
    let mut text = HEAD.to_owned();
    for (name, paragraphs) in found {
        text += &format!("\n## {name}\n\n");
        for (file, paragraph) in paragraphs {
            text += &format!("- {} (`{}`)\n", linkless(paragraph), file.display());
        }
    }
    text
}

/// Without rustdoc's link targets, which lead nowhere on this page.
fn linkless(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        out += &rest[..=at];
        let tail = &rest[at + 2..];
        rest = tail.find(')').map_or("", |end| &tail[end + 1..]);
    }
    out += rest;
    out.replace("[`", "`").replace("`]", "`")
}
