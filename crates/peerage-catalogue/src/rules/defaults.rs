//! Fills in what a client left out, the way Go's decoding, defaulting and encoding do together.
//!
//! For each object of a known type, from the outside in: fields that are null are taken away; the defaults of
//! OpenAPI are put in (also the zero values that Go always writes); the type's rules run in their order; empty
//! lists and maps are taken away, and nulls put where Go writes them. Unknown fields stay as they are.
//!
//! Invariant: doing it twice changes nothing more.

use peerage_objects::schema::{SchemaKind, StructSchema, TypeId};
use serde_json::{Map, Value, json};

use super::functions;
use super::text::{DefaultRule, TypeRules};
use crate::catalogue::{Base, Catalogue};
use crate::resource::Resource;

/// How deep objects are looked into; what is deeper stays as it is.
const MAX_DEPTH: usize = 100;

/// The fields of objects' metadata that are not touched: their empty values mean something.
const KEPT: [&str; 1] = ["managedFields"];

impl Catalogue {
    /// Fills in the defaults of an object of a resource.
    pub fn apply_defaults(&self, resource: &Resource, object: &mut Value) {
        if let Some(id) = resource.type_id {
            self.apply_type_defaults(id, object);
        }
    }

    /// Fills in the defaults of a value of any type, such as the body of a subresource.
    pub fn apply_type_defaults(&self, id: TypeId, value: &mut Value) {
        let defaulter = Defaulter { base: &self.base };
        defaulter.schema_defaults(id, value, 0);
        defaulter.value(id, value, 0);
    }

    /// An object of a resource in which nothing has been set, as Go writes it: what a bookmark of a watch is.
    pub fn empty_object(&self, resource: &Resource) -> Value {
        let mut object = json!({ "kind": &*resource.kind, "apiVersion": resource.api_version() });
        if let Some(id) = resource.type_id {
            let defaulter = Defaulter { base: &self.base };
            defaulter.zero(id, &mut object, 0);
        }
        object
    }
}

struct Defaulter<'a> {
    base: &'a Base,
}

impl Defaulter<'_> {
    /// Puts in the zero values that Go always writes.
    fn zero(&self, id: TypeId, value: &mut Value, depth: usize) {
        let kind = &self.base.types.types.get(id).kind;
        let (SchemaKind::Struct(schema), Value::Object(fields)) = (kind, value) else {
            return;
        };
        if depth > MAX_DEPTH {
            return;
        }
        for (name, property) in &schema.properties {
            let zero = property.default.as_ref().filter(|d| is_zero(d));
            if let Some(zero) = zero.filter(|_| !fields.contains_key(&**name)) {
                let mut zero = zero.clone();
                self.zero(property.ty, &mut zero, depth + 1);
                fields.insert(name.to_string(), zero);
            }
        }
        if let Some(rules) = self.base.rules.of_type(id) {
            put_nulls(rules, schema, fields);
            fields.retain(|name, value| !(rules.omitted.contains(name) && *value == 0));
        }
    }

    /// OpenAPI's defaults alone, at all depths: a type's rules may look at what its fields hold by default.
    fn schema_defaults(&self, id: TypeId, value: &mut Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match (&self.base.types.types.get(id).kind, value) {
            (SchemaKind::Struct(schema), Value::Object(fields)) => {
                put_schema_defaults(schema, fields);
                for (name, property) in &schema.properties {
                    if let Some(value) = fields.get_mut(&**name)
                        && !KEPT.contains(&&**name)
                    {
                        self.schema_defaults(property.ty, value, depth + 1);
                    }
                }
            }
            (SchemaKind::Array { items, .. }, Value::Array(list)) => {
                list.iter_mut()
                    .for_each(|v| self.schema_defaults(*items, v, depth + 1));
            }
            (SchemaKind::Map { values }, Value::Object(map)) => {
                map.values_mut()
                    .for_each(|v| self.schema_defaults(*values, v, depth + 1));
            }
            _ => {}
        }
    }

    fn value(&self, id: TypeId, value: &mut Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match (&self.base.types.types.get(id).kind, value) {
            (SchemaKind::Struct(schema), Value::Object(fields)) => {
                self.object(id, schema, fields, depth);
            }
            (SchemaKind::Array { items, .. }, Value::Array(list)) => {
                list.iter_mut()
                    .for_each(|v| self.value(*items, v, depth + 1));
            }
            (SchemaKind::Map { values }, Value::Object(map)) => {
                map.values_mut()
                    .for_each(|v| self.value(*values, v, depth + 1));
            }
            _ => {}
        }
    }

    fn object(
        &self,
        id: TypeId,
        schema: &StructSchema,
        fields: &mut Map<String, Value>,
        depth: usize,
    ) {
        put_schema_defaults(schema, fields);
        let rules = self.base.rules.of_type(id);
        for rule in rules.map_or(&[][..], |r| &r.defaults) {
            self.run(rule, schema, fields);
        }
        for (name, property) in &schema.properties {
            if let Some(value) = fields.get_mut(&**name)
                && !KEPT.contains(&&**name)
            {
                self.value(property.ty, value, depth + 1);
            }
        }
        self.take_away_empty(schema, fields);
        if let Some(rules) = rules {
            put_nulls(rules, schema, fields);
            fields.retain(|name, value| !(rules.omitted.contains(name) && *value == 0));
        }
    }

    fn run(&self, rule: &DefaultRule, schema: &StructSchema, fields: &mut Map<String, Value>) {
        match rule {
            DefaultRule::Call(name) => functions::run_default(name, fields),
            DefaultRule::Value {
                path,
                value,
                when,
                zero,
            } => {
                let [super::Step::Field(first), ..] = path.steps() else {
                    return;
                };
                if schema.properties.contains_key(&**first) && when.holds(fields) {
                    path.visit(fields, &mut |object, name| {
                        if is_unset(object.get(name), *zero) {
                            object.insert(name.to_owned(), value.clone());
                        }
                    });
                }
            }
        }
    }

    /// Go does not write empty lists and maps.
    fn take_away_empty(&self, schema: &StructSchema, fields: &mut Map<String, Value>) {
        fields.retain(|name, value| {
            let Some(property) = schema.properties.get(&**name) else {
                return true;
            };
            let empty = match (&self.base.types.types.get(property.ty).kind, value) {
                (SchemaKind::Array { .. }, Value::Array(list)) => list.is_empty(),
                (SchemaKind::Map { .. }, Value::Object(map)) => map.is_empty(),
                _ => false,
            };
            !empty || KEPT.contains(&&**name)
        });
    }
}

/// Takes nulls away and puts in what OpenAPI has as default.
fn put_schema_defaults(schema: &StructSchema, fields: &mut Map<String, Value>) {
    fields.retain(|name, value| !(value.is_null() && schema.properties.contains_key(&**name)));
    for (name, property) in &schema.properties {
        if let Some(default) = &property.default
            && is_unset(fields.get(&**name), false)
        {
            fields.insert(name.to_string(), default.clone());
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) => false,
    }
}

fn put_nulls(rules: &TypeRules, schema: &StructSchema, fields: &mut Map<String, Value>) {
    for path in &rules.nulls {
        let [super::Step::Field(first), ..] = path.steps() else {
            continue;
        };
        if schema.properties.contains_key(&**first) {
            path.visit(fields, &mut |object, name| {
                object.entry(name).or_insert(Value::Null);
            });
        }
    }
}

/// Whether a default applies: Go cannot tell an empty text (or, for some fields, 0 and false) from none at all.
fn is_unset(value: Option<&Value>, zero: bool) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Bool(flag)) => zero && !flag,
        Some(Value::Number(number)) => zero && number.as_i64() == Some(0),
        Some(_) => false,
    }
}
