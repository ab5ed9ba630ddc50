//! The table of rules for one version: which rules each type and kind has there.

use std::sync::{Arc, OnceLock};

use peerage_objects::schema::{TypeId, Types};

use super::text::{self, RuleTextError, Text, TypeRules};
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
        for (id, schema) in types.iter() {
            let Some(name) = &schema.name else {
                continue;
            };
            let mut all = TypeRules::default();
            for record in text.types.iter().filter(|r| r.is_about(name, version)) {
                all.defaults.extend_from_slice(&record.rules.defaults);
                all.nulls.extend_from_slice(&record.rules.nulls);
                all.omitted.extend_from_slice(&record.rules.omitted);
                all.checks.extend_from_slice(&record.rules.checks);
            }
            let none = all.defaults.is_empty() && all.nulls.is_empty() && all.checks.is_empty();
            if !(none && all.omitted.is_empty())
                && let Some(slot) = by_type.get_mut(id.0 as usize)
            {
                *slot = Some(Arc::new(all));
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
