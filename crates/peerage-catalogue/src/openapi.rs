//! Which types an OpenAPI document holds. Paths, operations and schemas are written by the API server.

use std::collections::BTreeSet;

use peerage_objects::schema::{SchemaKind, TypeId};

use crate::catalogue::Catalogue;
use crate::resource::Resource;

/// Where the types are that every group-version shares.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

impl Catalogue {
    /// The named types of the OpenAPI v3 document of a group-version, in the order of their names: what its
    /// operations take and return, and what those types hold.
    pub fn document_types(&self, group: &str, version: &str) -> Vec<TypeId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<TypeId> = self
            .type_by_name(&format!("{META}APIResourceList"))
            .into_iter()
            .collect();
        for resource in self.resources_of(group, version) {
            self.operation_types(resource, &mut open);
        }
        while let Some(id) = open.pop() {
            if found.insert(id) {
                match &self.types().get(id).kind {
                    SchemaKind::Struct(fields) => {
                        open.extend(fields.properties.values().map(|p| p.ty))
                    }
                    SchemaKind::Array { items, .. } => open.push(*items),
                    SchemaKind::Map { values } => open.push(*values),
                    _ => {}
                }
            }
        }
        found.retain(|id| self.types().get(*id).name.is_some());
        found.into_iter().collect()
    }

    fn operation_types(&self, resource: &Resource, types: &mut Vec<TypeId>) {
        types.extend(resource.type_id);
        if resource.has_verb("list") {
            types.extend(resource.list_type_id);
        }
        types.extend(resource.subresources.iter().filter_map(|s| s.type_id));
        let all = resource.subresources.iter().filter(|s| s.type_id.is_some());
        let all: Vec<_> = all.flat_map(|s| &s.verbs).chain(&resource.verbs).collect();
        let shared = [
            ("watch", "WatchEvent"),
            ("delete", "DeleteOptions"),
            ("delete", "Status"),
            ("patch", "Patch"),
        ];
        for (verb, name) in shared {
            if all.iter().any(|v| ***v == *verb) {
                types.extend(self.type_by_name(&format!("{META}{name}")));
            }
        }
    }
}
