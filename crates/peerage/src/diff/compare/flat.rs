//! A side of a comparison as one table of resources by their names.

use std::collections::{BTreeMap, BTreeSet};

use peerage_core::discovery::{ApiGroupDiscovery, ApiGroupDiscoveryList, ApiResourceDiscovery};

/// Group, version and resource.
pub(super) type Name = (String, String, String);

/// A resource as far as it is compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kind: String,
    pub(super) verbs: BTreeSet<String>,
    pub(super) subresources: BTreeMap<String, BTreeSet<String>>,
}

/// A side, flattened.
#[derive(Debug, Default)]
pub(super) struct Flat {
    /// Versions by group.
    pub(super) versions: BTreeMap<String, BTreeSet<String>>,
    pub(super) resources: BTreeMap<Name, Facts>,
}

impl Flat {
    pub(super) fn add(&mut self, list: &ApiGroupDiscoveryList) {
        for group in &list.items {
            self.add_group(group);
        }
    }

    fn add_group(&mut self, group: &ApiGroupDiscovery) {
        for version in &group.versions {
            let versions = self.versions.entry(group.name().to_owned()).or_default();
            versions.insert(version.version.clone());
            for resource in &version.resources {
                let name = (
                    group.name().to_owned(),
                    version.version.clone(),
                    resource.resource.clone(),
                );
                self.resources.insert(name, facts(resource));
            }
        }
    }
}

fn facts(resource: &ApiResourceDiscovery) -> Facts {
    let verbs = |verbs: &[String]| verbs.iter().cloned().collect();
    let kind = resource.response_kind.as_ref();
    Facts {
        kind: kind.map(|it| it.kind.clone()).unwrap_or_default(),
        verbs: verbs(&resource.verbs),
        subresources: resource
            .subresources
            .iter()
            .map(|it| (it.subresource.clone(), verbs(&it.verbs)))
            .collect(),
    }
}
