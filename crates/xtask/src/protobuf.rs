//! `crates/peerage-catalogue/data/protobuf.txt`: which field of a Kubernetes type has which number in protobuf.
//!
//! The numbers are facts of the wire format that neither discovery nor OpenAPI shows; they stand in the tags of the
//! Go types. A number is never given to another field, so one file holds for all versions: newer modules are read
//! first, older ones add what has been removed since.
//!
//! A line is `TYPE N=field…`: `*` after a field says that its absence and its zero value are two things (Go: a
//! pointer), `!` that it is written even when it is empty, and `N<TYPE` that the fields of another type are the
//! object's own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

const HEAD: &str =
    "# Numbers of fields in Kubernetes' protobuf encoding. Written by `cargo xtask protobuf`.\n";

/// Where types are in a module, and what OpenAPI calls the package.
const PACKAGES: [(&str, &str); 5] = [
    ("pkg/apis/meta/v1", "io.k8s.apimachinery.pkg.apis.meta.v1"),
    (
        "pkg/apis/apiextensions/v1",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    ),
    (
        "pkg/apis/apiregistration/v1",
        "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
    ),
    ("pkg/runtime", "io.k8s.apimachinery.pkg.runtime"),
    ("pkg/version", "io.k8s.apimachinery.pkg.version"),
];

/// Types by name, each with its fields by number.
type Types = BTreeMap<String, BTreeMap<u32, String>>;

/// Reads the modules (folders of `k8s.io/api` and the like, newest first) and writes the file.
pub(crate) fn run(modules: &[PathBuf], out: &Path) -> Result<()> {
    let (mut types, mut aliases) = (Types::new(), BTreeMap::new());
    for module in modules {
        for (folder, package) in packages(module)? {
            for file in go_files(&folder)? {
                let text = fs::read_to_string(&file)
                    .with_context(|| format!("reading {}", file.display()))?;
                read(&text, &package, &mut types);
                aliases.extend(text.lines().filter_map(|line| alias(line, &package)));
            }
        }
    }
    if types.is_empty() {
        bail!(
            "no Go types with protobuf tags in {modules:?}: give the folders of k8s.io/api and its neighbours"
        );
    }
    for (name, of) in aliases {
        if let Some(fields) = types.get(&of).cloned() {
            types.entry(name).or_insert(fields);
        }
    }
    let mut text = HEAD.to_owned();
    for (name, fields) in &types {
        text += name;
        for field in fields.values() {
            text += " ";
            text += field;
        }
        text += "\n";
    }
    fs::write(out, text).with_context(|| format!("writing {}", out.display()))
}

/// The folders of a module that hold API types: the known ones, or every `GROUP/VERSION`.
fn packages(module: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found: Vec<(PathBuf, String)> = PACKAGES
        .iter()
        .map(|(folder, package)| (module.join(folder), (*package).to_owned()))
        .filter(|(folder, _)| folder.is_dir())
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    for group in folders(module)? {
        for version in folders(&group)? {
            let name = |path: &Path| {
                path.file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned()
            };
            let package = format!("io.k8s.api.{}.{}", name(&group), name(&version));
            found.push((version, package));
        }
    }
    Ok(found)
}

fn folders(of: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(of).with_context(|| format!("reading {}", of.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    Ok(found)
}

fn go_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.starts_with("zz_generated")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Adds the structs of one file; what is known already stays.
fn read(text: &str, package: &str, types: &mut Types) {
    let mut current: Option<String> = None;
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("type ")
            .and_then(|l| l.strip_suffix(" struct {"))
        {
            current = Some(format!("{package}.{name}"));
        } else if line == "}" {
            current = None;
        } else if let (Some(name), Some((number, field))) = (&current, field(line, package)) {
            types
                .entry(name.clone())
                .or_default()
                .entry(number)
                .or_insert(field);
        }
    }
}

/// A type that is another version's: `type X = v1.Y`.
fn alias(line: &str, package: &str) -> Option<(String, String)> {
    let mut words = line
        .strip_prefix("type ")?
        .split_whitespace()
        .filter(|word| *word != "=");
    let (name, of) = (words.next()?, words.next()?);
    let (version, of) = of.split_once('.')?;
    let group = package.rsplit_once('.')?.0;
    (words.next().is_none() && version.starts_with('v')).then(|| {
        (
            format!("{package}.{name}"),
            format!("{group}.{version}.{of}"),
        )
    })
}

/// One line of a struct: its number, and the field as it is written.
fn field(line: &str, package: &str) -> Option<(u32, String)> {
    let line = line.trim();
    // A field that was taken out may still stand there as a comment.
    if line.starts_with("//") {
        return None;
    }
    let (declared, tag) = line.split_once('`')?;
    let json = quoted(tag, "json:\"")?;
    let mut protobuf = quoted(tag, "protobuf:\"")?.split(',');
    let number = protobuf.nth(1)?.parse().ok()?;
    let (name, options) = json.split_once(',').unwrap_or((json, ""));
    let go_type = declared.split_whitespace().last()?;
    if name.is_empty() {
        let inlined = go_type.trim_start_matches('*');
        let inlined = match inlined.split_once('.') {
            Some(("metav1" | "v1", own)) if !package.ends_with("meta.v1") => {
                format!("io.k8s.apimachinery.pkg.apis.meta.v1.{own}")
            }
            Some((_, own)) => own.to_owned(),
            None => format!("{package}.{inlined}"),
        };
        return Some((number, format!("{number}<{inlined}")));
    }
    let nilable = if go_type.starts_with(['*', '[']) || go_type.starts_with("map[") {
        "*"
    } else {
        ""
    };
    let always = if options.contains("omitempty") || options.contains("omitzero") {
        ""
    } else {
        "!"
    };
    Some((number, format!("{number}={name}{nilable}{always}")))
}

fn quoted<'t>(tag: &'t str, key: &str) -> Option<&'t str> {
    tag.split_once(key)?.1.split('"').next()
}
