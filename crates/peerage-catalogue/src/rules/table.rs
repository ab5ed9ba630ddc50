//! The table of rules for one version: which rules each type and kind has there.

use std::sync::{Arc, OnceLock};

use peerage_objects::schema::{TypeId, Types};

use super::text::{self, Record, RuleTextError, Text, TypeRules};
use crate::resource::Resource;

/// The rules of one version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) version: (u32, u32),
    /// By type id.
    types: Vec<Option<Arc<TypeRules>>>,
}

static TEXT: &str = include_str!("../../data/rules.txt");

pub(super) fn parsed() -> Result<&'static Text, RuleTextError> {
    static PARSED: OnceLock<Text> = OnceLock::new();
    if let Some(text) = PARSED.get() {
        return Ok(text);
    }
    let text = text::read(TEXT)?;
    Ok(PARSED.get_or_init(|| text))
}

impl Table {
    /// Finds the rules of each type of a version.
    pub(crate) fn of(version: &str, types: &Types) -> Result<Table, RuleTextError> {
        let version = text::number(version).unwrap_or_default();
        let text = parsed()?;
        let mut by_type: Vec<Option<Arc<TypeRules>>> = vec![None; types.len()];
        for record in &text.types {
            for id in named(record, version, types) {
                if let Some(slot) = by_type.get_mut(id.0 as usize) {
                    let all = Arc::make_mut(slot.get_or_insert_default());
                    all.add(&record.rules);
                }
            }
        }
        Ok(Table {
            version,
            types: by_type,
        })
    }

    pub(crate) fn of_type(&self, id: TypeId) -> Option<&TypeRules> {
        self.types.get(id.0 as usize)?.as_deref()
    }

    /// Gives a resource its rules and the fields of its columns.
    pub(crate) fn complete(&self, resource: &mut Resource) -> Result<(), RuleTextError> {
        let name = format!("{}/{}", resource.api_version(), resource.kind);
        let record = parsed()?
            .kinds
            .iter()
            .find(|r| r.is_about(&name, self.version));
        let rules = record.map(|r| r.rules.clone()).unwrap_or_default();
        for column in &mut resource.columns {
            let cell = rules.cells.iter().find(|(name, _)| *name == column.name);
            column.path = match (cell, &*column.name) {
                (Some((_, path)), _) => Some(path.as_str().into()),
                (None, "Name") => Some("metadata.name".into()),
                (None, "Age" | "Created At") => Some("metadata.creationTimestamp".into()),
                _ => None,
            };
        }
        resource.rules = Arc::new(rules);
        Ok(())
    }
}

/// The types that a record is about.
fn named(record: &Record<TypeRules>, version: (u32, u32), types: &Types) -> Vec<TypeId> {
    if !record.pattern.contains('*') {
        let own = types.find(&record.pattern);
        return own
            .filter(|_| record.is_about(&record.pattern, version))
            .into_iter()
            .collect();
    }
    let about = types.iter().filter(|(_, schema)| {
        let name = schema.name.as_deref();
        name.is_some_and(|name| record.is_about(name, version))
    });
    about.map(|(id, _)| id).collect()
}
