//! What the server itself writes into an object before it is admitted: metadata as `peerage-objects` keeps it, and
//! what the catalogue's rules say of the rest.

use jiff::Timestamp;
use peerage_catalogue::{Catalogue, Create, Resource};
use peerage_core::User;
use peerage_objects::meta::{self, Creation, Meta, MetaError};
use serde_json::Value;

/// Which part of an object a write is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The object itself: its status stays.
    Main,
    /// Its `status` subresource: everything else stays.
    Status,
    /// `finalize`, which alone changes the finalizers of a namespace's spec.
    Part,
    /// The marks of its deletion, which the server sets.
    Mark,
}

/// Fills in what a new object gets.
pub(crate) fn before_create(
    catalogue: &Catalogue,
    resource: &Resource,
    object: &mut Value,
    namespace: &str,
    user: &User,
) -> Result<(), MetaError> {
    let uid = uuid::Uuid::new_v4().to_string();
    let now = Timestamp::now();
    let creation = Creation {
        namespace: resource.namespaced.then_some(namespace),
        uid: &uid,
        now,
        random: rand::random(),
    };
    meta::prepare_create(object, creation)?;
    let now = peerage_objects::time::show(now);
    catalogue.prepare_create(resource, object, &Create { now: &now, user });
    Ok(())
}

/// Puts back what an update may not change. `object` is the new state, `current` the stored one, both in the
/// request's version.
pub(crate) fn before_update(
    catalogue: &Catalogue,
    resource: &Resource,
    object: &mut Value,
    current: &Value,
    change: Change,
) -> Result<(), MetaError> {
    if change == Change::Mark {
        return Ok(());
    }
    let namespace = Meta::of(current).namespace();
    meta::prepare_update(object, current, resource.namespaced.then_some(namespace))?;
    match change {
        Change::Status => catalogue.prepare_status_update(resource, object, current),
        Change::Part => {
            object["status"] = current["status"].clone();
            catalogue.apply_defaults(resource, object);
        }
        _ => catalogue.prepare_update(resource, object, current),
    }
    Ok(())
}

/// Whether a terminating object has nothing left to wait for, and goes with this write.
pub(crate) fn finished_terminating(object: &Value) -> bool {
    let meta = Meta::of(object);
    let spec = object["spec"]["finalizers"]
        .as_array()
        .filter(|_| object["kind"] == "Namespace");
    meta.deletion_timestamp().is_some()
        && meta.finalizers().is_empty()
        && meta.deletion_grace_period_seconds().unwrap_or(0) == 0
        && spec.is_none_or(|f| f.is_empty())
}
