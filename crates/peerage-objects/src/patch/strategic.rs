//! Strategic merge patch: lists merge by the keys and strategies that the schema gives to fields, and directives
//! (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) say what a merge cannot.
//!
//! Follows Kubernetes' `strategicpatch` package, which is what kubectl computes patches for. Fields that the schema
//! lacks merge as plain maps, their lists are replaced.

mod order;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::go_value;
use crate::schema::{PatchStrategy, Property, SchemaKind, TypeId, Types};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

type Fields = Map<String, Value>;

/// Merges a patch into an object; the error is the text for the client.
pub(super) fn apply(
    types: &Types,
    ty: TypeId,
    object: &mut Value,
    patch: &Fields,
) -> Result<(), String> {
    if !object.is_object() {
        *object = Value::Object(Fields::new());
    }
    let Value::Object(fields) = object else {
        return Ok(());
    };
    merge_map(types, Some(ty), fields, patch.clone())
}

/// What the schema says of one field.
#[derive(Clone, Copy)]
struct Hints<'t> {
    ty: Option<TypeId>,
    strategy: PatchStrategy,
    key: Option<&'t str>,
}

impl<'t> Hints<'t> {
    fn of(types: &'t Types, parent: Option<TypeId>, field: &str) -> Hints<'t> {
        let kind = parent.map(|parent| &types.get(parent).kind);
        match kind {
            Some(SchemaKind::Struct(schema)) => match schema.properties.get(field) {
                Some(property) => Hints::of_property(property),
                None => Hints::none(None),
            },
            Some(SchemaKind::Map { values }) => Hints::none(Some(*values)),
            _ => Hints::none(None),
        }
    }

    fn of_property(property: &'t Property) -> Hints<'t> {
        Hints {
            ty: Some(property.ty),
            strategy: property.patch_strategy,
            key: property.patch_merge_key.as_deref(),
        }
    }

    fn none(ty: Option<TypeId>) -> Hints<'t> {
        Hints {
            ty,
            strategy: PatchStrategy::None,
            key: None,
        }
    }

    /// The type of the elements of a list.
    fn items(&self, types: &Types) -> Option<TypeId> {
        match &types.get(self.ty?).kind {
            SchemaKind::Array { items, .. } => Some(*items),
            _ => None,
        }
    }

    fn merges_lists(&self) -> bool {
        matches!(
            self.strategy,
            PatchStrategy::Merge | PatchStrategy::MergeRetainKeys
        )
    }
}

fn merge_map(
    types: &Types,
    ty: Option<TypeId>,
    original: &mut Fields,
    mut patch: Fields,
) -> Result<(), String> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => *original = patch,
            Some("delete") => original.clear(),
            _ => return Err(bad_directive(&directive, &patch)),
        }
        return Ok(());
    }
    retain_keys(original, &mut patch)?;
    merge_ordered_lists(types, ty, original, &mut patch)?;
    for (name, value) in patch {
        let (name, deletes) = match name.strip_prefix(DELETE_FROM) {
            Some(list) => (list.to_owned(), true),
            None => (name, false),
        };
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        let hints = Hints::of(types, ty, &name);
        match (original.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) if !deletes => {
                if hints.strategy == PatchStrategy::Replace {
                    *old = new;
                } else {
                    merge_map(types, hints.ty, old, new)?;
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                if deletes {
                    let gone: HashSet<String> = new.iter().map(Value::to_string).collect();
                    old.retain(|item| !gone.contains(&item.to_string()));
                } else if hints.merges_lists() {
                    *old = merge_list(types, hints, std::mem::take(old), new)?;
                } else {
                    *old = new;
                }
            }
            (_, _) if deletes => {}
            (_, mut value) => {
                drop_directives(&mut value);
                original.insert(name, value);
            }
        }
    }
    Ok(())
}

/// `$retainKeys` lists the keys that stay; everything else of the original goes.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), String> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let keys: HashSet<&str> = texts(&keys)
        .ok_or("invalid patch format of retainKeys")?
        .into_iter()
        .collect();
    let stray = |(name, value): (&String, &Value)| {
        let exempt = value.is_null() || name.starts_with(DELETE_FROM) || name.starts_with(ORDER);
        !exempt && !keys.contains(name.as_str())
    };
    if patch.iter().any(stray) {
        return Err("invalid patch format of retainKeys".to_owned());
    }
    original.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

fn texts(list: &Value) -> Option<Vec<&str>> {
    list.as_array()?.iter().map(Value::as_str).collect()
}

/// Merges the lists that `$setElementOrder/…` is about, takes them out of the patch, and puts their elements into
/// the order wanted.
fn merge_ordered_lists(
    types: &Types,
    ty: Option<TypeId>,
    original: &mut Fields,
    patch: &mut Fields,
) -> Result<(), String> {
    let names: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(ORDER))
        .cloned()
        .collect();
    for directive in names {
        let wanted = list(patch.remove(&directive).unwrap_or_default(), &directive)?;
        let name = directive[ORDER.len()..].to_owned();
        let hints = Hints::of(types, ty, &name);
        let old = original.remove(&name).filter(|old| !old.is_null());
        let old = old.map(|old| list(old, &name)).transpose()?;
        let new = patch
            .remove(&name)
            .map(|new| list(new, &name))
            .transpose()?;
        if let Some(new) = &new {
            check_order(new, &wanted, hints.key)?;
        }
        let server = old.clone().unwrap_or_default();
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => {
                let mut new = Value::Array(new);
                drop_directives(&mut new);
                list(new, &name)?
            }
            (Some(old), Some(new)) if hints.merges_lists() => merge_list(types, hints, old, new)?,
            (Some(_), Some(new)) => new,
        };
        let merged = order::arrange(merged, &wanted, &server, hints.key);
        original.insert(name, Value::Array(merged));
    }
    Ok(())
}

fn list(value: Value, name: &str) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(format!("expected a list at {name}")),
    }
}

/// The elements of the patch must come in the order that is wanted.
fn check_order(new: &[Value], wanted: &[Value], key: Option<&str>) -> Result<(), String> {
    let mut order = wanted.iter();
    let kept = new.iter().filter(|item| item.get(DIRECTIVE).is_none());
    for item in kept {
        if !order.any(|wanted| order::same(wanted, item, key)) {
            let new = go_value(&Value::Array(new.to_vec()));
            let wanted = go_value(&Value::Array(wanted.to_vec()));
            return Err(format!(
                "The order in patch list:\n{new}\n doesn't match $setElementOrder list:\n{wanted}\n"
            ));
        }
    }
    Ok(())
}

fn merge_list(
    types: &Types,
    hints: Hints<'_>,
    old: Vec<Value>,
    new: Vec<Value>,
) -> Result<Vec<Value>, String> {
    let objects = element_kind(&old, &new)?;
    if !objects {
        let mut merged = old.clone();
        merged.extend(new.iter().cloned());
        return Ok(order::arrange(deduplicate(merged), &new, &old, None));
    }
    let Some(key) = hints.key else {
        return Err("cannot merge lists without merge key".to_owned());
    };
    let server = old.clone();
    let (mut merged, new) = special_elements(old, new, key)?;
    let wanted = new.clone();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (at, item) in merged.iter().enumerate() {
        if let Some(identity) = item.get(key) {
            places.entry(identity.to_string()).or_insert(at);
        }
    }
    for item in new {
        let Value::Object(mut item) = item else {
            continue;
        };
        let identity = item.get(key).ok_or_else(|| no_key(&item, key))?.to_string();
        let found = places.get(&identity).and_then(|at| merged.get_mut(*at));
        match found {
            Some(Value::Object(old)) => merge_map(types, hints.items(types), old, item)?,
            _ => {
                drop_from_map(&mut item);
                places.insert(identity, merged.len());
                merged.push(Value::Object(item));
            }
        }
    }
    Ok(order::arrange(merged, &wanted, &server, Some(key)))
}

/// Whether the elements are objects (or else scalars); they must be of one kind.
fn element_kind(old: &[Value], new: &[Value]) -> Result<bool, String> {
    let mut elements = old.iter().chain(new).peekable();
    let objects = elements.peek().is_some_and(|first| first.is_object());
    for element in elements {
        if element.is_array() {
            return Err("lists of lists are not supported".to_owned());
        }
        if element.is_object() != objects {
            return Err("list element types are not identical".to_owned());
        }
    }
    Ok(objects)
}

/// Carries out and takes away the elements with a `$patch`; what is left is to be merged.
fn special_elements(
    mut old: Vec<Value>,
    new: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), String> {
    let (mut left, mut gone, mut replace) = (Vec::new(), HashSet::new(), false);
    for item in new {
        let Value::Object(fields) = &item else {
            continue;
        };
        match fields.get(DIRECTIVE) {
            None => left.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                let identity = fields.get(key).ok_or_else(|| no_key(fields, key))?;
                gone.insert(identity.to_string());
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err("merging lists cannot yet be specified in the patch".to_owned());
            }
            Some(directive) => return Err(bad_directive(directive, fields)),
        }
    }
    if replace {
        return Ok((left, Vec::new()));
    }
    if !gone.is_empty() {
        let stays = |old: &Value| {
            old.get(key)
                .is_none_or(|old| !gone.contains(&old.to_string()))
        };
        old.retain(stays);
    }
    Ok((old, left))
}

fn deduplicate(items: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    let new = |item: &Value| seen.insert(item.to_string());
    items.into_iter().filter(new).collect()
}

/// Takes directives and nulls out of what becomes part of the object as it is.
fn drop_directives(value: &mut Value) {
    match value {
        Value::Object(fields) => drop_from_map(fields),
        Value::Array(items) => {
            let deleted =
                |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
            let replaces =
                |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("replace");
            items.retain(|item| !deleted(item) && !replaces(item));
            items.iter_mut().for_each(drop_directives);
        }
        _ => {}
    }
}

fn drop_from_map(fields: &mut Fields) {
    fields.retain(|name, value| {
        let directive = name == DIRECTIVE || name == RETAIN_KEYS;
        !directive && !name.starts_with(DELETE_FROM) && !name.starts_with(ORDER) && !value.is_null()
    });
    fields.values_mut().for_each(drop_directives);
}

fn no_key(item: &Fields, key: &str) -> String {
    let item = go_value(&Value::Object(item.clone()));
    format!("map: {item} does not contain declared merge key: {key}")
}

fn bad_directive(directive: &Value, fields: &Fields) -> String {
    let fields = go_value(&Value::Object(fields.clone()));
    format!(
        "unknown patch type: {} in map: {fields}",
        go_value(directive)
    )
}
