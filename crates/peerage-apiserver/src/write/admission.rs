//! Admission: what the server says about a write beyond the object itself. Built-in stages are listed here;
//! webhooks and policies will be further stages.

use peerage_core::Status;
use serde_json::Value;

use crate::authz::escalation;
use crate::call::Call;
use crate::error::ApiError;

/// Namespaces that are never deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Stages that may change the object. `old` is the current state, if there is one.
pub(crate) async fn mutate(
    call: &Call,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if &*call.resource().kind == "Namespace" {
        label_with_name(new);
    }
    // No admission in Kubernetes, but there too it comes after what changes the object and before validation.
    escalation::confirm(call, new, old).await
}

/// Stages that only say yes or no.
pub(crate) async fn validate(
    call: &Call,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if old.is_none() {
        namespace_is_open(call, new["metadata"]["name"].as_str().unwrap_or_default()).await?;
    }
    Ok(())
}

/// Whether an object may be deleted at all.
pub(crate) fn deletable(call: &Call, name: &str) -> Result<(), ApiError> {
    if &*call.resource().kind == "Namespace" && IMMORTAL.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(call.group_resource(), name, why).into());
    }
    Ok(())
}

/// A namespace carries its own name as a label.
fn label_with_name(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    if name.is_string() {
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
}

/// New objects need a namespace that is there and not on its way out.
async fn namespace_is_open(call: &Call, name: &str) -> Result<(), ApiError> {
    let namespace = call.info.namespace();
    if !call.resource().namespaced || namespace.is_empty() {
        return Ok(());
    }
    let Some(served) = call.api().resources.get("", "v1", "namespaces") else {
        return Ok(());
    };
    let Some(place) = &served.place else {
        return Ok(());
    };
    if place.cache.get(namespace).is_none() {
        call.fresh().await?;
    }
    let Some(found) = place.cache.get(namespace) else {
        return Err(ApiError::not_found(&served.resource, namespace));
    };
    let terminating = found
        .parse::<Value>()
        .is_some_and(|n| n["metadata"]["deletionTimestamp"].is_string());
    if terminating {
        return Err(Status::namespace_terminating(call.group_resource(), name, namespace).into());
    }
    Ok(())
}
