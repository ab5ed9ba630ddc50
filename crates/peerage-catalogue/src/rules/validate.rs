//! Runs the checks of an object's types.
//!
//! Errors come in the order of the object's structure: a type's own checks first, in the order of the table, then
//! those of what its fields hold.

use peerage_objects::field::{self, FieldError};
use peerage_objects::schema::{SchemaKind, StructSchema, TypeId};
use serde_json::{Map, Value};

use super::check::{Check, CheckKind, is_empty};
use super::functions;
use super::path::{FieldPath, Step};
use super::text::CheckRule;
use crate::catalogue::{Base, Catalogue};
use crate::resource::Resource;

/// How deep objects are looked into.
const MAX_DEPTH: usize = 100;

impl Catalogue {
    /// What is wrong with an object; `old` is the one that it replaces.
    pub fn validate(
        &self,
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        let mut run = Run {
            base: &self.base,
            errors: Vec::new(),
        };
        if let Some(id) = resource.type_id {
            run.value(id, "", new, old, 0);
        }
        run.errors
    }
}

struct Run<'a> {
    base: &'a Base,
    errors: Vec<FieldError>,
}

impl Run<'_> {
    fn value(&mut self, id: TypeId, path: &str, new: &Value, old: Option<&Value>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let base = self.base;
        match (&base.types.types.get(id).kind, new) {
            (SchemaKind::Struct(schema), Value::Object(fields)) => {
                self.object(
                    id,
                    schema,
                    path,
                    fields,
                    old.and_then(Value::as_object),
                    depth,
                );
            }
            (SchemaKind::Array { items, .. }, Value::Array(list)) => {
                for (at, item) in list.iter().enumerate() {
                    let old = old.and_then(|o| o.get(at));
                    self.value(*items, &field::index(path, at), item, old, depth + 1);
                }
            }
            (SchemaKind::Map { values }, Value::Object(map)) => {
                for (key, value) in map {
                    let old = old.and_then(|o| o.get(key));
                    self.value(*values, &field::key(path, key), value, old, depth + 1);
                }
            }
            _ => {}
        }
    }

    fn object(
        &mut self,
        id: TypeId,
        schema: &StructSchema,
        path: &str,
        fields: &Map<String, Value>,
        old: Option<&Map<String, Value>>,
        depth: usize,
    ) {
        for rule in self.base.rules.of_type(id).map_or(&[][..], |r| &r.checks) {
            match rule {
                CheckRule::Call(name) => {
                    functions::run_check(name, path, fields, old, &mut self.errors)
                }
                CheckRule::Check(check) if check.when.holds(fields) => {
                    self.check(check, path, fields, old);
                }
                CheckRule::Check(_) => {}
            }
        }
        for (name, value) in fields {
            if let Some(property) = schema.properties.get(&**name) {
                let old = old.and_then(|o| o.get(name));
                self.value(
                    property.ty,
                    &field::child(path, name),
                    value,
                    old,
                    depth + 1,
                );
            }
        }
    }

    fn check(
        &mut self,
        check: &Check,
        path: &str,
        fields: &Map<String, Value>,
        old: Option<&Map<String, Value>>,
    ) {
        let errors = &mut self.errors;
        let Some(place) = &check.path else {
            choice(&check.kind, path, fields, errors);
            return;
        };
        each(place, path, fields, old, &mut |at, new, old| {
            one(&check.kind, at, new, old, errors);
        });
    }
}

/// What is done at a place: its path, its value and, if there is an old object, the old value.
type Act<'a> = &'a mut dyn FnMut(&str, Option<&Value>, Option<Option<&Value>>);

/// Each place that a path leads to: where it is, its value and the old value.
fn each(
    path: &FieldPath,
    at: &str,
    fields: &Map<String, Value>,
    old: Option<&Map<String, Value>>,
    act: Act<'_>,
) {
    let Some((Step::Field(name), rest)) = path.steps().split_first() else {
        return;
    };
    let value = fields.get(name).filter(|v| !v.is_null());
    let old = old.map(|o| o.get(name).filter(|v| !v.is_null()));
    steps(rest, &field::child(at, name), value, old, act);
}

fn steps(
    rest: &[Step],
    at: &str,
    value: Option<&Value>,
    old: Option<Option<&Value>>,
    act: Act<'_>,
) {
    let Some((step, rest)) = rest.split_first() else {
        act(at, value, old);
        return;
    };
    match (step, value) {
        (Step::Field(name), Some(Value::Object(fields))) => {
            let old = old.map(|o| o.and_then(|o| o.get(name)));
            steps(
                rest,
                &field::child(at, name),
                fields.get(name).filter(|v| !v.is_null()),
                old,
                act,
            );
        }
        (Step::Each, Some(Value::Array(list))) => {
            for (index, item) in list.iter().enumerate() {
                let old = old.map(|o| o.and_then(|o| o.get(index)));
                steps(rest, &field::index(at, index), Some(item), old, act);
            }
        }
        (Step::Each, Some(Value::Object(map))) => {
            for (key, item) in map {
                let old = old.map(|o| o.and_then(|o| o.get(key)));
                steps(rest, &field::key(at, key), Some(item), old, act);
            }
        }
        // What is not there is not looked into: the one who holds it says whether it must be.
        _ => {}
    }
}

fn one(
    kind: &CheckKind,
    at: &str,
    value: Option<&Value>,
    old: Option<Option<&Value>>,
    errors: &mut Vec<FieldError>,
) {
    match (kind, value) {
        (CheckKind::Required(detail), value) if is_empty(value) => {
            errors.push(FieldError::required(at, detail));
        }
        (CheckKind::NonZero, value) if value.is_none_or(|v| *v == 0) => {
            errors.push(FieldError::required(at, ""));
        }
        (CheckKind::Forbidden(detail), Some(_)) => errors.push(FieldError::forbidden(at, detail)),
        (CheckKind::Immutable, value) if old.is_some_and(|old| old != value) => {
            errors.push(FieldError::invalid(at, value, "field is immutable"));
        }
        (kind, Some(Value::String(value))) => text(kind, at, value, errors),
        (kind, Some(Value::Number(value))) => {
            if let Some(detail) = value.as_i64().and_then(|n| number(kind, n)) {
                errors.push(FieldError::invalid(at, value, &detail));
            }
        }
        (CheckKind::MaxItems(most), Some(Value::Array(list))) if list.len() > *most => {
            errors.push(FieldError::too_many(at, list.len(), *most));
        }
        (CheckKind::Unique(name), Some(Value::Array(list))) => unique(name, at, list, errors),
        _ => {}
    }
}

fn text(kind: &CheckKind, at: &str, value: &str, errors: &mut Vec<FieldError>) {
    match kind {
        CheckKind::Enum(words) if !words.iter().any(|w| w == value) => {
            errors.push(FieldError::not_supported(at, value, words));
        }
        CheckKind::Format(format) => {
            let wrong = format.check(value).into_iter();
            errors.extend(wrong.map(|detail| FieldError::invalid(at, value, &detail)));
        }
        CheckKind::MaxLength(most) if value.len() > *most => {
            errors.push(FieldError::too_long(at, *most));
        }
        _ => {}
    }
}

/// What is wrong with a number, if anything is.
fn number(kind: &CheckKind, value: i64) -> Option<String> {
    match kind {
        CheckKind::Minimum(least) if value < *least => {
            Some(format!("must be greater than or equal to {least}"))
        }
        CheckKind::Maximum(most) if value > *most => {
            Some(format!("must be less than or equal to {most}"))
        }
        CheckKind::Range(low, high) if value < *low || value > *high => {
            Some(format!("must be between {low} and {high}, inclusive"))
        }
        CheckKind::Positive if value <= 0 => Some("must be greater than 0".to_owned()),
        _ => None,
    }
}

fn unique(name: &str, at: &str, list: &[Value], errors: &mut Vec<FieldError>) {
    for (index, item) in list.iter().enumerate() {
        let key = |v: &Value| {
            if name.is_empty() {
                Some(v.clone())
            } else {
                v.get(name).cloned()
            }
        };
        let Some(own) = key(item) else {
            continue;
        };
        // What has no key is not told apart by it.
        if is_empty(Some(&own)) {
            continue;
        }
        if list[..index]
            .iter()
            .any(|before| key(before).as_ref() == Some(&own))
        {
            let mut place = field::index(at, index);
            if !name.is_empty() {
                place = field::child(&place, name);
            }
            errors.push(FieldError::duplicate(place, own));
        }
    }
}

/// A choice between fields of an object.
fn choice(kind: &CheckKind, at: &str, fields: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let set = |names: &[String]| -> Vec<String> {
        let set = names.iter().filter(|name| !is_empty(fields.get(*name)));
        set.cloned().collect()
    };
    match kind {
        CheckKind::OneOf(names, detail) if set(names).is_empty() => {
            errors.push(FieldError::required(at, detail));
        }
        CheckKind::AtMostOneOf(names, detail) => {
            for name in set(names).iter().skip(1) {
                errors.push(FieldError::forbidden(field::child(at, name), detail));
            }
        }
        _ => {}
    }
}
