//! What has to hold of an object before it is stored: names and metadata, what its schema demands, the rules of
//! its kind, and what an update may not change.

use peerage_objects::field::{self, FieldError};
use peerage_objects::meta::{self, NameLimits};
use peerage_objects::schema::{self, Checks};
use serde_json::Value;

use crate::authz;
use crate::call::Call;
use crate::error::ApiError;

/// Checks a new object.
pub(crate) fn create(call: &Call, object: &Value) -> Result<(), ApiError> {
    let resource = call.resource();
    let mut errors = meta::validate_create(
        object,
        resource.namespaced,
        NameLimits {
            rule: resource.rules.names,
            longest: resource.rules.longest_name,
        },
    );
    errors.extend(authz::validate::check(resource, object));
    field::add_new(
        &mut errors,
        call.api().catalogue.validate(resource, object, None),
    );
    // What the kind's own rules have said in their words the schema does not say again.
    field::add_new(&mut errors, content(call, object));
    refuse(call, object, errors)
}

/// Checks the new state of an object.
pub(crate) fn update(call: &Call, new: &Value, old: &Value) -> Result<(), ApiError> {
    let mut errors = meta::validate_update(new, old);
    errors.extend(authz::validate::check(call.resource(), new));
    field::add_new(
        &mut errors,
        call.api()
            .catalogue
            .validate(call.resource(), new, Some(old)),
    );
    field::add_new(&mut errors, content(call, new));
    refuse(call, new, errors)
}

fn content(call: &Call, object: &Value) -> Vec<FieldError> {
    let Some(ty) = call.resource().type_id else {
        return Vec::new();
    };
    schema::validate(
        call.api().catalogue.types(),
        ty,
        object,
        "",
        Checks::default(),
    )
}

fn refuse(call: &Call, object: &Value, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::invalid(call.resource(), name, errors))
}
