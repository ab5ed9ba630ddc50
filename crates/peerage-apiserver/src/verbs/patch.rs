//! PATCH: JSON, merge and strategic merge patches. Each is applied to the current object again when somebody
//! else was faster.

use http::StatusCode;
use peerage_core::Status;
use peerage_core::media::{PatchType, patch_type};
use peerage_http::{Body, Response};
use peerage_objects::json::Node;
use peerage_objects::meta;
use peerage_objects::patch::{Patch, PatchError};
use peerage_objects::schema::{self, TypeId};
use serde_json::Value;

use super::update::Preconditions;
use crate::call::Call;
use crate::error::ApiError;
use crate::render;
use crate::write::options::FieldValidation;
use crate::write::{self, Change, WriteOptions, body};

/// No type of the table, which is read as anything at all.
pub(super) const UNTYPED: TypeId = TypeId(u32::MAX);

/// Patches an object or a part of it.
pub(crate) async fn patch(
    call: &Call,
    request: Body,
    change: Change,
) -> Result<Response, ApiError> {
    let (options, patch) = read(call, request).await?;
    let name = call.info.name();
    let committed = write::modify(call, &options, name, change, |old, current| {
        let patched = apply(call, &patch, old).map_err(|e| e.status())?;
        let wanted = body::Wanted::of(call.resource());
        let new = typed(
            call,
            wanted,
            &patch,
            &patched,
            old,
            options.field_validation,
        )?;
        meta::check_name(&new, name).map_err(|e| e.status())?;
        // Another uid is no precondition here but a field that cannot be changed.
        Preconditions::of(&new)?.check_version(call, current)?;
        Ok(new)
    })
    .await?;
    render::object(call, StatusCode::OK, &committed.object)
}

/// The options and the patch of a request. The form that its content type names comes first: what the options may be
/// depends on it.
pub(super) async fn read(call: &Call, request: Body) -> Result<(WriteOptions, Patch), ApiError> {
    let content_type = call
        .parts
        .headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let parse = match patch_type(content_type, true).map_err(Status::from)? {
        PatchType::Json => Patch::parse_json,
        PatchType::Merge => Patch::parse_merge,
        PatchType::StrategicMerge => Patch::parse_strategic,
        PatchType::Apply => {
            return Err(
                Status::generic(501, "this server does not implement server-side apply").into(),
            );
        }
    };
    let options = WriteOptions::parse(&call.query(), "PatchOptions")?;
    let bytes = body::read(call, request).await?;
    body::record(call, &bytes);
    let patch = parse(&bytes).map_err(|e| e.status())?;
    Ok((options, patch))
}

fn apply(call: &Call, patch: &Patch, old: &Value) -> Result<Value, PatchError> {
    let mut object = old.clone();
    let ty = call.resource().type_id.unwrap_or(UNTYPED);
    patch.apply(call.api().catalogue.types(), ty, &mut object)?;
    Ok(object)
}

/// What the patch made of the object, read like any body; what is wrong with it is the patch's fault.
pub(super) fn typed(
    call: &Call,
    wanted: body::Wanted<'_>,
    patch: &Patch,
    patched: &Value,
    old: &Value,
    validation: FieldValidation,
) -> Result<Value, ApiError> {
    // A strategic merge patch is applied to the type itself, which has no fields for another kind.
    if !matches!(patch, Patch::Strategic(_)) {
        same_type(patch, patched, old)?;
    }
    let mut decoded = body::decode(call, wanted, &Node::from_value(patched), Some(old))
        .map_err(|e| patch.undecodable(patched, &e))?;
    let mut faults = patch.strict().to_vec();
    faults.append(&mut decoded.strict);
    if validation == FieldValidation::Strict && !faults.is_empty() {
        let reason = schema::strict_error(&faults);
        return Err(patch.refused(patched, &reason).into());
    }
    body::warn(call, validation, &faults);
    Ok(body::named(wanted, decoded.value))
}

/// A patch changes an object, not what it is.
fn same_type(patch: &Patch, patched: &Value, old: &Value) -> Result<(), ApiError> {
    for field in ["apiVersion", "kind"] {
        if patched[field] != old[field] {
            let reason = format!("{field} cannot be changed from {}", old[field]);
            return Err(patch.refused(patched, &reason).into());
        }
    }
    Ok(())
}
