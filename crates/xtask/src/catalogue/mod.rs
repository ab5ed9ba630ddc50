//! Makes one catalogue file out of one recording.
//!
//! The recording is read, turned into records and written as what changed since the next older version; the next
//! newer version, if there is one, is rewritten so that it means the same as before. Reading the files back is
//! left to `peerage-catalogue`.

mod bootstrap;
mod recording;
mod resources;
mod types;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use peerage_catalogue::records::Records;
use peerage_catalogue::{Catalogue, RuntimeConfig};

use recording::Recording;

/// Runs the task.
pub(crate) fn run(dir: &Path, data: &Path) -> Result<()> {
    let recording = Recording::read(dir)?;
    let version = recording.minor_version()?;
    let mut records = Records::new();
    info(&recording, &mut records)?;
    resources::write(&recording, &mut records)?;
    types::write(&recording, &mut records)?;
    bootstrap::write(&recording, &mut records)?;
    store(data, &version, &records)?;
    check(data)
}

/// Reads all files back as the server will, and looks whether all that the table of rules names is in them.
fn check(data: &Path) -> Result<()> {
    let files = existing(data)?;
    let texts: Vec<&str> = files.iter().map(|(_, text)| &**text).collect();
    let all = RuntimeConfig::parse("api/all=true")?;
    let mut catalogues = Vec::new();
    for last in 1..=texts.len() {
        catalogues.push(Catalogue::from_texts(&texts[..last], &all)?);
    }
    let unknown = peerage_catalogue::rules::unknown(&catalogues)?;
    if !unknown.is_empty() {
        bail!(
            "the table of rules names what is not there:\n{}",
            unknown.join("\n")
        );
    }
    Ok(())
}

/// What `/version` says, without what describes the recorded server's build.
fn info(recording: &Recording, records: &mut Records) -> Result<()> {
    let mut info = recording.version.clone();
    let fields = info.as_object_mut().context("version.json: no object")?;
    for own in [
        "goVersion",
        "compiler",
        "platform",
        "gitCommit",
        "gitTreeState",
        "buildDate",
    ] {
        fields.remove(own);
    }
    records.insert(&format!("info version {info}"));
    let null_times = recording.has_null_creation_timestamps();
    records.insert(&format!("info null-creation-timestamps {null_times}"));
    Ok(())
}

/// Writes the version's file, and the next newer one's anew.
fn store(data: &Path, version: &str, records: &Records) -> Result<()> {
    let mut older = Records::new();
    let mut newer = None;
    let mut chain = Records::new();
    for (name, text) in existing(data)? {
        chain.apply(&text).with_context(|| name.clone())?;
        match number(&name)?.cmp(&number(version)?) {
            std::cmp::Ordering::Less => older = chain.clone(),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => {
                newer = Some((name, chain.clone()));
                break;
            }
        }
    }
    write(data, version, &records.delta(&older))?;
    if let Some((name, full)) = newer {
        write(data, &name, &full.delta(records))?;
    }
    Ok(())
}

fn write(data: &Path, version: &str, delta: &str) -> Result<()> {
    let path = data.join(format!("{version}.txt"));
    let head = format!(
        "# Kubernetes {version}: what its API is, as what changed since the version before. Written by `cargo xtask catalogue`.\n"
    );
    fs::write(&path, head + delta).with_context(|| path.display().to_string())?;
    println!("{}: {} bytes", path.display(), delta.len());
    Ok(())
}

/// The catalogue files that there are, oldest first: version and text.
fn existing(data: &Path) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(data).with_context(|| data.display().to_string())? {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|s| s.to_str()) else {
            continue;
        };
        if let Ok(number) = number(name) {
            files.push((number, name.to_owned(), fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files
        .into_iter()
        .map(|(_, name, text)| (name, text))
        .collect())
}

fn number(version: &str) -> Result<(u32, u32)> {
    let Some((major, minor)) = version.split_once('.') else {
        bail!("{version} is no minor version");
    };
    Ok((major.parse()?, minor.parse()?))
}
