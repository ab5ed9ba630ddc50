//! Group-versions and resources as records: priorities, scope, verbs, names, storage, subresources, columns.
//!
//! ```text
//! groupversion apps/v1 17800 15
//! resource apps/v1/deployments Deployment namespaced default singular=deployment short=deploy categories=all verbs=create,get stored=apps/v1 key=deployments
//!   sub scale autoscaling/v1/Scale get,patch,update
//!   column string name 0 Name
//! ```

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use peerage_catalogue::records::Records;
use peerage_catalogue::storage_version_hash;
use serde_json::Value;

use super::recording::Recording;

/// The group that serves the APIService objects is not one of them.
const AGGREGATOR: (&str, i64, i64) = ("apiregistration.k8s.io/v1", 20001, 0);

/// Versions that a stored kind may have; the recorded hash says which it is.
const STORED: [&str; 12] = [
    "v1", "v2", "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v1alpha2", "v1alpha3", "v2beta1",
    "v2beta2", "v2beta3", "v3",
];

pub(super) fn write(recording: &Recording, records: &mut Records) -> Result<()> {
    for (gv, list) in recording.all.resource_lists() {
        let (group, version) = priorities(recording, gv)?;
        records.insert(&format!("groupversion {gv} {group} {version}"));
        for resource in list {
            let name = text(resource, "name");
            if !name.contains('/') {
                records.insert(&record(recording, gv, list, resource)?);
            }
        }
    }
    Ok(())
}

/// Group and version priority of a group-version, from its APIService.
fn priorities(recording: &Recording, gv: &str) -> Result<(i64, i64)> {
    if gv == AGGREGATOR.0 {
        return Ok((AGGREGATOR.1, AGGREGATOR.2));
    }
    let (group, version) = split(gv);
    let name = format!("{version}.{group}");
    let service = recording
        .all
        .bootstrap
        .iter()
        .find(|o| o["kind"] == "APIService" && o["metadata"]["name"] == *name)
        .with_context(|| format!("no APIService {name}"))?;
    let number = |field: &str| service["spec"][field].as_i64().context("a priority");
    Ok((number("groupPriorityMinimum")?, number("versionPriority")?))
}

fn record(recording: &Recording, gv: &str, list: &[Value], resource: &Value) -> Result<String> {
    let name = text(resource, "name");
    let kind = text(resource, "kind");
    let scope = if resource["namespaced"] == true {
        "namespaced"
    } else {
        "cluster"
    };
    let default = if recording.default.has(gv, name) {
        "default"
    } else {
        "optional"
    };
    let mut out = format!("resource {gv}/{name} {kind} {scope} {default}");
    let _ = write!(out, " singular={}", text(resource, "singularName"));
    for (field, word) in [
        ("shortNames", "short"),
        ("categories", "categories"),
        ("verbs", "verbs"),
    ] {
        if resource[field].is_array() {
            let _ = write!(out, " {word}={}", words(&resource[field]));
        }
    }
    if let Some(hash) = resource["storageVersionHash"].as_str() {
        let (stored, key) = storage(recording, gv, name, kind, hash)?;
        let _ = write!(out, " stored={stored} key={key}");
    }
    subresources(&mut out, name, list);
    columns(&mut out, recording.all.tables.get(&format!("{gv}/{name}")));
    Ok(out)
}

fn subresources(out: &mut String, name: &str, list: &[Value]) {
    for sub in list {
        let rest = text(sub, "name").strip_prefix(name);
        if let Some(("", sub_name)) = rest.and_then(|rest| rest.split_once('/')) {
            let _ = write!(
                out,
                "\n  sub {sub_name} {} {}",
                sub_kind(sub),
                words(&sub["verbs"])
            );
        }
    }
}

fn columns(out: &mut String, columns: Option<&Value>) {
    for column in columns.and_then(Value::as_array).into_iter().flatten() {
        let format = Some(text(column, "format")).filter(|f| !f.is_empty());
        let _ = write!(
            out,
            "\n  column {} {} {} {}",
            text(column, "type"),
            format.unwrap_or("-"),
            column["priority"],
            text(column, "name")
        );
    }
}

/// The kind of a subresource; with its group-version only when discovery shows one.
fn sub_kind(sub: &Value) -> String {
    let kind = text(sub, "kind");
    match (text(sub, "group"), text(sub, "version")) {
        ("", "") => kind.to_owned(),
        ("", version) => format!("{version}/{kind}"),
        (group, version) => format!("{group}/{version}/{kind}"),
    }
}

/// As what and where a kind is stored.
fn storage(
    recording: &Recording,
    gv: &str,
    name: &str,
    kind: &str,
    hash: &str,
) -> Result<(String, String)> {
    let (group, _) = split(gv);
    // Events have two groups and one place.
    for group in [group, ""] {
        for version in STORED {
            if storage_version_hash(group, version, kind) == hash {
                let key = recording.keys.get(&(kind.to_owned(), group.to_owned()));
                return Ok((join(group, version), key.map_or(name, |k| k).to_owned()));
            }
        }
    }
    bail!("{gv}/{name}: the storage version hash {hash} is none of the versions known")
}

pub(super) fn split(gv: &str) -> (&str, &str) {
    gv.split_once('/').unwrap_or(("", gv))
}

fn join(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn words(list: &Value) -> String {
    let words: Vec<_> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    words.join(",")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
