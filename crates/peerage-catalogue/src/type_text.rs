//! Reads types from their text form.
//!
//! ```text
//! type io.k8s.api.core.v1.Volume kinds=… map=atomic unions=[…]
//!   name! string default=""
//!   items [io.k8s.api.core.v1.KeyToPath] list=map:key patch=merge key=key
//! type io.k8s.apimachinery.pkg.api.resource.Quantity is=quantity
//! ```
//!
//! A field is its name (`!`: required), what it holds (a scalar, `[elements]`, `{values}`, or the name of a type) and
//! words: `list=atomic`, `list=set`, `list=map:KEYS`, `patch=STRATEGY`, `key=MERGE-KEY`, `map=atomic`, `enum=JSON`,
//! `default=JSON`. A value in JSON may hold spaces and is read to its end.
//!
//! Making the text is left to `cargo xtask catalogue`.
//!
//! Invariant: named types get the ids 0, 1, 2… in the order of their names; anonymous ones come after them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use peerage_objects::schema::{
    IntFormat, ListType, PatchStrategy, Property, Schema, SchemaKind, StringFormat, StructSchema,
    TypeId, Types,
};
use serde_json::Value;

use crate::GroupVersionKind;
use crate::records::Records;

/// What is wrong with a type's text.
#[derive(Debug, thiserror::Error)]
#[error("type {name}: `{word}` {fault}")]
pub struct TypeTextError {
    /// The type.
    pub name: String,
    /// The word that could not be read.
    pub word: String,
    /// What is wrong with it.
    pub fault: &'static str,
}

/// All types of a version, and what else their text says.
#[derive(Debug, Default)]
pub struct TypeTable {
    /// The types.
    pub types: Types,
    /// The type of each kind. The options types, which belong to every version, are not in it.
    pub kinds: BTreeMap<GroupVersionKind, TypeId>,
    /// The kinds that OpenAPI lists for a type.
    pub kinds_of: HashMap<TypeId, KindList>,
    /// `x-kubernetes-unions` of a type.
    pub unions: HashMap<TypeId, Value>,
}

/// The kinds that OpenAPI lists for a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindList {
    /// These.
    These(Vec<GroupVersionKind>),
    /// This kind in `v1` of the core group and in the group-version of the document.
    OfDocument(String),
}

/// Reads all types of a version.
pub fn read(records: &Records) -> Result<TypeTable, TypeTextError> {
    let mut table = TypeTable::default();
    for (name, _) in records.of_kind("type") {
        table.types.push(Schema::named(name, SchemaKind::Any));
    }
    let mut reader = Reader {
        table,
        anonymous: HashMap::new(),
    };
    for (name, text) in records.of_kind("type") {
        reader
            .record(name, text)
            .map_err(|(word, fault)| TypeTextError {
                name: name.to_owned(),
                word,
                fault,
            })?;
    }
    Ok(reader.table)
}

type Fault = (String, &'static str);

fn fault(word: &str, fault: &'static str) -> Fault {
    (word.to_owned(), fault)
}

struct Reader {
    table: TypeTable,
    anonymous: HashMap<String, TypeId>,
}

impl Reader {
    fn record(&mut self, name: &str, text: &str) -> Result<(), Fault> {
        let id = self.table.types.find(name).ok_or(fault(name, "is gone"))?;
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        let mut fields = StructSchema::default();
        let mut scalar = None;
        for (word, value) in Words(header.splitn(3, ' ').nth(2).unwrap_or_default()) {
            match word {
                "is" => scalar = Some(named_kind(name, value)?),
                "map" => fields.atomic = value == "atomic",
                "kinds" => self.kinds(id, name, value)?,
                "unions" => {
                    self.table.unions.insert(id, json(value)?);
                }
                _ => return Err(fault(word, "is no word of a type")),
            }
        }
        let mut required = Vec::new();
        for line in lines {
            let (field, rest) = line
                .trim_start()
                .split_once(' ')
                .ok_or(fault(line, "has no type"))?;
            let field = match field.strip_suffix('!') {
                Some(field) => {
                    required.push(Arc::from(field));
                    field
                }
                None => field,
            };
            let property = self.property(rest)?;
            fields.properties.insert(Arc::from(field), property);
        }
        fields.required = required.into();
        let kind = scalar.unwrap_or(SchemaKind::Struct(fields));
        self.table.types.set(id, Schema::named(name, kind));
        Ok(())
    }

    fn kinds(&mut self, id: TypeId, name: &str, value: &str) -> Result<(), Fault> {
        let last = name.rsplit('.').next().unwrap_or(name);
        let list = if value == "document" {
            KindList::OfDocument(last.to_owned())
        } else {
            let kinds: Option<Vec<_>> = value.split(',').map(GroupVersionKind::read).collect();
            KindList::These(kinds.ok_or(fault(value, "is no list of kinds"))?)
        };
        if let KindList::These(kinds) = &list
            && !matches!(last, "DeleteOptions" | "WatchEvent")
        {
            for kind in kinds {
                self.table.kinds.insert(kind.clone(), id);
            }
        }
        self.table.kinds_of.insert(id, list);
        Ok(())
    }

    fn property(&mut self, text: &str) -> Result<Property, Fault> {
        let (holds, words) = text.split_once(' ').unwrap_or((text, ""));
        let mut property = Property::new(self.held(holds)?);
        for (word, value) in Words(words) {
            match word {
                "list" => property.list = Some(list_type(value)?),
                "patch" => property.patch_strategy = patch_strategy(value)?,
                "key" => property.patch_merge_key = Some(Arc::from(value)),
                "map" => property.atomic = value == "atomic",
                // The choices of a list's elements are documentation only.
                "enum" if holds.starts_with(['[', '{']) => {}
                "enum" => property.allowed = Some(choices(value)?),
                "default" => property.default = Some(json(value)?),
                _ => return Err(fault(word, "is no word of a field")),
            }
        }
        Ok(property)
    }

    /// The type of what a field holds.
    fn held(&mut self, word: &str) -> Result<TypeId, Fault> {
        if let Some(id) = self.table.types.find(word) {
            return Ok(id);
        }
        if let Some(id) = self.anonymous.get(word) {
            return Ok(*id);
        }
        let inside = |open: char, close: char| word.strip_prefix(open)?.strip_suffix(close);
        let kind = if let Some(items) = inside('[', ']') {
            let items = self.held(items)?;
            let list = ListType::Atomic;
            SchemaKind::Array { items, list }
        } else if let Some(values) = inside('{', '}') {
            let values = self.held(values)?;
            SchemaKind::Map { values }
        } else {
            scalar_kind(word)?
        };
        let id = self.table.types.push(Schema::anonymous(kind));
        self.anonymous.insert(word.to_owned(), id);
        Ok(id)
    }
}

/// A type without fields. What OpenAPI calls an object is an empty struct, except for those that hold anything.
fn named_kind(name: &str, word: &str) -> Result<SchemaKind, Fault> {
    let last = name.rsplit('.').next().unwrap_or(name);
    Ok(match (last, word) {
        ("MicroTime", "string:date-time") => SchemaKind::String(StringFormat::MicroTime),
        ("Duration", "string") => SchemaKind::String(StringFormat::Duration),
        ("RawExtension" | "FieldsV1" | "Patch" | "JSON", "object") => SchemaKind::Any,
        (_, "object") => SchemaKind::Struct(StructSchema::default()),
        _ => scalar_kind(word)?,
    })
}

fn scalar_kind(word: &str) -> Result<SchemaKind, Fault> {
    Ok(match word {
        "any" | "object" => SchemaKind::Any,
        "boolean" => SchemaKind::Boolean,
        "integer:int32" => SchemaKind::Integer(IntFormat::Int32),
        "integer:int64" | "integer" => SchemaKind::Integer(IntFormat::Int64),
        "number" | "number:double" => SchemaKind::Number,
        "string" => SchemaKind::String(StringFormat::Any),
        "string:byte" => SchemaKind::String(StringFormat::Byte),
        "string:date-time" => SchemaKind::String(StringFormat::DateTime),
        "int-or-string" => SchemaKind::IntOrString,
        "quantity" => SchemaKind::Quantity,
        _ => return Err(fault(word, "is no type")),
    })
}

fn list_type(value: &str) -> Result<ListType, Fault> {
    Ok(match value {
        "atomic" => ListType::Atomic,
        "set" => ListType::Set,
        _ => {
            let keys = value
                .strip_prefix("map:")
                .ok_or(fault(value, "is no list type"))?;
            ListType::Map(keys.split(',').map(Arc::from).collect())
        }
    })
}

fn patch_strategy(value: &str) -> Result<PatchStrategy, Fault> {
    Ok(match value {
        "merge" => PatchStrategy::Merge,
        "replace" => PatchStrategy::Replace,
        "retainKeys" => PatchStrategy::RetainKeys,
        "merge,retainKeys" => PatchStrategy::MergeRetainKeys,
        _ => return Err(fault(value, "is no patch strategy")),
    })
}

fn choices(value: &str) -> Result<Box<[Arc<str>]>, Fault> {
    serde_json::from_str(value).map_err(|_| fault(value, "is no list of texts"))
}

fn json(value: &str) -> Result<Value, Fault> {
    serde_json::from_str(value).map_err(|_| fault(value, "is no JSON"))
}

/// `word=value` pairs; a value in JSON may hold spaces.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        let text = self.0.trim_start();
        if text.is_empty() {
            return None;
        }
        let (word, rest) = text.split_once('=').unwrap_or((text, ""));
        let end = match word {
            "enum" | "default" | "unions" => json_end(rest),
            _ => rest.find(' ').unwrap_or(rest.len()),
        };
        self.0 = &rest[end..];
        Some((word, &rest[..end]))
    }
}

/// Where the JSON value at the start of a text ends.
fn json_end(text: &str) -> usize {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => values.byte_offset(),
        _ => text.len(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn table(text: &str) -> Result<TypeTable, TypeTextError> {
        let mut records = Records::new();
        records.apply(text).unwrap();
        read(&records)
    }

    #[test]
    fn a_struct_reads_with_all_words_of_its_fields() {
        let table = table(
            "type a.B map=atomic kinds=g/v1/B,/v1/B\n  name! string enum=[\"x y\",\"z\"] default=\"x y\"\n  \
             more [a.B] list=map:k,l patch=merge,retainKeys key=k\n  labels {string} map=atomic\n",
        )
        .unwrap();
        let id = table.types.find("a.B").unwrap();
        let fields = table.types.get(id).as_struct().unwrap();
        assert!(fields.atomic);
        assert_eq!(&*fields.required, [Arc::from("name")]);
        let name = &fields.properties["name"];
        assert_eq!(name.default, Some("x y".into()));
        assert_eq!(name.allowed.as_ref().unwrap().len(), 2);
        let more = &fields.properties["more"];
        assert_eq!(
            more.list,
            Some(ListType::Map([Arc::from("k"), Arc::from("l")].into()))
        );
        assert_eq!(more.patch_strategy, PatchStrategy::MergeRetainKeys);
        assert!(
            matches!(table.types.get(more.ty).kind, SchemaKind::Array { items, .. } if items == id)
        );
        assert!(fields.properties["labels"].atomic);
        assert_eq!(table.kinds.len(), 2);
    }

    #[test]
    fn faults_name_the_type_and_the_word() {
        for (text, message) in [
            ("type a.B x=1\n", "type a.B: `x` is no word of a type"),
            ("type a.B\n  f strin\n", "type a.B: `strin` is no type"),
            (
                "type a.B\n  f string list=bag\n",
                "type a.B: `bag` is no list type",
            ),
            ("type a.B\n  f\n", "type a.B: `  f` has no type"),
        ] {
            assert_eq!(table(text).unwrap_err().to_string(), message);
        }
    }
}
