//! What is in a namespace: everything that discovery lists as namespaced and deletable, the merged discovery of all
//! servers, so that a kind that only a peer serves is emptied through that peer.
//!
//! Pods go first, since other objects may be needed for as long as they run. While anything of discovery is `Stale`
//! the namespace counts as not empty: its server may still have something in it.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use http::Method;
use serde_json::Value;

use super::JSON;
use crate::loopback::{Loopback, LoopbackError};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Collections that are emptied at once.
const AT_ONCE: usize = 8;
/// Objects of one collection that one round looks at.
const LIMIT: usize = 500;

/// One round's outcome.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Why it is not known what there may be.
    pub(super) undiscovered: Vec<String>,
    /// Why something could not be deleted.
    pub(super) failures: Vec<String>,
    /// Objects that are left, by `resource.group`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// Objects that have a finalizer, by its name.
    pub(super) finalizers: BTreeMap<String, usize>,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.undiscovered.is_empty() && self.failures.is_empty() && self.remaining.is_empty()
    }

    fn add(&mut self, collection: &Collection, outcome: Result<Left, LoopbackError>) {
        match outcome {
            Ok(left) => {
                if left.count > 0 {
                    self.remaining.insert(collection.name(), left.count);
                }
                for (finalizer, count) in left.finalizers {
                    *self.finalizers.entry(finalizer).or_default() += count;
                }
            }
            // What is not there or cannot be listed holds nothing that could be deleted.
            Err(error)
                if error
                    .code()
                    .is_some_and(|c| matches!(c.as_u16(), 404 | 405)) => {}
            Err(error) => self.failures.push(error.to_string()),
        }
    }
}

/// Deletes what can be deleted, and counts what is left.
pub(super) async fn delete(client: &Loopback, namespace: &str) -> Found {
    let mut found = Found::default();
    let collections = match collections(client, &mut found).await {
        Ok(collections) => collections,
        Err(error) => {
            found.undiscovered.push(error.to_string());
            return found;
        }
    };
    let (pods, others): (Vec<_>, Vec<_>) = collections
        .into_iter()
        .partition(|c| c.group.is_empty() && c.plural == "pods");
    for part in [pods, others] {
        let outcomes: Vec<_> = stream::iter(part)
            .map(|collection| collection.empty(client, namespace))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (collection, outcome) in outcomes {
            found.add(&collection, outcome);
        }
        if !found.remaining.is_empty() || !found.failures.is_empty() {
            break;
        }
    }
    found
}

/// A kind of object in a namespace.
struct Collection {
    group: String,
    version: String,
    plural: String,
    /// Whether it can be deleted as a whole.
    at_once: bool,
}

#[derive(Default)]
struct Left {
    count: usize,
    finalizers: BTreeMap<String, usize>,
}

impl Collection {
    /// As Kubernetes names it in conditions: `pods.`, `deployments.apps`.
    fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    fn path(&self, namespace: &str) -> String {
        let Self {
            group,
            version,
            plural,
            ..
        } = self;
        if group.is_empty() {
            format!("/api/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
        }
    }

    async fn empty(
        self,
        client: &Loopback,
        namespace: &str,
    ) -> (Self, Result<Left, LoopbackError>) {
        let left = self.try_empty(client, &self.path(namespace)).await;
        (self, left)
    }

    async fn try_empty(&self, client: &Loopback, path: &str) -> Result<Left, LoopbackError> {
        let there = self.list(client, path).await?;
        if there.is_empty() {
            return Ok(Left::default());
        }
        if self.at_once {
            client.send(Method::DELETE, path, JSON, None).await?;
        } else {
            for object in &there {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let one = format!("{path}/{name}");
                match client.send(Method::DELETE, &one, JSON, None).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        let mut left = Left::default();
        for object in self.list(client, path).await? {
            left.count += 1;
            for finalizer in object["metadata"]["finalizers"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let name = finalizer.as_str().unwrap_or_default().to_owned();
                *left.finalizers.entry(name).or_default() += 1;
            }
        }
        Ok(left)
    }

    async fn list(&self, client: &Loopback, path: &str) -> Result<Vec<Value>, LoopbackError> {
        let path = format!("{path}?limit={LIMIT}");
        let mut list = client.send(Method::GET, &path, PARTIAL, None).await?;
        Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    }
}

/// Every namespaced resource that can be listed and deleted, each once, in its group's preferred version.
async fn collections(
    client: &Loopback,
    found: &mut Found,
) -> Result<Vec<Collection>, LoopbackError> {
    let mut all = Vec::new();
    for path in ["/api", "/apis"] {
        let document = client.send(Method::GET, path, AGGREGATED, None).await?;
        for group in document["items"].as_array().into_iter().flatten() {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            let mut seen = BTreeSet::new();
            for version in group["versions"].as_array().into_iter().flatten() {
                of_version(name, version, &mut seen, &mut all, found);
            }
        }
    }
    Ok(all)
}

fn of_version(
    group: &str,
    document: &Value,
    seen: &mut BTreeSet<String>,
    all: &mut Vec<Collection>,
    found: &mut Found,
) {
    let version = document["version"].as_str().unwrap_or_default();
    if document["freshness"] == "Stale" {
        let gv = [group, version].join("/");
        found.undiscovered.push(format!(
            "unable to retrieve the complete list of server APIs: {gv}: stale GroupVersion discovery: {gv}"
        ));
    }
    for resource in document["resources"].as_array().into_iter().flatten() {
        let verbs = resource["verbs"].as_array();
        let has = |verb: &str| verbs.into_iter().flatten().any(|v| v == verb);
        let plural = resource["resource"].as_str().unwrap_or_default();
        let wanted = resource["scope"] == "Namespaced" && has("list") && has("delete");
        if wanted && seen.insert(plural.to_owned()) {
            all.push(Collection {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: plural.to_owned(),
                at_once: has("deletecollection"),
            });
        }
    }
}
