//! Between the version that a request speaks and the one that is stored.

use peerage_objects::meta;
use serde_json::Value;

use super::unreadable;
use crate::cache::{CachedObject, Content};
use crate::call::Call;
use crate::error::ApiError;

/// A stored object in the version of the request, with its `resourceVersion`.
pub(crate) fn from_stored(call: &Call, object: &CachedObject) -> Result<Value, ApiError> {
    let bytes = match &object.content {
        Content::Json(json) => json.bytes(),
        Content::Unreadable { reason, .. } => return Err(unreadable(call, object, reason)),
    };
    let stored: Value =
        serde_json::from_slice(bytes).map_err(|e| unreadable(call, object, &e.to_string()))?;
    let mut value = call.api().catalogue.from_stored(call.resource(), stored);
    if object.revision > 0 {
        meta::set_resource_version(&mut value, &object.revision.to_string());
    }
    Ok(value)
}

/// An object of the request's version as it is stored.
pub(crate) fn to_stored(call: &Call, mut object: Value) -> Value {
    let fields = meta::meta_mut(&mut object);
    fields.remove("resourceVersion");
    fields.remove("selfLink");
    call.api().catalogue.to_stored(call.resource(), object)
}
