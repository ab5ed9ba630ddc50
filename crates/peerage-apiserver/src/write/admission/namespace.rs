//! Namespaces as the place of other objects, and as objects of their own.

use peerage_core::Status;
use peerage_store::{Revision, StoreExt as _};
use serde_json::Value;

use crate::cache::CachedObject;
use crate::call::Call;
use crate::error::ApiError;
use crate::write::admission::FindError;
use crate::write::{exists, unreadable_of};

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

/// A namespace as a write has seen it; the write counts only if it is still the same.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Its key in the store.
    pub(crate) key: String,
    pub(crate) revision: Revision,
}

/// The namespace of a new object as it is in the cache, or, where that is `stale`, in the store. None in cluster
/// scope.
///
/// Differs: kube-apiserver looks into its cache only, so that an object may come into a namespace after the last look
/// of the controller that empties it, and stay behind for ever.
pub(crate) async fn seen(call: &Call, new: &Value, stale: bool) -> Result<Option<Seen>, ApiError> {
    let namespace = call.info.namespace();
    let namespaces = call.api().resources.get("", "v1", "namespaces");
    let place = namespaces.and_then(|served| served.place.as_ref());
    let (true, Some(served), Some(place)) = (call.resource().namespaced, namespaces, place) else {
        return Ok(None);
    };
    let key = format!("{}{namespace}", place.prefix);
    let cached = place.cache.get(namespace).filter(|_| !stale);
    let object = match cached {
        Some(object) => object,
        None => match call.api().store.get(key.clone()).await {
            Ok(Some(kv)) => CachedObject::load(namespace.into(), &kv, Some(&place.stored)).into(),
            Ok(None) => return Err(ApiError::not_found(&served.resource, namespace)),
            Err(error) => return Err(call.store_error(&error)),
        },
    };
    if let Some(reason) = object.unreadable()
        && !IMMORTAL.contains(&namespace)
    {
        return Err(unreadable_of("namespaces", &place.prefix, &object, reason));
    }
    refuse_terminating(call, new, &object.parse().unwrap_or_default())?;
    Ok(Some(Seen {
        key,
        revision: object.revision,
    }))
}

fn refuse_terminating(call: &Call, new: &Value, namespace: &Value) -> Result<(), ApiError> {
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let namespace = call.info.namespace();
    Err(Status::namespace_terminating(call.group_resource(), name, namespace).into())
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
    match super::find(call, ("", "v1", "namespaces"), namespace).await {
        Ok(Some(found)) => refuse_terminating(call, new, &found),
        Ok(None) => Err(ApiError::not_found(&served.resource, namespace)),
        // It is there and stays, whatever it says.
        Err(FindError::Unreadable(_)) if IMMORTAL.contains(&namespace) => Ok(()),
        // Where there is one of that name nothing is made, whatever the namespace says.
        Err(FindError::Unreadable(error)) => Err(taken(call, new).await?.unwrap_or(error)),
        Err(FindError::Store(error)) => Err(error),
    }
}

/// 409, if the store has an object of the new one's name.
async fn taken(call: &Call, new: &Value) -> Result<Option<ApiError>, ApiError> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let key = format!("{}{}", call.place()?.prefix, call.name_of(name));
    let current = call.api().store.get(key).await;
    let current = current.map_err(|e| call.store_error(&e))?;
    Ok(current.map(|kv| exists(call, name, &kv)))
}
