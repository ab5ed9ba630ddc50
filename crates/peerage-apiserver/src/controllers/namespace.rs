//! Empties a namespace that is being deleted, and lets it go when nothing is left in it.
//!
//! It is driven by the watch of namespaces; one that is not empty yet is looked at again after a pause that grows.
//! What a namespace holds and how it is emptied is `content`'s, what is written in its status `conditions`'.
//!
//! Finalizers of other owners are never touched: neither the namespace's nor those of what is in it.

mod conditions;
mod content;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::leader::Leadership;
use crate::api::Api;
use crate::cache::KindCache;
use crate::loopback::{Loopback, LoopbackError};
use conditions::Conditions;

pub(super) const JSON: &str = "application/json";
/// Pauses before a namespace that is not empty is looked at again.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// The finalizer that this controller takes away.
const FINALIZER: &str = "kubernetes";

/// Runs until `stop`.
pub(super) async fn run(
    api: Arc<Api>,
    client: Loopback,
    lease: Leadership,
    stop: CancellationToken,
) {
    let Some(place) = api
        .resources
        .get("", "v1", "namespaces")
        .and_then(|s| s.place.clone())
    else {
        return;
    };
    let (leads, mut leading) = watch::channel(false);
    let emptying = async {
        while leading.wait_for(|leads| *leads).await.is_ok() {
            let mut still = leading.clone();
            tokio::select! {
                () = work(&place.cache, &client) => {}
                // The sender tells before it goes.
                _ = still.wait_for(|leads| !*leads) => {}
            }
        }
    };
    tokio::join!(lease.keep(leads, stop), emptying);
}

/// A namespace that has to be looked at.
struct Due {
    at: Instant,
    pause: Duration,
}

/// Empties namespaces for as long as this server leads.
async fn work(namespaces: &KindCache, client: &Loopback) {
    let mut changes = namespaces.changes();
    let mut queue: BTreeMap<String, Due> = BTreeMap::new();
    loop {
        changes.borrow_and_update();
        take_in(namespaces, &mut queue);
        let now = Instant::now();
        let due: Vec<String> = queue
            .iter()
            .filter(|(_, due)| due.at <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            match empty(client, &name).await {
                Ok(true) => drop(queue.remove(&name)),
                Ok(false) => put_off(&mut queue, &name),
                Err(error) if error.is_not_found() => drop(queue.remove(&name)),
                Err(error) => {
                    debug!(namespace = name, %error, "the namespace could not be emptied");
                    put_off(&mut queue, &name);
                }
            }
        }
        let next = queue.values().map(|due| due.at).min();
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = sleep_until(next) => {}
        }
    }
}

async fn sleep_until(next: Option<Instant>) {
    match next {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Takes in the namespaces that terminate, and forgets those that are gone.
fn take_in(namespaces: &KindCache, queue: &mut BTreeMap<String, Due>) {
    let (at, pause) = (Instant::now(), RETRY_MIN);
    let objects = namespaces.snapshot("", 0).objects;
    let terminating = objects.iter().filter_map(|object| {
        let namespace: Value = object.parse()?;
        (is_terminating(&namespace) && is_ours(&namespace)).then(|| object.name.to_string())
    });
    let mut before = std::mem::take(queue);
    for name in terminating {
        let due = before.remove(&name).unwrap_or(Due { at, pause });
        queue.insert(name, due);
    }
}

fn put_off(queue: &mut BTreeMap<String, Due>, name: &str) {
    if let Some(due) = queue.get_mut(name) {
        due.at = Instant::now() + due.pause;
        due.pause = (due.pause * 2).min(RETRY_MAX);
    }
}

fn is_terminating(namespace: &Value) -> bool {
    namespace["metadata"]["deletionTimestamp"].is_string()
}

/// Whether this controller has not let it go yet.
fn is_ours(namespace: &Value) -> bool {
    let finalizers = namespace["spec"]["finalizers"].as_array();
    finalizers.into_iter().flatten().any(|f| f == FINALIZER)
}

/// One round: delete everything, say what is left, and finalize when nothing is. Whether it is done.
async fn empty(client: &Loopback, name: &str) -> Result<bool, LoopbackError> {
    let path = format!("/api/v1/namespaces/{name}");
    let namespace = client.send(Method::GET, &path, JSON, None).await?;
    if !is_terminating(&namespace) || !is_ours(&namespace) {
        return Ok(true);
    }
    let found = content::delete(client, name).await;
    let conditions = Conditions::of(&found);
    conditions.write(client, &path).await?;
    if !found.is_empty() {
        debug!(
            namespace = name,
            ?found,
            "something is left in the namespace"
        );
        return Ok(false);
    }
    finalize(client, &path).await?;
    info!(
        namespace = name,
        "the namespace is empty and has been let go"
    );
    Ok(true)
}

/// Takes the `kubernetes` finalizer away, with which the namespace goes.
async fn finalize(client: &Loopback, path: &str) -> Result<(), LoopbackError> {
    let mut namespace = client.send(Method::GET, path, JSON, None).await?;
    let all = namespace["spec"]["finalizers"].as_array();
    let others: Vec<Value> = all
        .into_iter()
        .flatten()
        .filter(|f| **f != FINALIZER)
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
    Ok(())
}
