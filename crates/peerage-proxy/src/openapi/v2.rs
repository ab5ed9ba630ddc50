//! The one document of OpenAPI version 2, merged from this server's and the peers' that describe more.
//!
//! Made when it is first asked for and kept until a schema changes anywhere. What this server has wins, for a front what
//! the newest server has; a peer adds the paths and definitions that are missing. A peer whose document cannot be had is left out: the answer is then
//! good for everything else, and not kept.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::gzip;
use crate::peer::Peer;
use crate::poll::{Fetch, Fetched, fetch, what};
use crate::shared::Shared;

/// Path of the document.
pub(crate) const PATH: &str = "/openapi/v2";

/// The document of a server with thousands of custom resources is some tens of megabytes.
const SIZE_LIMIT: usize = 64 << 20;

/// Making the document takes a busy server several seconds.
const DEADLINE: Duration = Duration::from_secs(20);

/// The merged document and its tag.
#[derive(Clone, Debug)]
pub(crate) struct Merged {
    pub(crate) bytes: Bytes,
    pub(crate) etag: HeaderValue,
    /// The same bytes, compressed.
    pub(crate) packed: Option<Arc<[u8]>>,
    /// Whether everybody who was asked answered.
    complete: bool,
}

/// The last merged document.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    key: u64,
    merged: Arc<OnceCell<Option<Merged>>>,
}

impl Cache {
    /// The merged document of the local server and these peers, or of these peers alone; `None` if the first cannot be
    /// read. Built once however many ask.
    pub(crate) async fn get(
        &self,
        shared: &Shared,
        local: Option<&Bytes>,
        mut peers: Vec<Arc<Peer>>,
    ) -> Option<Merged> {
        peers.retain(|peer| peer.link().is_some() && !peer.health.is_open());
        let cell = self.cell(key(local, &peers));
        let merged = cell
            .get_or_init(|| build(shared, local.cloned(), peers))
            .await
            .clone();
        if merged.as_ref().is_none_or(|merged| !merged.complete) {
            self.forget(&cell);
        }
        merged
    }

    /// Has the next request build anew.
    fn forget(&self, cell: &Arc<OnceCell<Option<Merged>>>) {
        if let Ok(mut slot) = self.0.lock()
            && Arc::ptr_eq(&slot.merged, cell)
        {
            slot.merged = Arc::default();
        }
    }

    fn cell(&self, key: u64) -> Arc<OnceCell<Option<Merged>>> {
        let Ok(mut slot) = self.0.lock() else {
            return Arc::default();
        };
        if slot.key != key {
            *slot = Slot {
                key,
                merged: Arc::default(),
            };
        }
        slot.merged.clone()
    }
}

/// Changes with any schema of the local server or of a peer: version 3's index has a hash of each. What a peer without
/// one serves is told by its discovery.
fn key(local: Option<&Bytes>, peers: &[Arc<Peer>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    local.hash(&mut hasher);
    for peer in peers {
        peer.id.hash(&mut hasher);
        let documents = peer.documents();
        let served = documents.map(|heard| Arc::as_ptr(&heard.served) as usize);
        let index = peer.openapi().filter(|it| !it.index.paths.is_empty());
        let without_index = served.filter(|_| index.is_none());
        without_index.hash(&mut hasher);
        for (path, entry) in index.iter().flat_map(|it| &it.index.paths) {
            (path, &entry.server_relative_url).hash(&mut hasher);
        }
    }
    hasher.finish()
}

async fn build(shared: &Shared, local: Option<Bytes>, peers: Vec<Arc<Peer>>) -> Option<Merged> {
    let asked = peers.len();
    let own_id = shared.snapshot.load().view.local_id().clone();
    let mut documents = Vec::new();
    for peer in peers {
        if let Some(document) = read(shared, &own_id, &peer).await {
            documents.push(document);
        }
    }
    let complete = documents.len() == asked;
    documents.splice(0..0, local);
    let merge = tokio::task::spawn_blocking(move || {
        let bytes = merge(&documents)?;
        let etag = HeaderValue::from_str(&peerage_core::etag::etag_of(&bytes)).ok()?;
        let packed = gzip::openapi(&bytes);
        Some(Merged {
            bytes,
            etag,
            packed,
            complete,
        })
    });
    merge.await.ok()?
}

async fn read(shared: &Shared, own_id: &str, peer: &Peer) -> Option<Bytes> {
    let link = peer.link()?;
    let what = Fetch {
        accept: Some("application/json"),
        deadline: Instant::now() + DEADLINE,
        size_limit: SIZE_LIMIT,
        ..what(shared, own_id, PATH)
    };
    match fetch(&link.upstream, what).await {
        Ok(Fetched::Document { bytes, .. }) => Some(bytes),
        _ => None,
    }
}

/// The first document with what the others have beside it. One that is alone stays as it was written.
fn merge(documents: &[Bytes]) -> Option<Bytes> {
    let (first, others) = documents.split_first()?;
    let mut merged: Map<String, Value> = serde_json::from_slice(first).ok()?;
    if others.is_empty() {
        return Some(first.clone());
    }
    for other in others {
        let Ok(mut other) = serde_json::from_slice::<Map<String, Value>>(other) else {
            continue;
        };
        for part in ["paths", "definitions"] {
            let Some(Value::Object(theirs)) = other.remove(part) else {
                continue;
            };
            let ours = merged
                .entry(part)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(ours) = ours {
                for (name, value) in theirs {
                    ours.entry(name).or_insert(value);
                }
            }
        }
    }
    serde_json::to_vec(&merged).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn peers_add_what_is_missing_and_change_nothing() {
        let first = br#"{"swagger":"2.0","paths":{"/a":1},"definitions":{"A":"ours"}}"#;
        let documents = [
            Bytes::from_static(first),
            Bytes::from_static(
                br#"{"swagger":"x","paths":{"/a":2,"/b":2},"definitions":{"A":"theirs","B":1}}"#,
            ),
            Bytes::from_static(b"no json"),
            Bytes::from_static(br#"{"paths":7,"definitions":{"C":1}}"#),
        ];
        let merged: Value = serde_json::from_slice(&merge(&documents).unwrap()).unwrap();
        let expected = serde_json::json!({"swagger":"2.0","paths":{"/a":1,"/b":2},"definitions":{"A":"ours","B":1,"C":1}});
        assert_eq!(merged, expected);
        assert_eq!(merge(&documents[2..]), None, "the first is what counts");
        assert_eq!(merge(&documents[..1]).unwrap(), &first[..]);
        assert_eq!(merge(&[]), None);
    }
}
