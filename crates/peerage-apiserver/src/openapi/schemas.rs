//! Types as OpenAPI schemas.

use std::collections::BTreeSet;

use peerage_catalogue::{Catalogue, KindList};
use peerage_objects::schema::{
    IntFormat, ListType, PatchStrategy, Property, Schema, SchemaKind, StringFormat, TypeId,
};
use serde_json::{Map, Value, json};

use super::{Fragments, fragment};

/// Which of the two forms is written: where named types are, and how v2 says what only v3 can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    pub(super) fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!(format!("#/definitions/{name}")),
            Self::V3 => json!(format!("#/components/schemas/{name}")),
        }
    }
}

/// Writes types of one catalogue, and remembers which named ones were referred to.
pub(super) struct Writer<'a> {
    catalogue: &'a Catalogue,
    dialect: Dialect,
    /// Group and version of the document, for kinds that belong to every group-version.
    document: (String, String),
    wanted: Vec<TypeId>,
    seen: BTreeSet<TypeId>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        catalogue: &'a Catalogue,
        dialect: Dialect,
        group: &str,
        version: &str,
    ) -> Self {
        let document = (group.to_owned(), version.to_owned());
        Self {
            catalogue,
            dialect,
            document,
            wanted: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// A reference to the type of that name, if there is one.
    pub(super) fn named(&mut self, name: &str) -> Option<Value> {
        let id = self.catalogue.type_by_name(name)?;
        Some(self.reference(id))
    }

    /// A reference to a named type, or an anonymous type in place.
    pub(super) fn reference(&mut self, id: TypeId) -> Value {
        let schema = self.catalogue.types().get(id);
        let Some(name) = &schema.name else {
            return self.body(id, schema);
        };
        if self.seen.insert(id) {
            self.wanted.push(id);
        }
        json!({ "$ref": self.dialect.reference(name) })
    }

    /// Every named type that was referred to, and what those refer to, by name.
    pub(super) fn finish(mut self) -> Fragments {
        let mut schemas = Fragments::new();
        while let Some(id) = self.wanted.pop() {
            let schema = self.catalogue.types().get(id);
            let body = self.body(id, schema);
            if let Some(name) = &schema.name {
                schemas.insert(name.to_string(), fragment(&body));
            }
        }
        schemas
    }

    fn body(&mut self, id: TypeId, schema: &Schema) -> Value {
        let mut body = match &schema.kind {
            SchemaKind::Any => json!({ "type": "object" }),
            SchemaKind::Boolean => json!({ "type": "boolean" }),
            SchemaKind::Integer(IntFormat::Int32) => {
                json!({ "type": "integer", "format": "int32" })
            }
            SchemaKind::Integer(IntFormat::Int64) => {
                json!({ "type": "integer", "format": "int64" })
            }
            SchemaKind::Number => json!({ "type": "number", "format": "double" }),
            SchemaKind::String(format) => string(*format),
            SchemaKind::IntOrString => match self.dialect {
                Dialect::V2 => json!({ "type": "string", "format": "int-or-string" }),
                Dialect::V3 => {
                    json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
                }
            },
            SchemaKind::Quantity => match self.dialect {
                Dialect::V2 => json!({ "type": "string" }),
                Dialect::V3 => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
            },
            SchemaKind::Array { items, list } => {
                let mut array = json!({ "type": "array", "items": self.reference(*items) });
                put_list(&mut array, list);
                array
            }
            SchemaKind::Map { values } => {
                json!({ "type": "object", "additionalProperties": self.reference(*values) })
            }
            SchemaKind::Struct(fields) => {
                let mut properties = Map::new();
                for (name, property) in &fields.properties {
                    properties.insert(name.to_string(), self.property(property));
                }
                let mut object = json!({ "type": "object" });
                if !fields.required.is_empty() {
                    object["required"] = json!(fields.required);
                }
                if !properties.is_empty() {
                    object["properties"] = Value::Object(properties);
                }
                if fields.atomic {
                    object["x-kubernetes-map-type"] = json!("atomic");
                }
                if fields.preserve_unknown {
                    object["x-kubernetes-preserve-unknown-fields"] = json!(true);
                }
                object
            }
        };
        if let Some(kinds) = self.kinds(id) {
            body["x-kubernetes-group-version-kind"] = kinds;
        }
        if let Some(unions) = self.catalogue.unions_of_type(id) {
            body["x-kubernetes-unions"] = unions.clone();
        }
        body
    }

    fn kinds(&self, id: TypeId) -> Option<Value> {
        let kinds = self.catalogue.kinds_of_type(id)?;
        let shown = |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
        Some(match kinds {
            KindList::These(kinds) => kinds
                .iter()
                .map(|k| shown(&k.group, &k.version, &k.kind))
                .collect(),
            KindList::OfDocument(kind) => {
                let (group, version) = &self.document;
                let mut all = vec![shown("", "v1", kind)];
                if !group.is_empty() {
                    all.push(shown(group, version, kind));
                }
                Value::Array(all)
            }
        })
    }

    fn property(&mut self, property: &Property) -> Value {
        let value = self.reference(property.ty);
        // Where a reference has neighbours it has to be wrapped, which v2 readers do without.
        let plain = property.default.is_none()
            && property.list.is_none()
            && !property.atomic
            && property.patch_strategy == PatchStrategy::None
            && property.patch_merge_key.is_none()
            && property.allowed.is_none();
        let is_reference = value.get("$ref").is_some();
        if is_reference && (plain && self.dialect == Dialect::V2) {
            return value;
        }
        let mut field = match (is_reference, self.dialect) {
            (true, Dialect::V3) => json!({ "allOf": [value] }),
            _ => value,
        };
        if let Some(default) = &property.default {
            field["default"] = default.clone();
        }
        if let Some(allowed) = &property.allowed {
            field["enum"] = json!(allowed);
        }
        if let Some(list) = &property.list {
            put_list(&mut field, list);
        }
        if property.atomic {
            field["x-kubernetes-map-type"] = json!("atomic");
        }
        if property.nullable {
            field["nullable"] = json!(true);
        }
        if let Some(strategy) = strategy(property.patch_strategy) {
            field["x-kubernetes-patch-strategy"] = json!(strategy);
        }
        if let Some(key) = &property.patch_merge_key {
            field["x-kubernetes-patch-merge-key"] = json!(key);
        }
        field
    }
}

fn string(format: StringFormat) -> Value {
    match format {
        StringFormat::Any | StringFormat::Duration => json!({ "type": "string" }),
        StringFormat::DateTime | StringFormat::MicroTime => {
            json!({ "type": "string", "format": "date-time" })
        }
        StringFormat::Byte => json!({ "type": "string", "format": "byte" }),
    }
}

fn put_list(field: &mut Value, list: &ListType) {
    match list {
        ListType::Atomic => field["x-kubernetes-list-type"] = json!("atomic"),
        ListType::Set => field["x-kubernetes-list-type"] = json!("set"),
        ListType::Map(keys) => {
            field["x-kubernetes-list-type"] = json!("map");
            field["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
}

fn strategy(strategy: PatchStrategy) -> Option<&'static str> {
    match strategy {
        PatchStrategy::None => None,
        PatchStrategy::Merge => Some("merge"),
        PatchStrategy::Replace => Some("replace"),
        PatchStrategy::RetainKeys => Some("retainKeys"),
        PatchStrategy::MergeRetainKeys => Some("merge,retainKeys"),
    }
}
