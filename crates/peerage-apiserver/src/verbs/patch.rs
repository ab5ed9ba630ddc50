//! PATCH: JSON, merge and strategic merge patches. Each is applied to the current object again when somebody
//! else was faster.

use http::StatusCode;
use peerage_core::Status;
use peerage_core::media::{PatchType, patch_type};
use peerage_http::{Body, Response};
use peerage_objects::json::Node;
use peerage_objects::meta;
use peerage_objects::patch::{Patch, PatchError};
use peerage_objects::schema::TypeId;
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
    let options = WriteOptions::parse(&call.query(), "PatchOptions")?;
    let patch = read(call, request).await?;
    let name = call.info.name();
    let committed = write::modify(call, &options, name, change, |old, current| {
        let patched = apply(call, &patch, old).map_err(|e| e.status())?;
        let new = typed(call, &patched, old, options.field_validation)?;
        meta::check_name(&new, name).map_err(|e| e.status())?;
        Preconditions::of(&new)?.check(call, old, current)?;
        Ok(new)
    })
    .await?;
    render::object(call, StatusCode::OK, &committed.object)
}

/// The patch in a body, of the form that its content type says.
pub(super) async fn read(call: &Call, request: Body) -> Result<Patch, ApiError> {
    let content_type = call
        .parts
        .headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let kind = patch_type(content_type, true).map_err(Status::from)?;
    let bytes = body::read(call, request).await?;
    let patch = match kind {
        PatchType::Json => Patch::parse_json(&bytes),
        PatchType::Merge => Patch::parse_merge(&bytes),
        PatchType::StrategicMerge => Patch::parse_strategic(&bytes),
        PatchType::Apply => {
            return Err(
                Status::generic(501, "this server does not implement server-side apply").into(),
            );
        }
    };
    patch.map_err(|e| e.status().into())
}

fn apply(call: &Call, patch: &Patch, old: &Value) -> Result<Value, PatchError> {
    let mut object = old.clone();
    let ty = call.resource().type_id.unwrap_or(UNTYPED);
    patch.apply(call.api().catalogue.types(), ty, &mut object)?;
    Ok(object)
}

/// What the patch made is read like any body.
fn typed(
    call: &Call,
    patched: &Value,
    old: &Value,
    validation: FieldValidation,
) -> Result<Value, ApiError> {
    let wanted = body::Wanted::of(call.resource());
    body::typed(
        call,
        wanted,
        &Node::from_value(patched),
        Some(old),
        validation,
    )
}
