//! Fields that the stored object has and the serving version's schema lacks.
//!
//! They were written through a server of another version. They are shown as stored. A write that repeats or omits
//! them keeps them while their parent stays; a write that changes them has an unknown field. Elements of a list are
//! the same element when their map keys are. A list, map or struct that is atomic and whose known content changes
//! takes the new value whole: what the write repeats of the old stays, what it omits is gone. To remove such a field
//! otherwise, go through a server that knows it.
//!
//! The rules run inside of [`decode_over`](crate::schema::decode_over); here is what they need to know of the stored
//! object.
//!
//! Differs: kube-apiserver erases such fields with any write through a server that does not know them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::field;
use crate::json::Node;
use crate::schema::{self, ListType, Property, SchemaKind, StructSchema, TypeId, Types};

/// Whether a stored object has fields that the schema lacks.
pub fn has_unknown(types: &Types, ty: TypeId, stored: &Value) -> bool {
    !unknown_fields(types, ty, stored, 1).is_empty()
}

/// The paths of the fields of a stored object that the schema lacks; at most `limit`.
pub(crate) fn unknown_fields(
    types: &Types,
    ty: TypeId,
    stored: &Value,
    limit: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    find_unknown(types, ty, stored, "", limit, &mut found);
    found
}

fn find_unknown(
    types: &Types,
    ty: TypeId,
    stored: &Value,
    path: &str,
    limit: usize,
    found: &mut Vec<String>,
) {
    if found.len() >= limit {
        return;
    }
    match (&types.get(ty).kind, stored) {
        (SchemaKind::Array { items, .. }, Value::Array(values)) => {
            for (at, value) in values.iter().enumerate() {
                find_unknown(types, *items, value, &field::index(path, at), limit, found);
            }
        }
        (SchemaKind::Map { values: ty }, Value::Object(values)) => {
            for (name, value) in values {
                find_unknown(types, *ty, value, &field::child(path, name), limit, found);
            }
        }
        (SchemaKind::Struct(schema), Value::Object(fields)) => {
            for (name, value) in fields {
                let path = field::child(path, name);
                match schema.properties.get(&**name) {
                    Some(known) => find_unknown(types, known.ty, value, &path, limit, found),
                    None if !schema.preserve_unknown && found.len() < limit => found.push(path),
                    None => {}
                }
            }
        }
        _ => {}
    }
}

/// The part of the stored object beside which a part of the new one is decoded.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'s> {
    value: &'s Value,
    mode: Mode,
    /// The field's list type, where it wins over the list's own.
    list: Option<&'s ListType>,
}

/// What becomes of unknown fields.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// They stay, repeated or not.
    Keep,
    /// They stay if they are repeated: an atomic value around them has changed.
    Repeat,
}

/// The stored elements that belong to the elements of a new list.
pub(crate) struct StoredList<'s> {
    elements: Vec<Option<&'s Value>>,
    mode: Mode,
}

impl<'s> Stored<'s> {
    pub(crate) fn new(value: &'s Value) -> Stored<'s> {
        Stored {
            value,
            mode: Mode::Keep,
            list: None,
        }
    }

    /// The same with the list type of the field it is in.
    pub(crate) fn with_list(self, list: Option<&'s ListType>) -> Stored<'s> {
        Stored { list, ..self }
    }

    /// The value under a key of a map.
    pub(crate) fn field(self, name: &str) -> Option<Stored<'s>> {
        let value = self.value.get(name)?;
        Some(Stored {
            value,
            list: None,
            ..self
        })
    }

    /// The value of a known field; beside a new value that replaces it whole only repeated fields stay.
    pub(crate) fn property(
        self,
        types: &Types,
        property: &Property,
        node: &Node<'_>,
        name: &str,
    ) -> Option<Stored<'s>> {
        let stored = self.field(name)?;
        let atomic = match &types.get(property.ty).kind {
            SchemaKind::Struct(schema) => property.atomic || schema.atomic,
            SchemaKind::Map { .. } => property.atomic,
            _ => false,
        };
        let replaced = atomic && !same(types, property.ty, node, stored.value);
        let mode = if replaced { Mode::Repeat } else { self.mode };
        Some(Stored { mode, ..stored })
    }

    /// The stored elements that belong to new ones.
    pub(crate) fn list(
        self,
        types: &Types,
        items: TypeId,
        list: &ListType,
        nodes: &[Node<'_>],
    ) -> StoredList<'s> {
        let stored = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        let scalars = types.get(items).as_struct().is_none();
        let (elements, mode) = match self.list.unwrap_or(list) {
            ListType::Set => (vec![None; nodes.len()], self.mode),
            ListType::Map(keys) => {
                let keys = Keys::new(types, items, keys);
                let index = index(stored.iter().map(|stored| (keys.of(stored), stored)));
                let find = |node: &Node<'_>| index.get(&keys.of_node(node)).copied();
                (nodes.iter().map(find).collect(), self.mode)
            }
            ListType::Atomic if scalars => (vec![None; nodes.len()], self.mode),
            ListType::Atomic => {
                let pairs = || nodes.iter().zip(stored);
                let unchanged = nodes.len() == stored.len()
                    && pairs().all(|(node, stored)| same(types, items, node, stored));
                if unchanged {
                    (pairs().map(|(_, stored)| Some(stored)).collect(), self.mode)
                } else {
                    let odd = stored.iter().filter(|s| has_unknown(types, items, s));
                    let odd = odd.filter_map(|stored| {
                        let known = known(types, items, &Node::from_value(stored))?;
                        Some((known.to_string(), stored))
                    });
                    let index = index(odd);
                    let find = |node: &Node<'_>| {
                        let known = known(types, items, node).filter(|_| !index.is_empty())?;
                        index.get(&known.to_string()).copied()
                    };
                    (nodes.iter().map(find).collect(), Mode::Repeat)
                }
            }
        };
        StoredList { elements, mode }
    }

    /// Whether a field that the schema lacks is sent as it is stored.
    pub(crate) fn repeats(self, name: &str, node: &Node<'_>) -> bool {
        self.value
            .get(name)
            .is_some_and(|stored| *stored == node.to_value())
    }

    /// Adds the fields that the schema lacks, as they are stored.
    pub(crate) fn keep_unknown(self, schema: &StructSchema, out: &mut Map<String, Value>) {
        let Some(fields) = self.value.as_object().filter(|_| self.mode == Mode::Keep) else {
            return;
        };
        for (name, value) in fields {
            if !schema.preserve_unknown && !schema.properties.contains_key(&**name) {
                out.insert(name.clone(), value.clone());
            }
        }
    }
}

impl<'s> StoredList<'s> {
    /// The stored element that belongs to the new one at that position.
    pub(crate) fn element(&self, at: usize) -> Option<Stored<'s>> {
        let value = self.elements.get(at).copied().flatten()?;
        Some(Stored {
            value,
            mode: self.mode,
            list: None,
        })
    }
}

/// Stored elements by what identifies them; of equal ones the first.
fn index<'s>(elements: impl Iterator<Item = (String, &'s Value)>) -> HashMap<String, &'s Value> {
    let mut index = HashMap::new();
    for (identity, stored) in elements {
        index.entry(identity).or_insert(stored);
    }
    index
}

/// The fields that identify an element, with their defaults.
struct Keys<'t> {
    keys: Vec<(&'t str, Value)>,
}

impl<'t> Keys<'t> {
    fn new(types: &'t Types, items: TypeId, keys: &'t [Arc<str>]) -> Keys<'t> {
        let schema = types.get(items).as_struct();
        let default = |key: &str| {
            let property = schema.and_then(|schema| schema.properties.get(key));
            property
                .and_then(|property| property.default.clone())
                .unwrap_or_default()
        };
        let keys = keys.iter().map(|key| (&**key, default(key)));
        Keys {
            keys: keys.collect(),
        }
    }

    fn of(&self, element: &Value) -> String {
        self.text(|key| element.get(key).cloned())
    }

    fn of_node(&self, node: &Node<'_>) -> String {
        self.text(|key| node.get(key).map(Node::to_value))
    }

    fn text(&self, get: impl Fn(&str) -> Option<Value>) -> String {
        let keys = self.keys.iter();
        let values = keys.map(|(key, default)| get(key).unwrap_or_else(|| default.clone()));
        Value::Array(values.collect()).to_string()
    }
}

/// Whether a new value and a stored one are the same in what the schema knows.
fn same(types: &Types, ty: TypeId, node: &Node<'_>, stored: &Value) -> bool {
    let new = known(types, ty, node);
    new.is_some() && new == known(types, ty, &Node::from_value(stored))
}

/// What the schema knows of a value, with its defaults; none if it is not of the type.
fn known(types: &Types, ty: TypeId, node: &Node<'_>) -> Option<Value> {
    let mut value = schema::decode(types, ty, node).ok()?.value;
    schema::apply_defaults(types, ty, &mut value);
    Some(value)
}

#[cfg(test)]
mod tests;
