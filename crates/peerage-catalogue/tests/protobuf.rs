//! The numbers of fields in protobuf cover what the schemas have.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;

use peerage_catalogue::{Catalogue, RuntimeConfig, versions};
use peerage_objects::schema::{SchemaKind, TypeId, Types};

/// Types with a form of their own in JSON, which no client sends in protobuf.
const WITHOUT: [&str; 4] = [
    "JSONSchemaPropsOrArray",
    "JSONSchemaPropsOrBool",
    "JSONSchemaPropsOrStringArray",
    "JSON",
];

/// Every named object type that a resource's objects may hold.
fn reachable(types: &Types, id: TypeId, found: &mut BTreeSet<TypeId>) {
    let schema = types.get(id);
    if schema.name.is_some() && !found.insert(id) {
        return;
    }
    match &schema.kind {
        SchemaKind::Struct(fields) => fields
            .properties
            .values()
            .for_each(|p| reachable(types, p.ty, found)),
        SchemaKind::Array { items, .. } => reachable(types, *items, found),
        SchemaKind::Map { values } => reachable(types, *values, found),
        _ => {}
    }
}

#[test]
fn every_field_of_every_kind_has_a_number() {
    let mut missing = BTreeSet::new();
    for version in versions() {
        let catalogue =
            Catalogue::load(version, &RuntimeConfig::parse("api/all=true").unwrap()).unwrap();
        let (types, messages) = (catalogue.types(), catalogue.messages().unwrap());
        let mut found = BTreeSet::new();
        for resource in catalogue.resources() {
            resource
                .type_id
                .into_iter()
                .for_each(|id| reachable(types, id, &mut found));
        }
        for id in found {
            let schema = types.get(id);
            let (Some(name), Some(fields)) = (&schema.name, schema.as_struct()) else {
                continue;
            };
            if WITHOUT.iter().any(|w| name.ends_with(&format!(".{w}"))) {
                continue;
            }
            let known: BTreeSet<&str> = messages.fields(name).collect();
            let type_fields = ["apiVersion", "kind"];
            for field in fields
                .properties
                .keys()
                .filter(|f| !type_fields.contains(&&***f) && !known.contains(&***f))
            {
                missing.insert(format!("{version} {name}.{field}"));
            }
        }
    }
    assert!(missing.is_empty(), "without a number: {missing:#?}");
}
