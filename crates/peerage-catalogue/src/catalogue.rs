//! The catalogue of one version with what of it is on.
//!
//! Invariants: a resource is in the catalogue if and only if it is on; resources are in the order of group,
//! version and plural name; groups are in the order of discovery and each has at least one resource.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use peerage_core::compare_versions;
use peerage_objects::protobuf::{Messages, MessagesError};
use peerage_objects::schema::{TypeId, Types};

use crate::data;
use crate::records::{RecordError, Records};
use crate::resource::Resource;
use crate::resource_text::{self, Priorities, ResourceTextError};
use crate::rules::{RuleTextError, Table};
use crate::runtime_config::RuntimeConfig;
use crate::type_text::{self, KindList, TypeTable, TypeTextError};
use crate::version_info::VersionInfo;

/// Why there is no catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// No such version.
    #[error("no catalogue of Kubernetes {0}; there is {known}", known = data::versions().join(", "))]
    UnknownVersion(String),
    /// `--runtime-config` names groups that the version does not have.
    #[error("runtime-config: the catalogue of Kubernetes {version} has no API group {groups}")]
    UnknownGroups {
        /// The version.
        version: String,
        /// The groups.
        groups: String,
    },
    /// The text is not one of records.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// A type cannot be read.
    #[error(transparent)]
    Type(#[from] TypeTextError),
    /// A resource cannot be read.
    #[error(transparent)]
    Resource(#[from] ResourceTextError),
    /// The table of rules cannot be read.
    #[error(transparent)]
    Rules(#[from] RuleTextError),
    /// A bootstrap object or the version cannot be read.
    #[error("{name}: {source}")]
    Json {
        /// What cannot be read.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The embedded data cannot be unpacked.
    #[error("the embedded catalogue cannot be unpacked: {0}")]
    Packing(std::io::Error),
    /// The numbers of fields in protobuf cannot be read.
    #[error("the numbers of fields in protobuf cannot be read")]
    Messages(#[from] MessagesError),
}

/// What is known of a version, whatever of it is on.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) records: Records,
    pub(crate) types: TypeTable,
    pub(crate) info: VersionInfo,
    pub(crate) rules: Table,
}

/// An API group with the versions that are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name; empty for the core group.
    pub name: String,
    /// The highest priority of its versions; groups are shown in this order.
    pub priority: i32,
    /// Its versions, the preferred one first.
    pub versions: Vec<GroupVersion>,
}

/// A version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersion {
    /// Such as `v1beta1`.
    pub version: String,
    /// What its APIService says of the group's priority.
    pub group_priority: i32,
    /// Versions of a group are shown in this order.
    pub priority: i32,
}

/// The APIs of a Kubernetes version that are on.
#[derive(Clone, Debug)]
pub struct Catalogue {
    version: String,
    pub(crate) base: Arc<Base>,
    groups: Vec<Group>,
    resources: Vec<Arc<Resource>>,
    /// Where resources are, in the order of group, version and kind.
    kinds: Vec<usize>,
}

impl Base {
    pub(crate) fn read(records: Records) -> Result<Base, CatalogueError> {
        let text = records.get("info", "version").unwrap_or_default();
        let json = text.splitn(3, ' ').nth(2).unwrap_or_default();
        let info: VersionInfo =
            serde_json::from_str(json).map_err(|source| CatalogueError::Json {
                name: "info version".to_owned(),
                source,
            })?;
        let types = type_text::read(&records)?;
        let version = format!("{}.{}", info.major, info.minor);
        Ok(Base {
            rules: Table::of(&version, &types.types)?,
            types,
            info: info.complete(),
            records,
        })
    }
}

impl Catalogue {
    /// The catalogue of a version that is in the binary; [`crate::versions`] lists them.
    pub fn load(version: &str, config: &RuntimeConfig) -> Result<Catalogue, CatalogueError> {
        Catalogue::of(data::base(version)?, config)
    }

    /// A catalogue from version files, oldest first; the last one is the version's own.
    pub fn from_texts(texts: &[&str], config: &RuntimeConfig) -> Result<Catalogue, CatalogueError> {
        let mut records = Records::new();
        for text in texts {
            records.apply(text)?;
        }
        Catalogue::of(Arc::new(Base::read(records)?), config)
    }

    fn of(base: Arc<Base>, config: &RuntimeConfig) -> Result<Catalogue, CatalogueError> {
        let version = format!("{}.{}", base.info.major, base.info.minor);
        let mut priorities = Vec::new();
        for (name, text) in base.records.of_kind("groupversion") {
            priorities.push(resource_text::read_priorities(name, text)?);
        }
        check_groups(&version, config, &priorities)?;
        let mut resources = Vec::new();
        for (name, text) in base.records.of_kind("resource") {
            let read = resource_text::read(name, text, &base.types)?;
            let mut r = read.resource;
            base.rules.complete(&mut r)?;
            if config.enables(&r.group, &r.version, &r.plural, read.default) {
                resources.push(Arc::new(r));
            }
        }
        resources.sort_by(|a, b| key(a).cmp(&key(b)));
        let mut kinds: Vec<usize> = (0..resources.len()).collect();
        kinds.sort_by(|a, b| kind_key(&resources[*a]).cmp(&kind_key(&resources[*b])));
        Ok(Catalogue {
            groups: groups(&priorities, &resources),
            version,
            base,
            resources,
            kinds,
        })
    }

    /// The numbers of fields in protobuf. They are read on first use.
    pub fn messages(&self) -> Result<&'static Messages, CatalogueError> {
        crate::data::messages()
    }

    /// The minor version, such as `1.37`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What `/version` says.
    pub fn version_info(&self) -> &VersionInfo {
        &self.base.info
    }

    /// The groups in the order of discovery, the core group among them by its priority.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The resources in the order of group, version and plural name.
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The resources of a group-version, in the order of their plural names.
    pub fn resources_of(&self, group: &str, version: &str) -> &[Arc<Resource>] {
        let own = |r: &Arc<Resource>| (&*r.group, &*r.version).cmp(&(group, version));
        let from = self.resources.partition_point(|r| own(r).is_lt());
        let to = self.resources.partition_point(|r| own(r).is_le());
        &self.resources[from..to]
    }

    /// A resource by its plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let wanted = (group, version, plural);
        let at = self
            .resources
            .binary_search_by(|r| key(r).cmp(&wanted))
            .ok()?;
        self.resources.get(at)
    }

    /// A resource by the kind of its objects.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let wanted = (group, version, kind);
        let found = self
            .kinds
            .binary_search_by(|at| kind_key(&self.resources[*at]).cmp(&wanted));
        self.resources.get(self.kinds[found.ok()?])
    }

    /// The schemas.
    pub fn types(&self) -> &Types {
        &self.base.types.types
    }

    /// A type by its name in OpenAPI.
    pub fn type_by_name(&self, name: &str) -> Option<TypeId> {
        self.base.types.types.find(name)
    }

    /// The kinds that OpenAPI lists for a type (`x-kubernetes-group-version-kind`).
    pub fn kinds_of_type(&self, id: TypeId) -> Option<&KindList> {
        self.base.types.kinds_of.get(&id)
    }

    /// What OpenAPI says of the unions in a type (`x-kubernetes-unions`).
    pub fn unions_of_type(&self, id: TypeId) -> Option<&serde_json::Value> {
        self.base.types.unions.get(&id)
    }
}

fn key(resource: &Resource) -> (&str, &str, &str) {
    (&resource.group, &resource.version, &resource.plural)
}

fn kind_key(resource: &Resource) -> (&str, &str, &str) {
    (&resource.group, &resource.version, &resource.kind)
}

fn check_groups(
    version: &str,
    config: &RuntimeConfig,
    known: &[Priorities],
) -> Result<(), CatalogueError> {
    let unknown: Vec<&str> = config
        .groups()
        .filter(|group| !known.iter().any(|p| p.group == *group))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(CatalogueError::UnknownGroups {
        version: version.to_owned(),
        groups: unknown.join(", "),
    })
}

fn groups(priorities: &[Priorities], resources: &[Arc<Resource>]) -> Vec<Group> {
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for p in priorities {
        if !resources
            .iter()
            .any(|r| *r.group == p.group && *r.version == p.version)
        {
            continue;
        }
        let group = groups.entry(&p.group).or_insert_with(|| Group {
            name: p.group.clone(),
            priority: p.group_priority,
            versions: Vec::new(),
        });
        group.priority = group.priority.max(p.group_priority);
        group.versions.push(GroupVersion {
            version: p.version.clone(),
            group_priority: p.group_priority,
            priority: p.version_priority,
        });
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    for group in &mut groups {
        group.versions.sort_by(|a, b| {
            let by_priority = b.priority.cmp(&a.priority);
            by_priority.then_with(|| compare_versions(&a.version, &b.version))
        });
    }
    groups.sort_by_key(|g| Reverse(g.priority));
    groups
}
