//! What one server serves: its discovery documents with an index over them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::discovery::{ApiGroupDiscovery, ApiGroupDiscoveryList, StorageVersionHashes};
use crate::index::{Found, ServedGroup, Target};

/// The documents of one server at one time, both of `/apis` and `/api`.
///
/// Groups that did not change are shared with earlier documents ([`Documents::renewed`]), which is what makes
/// folding a change into a new view cheap.
#[derive(Debug, Clone, Default)]
pub struct Documents {
    /// Groups of `/apis` in the server's order, by name.
    pub(super) groups: Vec<Arc<ServedGroup>>,
    /// The core group, when `/api` lists one.
    pub(super) core: Option<Arc<ServedGroup>>,
    /// The names of `groups`.
    pub(super) names: Arc<[Arc<str>]>,
    pub(super) hashes: Option<Arc<StorageVersionHashes>>,
    places: HashMap<Arc<str>, usize>,
}

impl Documents {
    /// Takes the documents of `/apis` and `/api`. Of groups with the same name the first counts; an unnamed
    /// group in the first list, and others than that in the second, are passed over.
    #[must_use]
    pub fn new(apis: ApiGroupDiscoveryList, core: ApiGroupDiscoveryList) -> Self {
        Self::renewed(&Self::default(), apis, core)
    }

    /// The same, sharing with `previous` whatever is equal.
    #[must_use]
    pub fn renewed(
        previous: &Self,
        apis: ApiGroupDiscoveryList,
        core: ApiGroupDiscoveryList,
    ) -> Self {
        let mut groups = Vec::with_capacity(apis.items.len());
        let mut names = Vec::with_capacity(apis.items.len());
        let mut places = HashMap::with_capacity(apis.items.len());
        for group in apis.items {
            if group.name().is_empty() || places.contains_key(group.name()) {
                continue;
            }
            let name: Arc<str> = previous.shared_name(group.name());
            places.insert(Arc::clone(&name), groups.len());
            names.push(name);
            let same = previous.group(group.name());
            groups.push(shared_or_new(same, group));
        }
        let names = if *previous.names == *names {
            Arc::clone(&previous.names)
        } else {
            names.into()
        };
        let core = core.items.into_iter().find(|it| it.name().is_empty());
        Self {
            groups,
            core: core.map(|group| shared_or_new(previous.core.as_ref(), group)),
            names,
            hashes: previous.hashes.clone(),
            places,
        }
    }

    /// Adds what only legacy documents tell.
    #[must_use]
    pub fn with_hashes(mut self, hashes: Arc<StorageVersionHashes>) -> Self {
        self.hashes = Some(hashes);
        self
    }

    /// The aggregated document of `/apis`, as the server sent it.
    #[must_use]
    pub fn apis(&self) -> ApiGroupDiscoveryList {
        let items = self.groups.iter().map(|it| Arc::clone(&it.discovery));
        ApiGroupDiscoveryList {
            items: items.collect(),
        }
    }

    /// The aggregated document of `/api`.
    #[must_use]
    pub fn core(&self) -> ApiGroupDiscoveryList {
        let items = self.core.iter().map(|it| Arc::clone(&it.discovery));
        ApiGroupDiscoveryList {
            items: items.collect(),
        }
    }

    /// Whether they list nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.core.is_none()
    }

    /// How much of `target` is listed.
    #[must_use]
    pub fn find(&self, target: &Target<'_>) -> Found {
        self.group(target.group)
            .map(|group| group.find(target))
            .unwrap_or_default()
    }

    /// The group of this name, the core group for the empty name.
    pub(super) fn group(&self, name: &str) -> Option<&Arc<ServedGroup>> {
        if name.is_empty() {
            return self.core.as_ref();
        }
        self.places.get(name).map(|place| &self.groups[*place])
    }

    fn shared_name(&self, name: &str) -> Arc<str> {
        match self.places.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => name.into(),
        }
    }
}

fn shared_or_new(
    previous: Option<&Arc<ServedGroup>>,
    group: Arc<ApiGroupDiscovery>,
) -> Arc<ServedGroup> {
    match previous {
        Some(same) if Arc::ptr_eq(&same.discovery, &group) || same.discovery == group => {
            Arc::clone(same)
        }
        _ => Arc::new(ServedGroup::new(group)),
    }
}
