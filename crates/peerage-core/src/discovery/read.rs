//! Reading discovery documents that another server sent.
//!
//! Form is read leniently: unknown fields, any order, `null` or nothing where something is left out. Content is
//! not: a document that no working kube-apiserver would send is an error, so that an empty or cut answer is
//! never taken for "serves nothing". Sizes are bounded here by count; the number of bytes
//! ([`MAX_DOCUMENT_BYTES`]) is for whoever reads from the network to enforce, before parsing.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::aggregated::{self, ApiGroupDiscovery, ApiGroupDiscoveryList, ApiVersionDiscovery};
use super::legacy::{ApiGroup, ApiGroupList, ApiResourceList, ApiVersions};

/// The largest document worth reading: the largest real ones are under 5 MB.
pub const MAX_DOCUMENT_BYTES: usize = 32 << 20;

/// The most groups of one server: custom resources give each operator one, thousands have not been seen.
const MAX_GROUPS: usize = 10_000;

/// The most versions of one group: whoever may make custom resources chooses how many.
const MAX_VERSIONS: usize = 10_000;

/// The most resources of one server, and subresources of one resource.
const MAX_RESOURCES: usize = 100_000;

/// The most verbs or subresources of a resource, which are its server's own.
const MAX_WORDS: usize = 256;

/// The longest name in bytes: that of a DNS subdomain.
const MAX_NAME: usize = 253;

/// Why a document cannot be used. Each is the fault of the server that sent it.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// No JSON, or JSON of another shape.
    #[error("read the discovery document as JSON")]
    Malformed(#[source] serde_json::Error),
    /// A document of another kind or version.
    #[error(
        "expected a discovery document of kind {expected}, got kind {kind:?} of {api_version:?}"
    )]
    WrongKind {
        /// What was asked for.
        expected: &'static str,
        /// The kind that came.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// Nothing listed where every kube-apiserver lists something.
    #[error("the discovery document lists no {0}")]
    Empty(&'static str),
    /// Something without a name, or with one that cannot stand in a path.
    #[error("the discovery document lists a {what} with the impossible name {name:?}")]
    BadName {
        /// What has the name.
        what: &'static str,
        /// The name, cut to a sensible length.
        name: String,
    },
    /// The same thing twice.
    #[error("the discovery document lists {what} {name:?} twice")]
    Duplicate {
        /// What is doubled.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// More than any real server has.
    #[error("the discovery document lists more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many would have been accepted.
        limit: usize,
    },
}

impl DocumentError {
    /// A short word for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::WrongKind { .. } => "wrong_kind",
            Self::Empty(_) => "empty",
            Self::BadName { .. } => "bad_name",
            Self::Duplicate { .. } => "duplicate",
            Self::TooMany { .. } => "too_many",
        }
    }
}

/// Reads the aggregated document of `/apis`.
///
/// # Errors
/// When it is not one, or cannot be true.
pub fn read_groups(bytes: &[u8]) -> Result<ApiGroupDiscoveryList, DocumentError> {
    let list = read_aggregated(bytes)?;
    if list.items.is_empty() {
        return Err(DocumentError::Empty("groups"));
    }
    check(&list, name_is_possible)?;
    Ok(list)
}

/// Reads the aggregated document of `/api`: the one group without a name.
///
/// # Errors
/// When it is not one, or cannot be true.
pub fn read_core(bytes: &[u8]) -> Result<ApiGroupDiscoveryList, DocumentError> {
    let list = read_aggregated(bytes)?;
    if list.items.iter().all(|group| group.versions.is_empty()) {
        return Err(DocumentError::Empty("core versions"));
    }
    check(&list, str::is_empty)?;
    Ok(list)
}

/// Reads the legacy document of `/api`.
///
/// # Errors
/// When it is not one, or names no version.
pub fn read_api_versions(bytes: &[u8]) -> Result<ApiVersions, DocumentError> {
    let document: ApiVersions = parse(bytes)?;
    expect_kind(ApiVersions::KIND, &document.kind, "")?;
    if document.versions.is_empty() {
        return Err(DocumentError::Empty("core versions"));
    }
    for version in &document.versions {
        check_name("version", version)?;
    }
    Ok(document)
}

/// Reads the legacy document of `/apis`.
///
/// # Errors
/// When it is not one, or cannot be true.
pub fn read_legacy_groups(bytes: &[u8]) -> Result<ApiGroupList, DocumentError> {
    let document: ApiGroupList = parse(bytes)?;
    expect_kind(ApiGroupList::KIND, &document.kind, &document.api_version)?;
    if document.groups.is_empty() {
        return Err(DocumentError::Empty("groups"));
    }
    at_most("groups", document.groups.len(), MAX_GROUPS)?;
    unique("group", document.groups.iter().map(|group| &*group.name))?;
    document.groups.iter().try_for_each(check_legacy_group)?;
    Ok(document)
}

/// Reads the legacy document of one group.
///
/// # Errors
/// When it is not one, or cannot be true.
pub fn read_legacy_group(bytes: &[u8]) -> Result<ApiGroup, DocumentError> {
    let document: ApiGroup = parse(bytes)?;
    expect_kind(ApiGroup::KIND, &document.kind, &document.api_version)?;
    check_legacy_group(&document)?;
    Ok(document)
}

/// Reads the legacy document of one group and version. It may list nothing.
///
/// # Errors
/// When it is not one, or cannot be true.
pub fn read_api_resources(bytes: &[u8]) -> Result<ApiResourceList, DocumentError> {
    let document: ApiResourceList = parse(bytes)?;
    expect_kind(ApiResourceList::KIND, &document.kind, &document.api_version)?;
    at_most("resources", document.resources.len(), MAX_RESOURCES)?;
    unique("resource", document.resources.iter().map(|it| &*it.name))?;
    for resource in &document.resources {
        for part in resource.name.splitn(2, '/') {
            check_name("resource", part)?;
        }
        at_most("words", resource.verbs.len(), MAX_WORDS)?;
    }
    Ok(document)
}

/// The aggregated document with its type, which decides whether the rest is looked at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Typed {
    #[serde(default, deserialize_with = "aggregated::null_is_default")]
    kind: String,
    #[serde(default, deserialize_with = "aggregated::null_is_default")]
    api_version: String,
    #[serde(default, deserialize_with = "aggregated::null_is_default")]
    items: Vec<Arc<ApiGroupDiscovery>>,
}

fn read_aggregated(bytes: &[u8]) -> Result<ApiGroupDiscoveryList, DocumentError> {
    let typed: Typed = parse(bytes)?;
    let version = typed.api_version.strip_prefix("apidiscovery.k8s.io/");
    if typed.kind != aggregated::KIND || !matches!(version, Some("v2" | "v2beta1")) {
        return Err(DocumentError::WrongKind {
            expected: aggregated::KIND,
            kind: shortened(&typed.kind),
            api_version: shortened(&typed.api_version),
        });
    }
    Ok(ApiGroupDiscoveryList { items: typed.items })
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DocumentError> {
    serde_json::from_slice(bytes).map_err(DocumentError::Malformed)
}

/// Legacy documents say `v1` or nothing.
fn expect_kind(expected: &'static str, kind: &str, api_version: &str) -> Result<(), DocumentError> {
    if kind == expected && matches!(api_version, "" | "v1") {
        return Ok(());
    }
    Err(DocumentError::WrongKind {
        expected,
        kind: shortened(kind),
        api_version: shortened(api_version),
    })
}

fn check(
    list: &ApiGroupDiscoveryList,
    is_group_name: impl Fn(&str) -> bool,
) -> Result<(), DocumentError> {
    at_most("groups", list.items.len(), MAX_GROUPS)?;
    unique("group", list.items.iter().map(|group| group.name()))?;
    let mut resources = 0;
    for group in &list.items {
        if !is_group_name(group.name()) {
            return Err(bad_name("group", group.name()));
        }
        at_most("versions", group.versions.len(), MAX_VERSIONS)?;
        unique("version", group.versions.iter().map(|it| &*it.version))?;
        for version in &group.versions {
            resources += version.resources.len();
            at_most("resources", resources, MAX_RESOURCES)?;
            check_version(version)?;
        }
    }
    Ok(())
}

fn check_version(version: &ApiVersionDiscovery) -> Result<(), DocumentError> {
    check_name("version", &version.version)?;
    unique("resource", version.resources.iter().map(|it| &*it.resource))?;
    for resource in &version.resources {
        check_name("resource", &resource.resource)?;
        at_most("words", resource.verbs.len(), MAX_WORDS)?;
        at_most("subresources", resource.subresources.len(), MAX_WORDS)?;
        let names = resource.subresources.iter().map(|it| &*it.subresource);
        unique("subresource", names)?;
        for subresource in &resource.subresources {
            check_name("subresource", &subresource.subresource)?;
            at_most("words", subresource.verbs.len(), MAX_WORDS)?;
        }
    }
    Ok(())
}

fn check_legacy_group(group: &ApiGroup) -> Result<(), DocumentError> {
    check_name("group", &group.name)?;
    at_most("versions", group.versions.len(), MAX_VERSIONS)?;
    unique("version", group.versions.iter().map(|it| &*it.version))?;
    for version in &group.versions {
        check_name("version", &version.version)?;
    }
    Ok(())
}

fn at_most(what: &'static str, count: usize, limit: usize) -> Result<(), DocumentError> {
    if count > limit {
        return Err(DocumentError::TooMany { what, limit });
    }
    Ok(())
}

fn unique<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), DocumentError> {
    let mut seen = HashSet::with_capacity(names.size_hint().0);
    for name in names {
        if !seen.insert(name) {
            let name = shortened(name);
            return Err(DocumentError::Duplicate { what, name });
        }
    }
    Ok(())
}

fn check_name(what: &'static str, name: &str) -> Result<(), DocumentError> {
    if name_is_possible(name) {
        Ok(())
    } else {
        Err(bad_name(what, name))
    }
}

/// Names stand in paths: not empty, no slash, no control or space character, of bounded length.
fn name_is_possible(name: &str) -> bool {
    let impossible = |c: char| c == '/' || c.is_control() || c.is_whitespace();
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains(impossible)
}

fn bad_name(what: &'static str, name: &str) -> DocumentError {
    let name = shortened(name);
    DocumentError::BadName { what, name }
}

/// The beginning of a text that another server chose, for messages.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
