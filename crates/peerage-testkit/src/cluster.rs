//! Several servers on one store, as tests need them.

use std::collections::BTreeMap;
use std::time::Duration;

use peerage_catalogue::Catalogue;
use peerage_core::discovery::ApiVersions;
use serde_json::{Value, json};

use crate::wire::{AGGREGATED, Client, Outgoing};

/// How long servers may take to know each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often they are asked.
const POLL: Duration = Duration::from_millis(50);

/// Waits until `holds` says so; panics with `what` when it does not in time.
pub async fn until<F: Future<Output = bool>>(what: &str, holds: impl FnMut() -> F) {
    until_within(PATIENCE, what, holds).await;
}

/// The same for what may take longer.
pub async fn until_within<F: Future<Output = bool>>(
    patience: Duration,
    what: &str,
    mut holds: impl FnMut() -> F,
) {
    let waited = tokio::time::timeout(patience, async {
        while !holds().await {
            tokio::time::sleep(POLL).await;
        }
    });
    assert!(waited.await.is_ok(), "not within {patience:?}: {what}");
}

/// Waits until a 1.34 server's documents have what only a newer peer serves, OpenAPI's too.
pub async fn knows_peer_apis(client: &Client) {
    serves_group(client, "storagemigration.k8s.io").await;
    let document = Outgoing::new("GET", "/openapi/v3/apis/storagemigration.k8s.io/v1");
    until("the peer's OpenAPI document is there", || async {
        let answer = client.send(&document).await;
        answer.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
}

/// Waits until a server's documents have a group.
pub async fn serves_group(client: &Client, group: &str) {
    let request = Outgoing::get_as("/apis", AGGREGATED);
    until(&format!("{group} is in /apis"), || async {
        let answer = client.send(&request).await;
        answer.is_ok_and(|answer| {
            let items = answer.json();
            let items = items["items"].as_array().cloned().unwrap_or_default();
            items.iter().any(|item| item["metadata"]["name"] == group)
        })
    })
    .await;
}

/// What a server of a version from before aggregated discovery has instead: legacy documents, by path.
pub fn legacy_documents(catalogue: &Catalogue) -> BTreeMap<String, Value> {
    let (core, apis) = (catalogue.core_discovery(), catalogue.groups_discovery());
    let core_versions = ApiVersions::new(vec!["v1".to_owned()], "10.0.0.1:6443");
    let mut documents = BTreeMap::from([
        ("/api".to_owned(), json!(core_versions)),
        ("/apis".to_owned(), json!(apis.to_legacy())),
    ]);
    for group in core.items.iter().chain(&apis.items) {
        for version in &group.versions {
            let path = match group.name() {
                "" => format!("/api/{}", version.version),
                name => format!("/apis/{name}/{}", version.version),
            };
            documents.insert(path, json!(group.to_legacy_resources(version, |_| None)));
        }
    }
    documents
}
