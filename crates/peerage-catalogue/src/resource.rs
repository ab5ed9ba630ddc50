//! One resource: all that the verbs, discovery and OpenAPI have to know of it.
//!
//! Which resources are on is left to the catalogue.

use std::sync::Arc;

use peerage_objects::schema::TypeId;

use crate::rules::Rules;

/// A kind in full.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The version.
    pub version: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
}

/// A resource of one group-version.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The version.
    pub version: Arc<str>,
    /// The name in paths, such as `deployments`.
    pub plural: Arc<str>,
    /// Such as `deployment`.
    pub singular: Arc<str>,
    /// Such as `Deployment`.
    pub kind: Arc<str>,
    /// The kind of a list of these, such as `DeploymentList`.
    pub list_kind: Arc<str>,
    /// Whether objects are in a namespace.
    pub namespaced: bool,
    /// The verbs of discovery, sorted; none for a resource that is there for its subresources only.
    pub verbs: Vec<Arc<str>>,
    /// Such as `deploy`.
    pub short_names: Vec<Arc<str>>,
    /// Such as `all`.
    pub categories: Vec<Arc<str>>,
    /// What lies below an object, by name.
    pub subresources: Vec<Subresource>,
    /// Where and as what objects are stored; none for those that never are (reviews, bindings).
    pub storage: Option<Storage>,
    /// What discovery shows of the stored kind.
    pub storage_version_hash: Option<String>,
    /// The schema; none for a kind that OpenAPI does not know.
    pub type_id: Option<TypeId>,
    /// The schema of a list.
    pub list_type_id: Option<TypeId>,
    /// The columns of a Table.
    pub columns: Vec<Column>,
    /// What else differs from kind to kind.
    pub rules: Arc<Rules>,
}

/// A subresource.
#[derive(Clone, Debug, PartialEq)]
pub struct Subresource {
    /// Such as `status`.
    pub name: Arc<str>,
    /// What it takes and returns.
    pub kind: GroupVersionKind,
    /// Whether discovery shows group and version of the kind.
    pub shows_group_version: bool,
    /// The verbs of discovery, sorted.
    pub verbs: Vec<Arc<str>>,
    /// The kinds that it takes besides [`Subresource::kind`].
    pub accepted_types: Vec<GroupVersionKind>,
    /// The schema; none for a kind that OpenAPI does not know (`PodExecOptions`).
    pub type_id: Option<TypeId>,
}

/// Where and as what objects of a kind are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The key below `/registry/` without namespace and name, such as `minions` or `services/specs`.
    pub key: Arc<str>,
    /// The kind that stored objects carry; its group may be another (`events.k8s.io` events are stored as `v1`).
    pub kind: GroupVersionKind,
}

/// A column of a Table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: Arc<str>,
    /// An OpenAPI type.
    pub kind: Arc<str>,
    /// An OpenAPI format, `name`, or nothing.
    pub format: Arc<str>,
    /// 0 for columns that are always shown.
    pub priority: i32,
    /// The field that is shown, if it is one, such as `.spec.type`.
    pub path: Option<Arc<str>>,
}

impl GroupVersionKind {
    /// Puts a kind together.
    pub fn new(group: &str, version: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Reads `GROUP/VERSION/KIND`; the group may be empty, with or without its slash.
    pub fn read(text: &str) -> Option<GroupVersionKind> {
        let (group_version, kind) = text.rsplit_once('/')?;
        let (group, version) = group_version
            .rsplit_once('/')
            .unwrap_or(("", group_version));
        (!version.is_empty() && !kind.is_empty())
            .then(|| GroupVersionKind::new(group, version, kind))
    }

    /// Such as `apps/v1` or `v1`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

impl Resource {
    /// Such as `apps/v1` or `v1`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The kind in full.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Whether discovery lists the verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| &**v == verb)
    }

    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| &*s.name == name)
    }
}

impl Subresource {
    /// Whether discovery lists the verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| &**v == verb)
    }
}

/// Such as `apps/v1`, or `v1` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}
