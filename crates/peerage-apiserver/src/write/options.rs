//! `CreateOptions`, `UpdateOptions`, `PatchOptions` as the query of a write gives them.

use peerage_core::Query;
use peerage_objects::field::FieldError;
use peerage_objects::meta;

use crate::error::ApiError;

/// What to do about fields that the schema does not know, or that come twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and warn.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// The options of a write.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
}

impl WriteOptions {
    /// Reads and checks the query. `kind` is the options' kind, which errors name.
    pub(crate) fn parse(query: &Query<'_>, kind: &str) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        let dry_run = dry_run(
            query.all("dryRun").map(str::to_owned).collect(),
            &mut errors,
        );
        // Checked, and not used further: nothing records owners of fields.
        let manager = query.first("fieldManager").unwrap_or_default();
        errors.extend(meta::validate_field_manager(manager, "fieldManager"));
        if kind == "PatchOptions" && query.contains("force") {
            errors.push(FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        let field_validation = match query.first("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    other,
                    ["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        if errors.is_empty() {
            return Ok(Self {
                dry_run,
                field_validation,
            });
        }
        Err(ApiError::invalid_options(kind, errors))
    }
}

/// `dryRun` may be `All`, any number of times.
pub(super) fn dry_run(values: Vec<String>, errors: &mut Vec<FieldError>) -> bool {
    if values.iter().all(|v| v == "All") {
        return !values.is_empty();
    }
    errors.push(FieldError::not_supported("dryRun", values, ["All"]));
    false
}
