//! What one server's APIs have and another's have not, and which of them are on their way out.
//!
//! Pure: from two inventories to a list of differences. Parts that one side does not tell (a saved `/apis` without its
//! `/api`) are not compared, and that is said.
//!
//! Invariant: comparing a side with itself finds no difference.

mod flat;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use peerage_core::discovery::ApiGroupDiscoveryList;
use serde::Serialize;

use super::lifecycle::{self, Lifecycle, Release};
use flat::{Facts, Flat, Name};

/// One of the two sides.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// What to call it.
    pub label: String,
    /// Its Kubernetes release, where it is known.
    pub release: Option<Release>,
    /// Groups of `/apis`, if it tells them.
    pub apis: Option<ApiGroupDiscoveryList>,
    /// The core group, if it tells it.
    pub core: Option<ApiGroupDiscoveryList>,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

/// What kind of thing only one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A group.
    Group,
    /// A version of a group.
    Version,
    /// A resource of a version.
    Resource,
    /// A subresource of a resource that both have.
    Subresource,
    /// Verbs of a resource or subresource that both have.
    Verbs,
}

impl What {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Version => "version",
            Self::Resource => "resource",
            Self::Subresource => "subresource",
            Self::Verbs => "verbs",
        }
    }
}

/// Something that only one side has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Who has it.
    pub only_in: Side,
    /// What it is.
    pub what: What,
    /// Its group; empty for the core group.
    pub group: String,
    /// Its version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Its resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Its subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The kind of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The verbs: of a resource or subresource all, of an entry about verbs those that the other lacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// What hangs below a resource that only one has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<String>,
    /// Whether the other side is a later release than the one that has it.
    pub removed: bool,
    /// When it was or will be deprecated and removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
}

/// An API that is served and deprecated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deprecated {
    /// Its group and version.
    pub api_version: String,
    /// Its resource.
    pub resource: String,
    /// Its kind.
    pub kind: String,
    /// Who serves it although it is deprecated there.
    pub served_by: Vec<Side>,
    /// What is known of it.
    pub lifecycle: Lifecycle,
}

/// How two sides differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// What only one has, in the order of group, version and resource.
    pub differences: Vec<Entry>,
    /// What is deprecated where it is served.
    pub deprecated: Vec<Deprecated>,
    /// What was not compared, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
}

/// `apps/v1`, or `v1` in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        return version.to_owned();
    }
    format!("{group}/{version}")
}

/// Compares two sides. `warnings` says what servers tell whoever uses a kind (group-version and kind).
pub fn compare(
    a: &Inventory,
    b: &Inventory,
    warnings: &dyn Fn(&str, &str) -> Option<String>,
) -> Comparison {
    let (flat_a, flat_b, not_compared) = flattened(a, b);
    let known = |api_version: &str, kind: &str| known(api_version, kind, warnings);
    let mut differences = Vec::new();
    for (side, mine, other) in [(Side::A, &flat_a, &flat_b), (Side::B, &flat_b, &flat_a)] {
        let (own, others) = match side {
            Side::A => (a.release, b.release),
            Side::B => (b.release, a.release),
        };
        let removed = own.zip(others).is_some_and(|(own, other)| own < other);
        let entry = |what, name: Name| Entry::bare(side, what, name, removed);
        only_in(mine, other, &entry, &known, &mut differences);
    }
    differences.sort_by(|x, y| place(x).cmp(&place(y)));
    let sides = [(Side::A, a.release, &flat_a), (Side::B, b.release, &flat_b)];
    Comparison {
        differences,
        deprecated: deprecated(&sides, &known),
        not_compared,
    }
}

/// What both sides tell, and what only one does.
fn flattened(a: &Inventory, b: &Inventory) -> (Flat, Flat, Vec<String>) {
    let mut not_compared = Vec::new();
    let (mut flat_a, mut flat_b) = (Flat::default(), Flat::default());
    for (path, of_a, of_b) in [("/api", &a.core, &b.core), ("/apis", &a.apis, &b.apis)] {
        match (of_a, of_b) {
            (Some(of_a), Some(of_b)) => {
                flat_a.add(of_a);
                flat_b.add(of_b);
            }
            (None, None) => {}
            (of_a, _) => {
                let without = if of_a.is_none() { &a.label } else { &b.label };
                not_compared.push(format!("{path}: {without} does not have it"));
            }
        }
    }
    (flat_a, flat_b, not_compared)
}

impl Entry {
    /// With nothing but its name.
    fn bare(only_in: Side, what: What, name: Name, removed: bool) -> Self {
        Self {
            only_in,
            what,
            group: name.0,
            version: name.1,
            resource: name.2,
            subresource: String::new(),
            kind: String::new(),
            verbs: Vec::new(),
            subresources: Vec::new(),
            removed,
            lifecycle: None,
        }
    }
}

type Known<'k> = dyn Fn(&str, &str) -> Option<Lifecycle> + 'k;

fn known(
    api_version: &str,
    kind: &str,
    warnings: &dyn Fn(&str, &str) -> Option<String>,
) -> Option<Lifecycle> {
    let facts = lifecycle::lifecycle(api_version, kind);
    match warnings(api_version, kind) {
        Some(warning) => Some(facts.unwrap_or_default().with_warning(warning)),
        None => facts,
    }
}

/// A group before its versions, a version before its resources, A before B.
fn place(entry: &Entry) -> (&str, &str, &str, &str, What, Side) {
    (
        &entry.group,
        &entry.version,
        &entry.resource,
        &entry.subresource,
        entry.what,
        entry.only_in,
    )
}

fn only_in(
    mine: &Flat,
    other: &Flat,
    entry: &dyn Fn(What, Name) -> Entry,
    known: &Known<'_>,
    into: &mut Vec<Entry>,
) {
    let none = String::new;
    for (group, versions) in &mine.versions {
        let theirs = other.versions.get(group);
        if theirs.is_none() {
            into.push(entry(What::Group, (group.clone(), none(), none())));
        }
        for version in versions {
            if theirs.is_none_or(|theirs| !theirs.contains(version)) {
                into.push(entry(
                    What::Version,
                    (group.clone(), version.clone(), none()),
                ));
            }
        }
    }
    for (name, facts) in &mine.resources {
        match other.resources.get(name) {
            Some(theirs) => differing(name, facts, theirs, entry, into),
            None => into.push(Entry {
                kind: facts.kind.clone(),
                verbs: facts.verbs.iter().cloned().collect(),
                subresources: facts.subresources.keys().cloned().collect(),
                lifecycle: known(&api_version(&name.0, &name.1), &facts.kind),
                ..entry(What::Resource, name.clone())
            }),
        }
    }
}

/// Subresources and verbs of a resource that both have.
fn differing(
    name: &Name,
    mine: &Facts,
    theirs: &Facts,
    entry: &dyn Fn(What, Name) -> Entry,
    into: &mut Vec<Entry>,
) {
    let more = |what, subresource: &str, verbs: Vec<String>| Entry {
        subresource: subresource.to_owned(),
        kind: mine.kind.clone(),
        verbs,
        ..entry(what, name.clone())
    };
    let beyond = |mine: &BTreeSet<String>, theirs: &BTreeSet<String>| -> Vec<String> {
        mine.difference(theirs).cloned().collect()
    };
    let verbs = beyond(&mine.verbs, &theirs.verbs);
    if !verbs.is_empty() {
        into.push(more(What::Verbs, "", verbs));
    }
    for (subresource, verbs) in &mine.subresources {
        match theirs.subresources.get(subresource) {
            None => {
                let verbs = verbs.iter().cloned().collect();
                into.push(more(What::Subresource, subresource, verbs));
            }
            Some(theirs) => {
                let verbs = beyond(verbs, theirs);
                if !verbs.is_empty() {
                    into.push(more(What::Verbs, subresource, verbs));
                }
            }
        }
    }
}

fn deprecated(sides: &[(Side, Option<Release>, &Flat); 2], known: &Known<'_>) -> Vec<Deprecated> {
    let mut found: BTreeMap<Name, Deprecated> = BTreeMap::new();
    for (side, release, flat) in sides {
        for (name, facts) in &flat.resources {
            let api_version = api_version(&name.0, &name.1);
            let Some(lifecycle) = known(&api_version, &facts.kind) else {
                continue;
            };
            if !lifecycle.is_deprecated_in(*release) {
                continue;
            }
            let row = found.entry(name.clone()).or_insert_with(|| Deprecated {
                api_version,
                resource: name.2.clone(),
                kind: facts.kind.clone(),
                served_by: Vec::new(),
                lifecycle,
            });
            row.served_by.push(*side);
        }
    }
    found.into_values().collect()
}
