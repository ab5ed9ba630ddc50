//! Whether all that the table of rules names is there: kinds, types, fields, functions.

use std::sync::Arc;

use peerage_objects::schema::{SchemaKind, TypeId, Types};

use super::Rules;
use super::functions;
use super::path::{FieldPath, Step};
use super::table::parsed;
use super::text::{CheckRule, DefaultRule, RuleTextError, TypeRules};
use crate::catalogue::Catalogue;

/// Later than every version, so that every rule counts.
const LAST: (u32, u32) = (u32::MAX, u32::MAX);

/// What the table names and none of the catalogues has. Empty is how it should be.
pub fn unknown(catalogues: &[Catalogue]) -> Result<Vec<String>, RuleTextError> {
    let text = parsed()?;
    let mut unknown = Vec::new();
    for record in &text.types {
        let named = |name: &Arc<str>| record.is_about(name, LAST);
        let mut places = Vec::new();
        for types in catalogues.iter().map(Catalogue::types) {
            let own = types
                .iter()
                .filter(|(_, s)| s.name.as_ref().is_some_and(named));
            places.extend(own.map(|(id, _)| (types, id)));
        }
        let of = format!("type {}", record.pattern);
        missing(
            &of,
            &places,
            &paths(&record.rules),
            &calls(&record.rules),
            &mut unknown,
        );
    }
    for record in &text.kinds {
        let mut places = Vec::new();
        for catalogue in catalogues {
            for resource in catalogue.resources() {
                let name = format!("{}/{}", resource.api_version(), resource.kind);
                if let Some(id) = resource.type_id.filter(|_| record.is_about(&name, LAST)) {
                    places.push((catalogue.types(), id));
                }
            }
        }
        let of = format!("kind {}", record.pattern);
        missing(
            &of,
            &places,
            &kind_paths(&record.rules),
            &kind_calls(&record.rules),
            &mut unknown,
        );
    }
    Ok(unknown)
}

fn missing(
    of: &str,
    places: &[(&Types, TypeId)],
    paths: &[&FieldPath],
    calls: &[&str],
    unknown: &mut Vec<String>,
) {
    if places.is_empty() {
        unknown.push(of.to_owned());
        return;
    }
    for path in paths {
        if !places
            .iter()
            .any(|(types, id)| reaches(types, *id, path.steps()))
        {
            unknown.push(format!("{of}: {}", path.as_str()));
        }
    }
    for name in calls {
        if !functions::exists(name) {
            unknown.push(format!("{of}: call {name}"));
        }
    }
}

fn paths(rules: &TypeRules) -> Vec<&FieldPath> {
    let mut paths: Vec<&FieldPath> = rules.nulls.iter().collect();
    for rule in &rules.defaults {
        if let DefaultRule::Value { path, when, .. } = rule {
            paths.push(path);
            paths.extend(when.paths());
        }
    }
    for rule in &rules.checks {
        if let CheckRule::Check(check) = rule {
            paths.extend(&check.path);
            paths.extend(check.when.paths());
        }
    }
    paths
}

fn calls(rules: &TypeRules) -> Vec<&str> {
    let defaults = rules.defaults.iter().filter_map(|rule| match rule {
        DefaultRule::Call(name) => Some(&**name),
        DefaultRule::Value { .. } => None,
    });
    let checks = rules.checks.iter().filter_map(|rule| match rule {
        CheckRule::Call(name) => Some(&**name),
        CheckRule::Check(_) => None,
    });
    defaults.chain(checks).collect()
}

fn kind_paths(rules: &Rules) -> Vec<&FieldPath> {
    let selectors = rules.field_selectors.iter().map(|s| &s.path);
    let set = rules.set_on_create.iter().map(|(path, _)| path);
    let cells = rules.cells.iter().map(|(_, path)| path);
    selectors
        .chain(set)
        .chain(cells)
        .chain(&rules.status_write_keeps)
        .collect()
}

fn kind_calls(rules: &Rules) -> Vec<&str> {
    let names = rules.create_functions.iter().chain(&rules.update_functions);
    names.map(|name| &**name).collect()
}

/// Whether a type has the field that a path names.
fn reaches(types: &Types, id: TypeId, steps: &[Step]) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return true;
    };
    match (step, &types.get(id).kind) {
        (_, SchemaKind::Any) => true,
        (Step::Field(name), SchemaKind::Struct(fields)) => {
            let property = fields.properties.get(&**name);
            property.is_some_and(|p| reaches(types, p.ty, rest))
        }
        (Step::Field(_) | Step::Each, SchemaKind::Map { values }) => reaches(types, *values, rest),
        (Step::Each, SchemaKind::Array { items, .. }) => reaches(types, *items, rest),
        _ => false,
    }
}
