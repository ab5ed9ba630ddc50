//! What a fresh cluster has: namespaces, roles and bindings, priority levels and classes, the `kubernetes` Service,
//! APIServices. Written at the start, each only if it is not there; nothing is ever removed, since what this server
//! does not know may be a newer server's.
//!
//! Several servers may start at once: what is not there is created under the condition that it is still not there,
//! and what is there is changed only as it was read. What an object has to become is `reconcile`'s and `facts`'.
//!
//! Differs: a kube-apiserver that starts deletes the APIServices that it does not know.

mod facts;
mod reconcile;
pub(crate) mod service;

use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use peerage_catalogue::Catalogue;
use peerage_store::{Store, StoreError, StoreExt as _, WriteError};
use serde_json::{Value, json};
use tracing::{info, warn};

pub(crate) use facts::Facts;

use crate::cache::Cache;
use crate::resources::Resources;

/// Pauses after the store did not answer.
const RETRY: Duration = Duration::from_millis(300);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Objects that are written at once.
const AT_ONCE: usize = 16;

/// What the objects are written with.
pub(crate) struct Bootstrap<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) cache: &'a Cache,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) root: &'a str,
    pub(crate) facts: &'a Facts,
}

/// Where an object is stored.
struct Place {
    prefix: String,
    name: String,
}

impl Bootstrap<'_> {
    /// Writes what is missing; returns once everything is there.
    pub(crate) async fn ensure(&self) {
        let now = now();
        let mut objects = match self.catalogue.bootstrap(&now) {
            Ok(objects) => objects,
            Err(error) => {
                warn!(%error, "the catalogue's own objects cannot be read");
                return;
            }
        };
        self.facts.fill_in(&mut objects);
        let written = stream::iter(objects)
            .map(|object| self.ensure_one(object, &now))
            .buffer_unordered(AT_ONCE)
            .filter(|new| std::future::ready(*new))
            .count()
            .await;
        if written > 0 {
            info!(objects = written, "wrote what a fresh cluster has");
        }
    }

    /// Whether anything had to be written.
    async fn ensure_one(&self, object: Value, now: &str) -> bool {
        let Some(place) = self.place_of(&object) else {
            return false;
        };
        let (mut pause, mut from_cache) = (RETRY, true);
        loop {
            match self.try_one(&object, &place, now, from_cache).await {
                Ok(written) => return written,
                Err(WriteError::Conflict { .. }) => from_cache = false,
                Err(WriteError::Store(error)) => {
                    if pause == RETRY {
                        let Place { prefix, name } = &place;
                        warn!(%error, "could not write {prefix}{name} of a fresh cluster; trying on");
                    }
                    from_cache = false;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
            }
        }
    }

    async fn try_one(
        &self,
        object: &Value,
        place: &Place,
        now: &str,
        from_cache: bool,
    ) -> Result<bool, WriteError> {
        let key = format!("{}{}", place.prefix, place.name);
        let (revision, current) = match self.current(place, from_cache).await? {
            None => {
                let object = identified(object.clone(), now);
                self.store.create(key, object.to_string(), 0).await?;
                return Ok(true);
            }
            Some(found) => found,
        };
        // One that cannot be read is never overwritten.
        let Some(wanted) = current.and_then(|current| reconcile::reconcile(object, &current))
        else {
            return Ok(false);
        };
        self.store
            .update(key, wanted.to_string(), revision, 0)
            .await?;
        Ok(true)
    }

    /// Revision and value of what is there; no value if it cannot be read.
    async fn current(
        &self,
        place: &Place,
        from_cache: bool,
    ) -> Result<Option<(i64, Option<Value>)>, StoreError> {
        if from_cache {
            let cached = self
                .cache
                .kind(&place.prefix)
                .and_then(|kind| kind.get(&place.name));
            return Ok(cached.map(|object| (object.revision, object.parse())));
        }
        let kv = self
            .store
            .get(format!("{}{}", place.prefix, place.name))
            .await?;
        Ok(kv.map(|kv| (kv.mod_revision, serde_json::from_slice(&kv.value).ok())))
    }

    /// Where the object is stored, as the catalogue knows it.
    fn place_of(&self, object: &Value) -> Option<Place> {
        place_of(self.catalogue, self.root, object)
    }
}

fn place_of(catalogue: &Catalogue, root: &str, object: &Value) -> Option<Place> {
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = catalogue.kind(group, version, object["kind"].as_str()?)?;
    let prefix = Resources::prefix_of(resource, root)?;
    let name = object["metadata"]["name"].as_str()?;
    let namespace = object["metadata"]["namespace"].as_str();
    let name = match namespace.filter(|_| resource.namespaced) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    Some(Place { prefix, name })
}

/// The object with what every new object gets.
fn identified(mut object: Value, now: &str) -> Value {
    object["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
    object["metadata"]["creationTimestamp"] = json!(now);
    object
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
