//! Empties a namespace that is being deleted, and lets it go when nothing is left in it.
//!
//! What may be in a namespace is what discovery lists, the merged one of all servers: a kind that only a peer
//! serves is emptied through it. While anything of discovery is `Stale` the namespace stays.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::leader::{Leadership, RENEW};
use crate::api::Api;
use crate::loopback::{Loopback, LoopbackError};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const JSON: &str = "application/json";

/// What a namespace may hold: path of a collection below `/namespaces/NAME/`.
struct Collection {
    base: String,
    plural: String,
}

/// Runs until `stop`.
pub(super) async fn run(
    api: Arc<Api>,
    client: Loopback,
    mut lease: Leadership,
    stop: CancellationToken,
) {
    let Some(place) = api
        .resources
        .get("", "v1", "namespaces")
        .and_then(|s| s.place.clone())
    else {
        return;
    };
    let mut changes = place.cache.changes();
    loop {
        changes.borrow_and_update();
        if lease.hold().await {
            let terminating: Vec<String> = place
                .cache
                .snapshot("", 0)
                .objects
                .iter()
                .filter(|n| is_terminating(n))
                .map(|n| n.name.to_string())
                .collect();
            for name in terminating {
                if let Err(error) = empty(&client, &name).await {
                    debug!(namespace = name, %error, "the namespace is not empty yet");
                }
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RENEW) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn is_terminating(namespace: &crate::cache::CachedObject) -> bool {
    namespace
        .parse::<Value>()
        .is_some_and(|n| n["metadata"]["deletionTimestamp"].is_string())
}

/// One round: delete everything, and finalize when a look finds nothing more.
async fn empty(client: &Loopback, name: &str) -> Result<(), LoopbackError> {
    let (collections, certain) = collections(client).await?;
    let mut left = 0;
    for collection in collections {
        let path = format!(
            "{}/namespaces/{name}/{}",
            collection.base, collection.plural
        );
        let there = client
            .send(Method::GET, &format!("{path}?limit=1"), JSON, None)
            .await?;
        if there["items"].as_array().is_none_or(|i| i.is_empty()) {
            continue;
        }
        client.send(Method::DELETE, &path, JSON, None).await?;
        let there = client
            .send(Method::GET, &format!("{path}?limit=1"), JSON, None)
            .await?;
        left += there["items"].as_array().map_or(0, Vec::len);
    }
    if left > 0 || !certain {
        debug!(
            namespace = name,
            left, certain, "something is left in the namespace"
        );
        return Ok(());
    }
    finalize(client, name).await
}

/// Every namespaced resource that can be listed and deleted, and whether discovery is complete.
async fn collections(client: &Loopback) -> Result<(Vec<Collection>, bool), LoopbackError> {
    let mut found = Vec::new();
    let mut certain = true;
    for (path, prefix) in [("/api", "/api"), ("/apis", "/apis")] {
        let document = client.send(Method::GET, path, AGGREGATED, None).await?;
        for group in document["items"].as_array().into_iter().flatten() {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in group["versions"].as_array().into_iter().flatten().take(1) {
                certain &= version["freshness"] != "Stale";
                let version_name = version["version"].as_str().unwrap_or_default();
                let base = if name.is_empty() {
                    format!("{prefix}/{version_name}")
                } else {
                    format!("{prefix}/{name}/{version_name}")
                };
                found.extend(deletable(version).map(|plural| Collection {
                    base: base.clone(),
                    plural,
                }));
            }
        }
    }
    Ok((found, certain))
}

fn deletable(version: &Value) -> impl Iterator<Item = String> {
    let has = |r: &Value, verb: &str| {
        r["verbs"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|v| v == verb)
    };
    version["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(move |r| r["scope"] == "Namespaced" && has(r, "list") && has(r, "deletecollection"))
        .filter_map(|r| r["resource"].as_str().map(str::to_owned))
}

/// Takes the `kubernetes` finalizer away, with which the namespace goes.
async fn finalize(client: &Loopback, name: &str) -> Result<(), LoopbackError> {
    let path = format!("/api/v1/namespaces/{name}");
    let mut namespace = client.send(Method::GET, &path, JSON, None).await?;
    let others: Vec<Value> = namespace["spec"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|f| *f != "kubernetes")
        .cloned()
        .collect();
    namespace["spec"]["finalizers"] = json!(others);
    client
        .send(
            Method::PUT,
            &format!("{path}/finalize"),
            JSON,
            Some(namespace),
        )
        .await?;
    info!(
        namespace = name,
        "the namespace is empty and has been let go"
    );
    Ok(())
}
