//! Namespaces as the place of other objects, and as objects of their own.

use peerage_core::Status;
use serde_json::Value;

use crate::call::Call;
use crate::error::ApiError;

/// Namespaces that are never deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Whether an object may be deleted at all.
pub(crate) fn deletable(call: &Call, name: &str) -> Result<(), ApiError> {
    if &*call.resource().kind == "Namespace" && IMMORTAL.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(call.group_resource(), name, why).into());
    }
    Ok(())
}

/// A namespace carries its own name as a label.
pub(super) fn label_with_name(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    if name.is_string() {
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
}

/// New objects need a namespace that is there and not on its way out.
pub(super) async fn is_open(call: &Call, new: &Value) -> Result<(), ApiError> {
    let namespace = call.info.namespace();
    if !call.resource().namespaced || namespace.is_empty() {
        return Ok(());
    }
    let Some(served) = call.api().resources.get("", "v1", "namespaces") else {
        return Ok(());
    };
    let Some(found) = super::find(call, ("", "v1", "namespaces"), namespace).await? else {
        return Err(ApiError::not_found(&served.resource, namespace));
    };
    if found["metadata"]["deletionTimestamp"].is_string() {
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        return Err(Status::namespace_terminating(call.group_resource(), name, namespace).into());
    }
    Ok(())
}
