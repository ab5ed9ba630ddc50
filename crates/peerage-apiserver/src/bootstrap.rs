//! What a fresh cluster has: namespaces, roles and bindings, priority levels and classes, the `kubernetes`
//! Service. Written at the start, each only if it is not there; nothing is ever removed, since what this
//! server does not know may be a newer server's.
//!
//! Differs: a kube-apiserver that starts deletes the APIServices that it does not know.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use peerage_catalogue::Catalogue;
use peerage_store::{Store, StoreError, StoreExt as _, WriteError};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::resources::Resources;

/// Pause after the store did not answer.
const RETRY: Duration = Duration::from_millis(300);
/// Objects written at once: a start should not take hundreds of the store's round trips.
const AT_ONCE: usize = 16;

/// Writes what is missing; returns once everything is there.
pub(crate) async fn ensure(store: &dyn Store, catalogue: &Catalogue, root: &str) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let objects = match catalogue.bootstrap(&now) {
        Ok(objects) => objects,
        Err(error) => {
            warn!(%error, "the catalogue's own objects cannot be read");
            return;
        }
    };
    let keyed = objects
        .into_iter()
        .filter_map(|object| Some((key_of(catalogue, root, &object)?, object)));
    let written: usize = futures::stream::iter(keyed)
        .map(|(key, object)| create_at_last(store, key, object, &now))
        .buffer_unordered(AT_ONCE)
        .fold(0, |written, new| async move { written + usize::from(new) })
        .await;
    if written > 0 {
        info!(objects = written, "wrote what a fresh cluster has");
    }
}

/// Creates one object, however often the store has to be asked; whether it was missing.
async fn create_at_last(store: &dyn Store, key: String, object: Value, now: &str) -> bool {
    loop {
        match create(store, &key, object.clone(), now).await {
            Ok(new) => return new,
            Err(error) => {
                warn!(%error, key, "could not write an object of a fresh cluster; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Where the object is stored, as the catalogue knows it.
fn key_of(catalogue: &Catalogue, root: &str, object: &Value) -> Option<String> {
    let (group, version) = split(object["apiVersion"].as_str()?);
    let resource = catalogue.kind(group, version, object["kind"].as_str()?)?;
    let place = Resources::prefix_of(resource, root)?;
    let name = object["metadata"]["name"].as_str()?;
    Some(
        match object["metadata"]["namespace"]
            .as_str()
            .filter(|_| resource.namespaced)
        {
            Some(namespace) => format!("{place}{namespace}/{name}"),
            None => format!("{place}{name}"),
        },
    )
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

async fn create(
    store: &dyn Store,
    key: &str,
    mut object: Value,
    now: &str,
) -> Result<bool, StoreError> {
    let meta = &mut object["metadata"];
    meta["uid"] = json!(uuid::Uuid::new_v4().to_string());
    meta["creationTimestamp"] = json!(now);
    match store.create(key.to_owned(), object.to_string(), 0).await {
        Ok(_) => Ok(true),
        Err(WriteError::Conflict { .. }) => Ok(false),
        Err(WriteError::Store(error)) => Err(error),
    }
}
